//! The asking side: finds running sessions by their sockets, and asks them.

use super::{Lines, Question, Reply, Waiting, address, lines, locked, open_dir};
use crate::Engine;
use crate::error::EngineError;
use cofferdam_model::{Cap, SessionId};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A session that is busy cutting a thousand streams, or committing a large work dir, still answers within this.
const PATIENCE: Duration = Duration::from_secs(120);

impl Engine {
    /// Sessions that can be asked now, the oldest first: those of the supervisor, and those that `run` under a
    /// policy.
    pub fn live(&self) -> Result<Vec<SessionId>, EngineError> {
        let failed = |source| EngineError::Io { doing: "list running sessions", source };
        let dir = self.home.live_dir().map_err(failed)?;
        let names = std::fs::read_dir(&dir).map_err(failed)?.flatten().map(|entry| entry.file_name());
        let mut found: Vec<SessionId> =
            names.filter_map(|name| name.to_str()?.strip_suffix(".sock")?.parse().ok()).collect();
        found.retain(|session| {
            let name = format!("{session}.sock");
            let Err(error) = connect(&dir, &name) else { return true };
            !(refused(&error) && is_left_behind(&dir, &name)) && connect(&dir, &name).is_ok()
        });
        found.sort();
        Ok(found)
    }

    /// Requests that wait for a person, of all running sessions.
    pub fn waiting(&self) -> Result<Vec<(SessionId, Waiting)>, EngineError> {
        let mut all = Vec::new();
        for session in self.live()? {
            match self.ask(&session, &Question::Pending) {
                Ok(Reply::Pending(waiting)) => {
                    all.extend(waiting.into_iter().map(|one| (session.clone(), one)));
                }
                // An answer that does not come, or cannot be read, is not the same as nothing.
                Err(EngineError::Io { doing, source })
                    if matches!(source.kind(), io::ErrorKind::TimedOut | io::ErrorKind::InvalidData) =>
                {
                    return Err(EngineError::Io { doing, source });
                }
                // It has ended meanwhile, or is another user's.
                _ => {}
            }
        }
        Ok(all)
    }

    pub fn answer(&self, session: &SessionId, id: u64, allow: bool) -> Result<(), EngineError> {
        self.command(session, &Question::Answer { id, allow }).map(drop)
    }

    /// Puts another policy in force; says how many exchanges were cut by it.
    pub fn set_policy(&self, session: &SessionId, path: PathBuf) -> Result<u64, EngineError> {
        // Read here too, so that a mistake is told with its line before anything is asked.
        crate::policy::rules(&path, None)?;
        let path = path.canonicalize().map_err(|source| EngineError::Unreadable { path, source })?;
        self.command(session, &Question::SetPolicy { path })
    }

    pub fn revoke_live(&self, session: &SessionId, secret: &str) -> Result<u64, EngineError> {
        self.command(session, &Question::Revoke { secret: secret.to_owned() })
    }

    pub fn rotate_live(&self, session: &SessionId, secret: &str) -> Result<u64, EngineError> {
        self.command(session, &Question::Rotate { secret: secret.to_owned() })
    }

    /// Bounds what a session may still use, from now on.
    pub fn cap_live(&self, session: &SessionId, cap: Cap) -> Result<(), EngineError> {
        self.command(session, &Question::Cap(cap)).map(drop)
    }

    /// Lets nothing out of a session, or lets it out again.
    pub fn set_egress(&self, session: &SessionId, open: bool) -> Result<u64, EngineError> {
        self.command(session, &Question::Egress { open })
    }

    pub(crate) fn command(&self, session: &SessionId, question: &Question) -> Result<u64, EngineError> {
        match self.ask(session, question)? {
            Reply::Done { cut } => Ok(cut),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn connect(&self, name: &str) -> io::Result<UnixStream> {
        connect(&self.home.live_dir()?, name)
    }

    pub(crate) fn ask(&self, session: &SessionId, question: &Question) -> Result<Reply, EngineError> {
        let mut lines = self.ask_session(session, question, &[])?;
        let reply = lines.next(Some(Instant::now() + PATIENCE)).map_err(asking)?;
        reply.ok_or_else(|| EngineError::Declined(format!("session {session} ended before it could answer")))
    }

    /// Asks at a socket; what is answered can be read from what comes back.
    pub(crate) fn ask_at(
        &self,
        name: &str,
        question: &Question,
        along: &[BorrowedFd<'_>],
    ) -> io::Result<Lines> {
        let mut stream = self.connect(name)?;
        lines::ask(&mut stream, question, along)?;
        Ok(Lines::new(stream))
    }
}

fn connect(dir: &Path, name: &str) -> io::Result<UnixStream> {
    let dir = open_dir(dir)?;
    UnixStream::connect(address(&dir, name))
}

fn refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Removes a socket whose process was killed; false where someone listens at it, or is about to.
pub(super) fn is_left_behind(dir: &Path, name: &str) -> bool {
    let Ok(_lock) = locked(dir) else { return false };
    let dead = connect(dir, name).is_err_and(|error| refused(&error));
    dead && std::fs::remove_file(dir.join(name)).is_ok()
}

pub(crate) fn asking(source: io::Error) -> EngineError {
    EngineError::Io { doing: "ask the running session", source }
}

/// An answer to something else, or a no.
pub(crate) fn unexpected(reply: Reply) -> EngineError {
    match reply {
        Reply::Refused(reason) => EngineError::Declined(reason),
        Reply::Unenforceable(reason) => EngineError::Unenforceable(reason),
        _ => EngineError::Declined("it gave an answer to something else; is it of another version?".into()),
    }
}
