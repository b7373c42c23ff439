//! One session from start to end.

use crate::Engine;
use crate::control::Control;
use crate::denials::Denied;
use crate::egress::{Egress, Prepared};
use crate::environment::{self, Environment};
use crate::error::EngineError;
use crate::record::{Recorder, now_us};
use crate::relay::{Around, Bounds, Ended, FORWARDED, Relay, Stdio, current_size};
use crate::secrets::Ask;
use crate::tiers;
use cofferdam_guest::wire;
use cofferdam_model::{
    Body, BoxUser, ChangeOp, Changes, ChangesDecided, EnforcementReport, ExecExited, ExecStarted, Exit,
    FileChange, Profile, RawPath, SessionEnded, SessionId, SessionSpec, SessionStarted, Usage,
};
use cofferdam_runtime::{Backend, Committed, Finished, Identity, Network, Sandbox, SandboxSpec};
use cofferdam_store::Home;
use cofferdam_sys::signal::Signals;
use cofferdam_sys::terminal::RawMode;
use cofferdam_trace::{FORMAT, Options, Reader, Writer};
use rustix::process::Signal;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Asked once, after the command has ended, when the spec leaves it to a person.
pub type Decide<'a> = &'a mut dyn FnMut(&[FileChange]) -> bool;

/// What is to be run, and for whom.
pub struct Run<'a> {
    pub spec: SessionSpec,
    pub stdio: Stdio,
    /// Give the command a terminal of its own, relayed to the caller's.
    pub tty: bool,
    /// Wait for the disk at every signature of the trace.
    pub durable: bool,
    pub decide: Decide<'a>,
    /// For a vault that only a passphrase opens.
    pub ask: &'a Ask,
    /// The writer's name and version, for the trace.
    pub by: String,
}

/// How a session ended.
#[derive(Debug)]
pub struct Outcome {
    pub session: SessionId,
    /// The program that was named.
    pub program: String,
    pub exit: Exit,
    pub usage: Usage,
    pub report: EnforcementReport,
    pub changes: Vec<FileChange>,
    pub decided: Option<ChangesDecided>,
    pub limits: Vec<cofferdam_model::LimitHit>,
    /// What was not let out, each once, and how many more there were than are kept.
    pub denied: (Vec<Denied>, u64),
    pub trace: PathBuf,
}

