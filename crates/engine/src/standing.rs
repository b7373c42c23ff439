//! A session that stands: its sandbox, its trace, its egress and the socket by which people reach it. Whoever
//! holds it starts commands in it and, once, closes it. It does not wait for anything: that is the relay's.

use crate::control::Control;
use crate::egress::Egress;
use crate::environment::{self, Caller};
use crate::error::EngineError;
use crate::images::TakenImage;
use crate::record::Recorder;
use crate::relay::{Bounds, Ended, ExecId, Io, Relay};
use crate::session::Decide;
use crate::syscalls::{Calls, Refused};
use crate::volumes::Taken;
use crate::warm;
use cofferdam_guest::wire;
use cofferdam_model::{
    BlockedAttempt, Body, BoxUser, Bytes, ChangeOp, Changes, ChangesDecided, Digest, EnforcementReport,
    ExecExited, ExecStarted, Exit, FileChange, LimitHit, Profile, RawPath, SessionChanged, SessionEnded,
    SessionId, SessionSpec, SkippedChange, Span, Stream, Usage,
};
use cofferdam_policy::{Access, Action, Effect, Policy};
use cofferdam_runtime::{ChangeList, Identity, Sandbox};
use cofferdam_store::Home;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Standing {
    pub(crate) home: Home,
    pub(crate) session: SessionId,
    pub(crate) recorder: Recorder,
    pub(crate) calls: Arc<Calls>,
    pub(crate) workdir: PathBuf,
    /// Where the inside has it.
    pub(crate) shown_at: PathBuf,
    pub(crate) trace: PathBuf,
    pub(crate) report: EnforcementReport,
    pub(crate) caller: Caller,
    // In the order in which they go if nobody closes the session: nobody is left inside who could send.
    pub(crate) sandbox: Box<dyn Sandbox>,
    pub(crate) egress: Option<Egress>,
    /// In use as long as this stands.
    pub(crate) volumes: Vec<Taken>,
    pub(crate) image: Option<TakenImage>,
    pub(crate) control: Option<Control>,
    pub(crate) began: Instant,
}

/// A command as it is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Command {
    pub(crate) argv: Vec<String>,
    /// On top of the session's own.
    pub(crate) env: BTreeMap<String, String>,
    /// Absent: the work dir.
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) user: BoxUser,
    /// Somebody else than those two, by the inside's own accounts, with the groups.
    pub(crate) who: Option<(Identity, Vec<u32>)>,
    pub(crate) tty: Option<wire::Size>,
    /// Who sits at that terminal can be stopped with it.
    pub(crate) stops: bool,
    pub(crate) timeout: Option<Span>,
    pub(crate) output: Option<Bytes>,
    /// How much of its output is passed on.
    pub(crate) kept: Option<u64>,
    /// A part of the session itself.
    pub(crate) own: bool,
    /// Somebody inside asked for it, by this.
    pub(crate) by: Option<&'static str>,
}

/// How a session is to be closed.
pub(crate) struct Closing<'a> {
    pub(crate) exit: Exit,
    pub(crate) usage: Usage,
    pub(crate) changes: Changes,
    /// Who says so, where it was not the spec.
    pub(crate) by: Option<&'a str>,
    pub(crate) decide: Decide<'a>,
    /// What went wrong, if that is why.
    pub(crate) error: Option<String>,
}

/// What is left of it.
pub(crate) struct Closed {
    pub(crate) usage: Usage,
    pub(crate) changes: Arc<ChangeList>,
    pub(crate) decided: Option<ChangesDecided>,
    pub(crate) limits: Vec<LimitHit>,
    pub(crate) refused: Vec<Refused>,
}

impl Standing {
    /// The image that it has for its root.
    pub(crate) fn image_digest(&self) -> Option<Digest> {
        self.image.as_ref().and_then(|image| image.root.digest.strip_prefix("sha256:")?.parse().ok())
    }

