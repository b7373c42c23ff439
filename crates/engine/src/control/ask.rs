//! The other side: finds running sessions by their sockets, and asks them.

use super::{LONGEST, Question, Reply, Waiting, address, open_dir};
use crate::Engine;
use crate::error::EngineError;
use cofferdam_model::SessionId;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A session that is busy cutting a thousand streams still answers well within this.
const PATIENCE: Duration = Duration::from_secs(30);

impl Engine {
    /// Sessions that run now under a policy, the oldest first.
    pub fn live(&self) -> Result<Vec<SessionId>, EngineError> {
        let failed = |source| EngineError::Io { doing: "list running sessions", source };
        let dir = self.home.live_dir().map_err(failed)?;
        let names = std::fs::read_dir(&dir).map_err(failed)?.flatten().map(|entry| entry.file_name());
        let mut found: Vec<SessionId> =
            names.filter_map(|name| name.to_str()?.strip_suffix(".sock")?.parse().ok()).collect();
        found.retain(|session| match self.connect(session) {
            Ok(_) => true,
            Err(error) => {
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    // Left behind by a process that was killed.
                    let _ = std::fs::remove_file(dir.join(format!("{session}.sock")));
                }
                false
            }
        });
        found.sort();
        Ok(found)
    }

    /// The running session whose id begins so.
    pub fn find_live(&self, prefix: &str) -> Result<SessionId, EngineError> {
        let mut fitting: Vec<_> =
            self.live()?.into_iter().filter(|session| session.as_str().starts_with(prefix)).collect();
        match (fitting.len(), fitting.pop()) {
            (1, Some(session)) => Ok(session),
            (0, _) => Err(EngineError::NotLive(prefix.to_owned())),
            (count, _) => Err(EngineError::Ambiguous { prefix: prefix.to_owned(), count }),
        }
    }

    /// Requests that wait for a person, of all running sessions.
    pub fn waiting(&self) -> Result<Vec<(SessionId, Waiting)>, EngineError> {
        let mut all = Vec::new();
        for session in self.live()? {
            if let Ok(Reply::Pending(waiting)) = self.ask(&session, &Question::Pending) {
                all.extend(waiting.into_iter().map(|one| (session.clone(), one)));
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
        crate::policy::rules(&path)?;
        let path = path.canonicalize().map_err(|source| EngineError::Unreadable { path, source })?;
        self.command(session, &Question::SetPolicy { path })
    }

    pub fn revoke_live(&self, session: &SessionId, secret: &str) -> Result<u64, EngineError> {
        self.command(session, &Question::Revoke { secret: secret.to_owned() })
    }

    pub fn rotate_live(&self, session: &SessionId, secret: &str) -> Result<u64, EngineError> {
        self.command(session, &Question::Rotate { secret: secret.to_owned() })
    }

    /// Lets nothing out of a session, or lets it out again.
    pub fn set_egress(&self, session: &SessionId, open: bool) -> Result<u64, EngineError> {
        self.command(session, if open { &Question::Resume } else { &Question::Pause })
    }

    fn command(&self, session: &SessionId, question: &Question) -> Result<u64, EngineError> {
        match self.ask(session, question)? {
            Reply::Done { cut } => Ok(cut),
            Reply::Refused(reason) => Err(EngineError::Declined(reason)),
            Reply::Pending(_) => Err(EngineError::Declined("it gave an answer to something else".into())),
        }
    }

    fn connect(&self, session: &SessionId) -> io::Result<UnixStream> {
        let dir = open_dir(&self.home.live_dir()?)?;
        UnixStream::connect(address(&dir, &format!("{session}.sock")))
    }

    fn ask(&self, session: &SessionId, question: &Question) -> Result<Reply, EngineError> {
        let failed = |source| EngineError::Io { doing: "ask the running session", source };
        let mut stream = self.connect(session).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut text = serde_json::to_vec(question).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        stream.write_all(&text).map_err(failed)?;
        let mut line = String::new();
        BufReader::new(stream.take(LONGEST as u64)).read_line(&mut line).map_err(failed)?;
        serde_json::from_str(&line).map_err(|error| failed(error.into()))
    }
}
