//! The thread that holds one session: opens it, serves its commands and its letters, watches its clock, closes it.

use super::clock::{Clock, Due};
use super::commands::Exec;
use super::mail::{Letter, Mailbox, Post, ReplyTo, say_last};
use super::meter::Meter;
use super::operator::Operator;
use super::plead::Pleas;
use super::shelf::Shelf;
use super::{announce, register, rescue};
use crate::control::{Asked, CreateAsked, Origin, Question, Reply};
use crate::environment::Caller;
use crate::error::EngineError;
use crate::record::now_us;
use crate::relay::{Around, End, ExecId, Relay};
use crate::session::Way;
use crate::standing::{Closing, Standing};
use crate::{Engine, browser, nobody, tiers};
use cofferdam_guest::wire;
use cofferdam_model::{
    Body, Changes, Counters, ExecInfo, Exit, LimitHit, LiveState, SessionChanged, SessionId, SessionInfo,
    SessionSpec, Usage,
};
use cofferdam_runtime::{Base, Begun};
use rustix::process::Signal;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Between the hint that nobody watches and the end.
const GRACE: Duration = Duration::from_secs(5);

/// A session that stands.
pub(super) struct Opened {
    pub(super) session: SessionId,
    pub(super) mailbox: Mailbox,
    /// By the variable that holds each inside.
    pub(super) placeholders: Vec<(String, String)>,
}

/// What is still to be said when nothing of a session is left.
pub(super) struct Over {
    pub(super) result: Result<(), EngineError>,
    pub(super) reply: Option<(ReplyTo, Reply)>,
}

/// Opens a session, tells of it or why not, and holds it until it ends.
pub(super) fn hold(
    engine: &Engine,
    asked: CreateAsked,
    operator: Operator,
    shelf: &Shelf,
    prepared: Option<Box<dyn Begun>>,
    tell: impl FnOnce(Result<Opened, Reply>),
) -> Over {
    match Holder::open(engine, asked, operator, shelf, prepared) {
        Ok((holder, mailbox)) => {
            let placeholders = holder.placeholders();
            tell(Ok(Opened { session: holder.standing.session.clone(), mailbox, placeholders }));
            holder.hold()
        }
        Err(error) => {
            tell(Err(Reply::error(&error)));
            Over { result: Err(error), reply: None }
        }
    }
}

/// How it came to its end.
pub(super) struct Ending {
    pub(super) exit: Exit,
    pub(super) changes: Option<Changes>,
    pub(super) by: String,
    /// For those who watch its execs.
    pub(super) reason: String,
    pub(super) limit: Option<LimitHit>,
    pub(super) error: Option<String>,
    pub(super) reply: Option<ReplyTo>,
}

impl Ending {
    pub(super) fn by(by: impl Into<String>, reason: impl Into<String>) -> Self {
        let (by, reason) = (by.into(), reason.into());
        Self { exit: Exit::Code(0), changes: None, by, reason, limit: None, error: None, reply: None }
    }
}

pub(super) struct Holder {
    pub(super) standing: Standing,
    pub(super) spec: SessionSpec,
    pub(super) operator: Operator,
    pub(super) relay: Relay,
    /// The browser's, while it runs, and where it is driven from outside.
    pub(super) browser: Option<ExecId>,
    browser_url: Option<String>,
    pub(super) post: Post,
    pub(super) pleas: Pleas,
    pub(super) clock: Clock,
    pub(super) state: LiveState,
    pub(super) paused_since: Instant,
    started_us: u64,
    pub(super) execs: Vec<Exec>,
    pub(super) last: u32,
    pub(super) usage: Usage,
    /// How many guests there were before this one: each numbers what it does from one.
    pub(super) guests: u32,
    /// The event that each open transaction began with.
    pub(super) begun: Vec<u64>,
    pub(super) shelf: Shelf,
    pub(super) meter: Meter,
    /// The limits that were last reached, in words.
    pub(super) hit: Option<(Instant, String)>,
    /// While it ends: what those who wait for commands are told once its changes are decided.
    pub(super) last_words: Option<Vec<(UnixStream, Reply)>>,
    pub(super) by: String,
    pub(super) durable: bool,
}