    /// Starts a command, on record before it runs.
    pub(crate) fn start(
        &self,
        relay: &mut Relay,
        spec: &SessionSpec,
        command: &Command,
        io: Io,
    ) -> Result<(ExecId, u64), EngineError> {
        let (who, groups) = match (&command.who, command.user) {
            (Some((who, groups)), _) => (who.clone(), groups.clone()),
            (None, BoxUser::User) => (self.sandbox.identity(), Vec::new()),
            (None, BoxUser::Root) => {
                let root = Identity { name: "root".into(), uid: 0, gid: 0, ..self.sandbox.identity() };
                (root, Vec::new())
            }
        };
        let told = self.egress.as_ref().map_or(&[][..], |egress| &egress.variables);
        let image = self.image.as_ref().map(|image| &image.config);
        let environment = match command.env.is_empty() {
            true => environment::build(&spec.env, &who, &self.session, told, &self.caller, image),
            false => {
                let merged =
                    spec.env.iter().chain(&command.env).map(|(n, v)| (n.clone(), v.clone())).collect();
                environment::build(&merged, &who, &self.session, told, &self.caller, image)
            }
        };
        let place = spec.shown_at.as_ref().unwrap_or(&self.workdir);
        let cwd = command.cwd.as_deref().unwrap_or(place);
        self.may_start(&command.argv, cwd)?;
        let exec = self.recorder.append_signed(
            None,
            &Body::ExecStarted(ExecStarted {
                argv: command.argv.clone(),
                env: environment.names.clone(),
                cwd: RawPath::from(cwd),
                tty: command.tty.is_some(),
                user: if command.by.is_some() { self.known_as(&who) } else { who.name.clone() },
                own: command.own,
                by: command.by.map(str::to_owned),
            }),
        )?;
        let user = wire::User { uid: who.uid, gid: who.gid, groups };
        let request = wire::Exec {
            argv: command.argv.iter().map(String::as_bytes).collect(),
            env: environment.entries.iter().map(Vec::as_slice).collect(),
            cwd: cwd.as_os_str().as_bytes(),
            // Elsewhere the guest is that user already.
            user: (spec.profile == Profile::Box).then_some(user),
            tty: command.tty.map(|size| wire::Tty { size, stops: command.stops }),
            stdin: if io.has_input() { wire::Stdin::Piped } else { wire::Stdin::Null },
        };
        let timeout = command.timeout.map(|span| span.0);
        let bounds = Bounds {
            deadline: timeout.map(|after| Instant::now() + after),
            timeout: timeout.unwrap_or_default(),
            output: command.output.map(|bytes| bytes.0),
            kept: command.kept,
        };
        let started = relay.start(&request, exec, bounds, io);
        // It is signed before it begins; where it is also to be on the disk, that takes as long as to begin.
        self.recorder.settle()?;
        if started.is_err() {
            let body = ExecExited { exit: Exit::Code(125), usage: Usage::default() };
            self.recorder.append(Some(exec), &Body::ExecExited(body))?;
        }
        Ok((started?, exec))
    }

    /// Who that is by its number: of what those inside ask for, the name is theirs to choose.
    fn known_as(&self, who: &Identity) -> String {
        let usual = self.sandbox.identity();
        match who.uid {
            0 => "root".into(),
            uid if uid == usual.uid => usual.name,
            uid => format!("uid {uid}"),
        }
    }

    /// Asks the policy, if it has rules about commands. A refusal is on record; nobody is asked: a command is
    /// started by someone who waits for it.
    fn may_start(&self, argv: &[String], cwd: &Path) -> Result<(), EngineError> {
        let Some(egress) = &self.egress else { return Ok(()) };
        let policy = egress.handle.policy();
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let action = Action::Exec(cofferdam_policy::Exec { argv: &words, cwd: cwd.to_str() });
        let refusal = policy.rules_on(&action).filter(|decision| decision.effect != Effect::Allow);
        let Some(decision) = refusal else { return Ok(()) };
        let reason = decision.to_string();
        self.recorder.append(
            None,
            &Body::Blocked(BlockedAttempt {
                syscall: "execve".into(),
                args: Vec::new(),
                pid: 0,
                program: argv.first().cloned().unwrap_or_default(),
                argv: argv.to_vec(),
                reason: reason.clone(),
                times: 1,
            }),
        )?;
        Err(EngineError::Unenforceable(format!("refused: the command is not allowed: {reason}")))
    }

