//! Sessions held by the process that serves them: what `supervise` does, for a door that stays. The same supervisor,
//! the same sockets (so that `cofferdam session …` reaches what the service holds), and no process of its own.

use super::inside::Inside;
use super::start::located;
use super::supervisor::{LOCK, Log, Supervisor};
use crate::Engine;
use crate::control::{Asked, Control, CreateAsked, Question, Reply, unexpected};
use crate::environment::Caller;
use crate::error::EngineError;
use cofferdam_model::{Changes, ChangesDecided, SessionId, SessionInfo, SessionSpec, Settled, Span};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

/// For as long as it lives, this process holds the sessions of its state directory, and no other does.
pub struct House {
    supervisor: Arc<Supervisor>,
    control: Mutex<Option<Control>>,
    _lock: File,
}

impl Engine {
    /// Becomes the one that holds the sessions of this state directory.
    pub fn hold_here(&self, log: Log) -> Result<House, EngineError> {
        let Some(lock) = self.lock()? else { return Err(self.held_elsewhere()) };
        let (supervisor, control) = self.take_orders(log)?;
        Ok(House { supervisor, control: Mutex::new(Some(control)), _lock: lock })
    }

    fn held_elsewhere(&self) -> EngineError {
        let lock = self.home.live_dir().and_then(|dir| std::fs::read_to_string(dir.join(LOCK)));
        let pid = lock.unwrap_or_default();
        EngineError::Declined(format!(
            "the process {} holds the sessions of {} already: end it (`kill {0}` ends its sessions in order), or serve another state directory with --home",
            pid.trim(),
            self.home.path().display()
        ))
    }
}

impl House {
    /// Makes a session that stays, with the files of a snapshot if one is named. Waits until it stands.
    pub fn create(
        &self,
        spec: SessionSpec,
        by: String,
        durable: bool,
        snapshot: Option<String>,
    ) -> Result<SessionId, EngineError> {
        spec.check_place()?;
        let spec = located(spec)?;
        let caller = Caller::of_this_process();
        let asked = CreateAsked { spec, by, durable, caller, snapshot, from: None };
        self.supervisor.create(asked).map_err(unexpected)
    }

    /// Makes sessions that begin with the files of this one: all, or none.
    pub fn fork(&self, session: &SessionId, count: usize, by: &str) -> Result<Vec<SessionId>, EngineError> {
        self.supervisor.fork(session, count, by.to_owned()).map_err(unexpected)
    }

    /// The placeholders of a session's credentials, by the variable that holds each inside.
    pub fn placeholders(&self, session: &SessionId) -> Vec<(String, String)> {
        self.supervisor.books().placeholders.get(session).cloned().unwrap_or_default()
    }

    /// Asks a session of this house, without its socket.
    fn ask(&self, session: &SessionId, question: Question, by: &str) -> Result<Reply, EngineError> {
        let mailbox = self.supervisor.books().sessions.get(session).cloned();
        let mailbox = mailbox.ok_or_else(|| EngineError::NotLive(session.to_string()))?;
        match mailbox.ask(Asked { question, by: by.to_owned(), descriptors: Vec::new() }) {
            // It may have ended, and not be off the books yet.
            reply @ (Reply::Refused(_) | Reply::Unenforceable(_))
                if mailbox.is_closed() || !self.holds(session) =>
            {
                drop(reply);
                Err(EngineError::NotLive(session.to_string()))
            }
            reply @ (Reply::Refused(_) | Reply::Unenforceable(_)) => Err(unexpected(reply)),
            reply => Ok(reply),
        }
    }

    pub fn info(&self, session: &SessionId) -> Result<SessionInfo, EngineError> {
        match self.ask(session, Question::Show, "service")? {
            Reply::Info(info) => Ok(*info),
            other => Err(unexpected(other)),
        }
    }

    pub fn pause(&self, session: &SessionId, by: &str) -> Result<(), EngineError> {
        self.ask(session, Question::Pause, by).map(drop)
    }

    pub fn resume(&self, session: &SessionId, by: &str) -> Result<(), EngineError> {
        self.ask(session, Question::Resume, by).map(drop)
    }

    /// How long it may still be, from now on; nothing: as long as the operator lets any session be.
    pub fn set_time(&self, session: &SessionId, left: Option<Span>, by: &str) -> Result<(), EngineError> {
        self.ask(session, Question::SetTime { left }, by).map(drop)
    }

    pub fn extend(&self, session: &SessionId, more: Span, by: &str) -> Result<(), EngineError> {
        self.ask(session, Question::Extend { by: more }, by).map(drop)
    }

    /// Names its files as they are now; with `force`, what runs is ended first.
    pub fn snapshot(
        &self,
        session: &SessionId,
        name: &str,
        force: bool,
        by: &str,
    ) -> Result<(), EngineError> {
        self.ask(session, Question::Snapshot { name: name.to_owned(), force }, by).map(drop)
    }

    pub fn restore(&self, session: &SessionId, name: &str, by: &str) -> Result<(), EngineError> {
        self.ask(session, Question::Restore { name: name.to_owned() }, by).map(drop)
    }

    pub fn begin(&self, session: &SessionId, by: &str) -> Result<(), EngineError> {
        self.ask(session, Question::Begin, by).map(drop)
    }

    /// Keeps or drops the innermost transaction; with `force`, what runs is ended first.
    pub fn settle(
        &self,
        session: &SessionId,
        keep: bool,
        force: bool,
        by: &str,
    ) -> Result<Settled, EngineError> {
        match self.ask(session, Question::Settle { keep, force }, by)? {
            Reply::Settled(settled) => Ok(*settled),
            other => Err(unexpected(other)),
        }
    }

    /// Ends a session and says what became of its changes.
    pub fn kill(
        &self,
        session: &SessionId,
        changes: Option<Changes>,
        by: &str,
    ) -> Result<Option<ChangesDecided>, EngineError> {
        match self.ask(session, Question::End { changes }, by)? {
            Reply::Ended { changes } => Ok(changes),
            other => Err(unexpected(other)),
        }
    }

    /// Removes a snapshot.
    pub fn forget(&self, name: &str) -> Result<(), EngineError> {
        self.supervisor.shelf.remove(name)
    }

    /// Those that it holds now.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.supervisor.books().sessions.keys().cloned().collect()
    }

    /// The way into one of them. `by` is who asks, for the record.
    pub fn inside(&self, session: &SessionId, by: impl Into<String>) -> Option<Inside> {
        let mailbox = self.supervisor.books().sessions.get(session).cloned()?;
        Some(Inside::new(mailbox, by.into()))
    }

    pub fn holds(&self, session: &SessionId) -> bool {
        self.supervisor.books().sessions.contains_key(session)
    }

    /// Takes no more orders, and ends every session in good order.
    pub fn leave(&self) {
        drop(self.control.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.supervisor.leave();
    }
}
