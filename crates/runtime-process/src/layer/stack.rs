//! Layers on layers: a transaction within a transaction. What runs in one sees an overlay whose lower directories
//! are the layers beneath and, last, the work dir; committing it merges its upper directory into the one beneath,
//! rolling it back drops it. A live mount's layers must not change, so both wait until nothing runs in them.
//!
//! ```text
//!   upper, work          the session's own layer, whose changes `diff` and `commit` carry to the work dir
//!   1/upper, 1/work, 2/… transactions, each within the one before
//!   2.merging/…          a commit that was decided; opening the stack completes it
//!   2.dropped-7/…        nothing that counts any more
//! ```

use super::commit::{Moment, Watch};
use super::{OPEN_DIR, io, merge, remove};
use cofferdam_runtime::RuntimeError;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Overlayfs takes 500 lower directories; nobody nests so deep on purpose.
const LEVELS: usize = 64;

/// The layers of one session.
#[derive(Debug)]
pub struct Stack {
    dir: PathBuf,
    /// What lies beneath all of it, upper ones first; the last is the work dir.
    below: Vec<PathBuf>,
    by_root: bool,
    owner: Option<(u32, u32)>,
    levels: usize,
    dropped: usize,
}

/// What an overlay is to be mounted from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    pub upper: PathBuf,
    pub work: PathBuf,
    /// Upper ones first; the last is the work dir.
    pub lower: Vec<PathBuf>,
}

