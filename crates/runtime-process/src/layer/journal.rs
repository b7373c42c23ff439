//! What a commit is about to do, on disk before it is done. Lies in the session's own directory, never in reach
//! of the inside:
//!
//! ```text
//!   intent     where the staging directory is; there from before it is made until after it is gone
//!   journal    every step, closed by a digest; its appearance, by one rename, is the moment of decision
//!   staging/   new content, and afterwards the old, if this is the work dir's file system
//! ```

use super::aside::Site;
use super::attributes::Attributes;
use super::{OPEN_DIR, io};
use cofferdam_model::{Digest, RawPath};
use cofferdam_runtime::RuntimeError;
use cofferdam_seal::Hasher;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;
const INTENT: &str = "intent";
const JOURNAL: &str = "journal";
const NEW: &str = "journal.new";
pub(super) const STAGING: &str = "staging";
/// How staging directories in a work dir are called; what follows cannot be guessed.
pub(super) const PREFIX: &str = ".cofferdam-";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    version: u32,
    pub(super) workdir: RawPath,
    /// The work dir's own number: another directory at its path is not it.
    pub(super) inode: u64,
    pub(super) staging: Staging,
    /// Where what is left out is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) aside: Option<Site>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Staging {
    /// Beside the journal.
    Here,
    /// In the work dir, under this name.
    Workdir(String),
}

/// What tells a file from another that takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) inode: u64,
    size: i64,
    time: (i64, u64),
}

impl Known {
    /// Not by its change time: the commit's own renames move that.
    pub(super) fn of(stat: &Stat) -> Self {
        Self { inode: stat.st_ino, size: stat.st_size, time: (stat.st_mtime, stat.st_mtime_nsec) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    /// Under this number in the staging directory.
    Staged(u64),
    /// At the same path in the layer.
    Layer,
}

/// One step. Each can be done again after it was done, or half of all were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Step {
    /// Put `new` at the path; what is there goes to where it came from.
    Place { path: RawPath, from: Source, new: u64, old: Option<Known> },
    /// Move what is at the path to this number of the staging directory.
    Remove { path: RawPath, slot: u64, old: Known },
    /// Set what a directory is to be besides its content.
    Settle {
        path: RawPath,
        inode: u64,
        mode: Option<u32>,
        time: Option<(i64, u64)>,
        attributes: Option<Attributes>,
    },
}

impl Step {
    pub(super) fn path(&self) -> &RawPath {
        match self {
            Self::Place { path, .. } | Self::Remove { path, .. } | Self::Settle { path, .. } => path,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct End {
    end: Digest,
}

/// A session's directory with the lock that keeps a second commit or recovery out of it.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) dir: OwnedFd,
    path: PathBuf,
    intent: OwnedFd,
}

impl Ledger {
    fn failed(&self, doing: &str) -> impl FnOnce(Errno) -> RuntimeError + use<> {
        io(format!("{doing} in {}", self.path.display()))
    }

    /// Says what is about to be made.
    pub(super) fn begin(path: &Path, head: &Head) -> Result<Self, RuntimeError> {
        let failed = || io(format!("write down what is to be committed in {}", path.display()));
        let fresh = match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(failed()(errno)),
        };
        let dir = super::open_dir(path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let intent = match rustix::fs::openat(&dir, INTENT, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {
                let what = "an earlier commit of this session is not complete".into();
                return Err(RuntimeError::Refused {
                    what,
                    fix: "start any session: it is completed first".into(),
                });
            }
            other => other.map_err(failed())?,
        };
        rustix::fs::flock(&intent, FlockOperation::NonBlockingLockExclusive).map_err(failed())?;
        let ledger = Self { dir, path: path.to_owned(), intent };
        let mut text =
            serde_json::to_vec(head).map_err(|error| RuntimeError::io("write a journal")(error.into()))?;
        text.push(b'\n');
        let mut file = File::from(ledger.intent.try_clone().map_err(RuntimeError::io("write a journal"))?);
        file.write_all(&text).map_err(RuntimeError::io("write a journal"))?;
        // Only what lies elsewhere has to be found by it: what lies here goes with this directory.
        if head.staging != Staging::Here {
            rustix::fs::fdatasync(&ledger.intent).map_err(failed())?;
            rustix::fs::fsync(&ledger.dir).map_err(failed())?;
        }
        if let Some(above) = path.parent().filter(|_| fresh).and_then(|above| super::open_dir(above).ok()) {
            rustix::fs::fsync(above).map_err(failed())?;
        }
        Ok(ledger)
    }

    /// The directory of a commit that was interrupted; nothing if there was none, or if someone is at it.
    pub(super) fn resume(path: &Path) -> Result<Option<Self>, RuntimeError> {
        let failed = || io(format!("read what was to be committed in {}", path.display()));
        let dir = match rustix::fs::open(path, OPEN_DIR, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed())?,
        };
        // A decision counts even if the disk lost the intent before it.
        let create = if is_pending(path) { OFlags::CREATE } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | create;
        let intent = match rustix::fs::openat(&dir, INTENT, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed())?,
        };
        rustix::fs::flock(&intent, FlockOperation::NonBlockingLockExclusive).map_err(failed())?;
        Ok(Some(Self { dir, path: path.to_owned(), intent }))
    }

