//! Sessions as people name them, and what can be asked of one that stays.

use super::register;
use crate::Engine;
use crate::control::{Lines, Question, Reply, asking, unexpected};
use crate::error::EngineError;
use cofferdam_model::{
    Changes, ChangesDecided, Counters, ExecInfo, LiveState, SessionId, SessionInfo, Span, Stream,
};
use cofferdam_store::TraceState;
use cofferdam_trace::Reader;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a process that was killed may take to let go of what it held.
const GOING: Duration = Duration::from_secs(10);
/// Traces that are looked through for runs under way: the newest.
const LOOKED_AT: usize = 500;

impl Engine {
    /// All sessions that live, and those that were lost, the oldest first.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, EngineError> {
        let mut all: BTreeMap<SessionId, SessionInfo> = BTreeMap::new();
        for session in self.live()? {
            if let Ok(info) = self.session(&session) {
                all.insert(session, info);
            }
        }
        for info in register::all(&self.home) {
            if !all.contains_key(&info.session) && !self.is_live(&info.session) {
                all.insert(info.session.clone(), self.with_files(info));
            }
        }
        for summary in self.list_traces(LOOKED_AT)? {
            if summary.state == TraceState::Running
                && !all.contains_key(&summary.id)
                && let Some(info) = self.told_by_trace(&summary.id)
            {
                all.insert(summary.id, info);
            }
        }
        Ok(all.into_values().collect())
    }

    /// One session as it is now.
    pub fn session(&self, session: &SessionId) -> Result<SessionInfo, EngineError> {
        let gone = |error| self.told_by_trace(session).ok_or(error);
        match self.ask(session, &Question::Show) {
            Ok(Reply::Info(info)) => Ok(*info),
            Ok(other) => gone(unexpected(other)),
            Err(error) => match register::find(&self.home, session).filter(|_| !self.is_live(session)) {
                Some(lost) => Ok(self.with_files(lost)),
                None => gone(error),
            },
        }
    }

    /// A `run` says nothing of itself but by its trace.
    fn told_by_trace(&self, session: &SessionId) -> Option<SessionInfo> {
        if !self.is_live(session) {
            return None;
        }
        let trace = self.find_trace(session.as_str()).ok()?;
        let story = self.story(&trace).ok()?;
        let told = story.session?;
        let execs: Vec<ExecInfo> =
            story.execs.iter().zip(1..).map(|(exec, id)| exec_info(id, exec)).collect();
        Some(SessionInfo {
            session: session.clone(),
            state: LiveState::Running,
            reason: None,
            live: None,
            started_us: told.time_us,
            until_us: None,
            workdir: PathBuf::from(told.fact.workdir.to_string()),
            policy: told.fact.spec.policy.is_some(),
            running: execs.iter().filter(|exec| exec.exit.is_none()).count(),
            browser: None,
            transactions: 0,
            execs,
            usage: Counters::default(),
        })
    }

    fn is_live(&self, session: &SessionId) -> bool {
        Reader::open(&self.home.trace_dir(session)).is_ok_and(|trace| trace.is_live())
    }

    /// By id, by name or by the beginning of an id. Of two with one name the one that lives is meant. Programs give the
    /// whole id with every command, and no other session is looked at for them.
    pub fn find_session(&self, name: &str) -> Result<SessionId, EngineError> {
        let whole = name.parse::<SessionId>().ok();
        if let Some(info) = whole.and_then(|session| register::find(&self.home, &session)) {
            return Ok(info.session);
        }
        let on_file = register::all(&self.home);
        let named = |info: &&SessionInfo| info.live.as_ref().is_some_and(|l| l.name.as_deref() == Some(name));
        let mut fitting: Vec<&SessionInfo> = on_file.iter().filter(named).collect();
        fitting.sort_by_key(|info| self.is_live(&info.session));
        if let Some(found) = fitting.pop() {
            return Ok(found.session.clone());
        }
        let mut ids = self.live()?;
        ids.extend(on_file.into_iter().map(|info| info.session));
        let running = self.list_traces(LOOKED_AT)?.into_iter().filter(|s| s.state == TraceState::Running);
        ids.extend(running.map(|summary| summary.id));
        ids.retain(|session| session.as_str().starts_with(name));
        ids.sort();
        ids.dedup();
        match (ids.len(), ids.pop()) {
            (1, Some(session)) => Ok(session),
            (0, _) => Err(EngineError::NotLive(name.to_owned())),
            (count, _) => Err(EngineError::Ambiguous { prefix: name.to_owned(), count }),
        }
    }

    pub fn pause_session(&self, session: &SessionId) -> Result<(), EngineError> {
        self.command(session, &Question::Pause).map(drop)
    }

    pub fn resume_session(&self, session: &SessionId) -> Result<(), EngineError> {
        self.command(session, &Question::Resume).map(drop)
    }

    pub fn extend_session(&self, session: &SessionId, by: Span) -> Result<(), EngineError> {
        self.command(session, &Question::Extend { by }).map(drop)
    }

    /// Ends a session and says what became of its changes. One that was lost is forgotten.
    pub fn kill_session(
        &self,
        session: &SessionId,
        changes: Option<Changes>,
    ) -> Result<Option<ChangesDecided>, EngineError> {
        match self.ask(session, &Question::End { changes }) {
            Ok(Reply::Ended { changes }) => Ok(changes),
            Ok(other) => Err(unexpected(other)),
            Err(EngineError::Lost { .. }) => {
                register::strike(&self.home, session);
                self.give_up(session);
                self.housekeeping();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends one command of a session.
    pub fn kill_exec(&self, session: &SessionId, exec: u32) -> Result<(), EngineError> {
        let number = Signal::KILL.as_raw() as u8;
        self.command(session, &Question::Signal { exec, number, alone: false }).map(drop)
    }

    /// Where the output of a detached command is, while its session lives.
    pub fn session_log(&self, session: &SessionId, exec: u32) -> Result<PathBuf, EngineError> {
        let doing = "find the command's log";
        register::log(&self.home, session, exec).map_err(|source| EngineError::Io { doing, source })
    }

    /// Asks a session. Where nobody answers, says what became of it.
    pub(crate) fn ask_session(
        &self,
        session: &SessionId,
        question: &Question,
        along: &[BorrowedFd<'_>],
    ) -> Result<Lines, EngineError> {
        let (name, begun) = (format!("{session}.sock"), Instant::now());
        loop {
            let error = match self.ask_at(&name, question, along) {
                Ok(lines) => return Ok(lines),
                Err(error) => error,
            };
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
                return Err(asking(error));
            }
            let not_live = || EngineError::NotLive(session.to_string());
            let lost = register::find(&self.home, session).ok_or_else(not_live)?;
            if !self.is_live(session) {
                let reason = lost.reason.unwrap_or_default();
                return Err(EngineError::Lost { session: session.clone(), reason });
            }
            // Whoever held it was killed, and is not quite gone.
            if begun.elapsed() > GOING {
                return Err(not_live());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn exec_info(id: u32, exec: &cofferdam_trace::Exec) -> ExecInfo {
    let written = exec.outputs.iter().filter(|told| told.fact.stream != Stream::Stdin);
    ExecInfo {
        id,
        argv: exec.started.fact.argv.clone(),
        started_us: exec.started.time_us,
        detached: false,
        output: written.map(|told| told.fact.bytes).sum(),
        exit: exec.exited.as_ref().map(|told| told.fact.exit),
        usage: exec.exited.as_ref().map(|told| told.fact.usage).unwrap_or_default(),
    }
}