    /// Has an interpreter kept for scripts, if there is to be one and the policy lets it be started. It is on record.
    pub(crate) fn keep_warm(&self, relay: &mut Relay, spec: &SessionSpec) -> Result<(), EngineError> {
        if spec.warm.python.is_empty() {
            return Ok(());
        }
        let place = spec.shown_at.as_ref().unwrap_or(&self.workdir);
        self.may_start(&warm::words(&spec.warm.python), place)?;
        let who = match spec.user {
            BoxUser::User => self.sandbox.identity(),
            BoxUser::Root => Identity { name: "root".into(), uid: 0, gid: 0, ..self.sandbox.identity() },
        };
        let told = self.egress.as_ref().map_or(&[][..], |egress| &egress.variables);
        let image = self.image.as_ref().map(|image| &image.config);
        let environment = environment::build(&spec.env, &who, &self.session, told, &self.caller, image);
        let user = wire::User { uid: who.uid, gid: who.gid, groups: Vec::new() };
        let user = (spec.profile == Profile::Box).then_some(user);
        let detail = format!("{} with {}", warm::PROGRAM, spec.warm.python.join(", "));
        let body = SessionChanged { what: "warm".into(), by: "spec".into(), detail };
        self.recorder.append(None, &Body::SessionChanged(body))?;
        relay.keep_warm(&warm::request(&spec.warm.python, &environment, user))
    }

    /// Starts the session's browser, if it is to have one.
    pub(crate) fn start_browser(
        &self,
        relay: &mut Relay,
        spec: &SessionSpec,
    ) -> Result<Option<ExecId>, EngineError> {
        let Some(browser) = self.egress.as_ref().and_then(|egress| egress.browser.as_ref()) else {
            return Ok(None);
        };
        let (command, stdio) = browser.begin()?;
        Ok(Some(self.start(relay, spec, &command, Io::Descriptors(stdio))?.0))
    }

    /// Puts on record that it ended. What it said to those who drive it is told elsewhere, and only there.
    pub(crate) fn browser_ended(
        &self,
        exec: u64,
        mut ended: Ended,
        reason: Option<&str>,
    ) -> Result<(), EngineError> {
        ended.outputs.retain(|(stream, _)| *stream == Stream::Stderr);
        let how = match (&ended.exit, reason) {
            (_, Some(reason)) => reason.to_owned(),
            (Ok(Exit::Signal(signal)), _) => format!("it was ended by signal {signal}"),
            (Ok(exit), _) => format!("it ended with code {}", exit.code()),
            (Err(error), _) => error.to_string(),
        };
        // One that could not be started is told to those who look for it.
        if let Err(error @ EngineError::Record(_)) = self.ended(exec, ended) {
            return Err(error);
        }
        match self.egress.as_ref().and_then(|egress| egress.browser.as_ref()) {
            Some(browser) => browser.ended(&how),
            None => Ok(()),
        }
    }

    /// Puts on record how a command ended.
    pub(crate) fn ended(&self, exec: u64, ended: Ended) -> Result<(Exit, Usage), EngineError> {
        let Ended { exit, usage, outputs, .. } = ended;
        for (stream, captured) in outputs {
            self.recorder.output(exec, stream, captured)?;
        }
        let told = *exit.as_ref().unwrap_or(&Exit::Code(125));
        self.recorder.append(Some(exec), &Body::ExecExited(ExecExited { exit: told, usage }))?;
        Ok((exit?, usage))
    }

    /// Ends everything inside, decides what becomes of changes, and seals the trace.
    pub(crate) fn close(mut self, closing: Closing<'_>) -> Result<Closed, EngineError> {
        let finished = match self.sandbox.finish() {
            Ok(finished) => finished,
            // A machine that died has nothing to hand over; the trace says so and is whole.
            Err(error) => return Err(self.fail(error.into(), closing.usage)),
        };
        let policy = self.egress.as_ref().map(|egress| egress.handle.policy());
        // Nobody is left inside who could send; what was under way is cut and told.
        self.egress = None;
        self.control = None;
        let refused = self.calls.close()?;
        for hit in &finished.limits {
            self.recorder.append(None, &Body::Limit(hit.clone()))?;
        }
        let peak_memory = finished.usage.peak_memory.max(closing.usage.peak_memory);
        let usage = Usage { peak_memory, ..closing.usage };
        let Closing { exit, changes, by, decide, error, .. } = closing;
        let decided = self
            .sandbox
            .changes()
            .map_err(EngineError::from)
            .and_then(|found| Ok((self.decide(changes, by, decide, policy.as_deref(), &found)?, found)));
        let (decided, changes) = match decided {
            Ok(decided) => decided,
            Err(error) => return Err(self.fail(error, usage)),
        };
        // Everything of the sandbox is gone before the trace says that the session has ended.
        drop(self.sandbox);
        let usage = Usage { wall_us: self.began.elapsed().as_micros() as u64, ..usage };
        seal(&self.recorder, exit, usage, error)?;
        Ok(Closed { usage, changes, decided, limits: finished.limits, refused })
    }

