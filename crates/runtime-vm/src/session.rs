//! What a session's own disk has on it: the work dir, what was asked to be mounted,
//! and the layers beneath what is changed now. Each at its own path, with the owners that the inside knows.

use crate::image::{Image, Kept, Taken, Tree};
use crate::kernel::refused;
use cofferdam_inside::BASE;
use cofferdam_model::RawPath;
use cofferdam_runtime::{RuntimeError, SandboxSpec};
use cofferdam_runtime_process::{Look, owner_of_first};
use std::path::{Path, PathBuf};

/// The disk, and which of its paths are to be shown at their place.
pub(crate) struct Session {
    pub(crate) disk: Kept,
    pub(crate) show: Vec<RawPath>,
}

pub(crate) fn disk(spec: &SandboxSpec, look: &Look) -> Result<Session, RuntimeError> {
    if let Some(mount) = look.mounts.iter().find(|mount| mount.writable) {
        let what = format!(
            "{} cannot be mounted writable: a machine shares no file with the host",
            mount.source.display()
        );
        return Err(refused(what, "mount it read-only, work in the work dir, or use `--isolation process`"));
    }
    let mut tree = Tree::new();
    let mut show: Vec<PathBuf> = Vec::new();
    let owner = Some((look.workdir_owner, owner_of_first()));
    let mut take = |tree: &mut Tree, path: &Path, hidden: Vec<PathBuf>| {
        show.push(path.to_owned());
        let how = Taken { owner, hidden: hidden.into_iter().collect(), attributes: true, ..Taken::default() };
        tree.take(path, path, &how).map_err(RuntimeError::io(format!("look at {}", path.display())))
    };
    // Outer ones first: what lies in another is found in it.
    let mut wanted: Vec<(&Path, Vec<PathBuf>)> = vec![(&look.workdir, look.hidden.clone())];
    wanted.extend(look.mounts.iter().map(|mount| (mount.source.as_path(), Vec::new())));
    wanted.sort_by_key(|(path, _)| path.components().count());
    for (path, hidden) in wanted {
        take(&mut tree, path, hidden)?;
    }
    let by_root = rustix::process::geteuid().is_root();
    let mark = if by_root { "trusted.overlay.opaque" } else { "user.overlay.opaque" };
    for (at, layer) in spec.base.layers.iter().enumerate() {
        let how = Taken { owner, attributes: true, layer: Some(mark), ..Taken::default() };
        let to = Path::new(BASE).join(at.to_string());
        tree.take(&to, layer, &how).map_err(RuntimeError::io(format!("look at {}", layer.display())))?;
    }
    let image = Image::of(&tree).ok_or_else(|| {
        refused(
            "the work dir has a name that is too long, or too many files for an image",
            "use another tier",
        )
    })?;
    let show = show.iter().map(|path| RawPath::from(path.as_path())).collect();
    Ok(Session { disk: image.give(), show })
}
