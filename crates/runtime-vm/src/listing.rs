//! Lists of what of the host a machine sees, kept from one run to the next: the system, and the programs in the caller's
//! home. A list holds while no directory in it has changed; else it is made again.

use crate::image::{Image, Taken, Tree, holds, witness};
use crate::kernel::refused;
use crate::memory::Lock;
use crate::template::{make_dir, short};
use cofferdam_runtime::RuntimeError;
use cofferdam_runtime_process::{Look, owner_of_first};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The list called `name`, of what `of` describes: as it was kept, or made by `make`.
fn kept(
    dir: &Path,
    name: &str,
    of: &str,
    make: impl FnOnce() -> Result<Tree, RuntimeError>,
) -> Result<(PathBuf, String), RuntimeError> {
    let (vm, dir) = (dir, dir.join(name));
    let found = || {
        let known = fs::read_to_string(dir.join("digest")).ok().filter(|digest| dir.join(digest).is_file());
        let same = fs::read(dir.join("of")).is_ok_and(|kept| kept == of.as_bytes());
        known.filter(|_| same && fs::read(dir.join("seen")).is_ok_and(|seen| holds(&seen)))
    };
    if let Some(digest) = found() {
        return Ok((dir.join(&digest), digest));
    }
    // Also other threads of this process make it.
    make_dir(vm)?;
    let _lock = Lock::take(vm).map_err(RuntimeError::io("wait for our turn"))?;
    if let Some(digest) = found() {
        return Ok((dir.join(&digest), digest));
    }
    let tree = make()?;
    let image = Image::of(&tree)
        .ok_or_else(|| refused(format!("the {name} has too many files for an image"), "use another tier"))?;
    let digest = short(image.digest());
    make_dir(&dir)?;
    let write = |name: &str, bytes: &dyn Fn(&mut File) -> io::Result<()>| -> io::Result<()> {
        let making = dir.join(format!("{name}.{}", std::process::id()));
        bytes(&mut File::create(&making)?)?;
        fs::rename(making, dir.join(name))
    };
    let written = write(&digest, &|file| image.keep(file))
        .and_then(|()| write("seen", &|file| file.write_all(&witness(&tree))))
        .and_then(|()| write("of", &|file| file.write_all(of.as_bytes())))
        .and_then(|()| write("digest", &|file| file.write_all(digest.as_bytes())));
    written.map_err(RuntimeError::io(format!("keep the list of the {name}")))?;
    Ok((dir.join(&digest), digest))
}

/// What every session of this user may see of the system.
pub(crate) fn system(dir: &Path, look: &Look) -> Result<(PathBuf, String), RuntimeError> {
    kept(dir, "system", &format!("{:?}\n{:?}\n", look.dirs, look.masked), || {
        let mut tree = Tree::new();
        for name in ["dev", "proc", "sys", "run", "tmp", "home", "root", "mnt", "srv"] {
            tree.dir(Path::new(name));
        }
        for dir in &look.dirs {
            let below = |path: &PathBuf| path.strip_prefix(dir).ok().map(Path::to_owned);
            let hidden = look.masked.iter().filter_map(below).collect();
            let how = Taken { hidden, public: true, ..Taken::default() };
            tree.take(dir, dir, &how).map_err(RuntimeError::io(format!("look at {}", dir.display())))?;
        }
        for (path, to) in &look.links {
            tree.link(path, to);
        }
        // Every machine has its own, which covers this.
        tree.file(Path::new("etc/machine-id"), b"uninitialized\n".to_vec(), 0o444);
        Ok(tree)
    })
}

/// The programs in the caller's home; and which paths there are.
pub(crate) fn programs(dir: &Path, look: &Look) -> Result<(PathBuf, Vec<PathBuf>), RuntimeError> {
    let shown: Vec<PathBuf> = look.toolchains.iter().map(|(path, _)| path.clone()).collect();
    let of = format!("{:?}\n{:?}\n", look.toolchains, look.workdir_owner);
    let (path, _) = kept(dir, "programs", &of, || {
        let mut tree = Tree::new();
        for (path, masked) in &look.toolchains {
            let owner = Some((look.workdir_owner, owner_of_first()));
            let hidden = masked.iter().cloned().collect();
            let how = Taken { owner, hidden, attributes: true, ..Taken::default() };
            tree.take(path, path, &how).map_err(RuntimeError::io(format!("look at {}", path.display())))?;
        }
        Ok(tree)
    })?;
    Ok((path, shown))
}
