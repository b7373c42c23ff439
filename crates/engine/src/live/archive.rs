//! A session's files as one compressed file, and back. The supervisor writes and reads it by a descriptor of who asks,
//! so that it opens nothing for anybody; layers are held while they are read, and what is unpacked is nobody's until it
//! has a name: whoever is killed on the way leaves layers that the next supervisor removes.

use super::shelf;
use super::supervisor::Supervisor;
use crate::Engine;
use crate::control::{Origin, Question, Reply, unexpected};
use crate::error::EngineError;
use crate::record::now_us;
use cofferdam_model::{SessionId, Snapshot};
use cofferdam_runtime_process::layer::archive::{self, About, ArchiveError, Most};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is taken of an archive.
const MOST: Most = Most { bytes: 256 << 30, entries: 20_000_000, sync: true };

impl From<ArchiveError> for EngineError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Io { doing, source } => Self::Declined(format!("{doing}: {source}")),
            other => Self::Declined(other.to_string()),
        }
    }
}

fn by_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Supervisor {
    /// Writes what a session has made of its work dir so far, or a snapshot of it.
    pub(super) fn archive(
        self: &Arc<Self>,
        session: Option<SessionId>,
        snapshot: Option<String>,
        by: String,
        to: Option<OwnedFd>,
    ) -> Result<u64, Reply> {
        let told = |error: EngineError| Reply::error(&error);
        let to = to.ok_or_else(|| Reply::Refused("there is no file to write to".into()))?;
        let reader = self.engine.new_id().map_err(told)?;
        let (of, workdir, Origin { layers, since }) = match (session, snapshot) {
            (Some(session), _) => {
                let asked = self.mailbox(&session)?.fork(0, by)?;
                let origin = asked.from.ok_or_else(|| Reply::Refused("it has no layers".into()))?;
                (session, asked.spec.workdir.unwrap_or_default(), origin)
            }
            (None, Some(name)) => {
                let found = shelf::find(&self.engine.home, &name).map_err(told)?;
                if found.image.is_some() {
                    let text = "an archive holds a work dir, and not what was done to an image".to_owned();
                    return Err(Reply::Refused(text));
                }
                (found.session, found.workdir, Origin { layers: found.layers, since: found.since })
            }
            (None, None) => return Err(Reply::Refused("name a session or a snapshot".into())),
        };
        self.shelf.hold(&reader, layers.clone()).map_err(told)?;
        let about = About::new(of, workdir, layers.len(), since);
        let base = self.shelf.base(&layers, since);
        let out = BufWriter::with_capacity(1 << 20, File::from(to));
        let packed = archive::pack(&about, &base.layers, by_root(), out);
        self.shelf.let_go(&reader);
        packed.map(|omitted| omitted.len() as u64).map_err(|error| told(error.into()))
    }

    /// Makes a snapshot of what an archive holds.
    pub(super) fn unarchive(&self, name: &str, from: Option<OwnedFd>) -> Result<(), Reply> {
        let told = |error: EngineError| Reply::error(&error);
        let from = from.ok_or_else(|| Reply::Refused("there is no file to read".into()))?;
        self.shelf.check_name(name).map_err(told)?;
        let reader = self.engine.new_id().map_err(told)?;
        let mut made: Vec<SessionId> = Vec::new();
        let unpacked = archive::unpack(BufReader::new(File::from(from)), by_root(), MOST, &mut |about| {
            let mut places = Vec::new();
            for _ in 0..about.layers {
                let id = self.engine.new_id().map_err(std::io::Error::other)?;
                let place = self.shelf.place(&reader, &id).map_err(std::io::Error::other)?;
                made.push(id);
                places.push(place.join("upper"));
            }
            Ok(places)
        });
        let named = unpacked.map_err(EngineError::from).and_then(|about| {
            self.shelf.write(&Snapshot {
                name: name.to_owned(),
                session: about.session,
                taken_us: now_us(),
                workdir: about.workdir,
                layers: made,
                since: about.since,
                image: None,
            })
        });
        self.shelf.let_go(&reader);
        named.map_err(told)
    }
}

impl Engine {
    /// Writes the files of a session that lives, or of a snapshot, to one file. Says how many things could not be
    /// kept. The file appears when it is whole.
    pub fn archive_session(&self, session: &SessionId, to: &Path) -> Result<u64, EngineError> {
        self.archive(Question::Archive { session: Some(session.clone()), snapshot: None }, to)
    }

    /// The same of a snapshot.
    pub fn archive_snapshot(&self, name: &str, to: &Path) -> Result<u64, EngineError> {
        self.archive(Question::Archive { session: None, snapshot: Some(name.to_owned()) }, to)
    }

    fn archive(&self, question: Question, to: &Path) -> Result<u64, EngineError> {
        let failed = |source| EngineError::Io { doing: "write the archive", source };
        if to.exists() {
            return Err(EngineError::Declined(format!(
                "{} is there already: choose another name",
                to.display()
            )));
        }
        let making = making(to);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&making).map_err(failed)?;
        let written = self.order_with(&question, &[file.as_fd()]).and_then(|reply| match reply {
            Reply::Done { cut } => Ok(cut),
            other => Err(unexpected(other)),
        });
        let placed = written.and_then(|omitted| {
            file.sync_all().and_then(|()| fs::rename(&making, to)).map_err(failed).map(|()| omitted)
        });
        if placed.is_err() {
            let _ = fs::remove_file(&making);
        }
        placed
    }

    /// Makes a snapshot of this name from an archive; sessions that begin with it share its files.
    pub fn unarchive(&self, from: &Path, name: &str) -> Result<(), EngineError> {
        let unreadable = |source| EngineError::Unreadable { path: from.to_owned(), source };
        let file = File::open(from).map_err(unreadable)?;
        match self.order_with(&Question::Unarchive { name: name.to_owned() }, &[file.as_fd()])? {
            Reply::Done { .. } => Ok(()),
            other => Err(unexpected(other)),
        }
    }
}

fn making(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    to.with_file_name(name)
}
