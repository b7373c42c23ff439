//! Commands that are started here, and everyone who listens to them.

use super::{Account, Inside, InsideError};
use crate::live::Mailbox;
use crate::live::errand::{Errand, Key, StartAsked};
use crate::live::mail::Letter;
use crate::relay::{End, Feed, Heard, Hub};
use bytes::Bytes;
use cofferdam_model::Span;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

/// So long after its end a command can still be asked how it ended.
const REMEMBERED: Duration = Duration::from_secs(30);

/// A command to start.
#[derive(Debug, Clone, Default)]
pub struct ProcessSpec {
    pub argv: Vec<String>,
    /// On top of the session's own.
    pub env: BTreeMap<String, String>,
    /// Absent: the work dir.
    pub cwd: Option<PathBuf>,
    /// Absent: whom the session is for.
    pub who: Option<Account>,
    /// On a terminal of so many rows and columns.
    pub tty: Option<(u16, u16)>,
    pub stdin: bool,
    /// When it is over, the command is ended.
    pub timeout: Option<Duration>,
    /// A name for it, of the caller's choice.
    pub tag: Option<String>,
}

/// One that was started, for as long as it runs and a little longer.
pub struct Process {
    pub pid: u32,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<PathBuf>,
    pub tag: Option<String>,
    pub tty: bool,
    pub stdin: bool,
    mail: Mailbox,
    key: Key,
    hub: Arc<Hub>,
}

/// Someone who listens to a command. Dropped, it listens no more; the command goes on.
pub struct Attached {
    heard: UnboundedReceiver<Heard>,
}

impl Attached {
    /// Nothing once the session itself is gone.
    pub async fn next(&mut self) -> Option<Heard> {
        self.heard.recv().await
    }
}

/// All of one session's.
#[derive(Default)]
pub(super) struct Processes(Mutex<Vec<Arc<Process>>>);

impl Processes {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|process| process.hub.ended_at().is_none_or(|at| at.elapsed() < REMEMBERED));
        all
    }
}

impl Inside {
    /// Starts a command; when this returns it runs, and whoever is attached hears everything of it.
    pub async fn start(&self, spec: ProcessSpec) -> Result<(Arc<Process>, Attached), InsideError> {
        let hub = Arc::new(Hub::default());
        let mut heard = hub.attach();
        let (to, began) = oneshot::channel();
        let ProcessSpec { argv, env, cwd, who, tty, stdin, timeout, tag } = spec;
        let asked = StartAsked {
            argv: argv.clone(),
            env: env.clone(),
            cwd: cwd.clone(),
            who,
            tty,
            stdin,
            timeout: timeout.map(Span),
            by: self.by.clone(),
        };
        self.put(Errand::Start { asked, hub: hub.clone(), to })?;
        let key = began.await.map_err(|_| InsideError::Gone)??;
        let pid = match heard.recv().await {
            Some(Heard::Started { pid }) => pid,
            Some(Heard::Ended(end)) => return Err(not_started(&end)),
            Some(Heard::Output { .. }) | None => return Err(InsideError::Gone),
        };
        let mail = self.mail.clone();
        let (tty, stdin) = (tty.is_some(), stdin);
        let process = Arc::new(Process { pid, argv, env, cwd, tag, tty, stdin, mail, key, hub: hub.clone() });
        self.mail.known.processes.all().push(process.clone());
        Ok((process, Attached { heard }))
    }

    /// Those that run.
    pub fn processes(&self) -> Vec<Arc<Process>> {
        let all = self.mail.known.processes.all();
        all.iter().filter(|process| process.hub.ended_at().is_none()).cloned().collect()
    }

    /// Also one that has just ended. The latest, where a number was used again.
    pub fn process(&self, is_it: impl Fn(&Process) -> bool) -> Option<Arc<Process>> {
        self.mail.known.processes.all().iter().rev().find(|process| is_it(process)).cloned()
    }
}

/// As a shell would put it.
fn not_started(end: &End) -> InsideError {
    use crate::error::EngineError::Declined;
    use cofferdam_model::Exit;
    InsideError::Refused(Declined(match &end.exit {
        Ok(Exit::NotFound) => "the program was not found".into(),
        Ok(Exit::NotExecutable) => "the program cannot be executed".into(),
        Ok(_) => end.reason.clone().unwrap_or_else(|| "it ended before it began".into()),
        Err(reason) => reason.clone(),
    }))
}

impl Process {
    fn put(&self, errand: Errand) -> Result<(), InsideError> {
        self.mail.put(Letter::Errand(Box::new(errand))).map_err(|_| InsideError::Gone)
    }

    pub fn has_ended(&self) -> bool {
        self.hub.ended_at().is_some()
    }

    /// Listens from here on, or hears how it ended.
    pub fn attach(&self) -> Attached {
        Attached { heard: self.hub.attach() }
    }

    /// Waits until the guest has room for it.
    pub async fn input(&self, bytes: Bytes) -> Result<(), InsideError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (done, gone) = oneshot::channel();
        self.put(Errand::Feed { key: self.key, feed: Feed { bytes, done } })?;
        gone.await.map_err(|_| InsideError::Gone)
    }

    pub async fn end_input(&self) -> Result<(), InsideError> {
        let (done, gone) = oneshot::channel();
        self.put(Errand::EndFeed { key: self.key, record: None, done })?;
        gone.await.map_err(|_| InsideError::Gone)
    }

    /// To its process group; on a terminal to whoever is in the foreground.
    pub fn signal(&self, number: u8) -> Result<(), InsideError> {
        self.put(Errand::Signal { key: self.key, number })
    }

    pub fn resize(&self, rows: u16, columns: u16) -> Result<(), InsideError> {
        self.put(Errand::Resize { key: self.key, rows, columns })
    }
}
