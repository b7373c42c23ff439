//! One session from start to end.

use crate::Engine;
use crate::control::{Desk, Socket};
use crate::course::command;
use crate::denials::Denied;
use crate::egress::{Egress, Prepared};
use crate::environment::Caller;
use crate::error::EngineError;
use crate::heard::{Heard, listen};
use crate::mcp::{self, ToolServer};
use crate::record::{Recorder, now_us};
use crate::relay::Stdio;
use crate::secrets::Ask;
use crate::standing::{Closed, Closing, Standing, seal};
use crate::stop::Stop;
use crate::syscalls::{Calls, Refused};
use crate::tiers;
use crate::tools::{Toolbox, Whose};
use cofferdam_model::{
    Body, ChangesDecided, EnforcementReport, Exit, LayerPlace, RawPath, SessionId, SessionSpec,
    SessionStarted, Tier, Usage,
};
use cofferdam_runtime::{
    Backend, Base, Begun, ChangeList, Network, RuntimeError, Sandbox, SandboxSpec, ShownFile,
};
use cofferdam_runtime_process::Early;
use cofferdam_trace::{FORMAT, Options, Writer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Asked once, after the command has ended, when the spec leaves it to a person.
pub type Decide<'a> = &'a mut dyn FnMut(&ChangeList) -> bool;

/// What is to be run, and for whom.
pub struct Run<'a> {
    pub spec: SessionSpec,
    pub stdio: Stdio,
    /// The command is an MCP server: judge and record what it and its client say.
    pub tools: Option<ToolServer>,
    /// Give the command a terminal of its own, relayed to the caller's.
    pub tty: bool,
    /// Wait for the disk at every signature of the trace.
    pub durable: bool,
    pub decide: Decide<'a>,
    /// For a vault that only a passphrase opens.
    pub ask: &'a Ask,
    /// The writer's name and version, for the trace.
    pub by: String,
    /// For one of several at once: when it is raised the command is killed, and signals are not this session's.
    pub stop: Option<&'a Stop>,
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
    pub changes: Arc<ChangeList>,
    pub decided: Option<ChangesDecided>,
    pub limits: Vec<cofferdam_model::LimitHit>,
    /// What was not let out, each once, and how many more there were than are kept.
    pub denied: (Vec<Denied>, u64),
    /// System calls that were refused, some of them.
    pub refused: Vec<Refused>,
    pub trace: PathBuf,
}

impl Engine {
    /// Runs one command in one sandbox. An error means that Cofferdam failed or refused, not the command.
    pub fn run(&self, run: Run<'_>) -> Result<Outcome, EngineError> {
        self.run_from(None, run)
    }

    /// The same, in what was begun before the command was known, if it is of use.
    pub fn run_from(&self, early: Option<Early>, mut run: Run<'_>) -> Result<Outcome, EngineError> {
        self.name_command(&mut run.spec)?;
        run.spec.check()?;
        if run.spec.sudo {
            let text = "`sudo` is for a session that stays: use `cofferdam session create`, or leave it out";
            return Err(EngineError::Declined(text.into()));
        }
        if !run.spec.warm.python.is_empty() {
            let text = "`warm` is for sessions that stay: leave it out, or use `cofferdam session create`";
            return Err(EngineError::Declined(text.into()));
        }
        let backend = tiers::choose(&self.home, &run.spec, early)?;
        self.run_in(run, backend, Caller::Own)
    }

    /// The same in a sandbox of this backend, for this caller.
    pub(crate) fn run_in(
        &self,
        run: Run<'_>,
        backend: Box<dyn Backend>,
        caller: Caller,
    ) -> Result<Outcome, EngineError> {
        let place = self.place(backend, &run.spec, run.ask, &caller)?;
        self.run_at(place, run, caller)
    }

