//! Orders a session of the supervisor, which is started if there is none.

use super::supervisor::SOCKET;
use crate::Engine;
use crate::control::{CreateAsked, Question, Reply, asking, unexpected};
use crate::environment::Caller;
use crate::error::EngineError;
use cofferdam_model::{SessionId, SessionSpec};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A session takes some milliseconds; the value of a secret may come from a program that takes longer.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a supervisor may take to come up on a machine that is busy.
const STARTING: Duration = Duration::from_secs(20);
/// Beyond this the log begins anew.
const LOG_MOST: u64 = 1 << 20;
/// What it may know of the environment that it is started from: where things are, and nothing that is secret.
const PASSED_ON: [&str; 6] =
    ["PATH", "HOME", "LANG", "TZ", "XDG_DATA_HOME", "COFFERDAM_VAULT_PASSPHRASE_FILE"];

impl Engine {
    /// Makes a session that stays, with the files of a snapshot if one is named. Paths are taken from where the
    /// caller is.
    pub fn create_session(
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
        match self.order_of_supervisor(&Question::Create(Box::new(asked)))? {
            Reply::Created { session } => Ok(session),
            other => Err(unexpected(other)),
        }
    }

    /// Puts a question to the supervisor, which is started if there is none.
    pub(super) fn order_of_supervisor(&self, question: &Question) -> Result<Reply, EngineError> {
        self.order_with(question, &[])
    }

    /// The same with descriptors.
    pub(super) fn order_with(
        &self,
        question: &Question,
        along: &[BorrowedFd<'_>],
    ) -> Result<Reply, EngineError> {
        let deadline = Instant::now() + STARTING;
        let mut started: Option<Child> = None;
        loop {
            match self.order(question, along)? {
                Some(reply) => return Ok(reply),
                None if Instant::now() > deadline => return Err(self.not_started("it does not answer")),
                None => {}
            }
            match started.as_mut().map(Child::try_wait) {
                None | Some(Ok(Some(_))) => started = Some(self.start_supervisor()?),
                Some(_) => {}
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Nothing where nobody was there to answer.
    fn order(&self, question: &Question, along: &[BorrowedFd<'_>]) -> Result<Option<Reply>, EngineError> {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
        let asked = self.ask_at(SOCKET, question, along);
        match asked.and_then(|mut lines| lines.next(Some(Instant::now() + PATIENCE))) {
            Ok(reply) => Ok(reply),
            Err(error)
                if matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe) =>
            {
                Ok(None)
            }
            Err(error) => Err(asking(error)),
        }
    }

    fn log_file(&self) -> PathBuf {
        self.home.path().join("supervisor.log")
    }

    fn not_started(&self, reason: impl ToString) -> EngineError {
        EngineError::Supervisor { reason: reason.to_string(), log: self.log_file() }
    }

    /// This program once more, as the supervisor. It leaves our session and closes what it was given by itself.
    fn start_supervisor(&self) -> Result<Child, EngineError> {
        let start = || {
            let path = self.log_file();
            if std::fs::metadata(&path).is_ok_and(|meta| meta.len() > LOG_MOST) {
                std::fs::remove_file(&path)?;
            }
            let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
            let passed = PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
            Command::new("/proc/self/exe")
                .arg0("cofferdam")
                .arg("supervise")
                .arg("--home")
                .arg(self.home.path())
                .env_clear()
                .envs(passed)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
        };
        start().map_err(|error| self.not_started(error))
    }
}

/// The supervisor is somewhere else.
pub(super) fn located(mut spec: SessionSpec) -> Result<SessionSpec, EngineError> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|source| EngineError::Unreadable { path: path.to_owned(), source })
    };
    let workdir = spec.workdir.unwrap_or_else(|| PathBuf::from("."));
    let found = workdir.canonicalize();
    spec.workdir = Some(found.map_err(|source| EngineError::Workdir { path: workdir, source })?);
    spec.policy = spec.policy.as_deref().map(absolute).transpose()?;
    for mount in &mut spec.mounts {
        mount.source = absolute(&mount.source)?;
    }
    Ok(spec)
}