    /// A journal that is being written.
    pub(super) fn draft(&self, head: &Head) -> Result<Draft, RuntimeError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.dir, NEW, flags, Mode::RUSR | Mode::WUSR);
        let file = BufWriter::new(File::from(file.map_err(self.failed("write the journal"))?));
        Draft::begin(file, head).map_err(|error| self.failed("write the journal")(errno(&error)))
    }

    /// From here on the commit will be completed, by us or by the next start.
    pub(super) fn decide(&self, draft: Draft) -> Result<(), RuntimeError> {
        let failed = || self.failed("write the journal");
        let file = draft.end().map_err(|error| failed()(errno(&error)))?;
        rustix::fs::fdatasync(file).map_err(failed())?;
        rustix::fs::renameat(&self.dir, NEW, &self.dir, JOURNAL).map_err(failed())?;
        rustix::fs::fsync(&self.dir).map_err(failed())
    }

    /// What was to be staged, if it came to that: one that is torn was never followed by anything.
    pub(super) fn intended(&self) -> Option<Head> {
        head(std::fs::read_to_string(self.path.join(INTENT)).ok()?.as_str())
    }

    /// What a commit is about that was decided on, if one was: every byte of it is what was written.
    pub(super) fn decided(&self) -> Result<Option<Head>, RuntimeError> {
        let Some(journal) = self.journal().map_err(self.failed("read the journal"))? else { return Ok(None) };
        match check(journal) {
            Some(head) => Ok(Some(head)),
            None => Err(RuntimeError::Refused {
                what: format!("the journal in {} is damaged", self.path.display()),
                fix: "look at the work dir it names, and then remove that directory".into(),
            }),
        }
    }

    /// The steps of a journal that is known to be whole, in order. There may be millions, so they are read as they are
    /// done.
    pub(super) fn steps(&self) -> Result<Steps<impl BufRead + use<>>, Errno> {
        let mut from = self.journal()?.ok_or(Errno::NOENT)?;
        from.read_line(&mut String::new()).map_err(|error| errno(&error))?;
        Ok(Steps { from, line: String::new() })
    }

    fn journal(&self) -> Result<Option<BufReader<File>>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat(&self.dir, JOURNAL, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            other => other.map(|file| Some(BufReader::new(File::from(file)))),
        }
    }

    /// Everything is in place: nothing of this is to be done again.
    pub(super) fn done(&self) -> Result<(), RuntimeError> {
        match rustix::fs::unlinkat(&self.dir, JOURNAL, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(self.failed("close the journal")(errno)),
        }
        rustix::fs::fsync(&self.dir).map_err(self.failed("close the journal"))
    }

    /// Nothing is left that would have to be found.
    pub(super) fn end(self) -> Result<(), RuntimeError> {
        for name in [NEW, INTENT] {
            match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.failed("close the journal")(errno)),
            }
        }
        Ok(())
    }
}

fn head(line: &str) -> Option<Head> {
    serde_json::from_str::<Head>(line).ok().filter(|head| head.version == VERSION)
}

/// Whether a commit was decided on here and is not complete.
pub(super) fn is_pending(path: &Path) -> bool {
    path.join(JOURNAL).symlink_metadata().is_ok()
}

/// What a commit is about that was decided on here and is not complete.
pub(super) fn pending(path: &Path) -> Option<Head> {
    let mut line = String::new();
    BufReader::new(File::open(path.join(JOURNAL)).ok()?).read_line(&mut line).ok()?;
    head(&line)
}