    /// The same in a place that is prepared.
    pub(crate) fn run_at(&self, place: Place, run: Run<'_>, caller: Caller) -> Result<Outcome, EngineError> {
        // Blocked from here on, so that no signal can end us between two steps.
        let heard = match run.stop {
            Some(stop) => Heard::Stop(stop),
            None => Heard::Signals(listen(run.tty)?),
        };
        let way = Way {
            by: &run.by,
            durable: run.durable,
            stays: false,
            caller,
            base: Base::default(),
            prepared: None,
            meanwhile: &mut || {},
        };
        let mut standing = self.stand(place, &run.spec, way)?;
        if let Err(error) = open_control(&mut standing) {
            return Err(standing.fail(error, Usage::default()));
        }
        let Run { spec, stdio, tty, decide, tools, .. } = run;
        let changes = spec.changes;
        let program = spec.command.first().cloned().unwrap_or_default();
        // While the command begins, nothing of it needs us: there is time to look after what others left behind.
        let meanwhile = || self.housekeeping();
        let ran = match tools {
            Some(server) => mcp::between(server, &spec, stdio, &standing).and_then(|(stdio, between)| {
                let ran = command(spec, stdio, tty, &heard, &mut standing, &meanwhile);
                between.finish().and(ran)
            }),
            None => command(spec, stdio, tty, &heard, &mut standing, &meanwhile),
        };
        let (exit, usage) = match ran {
            Ok(ended) => ended,
            Err(error) => return Err(standing.fail(error, Usage::default())),
        };
        let (session, report, trace) =
            (standing.session.clone(), standing.report.clone(), standing.trace.clone());
        let denials = standing.egress.as_ref().map(|egress| (egress.denials.clone(), egress.policy.clone()));
        let closed = standing.close(Closing { exit, usage, changes, by: None, decide, error: None })?;
        let denied = denials.map(|(denials, policy)| denials.told(&policy)).unwrap_or_default();
        let Closed { usage, changes, decided, limits, refused } = closed;
        Ok(Outcome {
            session,
            program,
            exit,
            usage,
            report,
            changes,
            decided,
            limits,
            denied,
            refused,
            trace,
        })
    }

    /// Everything that can be found wrong before anything is made.
    pub(crate) fn place(
        &self,
        backend: Box<dyn Backend>,
        spec: &SessionSpec,
        ask: &Ask,
        caller: &Caller,
    ) -> Result<Place, EngineError> {
        let toolbox = toolbox(spec, caller)?;
        let derived = toolbox.as_ref().and_then(|toolbox| toolbox.derived.clone());
        let egress = |session: &SessionId, _: &Path| Prepared::new(self, spec, derived, session, ask);
        Ok(Place { toolbox, ..self.place_with(backend, spec, egress)? })
    }

    /// The same with an egress that is not what the spec says.
    pub(crate) fn place_with(
        &self,
        backend: Box<dyn Backend>,
        spec: &SessionSpec,
        egress: impl FnOnce(&SessionId, &Path) -> Result<Option<Prepared>, EngineError>,
    ) -> Result<Place, EngineError> {
        let session = backend.begun_for().map_or_else(|| self.new_id(), Ok)?;
        let workdir = find_workdir(spec)?;
        self.complete_commits(&workdir)?;
        let egress = egress(&session, &workdir)?;
        Ok(Place { backend, session, workdir, egress, toolbox: None, files: Vec::new(), facts: Vec::new() })
    }