impl Stack {
    /// Opens the stack in `dir`, or makes it with the session's own layer. A merge that was interrupted is
    /// completed, and what was dropped is removed. `below` are frozen layers, upper ones first, and last the work
    /// dir; `owner` is whose upper directories are, where that is not us.
    pub fn open(
        dir: &Path,
        below: &[PathBuf],
        by_root: bool,
        owner: Option<(u32, u32)>,
        watch: Watch<'_>,
    ) -> Result<Self, RuntimeError> {
        let failed = || io(format!("open the layers in {}", dir.display()));
        match rustix::fs::mkdir(dir, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed()(errno)),
        }
        let mut stack =
            Self { dir: dir.to_owned(), below: below.to_vec(), by_root, owner, levels: 0, dropped: 0 };
        while stack.levels < LEVELS && stack.upper(stack.levels).is_dir() {
            stack.levels += 1;
        }
        // Named last of all: one that is not whole was never begun.
        if stack.levels == 0 {
            stack.push()?;
        }
        if dir.join(merging(stack.levels)).is_dir() {
            stack.merge(watch)?;
        }
        stack.sweep()?;
        Ok(stack)
    }

    /// How many transactions are open within the session's own layer.
    pub fn depth(&self) -> usize {
        self.levels - 1
    }

    fn level(&self, level: usize) -> PathBuf {
        if level == 0 { self.dir.clone() } else { self.dir.join(level.to_string()) }
    }

    fn upper(&self, level: usize) -> PathBuf {
        self.level(level).join("upper")
    }

    /// Where the innermost transaction's changes are.
    pub fn top(&self) -> PathBuf {
        self.upper(self.levels - 1)
    }

    /// What the next mount is made of. The directory that overlayfs works in is made anew: a mount that did not
    /// wait for the disk leaves a mark in it that refuses another.
    pub fn layers(&self) -> Result<Layers, RuntimeError> {
        let top = self.levels - 1;
        let work = self.level(top).join("work");
        remove::remove_tree(&work)
            .and_then(|()| rustix::fs::mkdir(&work, Mode::RWXU))
            .map_err(io(format!("make {}", work.display())))?;
        let beneath = (0..top).rev().map(|level| self.upper(level));
        Ok(Layers {
            upper: self.upper(top),
            work,
            lower: beneath.chain(self.below.iter().cloned()).collect(),
        })
    }

    /// Begins a transaction within the innermost one.
    pub fn push(&mut self) -> Result<(), RuntimeError> {
        if self.levels == LEVELS {
            let what = format!("more than {LEVELS} transactions within each other");
            return Err(RuntimeError::Refused {
                what,
                fix: "commit or roll back the innermost first".into(),
            });
        }
        let failed = || io(format!("begin a transaction in {}", self.dir.display()));
        let new = self.dir.join("new");
        remove::remove_tree(&new).map_err(failed())?;
        let upper = new.join("upper");
        for (path, mode) in [(&new, 0o700), (&upper, 0o755), (&new.join("work"), 0o700)] {
            rustix::fs::mkdir(path, Mode::from_raw_mode(mode)).map_err(failed())?;
        }
        let upper = super::open_dir(&upper)?;
        // The top directory of a mount is the upper one's own: as it was beneath, so it stays.
        let below = match self.levels {
            0 => self.below.first().cloned(),
            levels => Some(self.upper(levels - 1)),
        };
        let below = rustix::fs::stat(below.unwrap_or_default()).map_err(failed())?;
        rustix::fs::fchmod(&upper, Mode::from_raw_mode(below.st_mode & 0o777)).map_err(failed())?;
        super::give(&upper, Path::new("."), self.owner).map_err(failed())?;
        let (from, to) = match self.levels {
            0 => (new.join("upper"), self.upper(0)),
            level => (new, self.level(level)),
        };
        rustix::fs::rename(from, to).map_err(failed())?;
        self.levels += 1;
        Ok(())
    }

    fn innermost(&self) -> Result<usize, RuntimeError> {
        if self.depth() == 0 {
            let what = "no transaction is open".into();
            return Err(RuntimeError::Refused { what, fix: "begin one first".into() });
        }
        Ok(self.levels - 1)
    }

    /// Commits the innermost transaction into the one around it. Once this has begun it will be completed, if not
    /// by us then by the next opening.
    pub fn commit(&mut self, watch: Watch<'_>) -> Result<(), RuntimeError> {
        let level = self.innermost()?;
        let failed = || io(format!("commit a transaction in {}", self.dir.display()));
        watch.at(Moment::Decide).map_err(failed())?;
        let path = self.level(level);
        rustix::fs::rename(&path, self.dir.join(merging(level))).map_err(failed())?;
        self.levels -= 1;
        self.merge(watch)
    }

    fn merge(&mut self, watch: Watch<'_>) -> Result<(), RuntimeError> {
        let level = self.levels;
        let failed = || io(format!("commit a transaction in {}", self.dir.display()));
        let path = self.dir.join(merging(level));
        let child = super::open_dir(&path.join("upper"))?;
        let parent = super::open_dir(&self.upper(level - 1))?;
        let mut below = Vec::<OwnedFd>::new();
        for lower in (0..level - 1).rev().map(|level| self.upper(level)).chain(self.below.clone()) {
            below.push(rustix::fs::open(&lower, OPEN_DIR, Mode::empty()).map_err(failed())?);
        }
        let trash = path.join("trash");
        match rustix::fs::mkdir(&trash, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed()(errno)),
        }
        let trash = super::open_dir(&trash)?;
        let mut merging = merge::Merging { by_root: self.by_root, trash: trash.as_fd(), thrown: 0, watch };
        merging.merge(child.as_fd(), parent.as_fd(), &below, 0).map_err(failed())?;
        let wanted = rustix::fs::fstat(&child).map_err(failed())?;
        merging.settle(&child, &parent, &wanted).map_err(failed())?;
        watch.at(Moment::Done).map_err(failed())?;
        self.discard(&path)
    }

    /// Drops the innermost transaction with all that was done in it. It costs one rename, however much that was;
    /// `sweep` frees the space.
    pub fn rollback(&mut self) -> Result<(), RuntimeError> {
        let level = self.innermost()?;
        self.discard(&self.level(level))?;
        self.levels -= 1;
        Ok(())
    }

    fn discard(&mut self, path: &Path) -> Result<(), RuntimeError> {
        loop {
            self.dropped += 1;
            let to = self.dir.join(format!("{}.dropped-{}", self.levels, self.dropped));
            match rustix::fs::renameat_with(
                rustix::fs::CWD,
                path,
                rustix::fs::CWD,
                &to,
                rustix::fs::RenameFlags::NOREPLACE,
            ) {
                Err(Errno::EXIST) => {}
                other => return other.map_err(io(format!("drop {}", path.display()))),
            }
        }
    }

    /// Removes what was dropped. Can wait, and can be done from elsewhere.
    pub fn sweep(&self) -> Result<(), RuntimeError> {
        let failed = || format!("read {}", self.dir.display());
        for entry in fs::read_dir(&self.dir).map_err(RuntimeError::io(failed()))? {
            let entry = entry.map_err(RuntimeError::io(failed()))?;
            if entry.file_name().to_string_lossy().contains(".dropped-") || entry.file_name() == "new" {
                let path = entry.path();
                remove::remove_tree(&path).map_err(io(format!("remove {}", path.display())))?;
            }
        }
        Ok(())
    }
}

fn merging(level: usize) -> String {
    format!("{level}.merging")
}