    /// Ends it because of an error, which comes back; one of the trace's own comes before all others.
    pub(crate) fn fail(self, error: EngineError, usage: Usage) -> EngineError {
        drop((self.sandbox, self.egress, self.control));
        match seal(&self.recorder, Exit::Code(125), usage, Some(error.to_string())) {
            Ok(()) => error,
            Err(unwritten) => unwritten,
        }
    }

    /// Records every change, then keeps or drops them all.
    fn decide(
        &mut self,
        asked: Changes,
        by: Option<&str>,
        decide: Decide<'_>,
        policy: Option<&Policy>,
        changes: &ChangeList,
    ) -> Result<Option<ChangesDecided>, EngineError> {
        if changes.is_empty() {
            return Ok(None);
        }
        record(&self.recorder, changes)?;
        // Signed before the host is touched: what is about to happen is on record.
        self.recorder.checkpoint()?;
        let (keep, by) = match asked {
            Changes::Keep => (true, by.unwrap_or("spec")),
            Changes::Discard => (false, by.unwrap_or("spec")),
            Changes::Ask => (decide(changes), "person"),
        };
        let workdir = self.shown_at.clone();
        let refuses = |change: &FileChange| refused(policy?, &workdir, change);
        let (withheld, committed) = match keep {
            true => (self.sandbox.withhold(&refuses)?, self.sandbox.commit()?),
            false => Default::default(),
        };
        let aside = committed.aside;
        let skipped = committed.skipped.into_iter().chain(withheld).collect();
        let decided = ChangesDecided { aside, ..decided(keep, by, changes, skipped) };
        self.recorder.append(None, &Body::ChangesDecided(decided.clone()))?;
        Ok(Some(decided))
    }
}

/// What a policy has against a change, if it has rules about files at all. Nobody is asked here: what is left to a
/// person is not kept.
pub(crate) fn refused(policy: &Policy, workdir: &Path, change: &FileChange) -> Option<String> {
    let written = match change.op {
        ChangeOp::Deleted => Access::Delete,
        _ => Access::Write,
    };
    let former = change.from.iter().map(|from| (from, Access::Delete));
    [(&change.path, written)].into_iter().chain(former).find_map(|(path, access)| {
        let path = workdir.join(path.as_path());
        let path = path.to_string_lossy();
        let action = Action::File(cofferdam_policy::File { path: &path, access });
        policy
            .rules_on(&action)
            .filter(|decision| !decision.is_allowed())
            .map(|decision| decision.to_string())
    })
}

pub(crate) fn speaks_of_files(policy: &Policy) -> bool {
    policy.speaks_of(&Action::File(cofferdam_policy::File { path: "/", access: Access::Write }))
}

/// Each change an event.
pub(crate) fn record(recorder: &Recorder, changes: &ChangeList) -> Result<(), EngineError> {
    for change in changes.iter() {
        let change =
            change.map_err(|source| EngineError::Io { doing: "read the list of changes", source })?;
        recorder.append(None, &Body::FileChanged(change.into_owned()))?;
    }
    Ok(())
}

pub(crate) fn decided(
    kept: bool,
    by: &str,
    changes: &ChangeList,
    skipped: Vec<SkippedChange>,
) -> ChangesDecided {
    let count = |op: ChangeOp| changes.count(op);
    ChangesDecided {
        kept,
        by: by.into(),
        created: count(ChangeOp::Created),
        modified: count(ChangeOp::Modified),
        renamed: count(ChangeOp::Renamed),
        deleted: count(ChangeOp::Deleted),
        skipped,
        aside: None,
    }
}

/// The last words of a trace.
pub(crate) fn seal(
    recorder: &Recorder,
    exit: Exit,
    usage: Usage,
    error: Option<String>,
) -> Result<(), EngineError> {
    recorder.append(None, &Body::SessionEnded(SessionEnded { exit, usage, error }))?;
    recorder.seal()
}
