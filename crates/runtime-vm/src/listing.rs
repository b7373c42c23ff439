//! Lists of what of the host a machine sees, kept from one run to the next: the system, and the programs in the caller's
//! home. A list holds while no directory in it has changed; else it is made again.

use crate::image::{self, Image, Taken, Tree, holds, witness};
use crate::kernel::refused;
use crate::memory::Lock;
use crate::pending::Found;
use crate::template::{make_dir, short};
use crate::vigil;
use cofferdam_runtime::RuntimeError;
use cofferdam_runtime_process::{Look, owner_of_first};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A list that is kept.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) path: PathBuf,
    pub(crate) digest: String,
    /// It was not looked at whether it still holds: by what is written here it can be.
    seen: Option<PathBuf>,
}

impl Listed {
    /// Whether it was found to hold.
    pub(crate) const fn is_sure(&self) -> bool {
        self.seen.is_none()
    }

    /// What is left to be found out about it: whether it holds, and, where that is asked for, whether it is what was written.
    pub(crate) fn look(&self, whole: bool) -> impl FnOnce() -> Found + Send + use<> {
        let (path, seen) = (self.path.clone(), self.seen.clone());
        move || {
            if let Some(error) = whole.then(|| image::check_once(&path).err()).flatten() {
                return Found::Bad(damaged(&path, &error));
            }
            let looked = |seen: &Path| fs::read(seen).is_ok_and(|seen| holds(&seen));
            let holds = seen.is_none_or(|seen| vigil::is_quiet(&seen) || looked(&seen));
            if holds { Found::Good } else { Found::Stale }
        }
    }
}

/// What is damaged is made again by the next who needs it.
fn damaged(path: &Path, error: &io::Error) -> RuntimeError {
    let _ = fs::remove_file(path);
    let what = format!("what is kept of the programs at {} is damaged: {error}", path.display());
    refused(what, "it was removed: run this again")
}

/// The list called `name`, of what `of` describes: as it was kept, or made by `make`. Who is to be `sure` of it waits until
/// it was found to hold; for others that is left to be looked at.
fn kept(
    dir: &Path,
    name: &str,
    of: &str,
    sure: bool,
    make: impl FnOnce() -> Result<Tree, RuntimeError>,
) -> Result<Listed, RuntimeError> {
    let dir = dir.join(name);
    let found = |sure: bool| {
        let known =
            fs::read_to_string(dir.join("digest")).ok().filter(|digest| dir.join(digest).is_file())?;
        let same = fs::read(dir.join("of")).is_ok_and(|kept| kept == of.as_bytes());
        let seen = dir.join("seen");
        let held = || fs::read(&seen).is_ok_and(|seen| holds(&seen));
        (same && (!sure || held())).then(|| Listed {
            path: dir.join(&known),
            digest: known,
            seen: (!sure).then_some(seen),
        })
    };
    if let Some(listed) = found(sure) {
        return Ok(listed);
    }
    // Also other threads of this process make it. Whoever boots a machine meanwhile holds up none of them.
    make_dir(&dir)?;
    let _lock = Lock::take(&dir).map_err(RuntimeError::io("wait for our turn"))?;
    if let Some(listed) = found(true) {
        return Ok(listed);
    }
    let tree = make()?;
    let image = Image::of(&tree)
        .ok_or_else(|| refused(format!("the {name} has too many files for an image"), "use another tier"))?;
    let digest = short(image.digest());
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
    Ok(Listed { path: dir.join(&digest), digest, seen: None })
}

/// What every session of this user may see of the system.
pub(crate) fn system(dir: &Path, look: &Look, sure: bool) -> Result<Listed, RuntimeError> {
    kept(dir, "system", &format!("{:?}\n{:?}\n", look.dirs, look.masked), sure, || {
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

/// Has it heard when the list of programs does not hold any more, for whoever is in a hurry later.
pub(crate) fn watch_programs(dir: &Path) {
    vigil::keep(&dir.join("programs").join("seen"));
}

/// The programs in the caller's home; and which paths there are.
pub(crate) fn programs(dir: &Path, look: &Look, sure: bool) -> Result<(Listed, Vec<PathBuf>), RuntimeError> {
    let shown: Vec<PathBuf> = look.toolchains.iter().map(|(path, _)| path.clone()).collect();
    let of = format!("{:?}\n{:?}\n", look.toolchains, look.workdir_owner);
    let listed = kept(dir, "programs", &of, sure, || {
        let mut tree = Tree::new();
        for (path, masked) in &look.toolchains {
            let owner = Some((look.workdir_owner, owner_of_first()));
            let hidden = masked.iter().cloned().collect();
            let how = Taken { owner, hidden, attributes: true, ..Taken::default() };
            tree.take(path, path, &how).map_err(RuntimeError::io(format!("look at {}", path.display())))?;
        }
        Ok(tree)
    })?;
    Ok((listed, shown))
}