impl Holder {
    fn open(
        engine: &Engine,
        asked: CreateAsked,
        operator: Operator,
        shelf: &Shelf,
        prepared: Option<Box<dyn Begun>>,
    ) -> Result<(Self, Mailbox), EngineError> {
        let CreateAsked { mut spec, by, durable, caller, from, .. } = asked;
        if let Some(from) = &from {
            tiers::of_layers(&mut spec, &shelf.base(&from.layers, from.since))?;
        }
        let ttl = operator.ttl(&spec.live)?;
        let caller = Caller::Asker(caller);
        let place = engine.place(tiers::choose(&engine.home, &spec, None)?, &spec, &nobody, &caller)?;
        let session = place.session.clone();
        let mut base = Base::default();
        if let Some(Origin { layers, since }) = from {
            base = shelf.base(&layers, since);
            shelf.hold(&session, layers)?;
        }
        let (started_us, policy) = (now_us(), place.egress.is_some());
        let entry = announce::entry(&session, &spec, &place.workdir, (started_us, ttl, policy));
        let mut socket = None;
        let mut meanwhile = || socket = Some(announce::announce(engine, &entry));
        let way = Way { by: &by, durable, stays: true, caller, base, prepared, meanwhile: &mut meanwhile };
        let stood = engine.stand(place, &spec, way);
        if stood.is_err() {
            shelf.let_go(&session);
            register::retire(&engine.home, &session);
        }
        let mut standing = stood?;
        let socket = socket.unwrap_or_else(|| announce::announce(engine, &entry));
        let prepared = socket.and_then(|socket| announce::reached(&mut standing, &spec, socket));
        let (relay, mailbox, post, meter) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                register::retire(&engine.home, &session);
                return Err(standing.fail(error, Usage::default()));
            }
        };
        let now = Instant::now();
        let mut holder = Self {
            clock: Clock::new(&spec.live, ttl, now),
            standing,
            spec,
            operator,
            relay,
            browser: None,
            browser_url: None,
            post,
            pleas: Pleas::new(now),
            state: LiveState::Running,
            paused_since: now,
            started_us,
            execs: Vec::new(),
            last: 0,
            usage: Usage::default(),
            guests: 0,
            begun: Vec::new(),
            shelf: shelf.clone(),
            meter,
            hit: None,
            last_words: None,
            by,
            durable,
        };
        let opened = holder.open_browser();
        let opened = opened.and_then(|()| holder.standing.keep_warm(&mut holder.relay, &holder.spec));
        match opened.and_then(|()| holder.note_files()) {
            Ok(()) => Ok((holder, mailbox)),
            Err(error) => {
                register::retire(&engine.home, &session);
                Err(holder.standing.fail(error, Usage::default()))
            }
        }
    }

    fn placeholders(&self) -> Vec<(String, String)> {
        let Some(egress) = &self.standing.egress else { return Vec::new() };
        let held = egress.variables.iter().filter(|(name, _)| egress.placeholders.contains(name));
        held.cloned().collect()
    }

    fn hold(mut self) -> Over {
        let (home, session) = (self.standing.home.clone(), self.standing.session.clone());
        let shelf = self.shelf.clone();
        let over = loop {
            match self.turn() {
                Ok(None) => {}
                Ok(Some(ending)) => break self.end(ending),
                Err(error) => break self.fail(error, None),
            }
        };
        register::retire(&home, &session);
        rescue::forget(&home, &session);
        shelf.let_go(&session);
        over
    }

    /// Waits for something, and does all there is to do.
    fn turn(&mut self) -> Result<Option<Ending>, EngineError> {
        let now = Instant::now();
        let until = match self.clock.due(self.state, now) {
            Due::Nothing(until) => until,
            Due::Pause => {
                match self.pause(LiveState::IdlePaused, "idle time") {
                    Err(error @ EngineError::Record(_)) => return Err(error),
                    // Something in it cannot be stopped just now: it is tried again when it has been idle again.
                    Err(_) => self.clock.restart_idle(now),
                    Ok(()) => {}
                }
                return Ok(None);
            }
            Due::Rest => {
                // What cannot be paused ends, as it would have without the wish.
                return match self.pause(LiveState::Paused, "ttl").and_then(|()| self.set_time(None, "ttl")) {
                    Ok(()) => Ok(None),
                    Err(error @ EngineError::Record(_)) => Err(error),
                    Err(_) => Ok(Some(self.time_over(now.duration_since(self.paused_since)))),
                };
            }
            Due::Unused => return Ok(Some(Ending::by("lifetime", "its last command has ended"))),
            Due::TimeOver(after) => return Ok(Some(self.time_over(after))),
        };
        let doomed = self.end_the_unwatched(now)?;
        if now >= self.meter.due(self.running()) {
            self.read_meter(now)?;
        }
        let due = Some(self.meter.due(self.running()));
        let around = Around {
            sandbox: self.standing.sandbox.as_mut(),
            recorder: &self.standing.recorder,
            calls: &self.standing.calls,
            wake: self.post.wake(),
            deadline: [until, doomed, due, self.pleas.due()].into_iter().flatten().min(),
        };
        let turn = self.relay.turn(around)?;
        turn.stopped.iter().for_each(|id| self.tell_of_stop(*id));
        for (id, event, ended) in turn.ended {
            self.ended(id, event, ended, None)?;
        }
        if turn.gone {
            let error = Some("the sandbox ended by itself".to_owned());
            let ending = Ending::by("sandbox", "the sandbox ended by itself");
            return Ok(Some(Ending { exit: Exit::Signal(9), error, ..ending }));
        }
        if let Some(unheeded) = turn.unheeded {
            let reason = unheeded.reason();
            let ending = Ending::by("watchdog", reason.clone());
            return Ok(Some(Ending { exit: Exit::Signal(9), error: Some(reason), ..ending }));
        }
        self.hear_askers(turn.asked)?;
        if turn.woken {
            for letter in self.post.take() {
                if let Some(ending) = self.read(letter)? {
                    return Ok(Some(ending));
                }
            }
        }
        self.clock.running(self.running(), Instant::now());
        Ok(None)
    }

    /// What keeps it busy: commands, and those who drive its browser. The browser by itself does not.
    pub(super) fn running(&self) -> usize {
        let browser = self.standing.egress.as_ref().and_then(|egress| egress.browser.as_ref());
        let driven = browser.map_or(0, |browser| browser.clients());
        self.relay.busy().saturating_sub(usize::from(self.browser.is_some())) + driven
    }

    /// Again, for another guest: what the policy has come to forbid meanwhile is on record and not kept, and scripts are
    /// started anew, or refused, one by one.
    pub(super) fn keep_warm(&mut self) -> Result<(), EngineError> {
        match self.standing.keep_warm(&mut self.relay, &self.spec) {
            Err(EngineError::Unenforceable(_)) => Ok(()),
            done => done,
        }
    }

    /// The browser, and a door for those outside who drive it.
    fn open_browser(&mut self) -> Result<(), EngineError> {
        self.browser = self.standing.start_browser(&mut self.relay, &self.spec)?;
        if let (Some(_), Some(egress)) = (self.browser, &self.standing.egress) {
            self.browser_url = Some(browser::door(&egress.handle)?);
        }
        Ok(())
    }

    /// Those whose watcher left have had their hint. Says when the next of them is due.
    fn end_the_unwatched(&mut self, now: Instant) -> Result<Option<Instant>, EngineError> {
        for exec in &mut self.execs {
            if let (Some(at), Some(id)) = (exec.doomed, exec.running)
                && now >= at
            {
                exec.doomed = None;
                self.relay.kill(id)?;
            }
        }
        Ok(self.execs.iter().filter_map(|exec| exec.doomed).min())
    }

    fn read(&mut self, letter: Letter) -> Result<Option<Ending>, EngineError> {
        match letter {
            Letter::Asked(asked, reply) => self.answer(asked, reply),
            Letter::About { exec, question } => {
                let id = self.execs.iter().find(|e| e.info.id == exec).and_then(|e| e.running);
                match (question, id) {
                    (Question::Signal { number: number @ 1..=64, alone: true, .. }, Some(id)) => {
                        self.relay.signal_leader(id, number)?;
                    }
                    (Question::Signal { number: number @ 1..=64, .. }, Some(id)) => {
                        self.relay.signal(id, number)?;
                    }
                    (Question::Resize { rows, columns }, Some(id)) => {
                        self.relay.resize(id, wire::Size { rows, columns })?;
                    }
                    _ => {}
                }
                Ok(None)
            }
            Letter::Left { exec } => {
                let left = self.execs.iter_mut().find(|e| e.info.id == exec && e.running.is_some());
                if let Some(exec) = left
                    && let Some(id) = exec.running
                {
                    // As a terminal that is closed would tell it.
                    exec.watcher = None;
                    exec.doomed = Some(Instant::now() + GRACE);
                    self.relay.signal(id, Signal::HUP.as_raw() as u8)?;
                }
                Ok(None)
            }
            Letter::Fork { count, by, to } => {
                let asked = match self.fork(count, &by) {
                    Err(error @ EngineError::Record(_)) => return Err(error),
                    other => other.map_err(|error| Reply::error(&error)),
                };
                let _ = to.send(asked);
                Ok(None)
            }
            Letter::Forsaken { by } => Ok(Some(Ending::by(by, "whom it was made for is gone"))),
            Letter::Errand(errand) => self.run(*errand).map(|()| None),
            Letter::Goodbye => Ok(Some(Ending::by("supervisor", "the supervisor was told to end"))),
        }
    }

    fn answer(&mut self, asked: Asked, reply: ReplyTo) -> Result<Option<Ending>, EngineError> {
        let Asked { question, by, descriptors } = asked;
        let done = match question {
            Question::Show => Reply::Info(Box::new(self.info(self.standing.sandbox.counters()))),
            Question::Exec(exec) => {
                self.exec(*exec, descriptors, reply, &by)?;
                return Ok(None);
            }
            Question::Signal { exec, number, .. } => self.signal(exec, number)?,
            Question::Snapshot { name, force } => self.answered(|this| this.snapshot(&name, force, &by))?,
            Question::Restore { name } => self.answered(|this| this.restore(&name, &by))?,
            Question::Begin => self.answered(|this| this.begin_transaction(&by).map(drop))?,
            Question::Diff { texts } => self.answered(|this| this.diff(texts, descriptors))?,
            Question::Settle { keep, force } => match self.settle(keep, force, &by) {
                Ok(settled) => Reply::Settled(Box::new(settled)),
                Err(error @ EngineError::Record(_)) => return Err(error),
                Err(error) => Reply::error(&error),
            },
            Question::SetTools { path } => self.answered(|this| this.set_tools(path, &by))?,
            Question::Pause => self.answered(|this| this.pause(LiveState::Paused, &by))?,
            Question::Resume => self.answered(|this| this.resume(&by))?,
            Question::Extend { by: span } => self.answered(|this| this.extend(span, &by))?,
            Question::SetTime { left } => self.answered(|this| this.set_time(left, &by))?,
            Question::Attend => self.answered(|this| this.attended(&by))?,
            Question::End { changes } => {
                let ending = Ending::by(by.clone(), format!("killed by {by}"));
                return Ok(Some(Ending { changes, reply: Some(reply), ..ending }));
            }
            _ => Reply::Refused("that is nothing to ask a session".into()),
        };
        reply.send(done);
        Ok(None)
    }

    /// A no is for who asked. What cannot be recorded ends the session.
    fn answered(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<(), EngineError>,
    ) -> Result<Reply, EngineError> {
        match act(self) {
            Ok(()) => Ok(Reply::Done { cut: 0 }),
            Err(error @ EngineError::Record(_)) => Err(error),
            Err(error) => Ok(Reply::error(&error)),
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state != LiveState::Running
    }

    pub(super) fn changed(&self, what: &str, by: &str, detail: String) -> Result<u64, EngineError> {
        let body = SessionChanged { what: what.into(), by: by.into(), detail };
        self.standing.recorder.append(None, &Body::SessionChanged(body))
    }

    fn info(&self, usage: Counters) -> SessionInfo {
        let now = Instant::now();
        let until = |left: Duration| now_us() + left.as_micros() as u64;
        let execs = self.execs.iter().map(|exec| match exec.running {
            Some(id) => ExecInfo { output: self.relay.shown(id), ..exec.info.clone() },
            None => exec.info.clone(),
        });
        SessionInfo {
            session: self.standing.session.clone(),
            state: self.state,
            reason: None,
            live: Some(self.spec.live.clone()),
            started_us: self.started_us,
            until_us: self.clock.left(now).map(until),
            workdir: self.standing.workdir.clone(),
            policy: self.standing.egress.is_some(),
            running: self.relay.running().saturating_sub(usize::from(self.browser.is_some())),
            browser: self.browser_url.clone(),
            transactions: self.standing.sandbox.depth(),
            execs: execs.collect(),
            usage,
        }
    }

    /// Ends everything in good order: nothing runs, all that ran is on record, then changes are decided.
    fn end(mut self, ending: Ending) -> Over {
        let Ending { exit, changes, by, reason, limit, error, reply } = ending;
        // Its changes are decided on from here.
        rescue::forget(&self.standing.home, &self.standing.session);
        let before = (|| {
            if let Some(hit) = limit {
                self.standing.recorder.append(None, &Body::Limit(hit))?;
            } else {
                // Who ends it by its question has no other reason.
                let detail = if reply.is_some() { String::new() } else { reason.clone() };
                self.changed("kill", &by, detail)?;
            }
            self.last_words = Some(Vec::new());
            // Which limits it had reached is put on record when it is closed.
            self.standing.sandbox.finish()?;
            self.meter.read(self.state, self.standing.sandbox.counters(), Instant::now())?;
            for (id, event, ended) in self.relay.leave(true) {
                self.ended(id, event, ended, Some(&reason))?;
            }
            Ok(())
        })();
        if let Err(error) = before {
            return self.fail(error, reply);
        }
        let last_words = self.last_words.take().unwrap_or_default();
        let usage = self.usage;
        let decided_by = changes.is_some().then_some(by.as_str());
        let changes = changes.unwrap_or(self.spec.changes);
        let decide = &mut |_: &cofferdam_runtime::ChangeList| false;
        let closed = self.standing.close(Closing { exit, usage, changes, by: decided_by, decide, error });
        last_words.iter().for_each(|(watcher, last)| say_last(watcher, last));
        let answer = match &closed {
            Ok(closed) => Reply::Ended { changes: closed.decided.clone() },
            Err(error) => Reply::error(error),
        };
        Over { result: closed.map(drop), reply: reply.map(|to| (to, answer)) }
    }

    /// The guest cannot be trusted, or the trace not be written: nothing goes on.
    fn fail(mut self, error: EngineError, reply: Option<ReplyTo>) -> Over {
        let last = Reply::error(&error);
        self.last_words.take().iter().flatten().for_each(|(watcher, last)| say_last(watcher, last));
        for exec in &mut self.execs {
            exec.watcher.take().iter().for_each(|watcher| say_last(watcher, &last));
            // Who reads it in this process would wait for ever.
            exec.hub.take().iter().for_each(|hub| hub.end(End::lost(&error.to_string())));
        }
        drop(self.relay.leave(true));
        let error = self.standing.fail(error, self.usage);
        Over { result: Err(error), reply: reply.map(|to| (to, last)) }
    }
}
