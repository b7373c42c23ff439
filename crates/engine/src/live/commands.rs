//! The commands of a session that is held: begun, signalled, and told of when they have ended.

use super::holder::Holder;
use super::mail::{ReplyTo, say_last};
use super::register;
use crate::control::{ExecAsked, Reply};
use crate::error::EngineError;
use crate::record::now_us;
use crate::relay::{End, Ended, ExecId, Hub, Io, Stdio};
use crate::standing::Command;
use cofferdam_guest::host::HostError;
use cofferdam_guest::wire;
use cofferdam_model::{ExecInfo, ExecTx, Exit, LiveState, SessionSpec, Stream, Usage};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// So many execs that have ended are remembered.
const REMEMBERED: usize = 100;
/// So much of a detached exec's output is kept; the trace has the digest of all of it.
const LOG_MOST: u64 = 64 << 20;

pub(super) struct Exec {
    /// The guest's, and the event that its own events belong to.
    pub(super) running: Option<ExecId>,
    pub(super) info: ExecInfo,
    pub(super) watcher: Option<UnixStream>,
    /// When it ends because nobody watches it.
    pub(super) doomed: Option<Instant>,
    /// It is a transaction of its own.
    pub(super) tx: Option<ExecTx>,
    /// Who reads it in this process.
    pub(super) hub: Option<Arc<Hub>>,
}

impl Holder {
    pub(super) fn signal(&mut self, exec: u32, number: u8) -> Result<Reply, EngineError> {
        let found = self.execs.iter().find(|e| e.info.id == exec).and_then(|e| e.running);
        let Some(id) = found else {
            return Ok(Reply::Refused(format!("exec {exec} is not running: see `cofferdam session show`")));
        };
        if !(1..=64).contains(&number) {
            return Ok(Reply::Refused(format!("{number} is no signal")));
        }
        if self.is_paused() {
            return Ok(Reply::Refused("it is paused, and hears nothing: resume it first".into()));
        }
        match i32::from(number) == Signal::KILL.as_raw() {
            true => self.relay.kill(id)?,
            false => self.relay.signal(id, number)?,
        }
        Ok(Reply::Done { cut: 0 })
    }

    pub(super) fn exec(
        &mut self,
        asked: ExecAsked,
        descriptors: Vec<OwnedFd>,
        reply: ReplyTo,
        by: &str,
    ) -> Result<(), EngineError> {
        let number = self.last + 1;
        let detached = asked.detach;
        let started = self.alone(&asked).and_then(|()| self.stdio(&asked, descriptors, number));
        let started = started.and_then(|stdio| self.begin(&asked, stdio, by));
        let id = match started {
            Ok(id) => id,
            Err(error) if is_of_one_exec(&error) => {
                reply.send(Reply::error(&error));
                return Ok(());
            }
            Err(error) => {
                reply.send(Reply::error(&error));
                return Err(error);
            }
        };
        self.last = number;
        let mut watcher = None;
        match reply {
            ReplyTo::Watcher(stream, to) => {
                let _ = crate::control::send(&stream, &Reply::Started { exec: number });
                let _ = to.send(number);
                watcher = Some(stream);
            }
            other => other.send(Reply::Started { exec: number }),
        }
        let info = ExecInfo {
            id: number,
            argv: asked.argv,
            started_us: now_us(),
            detached,
            output: 0,
            exit: None,
            usage: Usage::default(),
        };
        self.execs.push(Exec { running: Some(id), info, watcher, doomed: None, tx: asked.tx, hub: None });
        self.clock.running(self.running(), Instant::now());
        self.forget_old();
        Ok(())
    }

    /// One that nobody watches any more is about to be ended.
    pub(super) fn tell_of_stop(&self, id: ExecId) {
        let exec = self.execs.iter().find(|exec| exec.running == Some(id));
        if let Some(watcher) = exec.and_then(|exec| exec.watcher.as_ref()) {
            let _ = crate::control::send(watcher, &Reply::Stopped);
        }
    }