impl Engine {
    /// Runs one command in one sandbox. An error means that Cofferdam failed or refused, not the command.
    pub fn run(&self, run: Run<'_>) -> Result<Outcome, EngineError> {
        run.spec.check()?;
        let backend = tiers::choose(&run.spec)?;
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute());
        self.run_in(run, backend.as_ref(), home.unwrap_or_else(|| PathBuf::from("/home/user")))
    }

    /// The same in a sandbox of this backend, for a caller with this home.
    pub(crate) fn run_in(
        &self,
        run: Run<'_>,
        backend: &dyn Backend,
        home: PathBuf,
    ) -> Result<Outcome, EngineError> {
        let session = self.new_id()?;
        let workdir = find_workdir(&run.spec)?;
        self.complete_commits(&workdir)?;
        let egress = Prepared::new(self, &run.spec, &session, run.ask)?;
        // Blocked from here on, so that no signal can end us between two steps.
        let signals = listen(run.tty)?;
        let open = Place { session, workdir, home, signals, egress };
        self.recorded(run, backend, open)
    }

    fn recorded(&self, run: Run<'_>, backend: &dyn Backend, place: Place) -> Result<Outcome, EngineError> {
        let Place { session, workdir, home, signals, mut egress } = place;
        let trace = self.home.trace_dir(&session);
        let start = Body::SessionStarted(Box::new(SessionStarted {
            session: session.clone(),
            by: run.by.clone(),
            format: FORMAT,
            spec: without_values(&run.spec),
            workdir: RawPath::from(workdir.as_path()),
            user: rustix::process::geteuid().as_raw().to_string(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        }));
        let mut spec = self.sandbox_spec(&run.spec, &session, workdir.clone(), home)?;
        if let Some(egress) = &mut egress {
            spec.network = Network::Doors;
            spec.files = egress.take_files();
        }
        // Namespaces come into being while we write. Nothing is made yet that others would take for left behind
        // before the trace is locked, which is what tells them that the session lives.
        let begun = backend.begin(spec);
        let recorder = self.open_trace(&trace, &start, run.durable)?;
        let open = Open { home: self.home.clone(), session, recorder, workdir, signals };
        match begun.and_then(|begun| begun.complete(&mut || self.housekeeping())) {
            Ok(sandbox) => open.go(run, sandbox, egress, trace),
            Err(error) => {
                open.close(Exit::Code(125), Usage::default(), Some(error.to_string()))?;
                Err(error.into())
            }
        }
    }

    fn open_trace(&self, trace: &Path, start: &Body, durable: bool) -> Result<Recorder, EngineError> {
        let key = Arc::new(self.home.signing_key()?);
        let writer = Writer::create_from(&self.home.spare_trace(), trace, key, Options { durable })?;
        let recorder = Recorder::new(writer);
        recorder.append(None, start)?;
        Ok(recorder)
    }

    fn new_id(&self) -> Result<SessionId, EngineError> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| EngineError::Io { doing: "make a session id", source: errno.into() })?;
        Ok(SessionId::new(now_us() / 1000, u64::from_le_bytes(random)))
    }

    fn sandbox_spec(
        &self,
        spec: &SessionSpec,
        id: &SessionId,
        workdir: PathBuf,
        home: PathBuf,
    ) -> Result<SandboxSpec, EngineError> {
        let staging = self.home.staging_dir()?;
        let search = std::env::var_os("PATH").unwrap_or_default();
        Ok(SandboxSpec {
            id: id.clone(),
            workdir,
            home,
            path: std::env::split_paths(&search).filter(|p| p.is_absolute()).collect(),
            mounts: spec.mounts.clone(),
            hide: spec.hide.clone(),
            profile: spec.profile,
            users: spec.users,
            limits: spec.limits.clone(),
            layer_place: spec.layer,
            nested: spec.nested,
            network: Network::None,
            files: Vec::new(),
            require: spec.require.clone(),
            accept: spec.accept.clone(),
            layer: self.home.layer_dir(id),
            staging,
            // For the whole machine: two state directories must not give out the same ids.
            ranges: PathBuf::from("/run/cofferdam/ranges"),
        })
    }

    /// What can wait for a moment in which there is nothing else to do. Failing at it is no reason not to run.
    fn housekeeping(&self) {
        let _ = cofferdam_trace::prepare(&self.home.spare_trace_in_the_making(), &self.home.spare_trace());
        self.reap_leftovers();
    }

    /// Commits that a killed supervisor had decided on, before anything of their work dir is read. One that
    /// cannot be completed stops only who would see half of it.
    fn complete_commits(&self, workdir: &Path) -> Result<(), EngineError> {
        for id in self.home.layered() {
            let dir = self.home.layer_dir(&id);
            let Some(pending) = cofferdam_runtime_process::layer::pending(&dir) else { continue };
            if Reader::open(&self.home.trace_dir(&id)).is_ok_and(|trace| trace.is_live()) {
                continue;
            }
            if let Err(error) = cofferdam_runtime_process::layer::recover(&dir, Default::default())
                && pending == workdir
            {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// What supervisors that were killed left behind. A session lives as long as its trace's writer holds the
    /// lock on it, from before anything else of it is made; the kernel lets go of it with the process, however
    /// that ends. Groups without a trace here are another state
    /// directory's, and go only when they are deserted.
    fn reap_leftovers(&self) {
        let (ours, others): (Vec<_>, Vec<_>) =
            cofferdam_runtime_process::grouped().into_iter().partition(|id| self.home.trace_dir(id).is_dir());
        others.iter().for_each(cofferdam_runtime_process::reap_if_deserted);
        let mut found = self.home.layered();
        found.extend(ours);
        found.sort();
        found.dedup();
        for id in found {
            if !Reader::open(&self.home.trace_dir(&id)).is_ok_and(|trace| trace.is_live()) {
                cofferdam_runtime_process::reap(&id, &self.home.layer_dir(&id));
            }
        }
    }
}

/// The spec as the trace may hold it: an environment is where credentials live, so its values stay out.
fn without_values(spec: &SessionSpec) -> SessionSpec {
    let env = spec.env.keys().map(|name| (name.clone(), String::new())).collect();
    SessionSpec { env, ..spec.clone() }
}

fn find_workdir(spec: &SessionSpec) -> Result<PathBuf, EngineError> {
    let asked = spec.workdir.clone().unwrap_or_else(|| PathBuf::from("."));
    asked.canonicalize().map_err(|source| EngineError::Workdir { path: asked, source })
}

fn listen(tty: bool) -> Result<Signals, EngineError> {
    let mut all = FORWARDED.to_vec();
    if tty {
        all.push(Signal::WINCH);
    }
    Signals::listen(&all)
        .map_err(|errno| EngineError::Io { doing: "listen for signals", source: errno.into() })
}

/// A command as the guest is to be asked for it.
struct Asked<'a> {
    spec: &'a SessionSpec,
    environment: &'a Environment,
    /// Who to become, where the guest itself is someone else.
    user: Option<wire::User>,
    tty: bool,
}

/// A session before it has a trace.
struct Place {
    session: SessionId,
    workdir: PathBuf,
    /// The caller's.
    home: PathBuf,
    signals: Signals,
    egress: Option<Prepared>,
}

/// A session whose trace is open.
struct Open {
    home: Home,
    session: SessionId,
    recorder: Recorder,
    workdir: PathBuf,
    signals: Signals,
}

impl Open {
    fn go(
        mut self,
        run: Run<'_>,
        mut sandbox: Box<dyn Sandbox>,
        egress: Option<Prepared>,
        trace: PathBuf,
    ) -> Result<Outcome, EngineError> {
        let began = Instant::now();
        let mut report = sandbox.report().clone();
        let egress = match self.open_egress(egress, sandbox.as_mut()) {
            Ok(egress) => egress,
            Err(error) => {
                drop(sandbox);
                self.close(Exit::Code(125), Usage::default(), Some(error.to_string()))?;
                return Err(error);
            }
        };
        report.controls.extend(egress.iter().map(|(egress, _)| egress.line.clone()));
        self.recorder.append(None, &Body::Enforcement(Box::new(report.clone())))?;
        let (asked, decide) = (run.spec.changes, run.decide);
        let program = run.spec.command.first().cloned().unwrap_or_default();
        let told = egress.as_ref().map_or(&[][..], |(egress, _)| &egress.variables);
        let ended = match self.command(run.spec, told, run.stdio, run.tty, sandbox.as_mut()) {
            Ok(ended) => ended,
            Err(error) => {
                drop((sandbox, egress));
                self.close(Exit::Code(125), Usage::default(), Some(error.to_string()))?;
                return Err(error);
            }
        };
        let finished = sandbox.finish()?;
        // Nobody is left inside who could send; what was under way is cut and told.
        let denials = egress.as_ref().map(|(egress, _)| (egress.denials.clone(), egress.policy.clone()));
        drop(egress);
        let denied = denials.map(|(denials, policy)| denials.told(&policy)).unwrap_or_default();
        self.limits(&finished)?;
        let usage =
            Usage { peak_memory: finished.usage.peak_memory.max(ended.usage.peak_memory), ..ended.usage };
        let decided = sandbox
            .changes()
            .map_err(EngineError::from)
            .and_then(|changes| Ok((self.decide(asked, decide, &changes, sandbox.as_mut())?, changes)));
        let (decided, changes) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                drop(sandbox);
                self.close(Exit::Code(125), usage, Some(error.to_string()))?;
                return Err(error);
            }
        };
        // Everything of the sandbox is gone before the trace says that the session has ended.
        drop(sandbox);
        let total = Usage { wall_us: began.elapsed().as_micros() as u64, ..usage };
        let (session, exit) = (self.session.clone(), ended.exit);
        self.close(exit, total, None)?;
        Ok(Outcome {
            session,
            program,
            exit,
            usage: total,
            report,
            changes,
            decided,
            limits: finished.limits,
            denied,
            trace,
        })
    }

    /// Serves the sandbox's doors, and lets people reach what does.
    fn open_egress(
        &self,
        egress: Option<Prepared>,
        sandbox: &mut dyn Sandbox,
    ) -> Result<Option<(Egress, Control)>, EngineError> {
        let Some(prepared) = egress else { return Ok(None) };
        let doors = sandbox.take_doors().ok_or(EngineError::NoDoors)?;
        let egress = prepared.open(doors, &self.recorder)?;
        let control = Control::open(&self.home, &self.session, egress.handle.clone())
            .map_err(|source| EngineError::Io { doing: "open the session's socket", source })?;
        Ok(Some((egress, control)))
    }

    fn command(
        &mut self,
        spec: SessionSpec,
        told: &[(String, String)],
        stdio: Stdio,
        tty: bool,
        sandbox: &mut dyn Sandbox,
    ) -> Result<Ended, EngineError> {
        let who = match spec.user {
            BoxUser::User => sandbox.identity(),
            BoxUser::Root => Identity { name: "root".into(), uid: 0, gid: 0, ..sandbox.identity() },
        };
        let environment = environment::build(
            &spec,
            &who,
            &self.session,
            told,
            |name| std::env::var_os(name),
            std::env::vars_os(),
        );
        let exec = self.recorder.append(
            None,
            &Body::ExecStarted(ExecStarted {
                argv: spec.command.clone(),
                env: environment.names.clone(),
                cwd: RawPath::from(self.workdir.as_path()),
                tty,
                user: who.name.clone(),
            }),
        )?;
        self.recorder.checkpoint()?;
        let user = (spec.profile == Profile::Box).then(|| wire::User {
            uid: who.uid,
            gid: who.gid,
            groups: Vec::new(),
        });
        let asked = Asked { spec: &spec, environment: &environment, user, tty };
        let ended = self.relay(asked, stdio, exec, sandbox)?;
        let Ended { exit, usage, outputs } = ended;
        for (stream, captured) in outputs {
            self.recorder.output(exec, stream, captured)?;
        }
        self.recorder.append(Some(exec), &Body::ExecExited(ExecExited { exit, usage }))?;
        Ok(Ended { exit, usage, outputs: Vec::new() })
    }

    fn relay(
        &mut self,
        asked: Asked<'_>,
        stdio: Stdio,
        exec: u64,
        sandbox: &mut dyn Sandbox,
    ) -> Result<Ended, EngineError> {
        let Asked { spec, environment, user, tty } = asked;
        let channel = sandbox.take_channel().ok_or(EngineError::NoChannel)?;
        let terminal = stdio.stdin.as_ref().filter(|_| tty).map(AsFd::as_fd);
        let size = terminal.and_then(current_size).unwrap_or(wire::Size { rows: 24, columns: 80 });
        let keyboard = terminal.map(|fd| fd.try_clone_to_owned()).transpose();
        let keyboard = keyboard.map_err(|source| EngineError::Io { doing: "use the terminal", source })?;
        let _raw = keyboard.as_ref().and_then(|fd| RawMode::enter(fd.as_fd()).ok());
        let request = wire::Exec {
            argv: spec.command.iter().map(String::as_bytes).collect(),
            env: environment.entries.iter().map(Vec::as_slice).collect(),
            cwd: self.workdir.as_os_str().as_bytes(),
            user,
            tty: tty.then_some(size),
            stdin: if stdio.stdin.is_some() { wire::Stdin::Piped } else { wire::Stdin::Null },
        };
        let timeout = spec.limits.timeout.map(|span| span.0);
        let bounds = Bounds {
            deadline: timeout.map(|after| Instant::now() + after),
            timeout: timeout.unwrap_or_default(),
            output: spec.limits.output.map(|bytes| bytes.0),
        };
        let around =
            Around { sandbox, recorder: &self.recorder, signals: &self.signals, bounds, parent: exec };
        Relay::start(channel, &request, around, stdio)?.run()
    }

    fn limits(&mut self, finished: &Finished) -> Result<(), EngineError> {
        for hit in &finished.limits {
            self.recorder.append(None, &Body::Limit(hit.clone()))?;
        }
        Ok(())
    }

    /// Records every change, then keeps or drops them all.
    fn decide(
        &mut self,
        asked: Changes,
        decide: Decide<'_>,
        changes: &[FileChange],
        sandbox: &mut dyn Sandbox,
    ) -> Result<Option<ChangesDecided>, EngineError> {
        if changes.is_empty() {
            return Ok(None);
        }
        for change in changes {
            self.recorder.append(None, &Body::FileChanged(change.clone()))?;
        }
        // Signed before the host is touched: what is about to happen is on record.
        self.recorder.checkpoint()?;
        let (keep, by) = match asked {
            Changes::Keep => (true, "spec"),
            Changes::Discard => (false, "spec"),
            Changes::Ask => (decide(changes), "person"),
        };
        let committed = if keep { sandbox.commit()? } else { Committed::default() };
        let count = |op: ChangeOp| changes.iter().filter(|c| c.op == op).count() as u64;
        let decided = ChangesDecided {
            kept: keep,
            by: by.into(),
            created: count(ChangeOp::Created),
            modified: count(ChangeOp::Modified),
            renamed: count(ChangeOp::Renamed),
            deleted: count(ChangeOp::Deleted),
            skipped: committed.skipped,
        };
        self.recorder.append(None, &Body::ChangesDecided(decided.clone()))?;
        Ok(Some(decided))
    }

    fn close(self, exit: Exit, usage: Usage, error: Option<String>) -> Result<(), EngineError> {
        self.recorder.append(None, &Body::SessionEnded(SessionEnded { exit, usage, error }))?;
        self.recorder.seal()
    }
}