impl Head {
    pub(super) fn new(workdir: &Path, inode: u64, staging: Staging) -> Self {
        Self { version: VERSION, workdir: RawPath::from(workdir), inode, staging, aside: None }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Steps on their way into a journal, one after the other.
pub(super) struct Draft<W: Write = BufWriter<File>>(Digesting<W>);

impl<W: Write> Draft<W> {
    fn begin(to: W, head: &Head) -> std::io::Result<Self> {
        let mut draft = Self(Digesting { to, hasher: Hasher::new() });
        draft.line(head)?;
        Ok(draft)
    }

    fn line(&mut self, line: &impl Serialize) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.0, line)?;
        self.0.write_all(b"\n")
    }

    pub(super) fn push(&mut self, step: &Step) -> Result<(), Errno> {
        self.line(step).map_err(|error| errno(&error))
    }

    fn close(self) -> std::io::Result<W> {
        let Digesting { mut to, hasher } = self.0;
        serde_json::to_writer(&mut to, &End { end: hasher.finish() })?;
        to.write_all(b"\n")?;
        to.flush()?;
        Ok(to)
    }
}

impl Draft {
    fn end(self) -> std::io::Result<File> {
        self.close()?.into_inner().map_err(std::io::IntoInnerError::into_error)
    }
}

/// Steps that are read one after the other, up to the end.
pub(super) struct Steps<R> {
    from: R,
    line: String,
}

impl<R: BufRead> Iterator for Steps<R> {
    type Item = Result<Step, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        self.line.clear();
        match self.from.read_line(&mut self.line) {
            Err(error) => Some(Err(errno(&error))),
            Ok(0) => Some(Err(Errno::IO)),
            Ok(_) if is_end(&self.line) => None,
            Ok(_) => Some(serde_json::from_str(&self.line).map_err(|_| Errno::IO)),
        }
    }
}

fn is_end(line: &str) -> bool {
    line.starts_with(r#"{"end":"#)
}

/// The head of a journal that is what was written, to the last byte.
fn check(mut from: impl BufRead) -> Option<Head> {
    let mut hasher = Hasher::new();
    let mut line = String::new();
    let mut first = None;
    loop {
        line.clear();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if is_end(&line) {
            let End { end } = serde_json::from_str(&line).ok()?;
            return (hasher.finish() == end).then_some(first?);
        }
        hasher.update(line.as_bytes());
        match first {
            None => first = Some(head(&line)?),
            Some(_) => drop(serde_json::from_str::<Step>(&line).ok()?),
        }
    }
}

struct Digesting<W> {
    to: W,
    hasher: Hasher,
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Head, Vec<Step>) {
        let path = RawPath::from(Path::new(std::ffi::OsStr::new("a\n\"b")));
        let old = Known { inode: u64::MAX, size: 3, time: (-1, 999) };
        let head = Head::new(Path::new("/work"), 7, Staging::Workdir(".cofferdam-x".into()));
        let steps = vec![
            Step::Place { path: path.clone(), from: Source::Staged(1), new: 9, old: Some(old) },
            Step::Place { path: path.clone(), from: Source::Layer, new: 9, old: None },
            Step::Remove { path: path.clone(), slot: 2, old },
            Step::Settle {
                path,
                inode: 1,
                mode: Some(0o755),
                time: Some((1, 2)),
                attributes: Some(vec![(c"user.x".into(), vec![0, 255])]),
            },
        ];
        (head, steps)
    }

    fn read(text: &[u8]) -> Option<(Head, Vec<Step>)> {
        let head = check(text)?;
        let body = text.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        let steps = Steps { from: &text[body..], line: String::new() };
        Some((head, steps.collect::<Result<_, _>>().unwrap()))
    }

    #[test]
    fn what_is_written_is_read_and_nothing_less() {
        let (head, steps) = sample();
        let mut draft = Draft::begin(Vec::new(), &head).unwrap();
        steps.iter().for_each(|step| draft.push(step).unwrap());
        let text = draft.close().unwrap();
        assert_eq!(read(&text), Some((head, steps)));
        // Cut anywhere, or with any byte changed, it is not believed.
        for end in 0..text.len() - 1 {
            assert_eq!(check(&text[..end]), None, "cut at {end}");
        }
        for at in 0..text.len() - 1 {
            let mut other = text.clone();
            other[at] ^= 1;
            assert_eq!(check(&other[..]), None, "changed at {at}");
        }
    }
}