    /// Of a caller its own descriptors, of a detached one a file.
    fn stdio(&self, asked: &ExecAsked, descriptors: Vec<OwnedFd>, number: u32) -> Result<Stdio, EngineError> {
        let failed = |source| EngineError::Io { doing: "open the command's log", source };
        if asked.detach {
            let log =
                register::open_log(&self.standing.home, &self.standing.session, number).map_err(failed)?;
            let stderr = log.try_clone().map_err(failed)?.into();
            return Ok(Stdio { stdin: None, stdout: log.into(), stderr });
        }
        let mut given = descriptors.into_iter();
        let stdin = if asked.stdin { given.next() } else { None };
        match (stdin.is_some() == asked.stdin, given.next(), given.next()) {
            (true, Some(stdout), Some(stderr)) => Ok(Stdio { stdin, stdout, stderr }),
            _ => Err(EngineError::Declined("a command needs the descriptors of its output with it".into())),
        }
    }

    fn begin(&mut self, asked: &ExecAsked, stdio: Stdio, by: &str) -> Result<ExecId, EngineError> {
        self.may_start(&asked.argv, &asked.env)?;
        self.be_awake(&format!("exec of {by}"))?;
        let command = Command {
            argv: asked.argv.clone(),
            env: asked.env.clone(),
            cwd: asked.cwd.clone(),
            user: asked.user.unwrap_or(self.spec.user),
            who: None,
            tty: asked.tty.map(|(rows, columns)| wire::Size { rows, columns }),
            stops: asked.stops,
            timeout: asked.timeout.or(self.spec.limits.timeout),
            output: asked.output.or(self.spec.limits.output),
            kept: asked.detach.then_some(LOG_MOST),
            own: false,
            by: None,
        };
        if asked.tx.is_some() {
            self.begin_transaction(&format!("exec of {by}"))?;
        }
        let io = Io::Descriptors(stdio);
        let started = self.standing.start(&mut self.relay, &self.spec, &command, io).map(|(id, _)| id);
        if started.is_err() && asked.tx.is_some() {
            self.settle(false, true, &format!("exec of {by}"))?;
        }
        started
    }

    /// What can be wrong with a command before anything is done for it.
    pub(super) fn may_start(
        &self,
        argv: &[String],
        env: &BTreeMap<String, String>,
    ) -> Result<(), EngineError> {
        let asked_for = SessionSpec { command: argv.to_vec(), env: env.clone(), ..self.spec.clone() };
        asked_for.check()?;
        let placeholders = self.standing.egress.iter().flat_map(|egress| &egress.placeholders);
        if let Some(variable) = placeholders.into_iter().find(|name| env.contains_key(*name)) {
            let text = format!(
                "`{variable}` holds a credential's placeholder: leave it out, or a value of yours gets inside"
            );
            return Err(EngineError::Declined(text));
        }
        Ok(())
    }

    /// One that pauses by itself wakes up by itself.
    pub(super) fn be_awake(&mut self, by: &str) -> Result<(), EngineError> {
        match self.state {
            LiveState::Running => Ok(()),
            LiveState::IdlePaused => self.resume(by),
            _ => {
                let text = "it is paused: resume it with `cofferdam session resume`";
                Err(EngineError::Declined(text.into()))
            }
        }
    }

    /// Nothing else runs beside a command that is a transaction of its own: what it did could not be told from
    /// what others do.
    fn alone(&mut self, asked: &ExecAsked) -> Result<(), EngineError> {
        let other = self.execs.iter().find(|exec| exec.running.is_some() && exec.tx.is_some());
        match other {
            Some(exec) => Err(EngineError::Declined(format!(
                "exec {} is a transaction of its own, and nothing runs beside it: wait until it has ended",
                exec.info.id
            ))),
            None if asked.tx.is_some() => self.nothing_runs(),
            None => Ok(()),
        }
    }

