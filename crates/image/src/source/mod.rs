//! Where an image comes from: a directory, an archive, a registry. All give the same: documents and layers, by digest
//! where there is one. What they give is checked by whoever asked.

mod archive;
mod layout;
mod registry;

pub use registry::Access;

use crate::error::ImageError;
use crate::oci::{self, Descriptor, Document, Index, Manifest};
use crate::reference::Reference;
use crate::unpack::Most;
use cofferdam_model::Digest;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a person may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Path(PathBuf),
    Registry(Reference),
}

/// A layer, as its source knows it.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    /// A member of an archive, where there is no digest.
    pub(crate) member: Option<String>,
    pub(crate) descriptor: Option<Descriptor>,
}

/// The documents of the image that was chosen.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) manifest: Option<Digest>,
    pub(crate) config: Vec<u8>,
    pub(crate) layers: Vec<Layer>,
}

pub trait Source {
    /// Chooses the image that is called so, for this machine.
    #[doc(hidden)]
    fn find(&mut self, wanted: Option<&str>) -> Result<FoundImage, ImageError>;

    /// The bytes of a layer.
    #[doc(hidden)]
    fn layer(&mut self, layer: &LayerOf) -> Result<Box<dyn Read + '_>, ImageError>;
}

/// Nothing that others make or look into.
#[derive(Debug)]
pub struct FoundImage(pub(crate) Found);
#[derive(Debug)]
pub struct LayerOf(pub(crate) Layer);

/// Opens what is there. `scratch` is a directory for what has to be unpacked to be read.
pub fn open(
    place: &Place,
    access: Access,
    scratch: &Path,
    most: Most,
) -> Result<Box<dyn Source>, ImageError> {
    match place {
        Place::Registry(reference) => Ok(Box::new(registry::Registry::new(reference.clone(), access)?)),
        Place::Path(path) if path.is_dir() => Ok(Box::new(layout::Layout::open(path)?)),
        Place::Path(path) => Ok(Box::new(archive::Archive::open(path, scratch, most)?)),
    }
}

/// Whoever has blobs by their digests.
trait Blobs {
    fn blob(&mut self, of: &Descriptor) -> Result<Box<dyn Read + '_>, ImageError>;

    /// A document: small, whole, and what its digest says.
    fn document(&mut self, of: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let expected = of.digest()?;
        let part = || format!("the document {expected}");
        if of.size > oci::DOCUMENT {
            return Err(ImageError::Size { part: part(), said: of.size });
        }
        let mut bytes = Vec::new();
        self.blob(of)?
            .take(oci::DOCUMENT + 1)
            .read_to_end(&mut bytes)
            .map_err(ImageError::io("read the image"))?;
        if bytes.len() as u64 != of.size {
            return Err(ImageError::Size { part: part(), said: of.size });
        }
        let found = cofferdam_seal::digest(&bytes);
        match found == expected {
            true => Ok(bytes),
            false => Err(ImageError::Digest { part: "a document".into(), expected, found }),
        }
    }
}

/// From an index, through indexes within it, to the documents of one image.
fn resolve(blobs: &mut dyn Blobs, index: Index, wanted: Option<&str>) -> Result<Found, ImageError> {
    let mut chosen = index.choose(wanted)?.clone();
    for _ in 0..4 {
        let bytes = blobs.document(&chosen)?;
        match serde_json::from_slice(&bytes).map_err(ImageError::format("manifest"))? {
            Document::Index(index) => chosen = index.choose(None)?.clone(),
            Document::Manifest(manifest) => return of_manifest(blobs, manifest, chosen.digest()?),
        }
    }
    Err(ImageError::Format { part: "index", what: "indexes lie too deep within each other".into() })
}

fn of_manifest(blobs: &mut dyn Blobs, manifest: Manifest, digest: Digest) -> Result<Found, ImageError> {
    let kind = &manifest.config.media_type;
    if !kind.is_empty() && !kind.contains("image.config") && !kind.contains("container.image") {
        let what = format!(
            "it is of something else than a container: {}",
            kind.chars().take(100).collect::<String>()
        );
        return Err(ImageError::Format { part: "manifest", what });
    }
    let config = blobs.document(&manifest.config)?;
    let layers =
        manifest.layers.into_iter().map(|one| Layer { member: None, descriptor: Some(one) }).collect();
    Ok(Found { manifest: Some(digest), config, layers })
}

#[cfg(test)]
mod tests;
