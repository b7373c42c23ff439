//! From changes to steps. Everything is looked at here, before the work dir is touched: what is hidden from the
//! sandbox, what was changed outside while the session ran, and what cannot be carried over is left out by name;
//! the rest is staged and becomes one list of renames.

use super::apply::may_write;
use super::aside::Aside;
use super::commit::{Moment, Watch};
use super::copy::kept;
use super::cursor::Cursor;
use super::diff::mode;
use super::journal::{Draft, Known, Step};
use super::stage::Stage;
use super::survey::{Survey, changed_outside};
use super::{Layer, attributes, is_marked, kind};
use cofferdam_model::{Aspect, ChangeOp, FileChange, FileKind, RawPath, SkippedChange};
use cofferdam_runtime::ChangeList;
use rustix::fs::{Mode, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Why a change does not become steps.
pub(super) enum Halt {
    /// It is left out, by name; the rest goes on.
    Skip(Vec<SkippedChange>),
    /// Nothing is committed at all.
    Stop(Errno),
}

impl From<Errno> for Halt {
    fn from(errno: Errno) -> Self {
        Self::Stop(errno)
    }
}

fn skip(path: &Path, reason: impl Into<String>) -> Halt {
    Halt::Skip(vec![SkippedChange::new(path, reason)])
}

/// A machine that lacks something lacks it for all; else it is this path's own trouble.
fn trouble(path: &Path, doing: &str, errno: Errno) -> Halt {
    if is_lack(errno) { Halt::Stop(errno) } else { skip(path, format!("{doing}: {errno}")) }
}

fn is_lack(errno: Errno) -> bool {
    const LACK: &[Errno] = &[
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::IO,
        Errno::ROFS,
        Errno::NOMEM,
        Errno::MFILE,
        Errno::NFILE,
        Errno::FBIG,
        Errno::INTR,
    ];
    LACK.contains(&errno)
}

/// What a directory that is there already becomes.
#[derive(Default)]
struct End {
    mode: Option<u32>,
    attributes: bool,
}

pub(super) struct Plan<'a> {
    layer: &'a Layer,
    work: Cursor,
    /// The work dir itself, before anything was staged in it.
    top: Stat,
    stage: Stage,
    /// What is left out of it.
    pub(super) aside: Aside<'a>,
    line: (i64, u32),
    /// Where the steps go, in order: a directory that must be opened to us is, before anything is done in it.
    steps: Draft,
    ends: BTreeMap<PathBuf, End>,
    /// Directories that were looked at for whether they can be written to.
    entered: HashSet<PathBuf>,
    /// New directories, by the number of what will be there.
    placed: HashMap<PathBuf, u64>,
    /// What goes as a whole.
    gone: HashSet<PathBuf>,
    /// What renamed files were called, looked at last: it may go with its directory.
    renamed: Vec<PathBuf>,
    /// New directories that were left out, with all that is in them.
    left: Option<PathBuf>,
    pub(super) skipped: Vec<SkippedChange>,
    pub(super) applied: u64,
    /// The session deleted nothing, so that no file of the layer can be a moved one.
    deletes_nothing: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        layer: &'a Layer,
        (work, top): (Cursor, Stat),
        (stage, aside): (Stage, Aside<'a>),
        steps: Draft,
        changes: &ChangeList,
    ) -> Self {
        Self {
            layer,
            work,
            top,
            stage,
            aside,
            line: layer.began.line(),
            steps,
            ends: BTreeMap::new(),
            entered: HashSet::new(),
            placed: HashMap::new(),
            gone: HashSet::new(),
            renamed: Vec::new(),
            left: None,
            skipped: Vec::new(),
            applied: 0,
            deletes_nothing: changes.count(ChangeOp::Deleted) + changes.count(ChangeOp::Renamed) == 0,
        }
    }

    /// Looks at every change and stages it.
    pub(super) fn make(mut self, changes: &ChangeList, watch: Watch<'_>) -> Result<Self, (PathBuf, Errno)> {
        let unread = |error: std::io::Error| {
            (PathBuf::from("the list of changes"), Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        for change in changes.iter() {
            let change = &*change.map_err(unread)?;
            let path = change.path.as_path();
            let done = watch.at(Moment::Stage).map_err(Halt::Stop).and_then(|()| self.change(change));
            match done {
                Ok(()) => self.applied += 1,
                Err(Halt::Skip(skipped)) => {
                    let skipped =
                        self.put_aside(change, skipped).map_err(|errno| (path.to_owned(), errno))?;
                    self.skipped.extend(skipped);
                }
                Err(Halt::Stop(errno)) => return Err((path.to_owned(), errno)),
            }
        }
        for path in std::mem::take(&mut self.renamed) {
            match self.remove(&path) {
                Ok(()) => {}
                Err(Halt::Skip(skipped)) => self.skipped.extend(skipped),
                Err(Halt::Stop(errno)) => return Err((path, errno)),
            }
        }
        self.stage.close().map_err(|errno| (PathBuf::new(), errno))?;
        Ok(self)
    }

    /// Keeps the inside's version of what is left out. Of what it deleted there is none.
    fn put_aside(
        &mut self,
        change: &FileChange,
        mut skipped: Vec<SkippedChange>,
    ) -> Result<Vec<SkippedChange>, Errno> {
        let left_out = skipped.iter_mut().find(|skipped| skipped.path == change.path);
        let Some(left_out) = left_out.filter(|_| change.op != ChangeOp::Deleted) else { return Ok(skipped) };
        let path = change.path.as_path();
        let told = (change.mode, left_out.reason.as_str());
        match self.stage.upper.spot(path).and_then(|spot| self.aside.keep(&spot, path, told, false)) {
            Ok(kept) => left_out.aside = kept,
            Err(errno) if is_lack(errno) => return Err(errno),
            Err(errno) => left_out.reason.push_str(&format!("; and its version cannot be kept: {errno}")),
        }
        Ok(skipped)
    }

    fn change(&mut self, change: &FileChange) -> Result<(), Halt> {
        let path = change.path.as_path();
        if self.layer.planted.iter().any(|hidden| path.starts_with(hidden)) {
            return Err(skip(path, "the work dir has this path and it is hidden from the sandbox"));
        }
        if self.left.as_ref().is_some_and(|left| path.starts_with(left)) {
            return Err(skip(path, "its directory was not kept"));
        }
        if self.stage.holds(path) {
            carried(change)?;
            self.stage.inside(change).map_err(|errno| trouble(path, "cannot be staged", errno))?;
        } else {
            self.stage.close()?;
            let put = if change.op == ChangeOp::Deleted { self.remove(path) } else { self.put(change) };
            if put.is_err() && change.kind == FileKind::Dir && change.op != ChangeOp::Deleted {
                self.left = Some(path.to_owned());
            }
            put?;
        }
        self.renamed.extend(change.from.iter().map(|from| from.as_path().to_owned()));
        Ok(())
    }

    /// Something new, or something in the place of another.
    fn put(&mut self, change: &FileChange) -> Result<(), Halt> {
        let path = change.path.as_path();
        let unreachable = |errno| skip(path, format!("its directory cannot be reached: {errno}"));
        let below = self.work.spot(path).and_then(|spot| spot.stat()).map_err(unreachable)?;
        match &below {
            Some(stat) if kind(stat) == FileKind::Dir && change.kind == FileKind::Dir => {
                return self.keep_dir(change, stat);
            }
            Some(stat) if kind(stat) == FileKind::Dir => self.give_way(path)?,
            Some(stat) if changed_outside(self.line, stat) => {
                return Err(skip(path, "changed outside while the session ran"));
            }
            Some(_) => {}
            None => self.was_there(change)?,
        }
        carried(change)?;
        self.enter(path)?;
        let staged = self.stage.top(change).map_err(|errno| trouble(path, "cannot be staged", errno))?;
        let old = below.as_ref().map(Known::of);
        let (path, from, new) = (change.path.clone(), staged.from, staged.inode);
        self.steps.push(&Step::Place { path, from, new, old })?;
        let path = change.path.as_path();
        if below.as_ref().is_some_and(|below| kind(below) == FileKind::Dir) {
            self.gone.insert(path.to_owned());
        }
        if change.kind == FileKind::Dir {
            self.placed.insert(path.to_owned(), staged.inode);
            let mode = change.mode.map(|mode| kept(mode).as_raw_mode());
            self.ends.insert(path.to_owned(), End { mode, attributes: false });
        }
        Ok(())
    }

    /// A directory makes way for something else only as a whole.
    fn give_way(&mut self, path: &Path) -> Result<(), Halt> {
        let spot = self.work.spot(path)?;
        let mut survey = Survey::new(self.layer, self.line);
        survey.of(spot.dir, &spot.name, path);
        if survey.kept.is_empty() {
            return self.open_up(path);
        }
        let mut kept = survey.kept;
        kept.push(SkippedChange::new(path, "the directory in its place holds what cannot be deleted"));
        Err(Halt::Skip(kept))
    }

    /// Nothing is there now. If there was something when the session began, someone else deleted it.
    fn was_there(&mut self, change: &FileChange) -> Result<(), Halt> {
        let path = change.path.as_path();
        let gone = || skip(path, "deleted outside while the session ran");
        if change.op == ChangeOp::Modified {
            return Err(gone());
        }
        if change.kind != FileKind::File || !self.deletes_nothing {
            return Ok(());
        }
        let parent = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => rustix::fs::fstat(self.work.dir(parent)?)?,
            None => self.top,
        };
        if (parent.st_mtime, parent.st_mtime_nsec as u32) <= self.line {
            return Ok(());
        }
        let spot = self.stage.upper.spot(path)?;
        // Another name for a file that was there carries its mark too.
        if spot.stat()?.is_none_or(|stat| self.layer.has_other_name(&stat)) {
            return Ok(());
        }
        let file = rustix::fs::openat(spot.dir, spot.name.as_c_str(), super::tree::READ_FILE, Mode::empty());
        match file {
            Ok(file) if is_marked(file.as_fd(), "origin", self.layer.by_root) => Err(gone()),
            _ => Ok(()),
        }
    }

    /// A directory that is there stays the same one, with another mode or other attributes.
    fn keep_dir(&mut self, change: &FileChange, below: &Stat) -> Result<(), Halt> {
        let path = change.path.as_path();
        // Both made one: it is the outside's, and holds what both put into it.
        let mode =
            change.mode.filter(|_| change.op != ChangeOp::Created).map(|mode| kept(mode).as_raw_mode());
        let other_mode = mode.is_some_and(|mode| mode != self::mode(below));
        // An entry moves both times of a directory; whoever changes its mode moves only this one.
        let touched = (below.st_ctime, below.st_ctime_nsec) != (below.st_mtime, below.st_mtime_nsec);
        if other_mode && touched && changed_outside(self.line, below) {
            return Err(skip(path, "its mode was changed outside while the session ran"));
        }
        let attributes = change.changed.contains(&Aspect::Attributes);
        let end = self.ends.entry(path.to_owned()).or_default();
        *end = End { mode: mode.filter(|_| other_mode), attributes };
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), Halt> {
        let unreachable = |errno| skip(path, format!("its directory cannot be reached: {errno}"));
        let spot = match self.work.spot(path) {
            // It went with its directory.
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(unreachable)?,
        };
        let mut survey = Survey::new(self.layer, self.line);
        let parts = survey.of(spot.dir, &spot.name, path);
        for part in parts {
            if part.path.ancestors().any(|above| self.gone.contains(above)) {
                continue;
            }
            self.enter(&part.path)?;
            if kind(&part.stat) == FileKind::Dir {
                self.open_up(&part.path)?;
            }
            let (slot, old) = (self.stage.slot(), part.known());
            self.steps.push(&Step::Remove { path: RawPath::from(part.path.as_path()), slot, old })?;
            // A file that is met again is gone by then, and that is no trouble.
            if kind(&part.stat) == FileKind::Dir {
                self.gone.insert(part.path);
            }
        }
        if survey.kept.is_empty() { Ok(()) } else { Err(Halt::Skip(survey.kept)) }
    }

    /// Notes that a directory's entries change, and sees to it that they can.
    fn enter(&mut self, path: &Path) -> Result<(), Halt> {
        let parent = path.parent().unwrap_or(Path::new(""));
        self.open_up(parent).map_err(|halt| match halt {
            Halt::Skip(_) => skip(path, "its directory belongs to someone else and cannot be written to"),
            stop => stop,
        })?;
        self.ends.entry(parent.to_owned()).or_default();
        Ok(())
    }

    /// A directory that even its owner may not write to is opened for the time of the commit.
    fn open_up(&mut self, path: &Path) -> Result<(), Halt> {
        if self.entered.contains(path) {
            return Ok(());
        }
        let unreachable = |errno| skip(path, format!("cannot be reached: {errno}"));
        let dir = self.work.dir(path).map_err(unreachable)?;
        if may_write(dir) {
            self.entered.insert(path.to_owned());
            return Ok(());
        }
        let stat = rustix::fs::fstat(dir)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(skip(path, "belongs to someone else and cannot be written to"));
        }
        self.steps.push(&Step::Settle {
            path: RawPath::from(path),
            inode: stat.st_ino,
            mode: Some(mode(&stat) | 0o700),
            time: None,
            attributes: None,
        })?;
        self.entered.insert(path.to_owned());
        let end = self.ends.entry(path.to_owned()).or_default();
        end.mode = end.mode.or(Some(mode(&stat)));
        Ok(())
    }

    /// The last steps: what directories are to be, inner ones first, because one without write permission must be
    /// filled before it is closed.
    pub(super) fn finish(mut self) -> Result<(Draft, Vec<SkippedChange>, u64), Errno> {
        for (path, end) in std::mem::take(&mut self.ends).into_iter().rev() {
            if let Some(step) = self.settle(&path, &end)? {
                self.steps.push(&step)?;
            }
        }
        Ok((self.steps, self.skipped, self.applied))
    }

    fn settle(&mut self, path: &Path, end: &End) -> Result<Option<Step>, Errno> {
        let inode = match self.placed.get(path) {
            Some(inode) => *inode,
            None if self.gone.contains(path) => return Ok(None),
            None => rustix::fs::fstat(self.work.dir(path)?)?.st_ino,
        };
        let (mut time, mut attributes) = (None, None);
        // The layer's own top was made by us, and its time says nothing.
        if let Some(dir) = self.stage.upper.dir(path).ok().filter(|_| !path.as_os_str().is_empty()) {
            let seen = rustix::fs::fstat(dir)?;
            time = Some((seen.st_mtime, seen.st_mtime_nsec));
            attributes = if end.attributes { Some(attributes::read(dir)?) } else { None };
        }
        if end.mode.is_none() && time.is_none() && attributes.is_none() {
            return Ok(None);
        }
        Ok(Some(Step::Settle { path: RawPath::from(path), inode, mode: end.mode, time, attributes }))
    }
}

/// What means nothing, or too much, outside the sandbox.
fn carried(change: &FileChange) -> Result<(), Halt> {
    let path = change.path.as_path();
    match change.kind {
        FileKind::Socket => Err(skip(path, "a socket means nothing without its process")),
        FileKind::Device => Err(skip(path, "device nodes are never carried over")),
        _ => Ok(()),
    }
}