    pub(super) fn forget_old(&mut self) {
        while self.execs.len() > REMEMBERED
            && let Some(at) = self.execs.iter().position(|exec| exec.running.is_none())
        {
            let exec = self.execs.remove(at);
            if let Ok(log) = register::log(&self.standing.home, &self.standing.session, exec.info.id) {
                let _ = std::fs::remove_file(log);
            }
        }
    }

    pub(super) fn ended(
        &mut self,
        id: ExecId,
        event: u64,
        ended: Ended,
        reason: Option<&str>,
    ) -> Result<(), EngineError> {
        if self.browser == Some(id) {
            self.browser = None;
            return self.standing.browser_ended(event, ended, reason);
        }
        let written = ended.outputs.iter().filter(|(stream, _)| *stream != Stream::Stdin);
        let output = written.map(|(_, captured)| captured.bytes).sum();
        let failed = !matches!(ended.exit, Ok(Exit::Code(0)));
        let because =
            reason.map(str::to_owned).or_else(|| ended.limit.as_ref().map(|hit| hit.detail.clone()));
        let hits = self.limits_hit(Instant::now(), Some(event))?;
        let because = because.or_else(|| hits.filter(|_| failed));
        let (wall, told) = (ended.usage, self.standing.ended(event, ended));
        let end = End {
            exit: told.as_ref().map(|(exit, _)| *exit).map_err(ToString::to_string),
            usage: wall,
            reason: because.clone(),
            lost: reason.is_some(),
        };
        let (exit, usage, mut last) = match told {
            Ok((exit, usage)) => (exit, usage, Reply::Exited { exit, usage, reason: because, settled: None }),
            Err(error @ EngineError::Record(_)) => return Err(error),
            Err(error) => (Exit::Code(125), wall, Reply::error(&error)),
        };
        let tx = self.execs.iter().find(|exec| exec.running == Some(id)).and_then(|exec| exec.tx);
        // With the session's end all that is open is dropped anyway.
        if let Some(tx) = tx.filter(|_| reason.is_none()) {
            last = self.settle_exec(tx.keeps(exit), last)?;
        }
        self.usage.user_us += usage.user_us;
        self.usage.system_us += usage.system_us;
        self.usage.peak_memory = self.usage.peak_memory.max(usage.peak_memory);
        if let Some(exec) = self.execs.iter_mut().find(|exec| exec.running == Some(id)) {
            exec.running = None;
            exec.doomed = None;
            exec.info = ExecInfo { output, exit: Some(exit), usage, ..exec.info.clone() };
            match (exec.watcher.take(), &mut self.last_words) {
                (Some(watcher), Some(later)) => later.push((watcher, last)),
                (Some(watcher), None) => say_last(&watcher, &last),
                (None, _) => {}
            }
            exec.hub.take().iter().for_each(|hub| hub.end(end.clone()));
        }
        Ok(())
    }
}

impl Holder {
    /// What a command's own transaction came to, as part of its last line. What it has left running ends with it.
    fn settle_exec(&mut self, keep: bool, last: Reply) -> Result<Reply, EngineError> {
        match (self.settle(keep, true, "exec"), last) {
            (Ok(settled), Reply::Exited { exit, usage, reason, .. }) => {
                Ok(Reply::Exited { exit, usage, reason, settled: Some(Box::new(settled)) })
            }
            (Ok(_), last) => Ok(last),
            (Err(error @ EngineError::Record(_)), _) => Err(error),
            (Err(error), _) => Ok(Reply::error(&error)),
        }
    }
}

/// Whether only the one command is concerned that was asked for.
pub(super) fn is_of_one_exec(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Declined(_)
            | EngineError::Runtime(_)
            | EngineError::Spec(_)
            | EngineError::Unenforceable(_)
            | EngineError::Io { .. }
            | EngineError::Guest(HostError::TooLong { .. } | HostError::Request(_) | HostError::TooMany)
    )
}
