//! An image from its source to a tree of files: all documents and layers verified, in order, within bounds.

use crate::error::ImageError;
use crate::fit;
use crate::oci::{self, Config};
use crate::source::{Found, FoundImage, LayerOf, Source};
use crate::unpack::{self, Expected, Most, Taken, Tree};
use cofferdam_model::{Digest, ImageAccount, ImageConfig, ImageNotes};
use std::path::{Path, PathBuf};

/// An image that was unpacked.
#[derive(Debug)]
pub struct Imported {
    /// Of its config: what it is known by.
    pub digest: Digest,
    /// Of the manifest, where its source has one.
    pub manifest: Option<Digest>,
    pub architecture: String,
    pub config: ImageConfig,
    pub layers: usize,
    pub files: u64,
    pub bytes: u64,
    pub notes: ImageNotes,
    /// Whether the files have the owners that the image says.
    pub owners: bool,
    /// Who commands are, and where that is at home.
    pub user: String,
    pub home: PathBuf,
    /// Who its own command is to be.
    pub runs_as: Option<ImageAccount>,
}

/// So many layers an image may have.
const LAYERS: usize = 500;

/// Unpacks the image that is called so to `into`, an empty directory.
pub fn import(
    source: &mut dyn Source,
    wanted: Option<&str>,
    into: &Path,
    most: Most,
) -> Result<Imported, ImageError> {
    let FoundImage(Found { manifest, config: text, layers }) = source.find(wanted)?;
    let config: Config = serde_json::from_slice(&text).map_err(ImageError::format("config"))?;
    if config.architecture != oci::architecture() || config.os != "linux" {
        let have = format!("{}/{}", config.os, config.architecture);
        return Err(ImageError::Platform { wanted: format!("linux/{}", oci::architecture()), have });
    }
    let diffs =
        config.rootfs.diff_ids.iter().map(|id| oci::digest(id)).collect::<Result<Vec<Digest>, _>>()?;
    if diffs.len() != layers.len() || layers.len() > LAYERS {
        let what = format!("it has {} layers, and its config tells of {}", layers.len(), diffs.len());
        return Err(ImageError::Format { part: "manifest", what });
    }
    let opening = |errno: rustix::io::Errno| ImageError::Io {
        doing: format!("open {}", into.display()),
        source: errno.into(),
    };
    let tree = Tree::open(into).map_err(opening)?;
    let mut taken = Taken::default();
    let count = layers.len();
    for (layer, diff) in layers.into_iter().zip(diffs) {
        let digest = layer.descriptor.as_ref().map(|one| one.digest()).transpose()?;
        let size = layer.descriptor.as_ref().map(|one| one.size);
        let mut bytes = source.layer(&LayerOf(layer))?;
        unpack::layer(&tree, &mut bytes, &Expected { digest, size, diff }, &mut taken, most)?;
    }
    let run = config.config.unwrap_or_default();
    let account = fit::fit(&tree, run.working_dir.as_deref())?;
    let runs_as = run.user.as_deref().map(|user| fit::runs_as(&tree, user)).transpose()?.flatten();
    Ok(Imported {
        digest: cofferdam_seal::digest(&text),
        manifest,
        architecture: config.architecture,
        config: ImageConfig {
            env: run.env.unwrap_or_default(),
            entrypoint: run.entrypoint.unwrap_or_default(),
            cmd: run.cmd.unwrap_or_default(),
            workdir: run.working_dir.filter(|dir| !dir.is_empty()),
            user: run.user.filter(|user| !user.is_empty()),
        },
        layers: count,
        files: taken.files,
        bytes: taken.bytes,
        notes: taken.notes,
        owners: tree.owners,
        user: account.name,
        home: account.home,
        runs_as,
    })
}