    /// Makes the sandbox and opens the trace.
    pub(crate) fn stand(
        &self,
        place: Place,
        spec: &SessionSpec,
        way: Way<'_>,
    ) -> Result<Standing, EngineError> {
        let Place { backend, session, workdir, mut egress, toolbox, files, facts } = place;
        let trace = self.home.trace_dir(&session);
        let start = Body::SessionStarted(Box::new(SessionStarted {
            session: session.clone(),
            by: way.by.to_owned(),
            format: FORMAT,
            spec: without_values(spec),
            workdir: RawPath::from(workdir.as_path()),
            user: rustix::process::geteuid().as_raw().to_string(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        }));
        let mut asked = self.sandbox_spec(spec, &session, workdir.clone(), &way.caller)?;
        (asked.pausable, asked.base) = (way.stays, way.base);
        let image = self.furnish_image(spec, &mut asked)?;
        let volumes = self.take_volumes(&spec.volumes, &workdir)?;
        asked.mounts.extend(volumes.iter().map(|volume| volume.mount.clone()));
        if let Some(toolbox) = toolbox {
            toolbox.furnish(&mut asked);
        }
        if let Some(egress) = &mut egress {
            asked.network = Network::Doors;
            asked.files = egress.take_files();
        }
        asked.files.extend(files);
        let began = Instant::now();
        let mut open_trace = || self.open_trace(&trace, &start, way.durable);
        let (recorder, opened) =
            self.make(backend.as_ref(), asked, (way.prepared, way.stays, way.meanwhile), &mut open_trace)?;
        let opened = opened.map_err(EngineError::from).and_then(|mut sandbox| {
            let egress = open_egress(egress, sandbox.as_mut(), &recorder)?;
            let mut report = sandbox.report().clone();
            report.controls.extend(egress.iter().map(|egress| egress.line.clone()));
            recorder.append(None, &Body::Enforcement(Box::new(report.clone())))?;
            for fact in egress.iter().map(|egress| &egress.opened).chain(&facts) {
                recorder.append(None, fact)?;
            }
            Ok((sandbox, egress, report))
        });
        match opened {
            Ok((sandbox, egress, report)) => Ok(Standing {
                calls: Arc::new(Calls::new(recorder.clone(), spec.syscalls)),
                volumes,
                image,
                home: self.home.clone(),
                session,
                recorder,
                shown_at: spec.shown_at.clone().unwrap_or_else(|| workdir.clone()),
                workdir,
                trace,
                report,
                caller: way.caller,
                sandbox,
                egress,
                control: None,
                began,
            }),
            Err(error) => {
                seal(&recorder, Exit::Code(125), Usage::default(), Some(error.to_string()))?;
                Err(error)
            }
        }
    }

    /// The trace, and the sandbox or why there is none. Nothing is made that others would take for left behind before
    /// the trace is locked, which is what tells them that the session lives, but for a group of version 2, which has a
    /// lock of its own:
    ///
    /// - One that stays may be born into groups without one, so for it the trace comes first.
    /// - What was prepared has a mark of its own. The trace is opened while the last of it is mounted, unless
    ///   there is a layer on disk.
    /// - For any other, namespaces and mounts come into being while we write; where a layer on disk is one of the
    ///   first things, only namespaces.
    fn make(
        &self,
        backend: &dyn Backend,
        asked: SandboxSpec,
        (prepared, stays, meanwhile): (Option<Box<dyn Begun>>, bool, &mut dyn FnMut()),
        open_trace: &mut dyn FnMut() -> Result<Recorder, EngineError>,
    ) -> Result<(Recorder, Made), EngineError> {
        let in_memory = backend.tier() == Tier::Process && asked.layer_place == LayerPlace::Memory;
        if let Some(begun) = adopted(&asked, prepared) {
            let mut trace = if in_memory { None } else { Some(Ok(open_trace()?)) };
            // Whoever prepares its successor makes the place of that one's trace.
            let made = begun.complete(&mut || {
                let opened = trace.take().unwrap_or_else(&mut *open_trace);
                if opened.is_ok() {
                    meanwhile();
                }
                trace = Some(opened);
            });
            return Ok((trace.unwrap_or_else(open_trace)?, made));
        }
        if stays {
            let begins = Beginning::count();
            let recorder = open_trace()?;
            let made = backend.begin(asked).and_then(|begun| {
                begun.complete(&mut || {
                    meanwhile();
                    // Where many begin at once there is no time that is nobody's, and each makes its own as quickly.
                    if begins.is_alone() {
                        self.prepare_trace();
                    }
                })
            });
            return Ok((recorder, made));
        }
        let begun = backend.begin(asked);
        let mut trace = if in_memory { None } else { Some(Ok(open_trace()?)) };
        let made = begun
            .and_then(|begun| begun.complete(&mut || trace = trace.take().or_else(|| Some(open_trace()))));
        Ok((trace.unwrap_or_else(open_trace)?, made))
    }

    fn open_trace(&self, trace: &Path, start: &Body, durable: bool) -> Result<Recorder, EngineError> {
        let key = self.home.kept_signing_key()?;
        let writer = Writer::create_from(&self.home.spare_trace(), trace, key, Options { durable })?;
        let recorder = Recorder::new(writer);
        recorder.append(None, start)?;
        Ok(recorder)
    }

    pub(crate) fn new_id(&self) -> Result<SessionId, EngineError> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| EngineError::Io { doing: "make a session id", source: errno.into() })?;
        Ok(SessionId::new(now_us() / 1000, u64::from_le_bytes(random)))
    }

    pub(crate) fn sandbox_spec(
        &self,
        spec: &SessionSpec,
        id: &SessionId,
        workdir: PathBuf,
        caller: &Caller,
    ) -> Result<SandboxSpec, EngineError> {
        let staging = self.home.staging_dir()?;
        let home = caller.get("HOME").map(PathBuf::from).filter(|h| h.is_absolute());
        let search = caller.get("PATH").unwrap_or_default();
        Ok(SandboxSpec {
            id: id.clone(),
            workdir,
            shown_at: spec.shown_at.clone(),
            home: home.unwrap_or_else(|| PathBuf::from("/home/user")),
            path: std::env::split_paths(&search).filter(|p| p.is_absolute()).collect(),
            mounts: spec.mounts.clone(),
            hide: spec.hide.clone(),
            profile: spec.profile,
            users: spec.users,
            limits: spec.limits.clone(),
            layer_place: spec.layer,
            nested: spec.nested,
            sudo: spec.sudo,
            syscalls: spec.syscalls,
            programs: None,
            root: None,
            tracing: false,
            pausable: false,
            ahead: false,
            network: Network::None,
            files: Vec::new(),
            require: spec.require.clone(),
            accept: spec.accept.clone(),
            layer: self.home.layer_dir(id),
            conflicts: self.home.conflicts_dir(),
            base: Default::default(),
            staging,
            // For the whole machine: two state directories must not give out the same ids.
            ranges: PathBuf::from("/run/cofferdam/ranges"),
        })
    }
}

