//! For a tier that shows the same inside in another way: what it consists of, and the layer that its changes are
//! kept in. What is hidden, shown and kept is decided here for both.

use crate::layer::{self, Began, Layer};
use crate::layout::{self, System};
use crate::users::{OF_FIRST, of_caller};
use crate::view::ETC_MASKED;
use cofferdam_model::Mount;
use cofferdam_runtime::{RuntimeError, SandboxSpec};
use std::path::{Path, PathBuf};

/// What the inside consists of, by paths of the host.
#[derive(Debug)]
pub struct Look {
    /// Directories of the system, whole.
    pub dirs: Vec<PathBuf>,
    /// Links of its root, with where they lead.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// What of these is nobody's business.
    pub masked: Vec<PathBuf>,
    /// Directories with programs in the caller's home, each with what of it stays away, relative to it.
    pub toolchains: Vec<(PathBuf, Vec<PathBuf>)>,
    pub workdir: PathBuf,
    pub workdir_owner: (u32, u32),
    /// What of the work dir is hidden, relative to it.
    pub hidden: Vec<PathBuf>,
    pub mounts: Vec<Mount>,
    layout: layout::Layout,
}

/// Who the inside's user is on a machine of its own, where its range is the first.
pub const fn owner_of_first() -> (u32, u32) {
    (OF_FIRST, OF_FIRST)
}

impl Look {
    /// Name and address for commits, in git's own form.
    pub fn git_identity(&self) -> Option<&[u8]> {
        self.layout.gitconfig.as_deref()
    }
}

pub fn look(spec: &SandboxSpec) -> Result<Look, RuntimeError> {
    let layout = layout::gather(spec, &of_caller())?;
    let (mut dirs, mut links) = (Vec::new(), Vec::new());
    for part in &layout.system {
        match part {
            System::Dir(name) => dirs.push(Path::new("/").join(name)),
            System::Link(name, to) => links.push((Path::new("/").join(name), to.clone())),
        }
    }
    dirs.extend(layout.var.iter().map(|name| Path::new("/").join(name)));
    let without = |path: &Path, below: &Path| path.strip_prefix(below).unwrap_or(path).to_owned();
    let toolchain = |shown: &layout::Shown| {
        let masked = shown.masked.iter().map(|(path, _)| without(path, &shown.path)).collect();
        (shown.path.clone(), masked)
    };
    Ok(Look {
        dirs,
        links,
        masked: ETC_MASKED.iter().map(|name| Path::new("/etc").join(name)).collect(),
        toolchains: layout.toolchains.iter().map(toolchain).collect(),
        workdir: layout.workdir.clone(),
        workdir_owner: layout.workdir_owner,
        hidden: layout.hidden.paths.clone(),
        mounts: layout.mounts.iter().map(|asked| asked.mount.clone()).collect(),
        layout,
    })
}

/// An empty layer in the session's own directory, to be filled with what was changed elsewhere since `began`.
/// Files of it are to be the work dir's owner's.
pub fn layer_of(spec: &SandboxSpec, look: &Look, began: Began) -> Result<Layer, RuntimeError> {
    let by_root = rustix::process::geteuid().is_root();
    let owner = by_root.then_some(look.workdir_owner);
    let upper = match spec.layer.exists() {
        true => layer::renew(&spec.layer, &look.layout, owner)?,
        false => layer::make(&spec.layer, &look.layout, owner)?,
    };
    Ok(Layer {
        upper,
        workdir: layer::open_dir(&look.workdir)?,
        workdir_path: look.workdir.clone(),
        planted: look.hidden.iter().cloned().collect(),
        began,
        owner,
        inside: owner,
        by_root,
        linked: false,
        in_use: false,
    })
}