/// The spec as the trace may hold it: an environment is where credentials live, so its values stay out.
fn without_values(spec: &SessionSpec) -> SessionSpec {
    let env = spec.env.keys().map(|name| (name.clone(), String::new())).collect();
    SessionSpec { env, ..spec.clone() }
}

/// The registry that a spec names, read for its caller.
pub(crate) fn toolbox(spec: &SessionSpec, caller: &Caller) -> Result<Option<Toolbox>, EngineError> {
    let Some(path) = &spec.tools else { return Ok(None) };
    let home = caller.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let search: Vec<PathBuf> = std::env::split_paths(&caller.get("PATH").unwrap_or_default()).collect();
    let whose = Whose { home: home.as_deref(), search: &search, only: spec.tool.as_deref() };
    Toolbox::read(path, &whose).map(Some)
}

fn find_workdir(spec: &SessionSpec) -> Result<PathBuf, EngineError> {
    let asked = spec.workdir.clone().unwrap_or_else(|| PathBuf::from("."));
    asked.canonicalize().map_err(|source| EngineError::Workdir { path: asked, source })
}

/// A session before there is anything of it.
pub(crate) struct Place {
    backend: Box<dyn Backend>,
    pub(crate) session: SessionId,
    pub(crate) workdir: PathBuf,
    pub(crate) egress: Option<Prepared>,
    toolbox: Option<Toolbox>,
    /// To be shown inside besides what egress needs.
    pub(crate) files: Vec<ShownFile>,
    /// To be told when the sandbox stands.
    pub(crate) facts: Vec<Body>,
}

/// How a session is opened, whatever is to run in it.
pub(crate) struct Way<'a> {
    pub(crate) by: &'a str,
    pub(crate) durable: bool,
    /// When its commands have ended.
    pub(crate) stays: bool,
    pub(crate) caller: Caller,
    /// What its files begin with, over the work dir.
    pub(crate) base: Base,
    /// A sandbox that was prepared for whoever comes.
    pub(crate) prepared: Option<Box<dyn Begun>>,
    /// What else there is to do for one that stays, once its trace is open and while its sandbox comes into being. Not
    /// called where that fails before.
    pub(crate) meanwhile: &'a mut dyn FnMut(),
}

/// How many sessions that stay begin in this process.
static BEGINNING: AtomicUsize = AtomicUsize::new(0);

/// One of them, for as long as this lives.
struct Beginning;

impl Beginning {
    fn count() -> Self {
        BEGINNING.fetch_add(1, Ordering::Relaxed);
        Self
    }

    fn is_alone(&self) -> bool {
        BEGINNING.load(Ordering::Relaxed) == 1
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        BEGINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A sandbox, or why there is none.
type Made = Result<Box<dyn Sandbox>, RuntimeError>;

/// What was prepared, as the sandbox of this spec, if it can be that.
fn adopted(asked: &SandboxSpec, prepared: Option<Box<dyn Begun>>) -> Option<Box<dyn Begun>> {
    prepared.and_then(|mut prepared| prepared.adopt(asked.clone()).is_ok().then_some(prepared))
}

/// Serves the sandbox's doors.
fn open_egress(
    egress: Option<Prepared>,
    sandbox: &mut dyn Sandbox,
    recorder: &Recorder,
) -> Result<Option<Egress>, EngineError> {
    let Some(prepared) = egress else { return Ok(None) };
    let doors = sandbox.take_doors().ok_or(EngineError::NoDoors)?;
    prepared.open(doors, recorder).map(Some)
}

/// Lets people reach what serves the doors.
fn open_control(standing: &mut Standing) -> Result<(), EngineError> {
    let Some(egress) = &standing.egress else { return Ok(()) };
    let desk = Desk {
        home: standing.home.clone(),
        session: standing.session.clone(),
        handle: Some(egress.handle.clone()),
        derived: egress.derived.clone(),
        mail: None,
    };
    standing.control = Some(Socket::of(&standing.home, &standing.session)?.answered_by(desk)?);
    Ok(())
}
