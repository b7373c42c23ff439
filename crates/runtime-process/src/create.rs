//! How a sandbox comes to be: a table of steps, each with its undo.

use crate::cgroup::{self, Groups, Version, hierarchies_of};
use crate::explain::{explain_launch, explain_op};
use crate::filter::{self, Choice};
use crate::layer::{self, Layer};
use crate::layout::{self, Layout};
use crate::limits::{self, Resolved};
use crate::network;
use crate::plan::{self, Decided, Inherited, Scratch};
use crate::reap::group_name;
use crate::report::{self, Observed};
use crate::sandbox::ProcessSandbox;
use crate::shown::{self, Placed};
use crate::users::{self, Users, Way};
use cofferdam_model::{EnforcementReport, Profile, Weakness};
use cofferdam_runtime::{
    Begun, Doors, Fault, Injected, Network, Recipe, RuntimeError, Sandbox, SandboxSpec, Standing, Step,
    guest_program,
};
use cofferdam_sys::boot::{self, Access, Given, Launched, Message, Resource};
use cofferdam_sys::{capability, idmap, image, landlock, seccomp};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use rustix::thread::UnshareFlags;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// What root inside a box may do, within its own user namespace.
const BOX_CAPABILITIES: u64 = capability::CHOWN
    | capability::DAC_OVERRIDE
    | capability::FOWNER
    | capability::KILL
    | capability::SETUID
    | capability::SETGID;

/// Everything that exists of a sandbox so far. The steps fill it in.
pub(crate) struct Making {
    pub(crate) spec: SandboxSpec,
    pub(crate) without: Vec<String>,
    pub(crate) limits: Resolved,
    pub(crate) users: Option<Users>,
    pub(crate) layout: Option<Layout>,
    network: Option<network::Wanted>,
    files: Vec<Placed>,
    pub(crate) groups: Groups,
    given: Given,
    /// Helpers that are not needed any more and not yet waited for.
    holders: Vec<idmap::Holder>,
    born_in_group: bool,
    inherited: Option<Inherited>,
    upper: Option<OwnedFd>,
    began: layer::Began,
    pub(crate) channel: Option<OwnedFd>,
    pub(crate) launched: Option<Launched>,
    pub(crate) listener: Option<seccomp::Listener>,
    pub(crate) doors: Option<Doors>,
    landlock_probe: Option<rustix::io::Errno>,
    pub(crate) layer: Option<Layer>,
    pub(crate) report: Option<EnforcementReport>,
    pub(crate) waited: bool,
}

/// A step's failure, before it is told apart by step.
#[derive(Debug)]
pub(crate) enum Failure {
    Runtime(RuntimeError),
    What(String, String),
    Injected(Injected),
}

impl From<Injected> for Failure {
    fn from(fault: Injected) -> Self {
        Self::Injected(fault)
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

fn nothing(_: &mut Making) {}

/// The child makes its namespaces while we look around: the two take about as long.
pub(crate) const RECIPE: Recipe<Making, Failure> = Recipe(&[
    Step { name: "users", run: choose_users, undo: |m| m.users = None },
    Step { name: "cgroup-to-be-born-in", run: make_unified_group, undo: remove_groups },
    Step { name: LAUNCH, run: launch, undo: end },
    Step { name: "limits", run: place_groups, undo: nothing },
    Step { name: "layout", run: look_around, undo: nothing },
    Step { name: "layer", run: make_layer, undo: remove_layer },
    Step { name: "plan", run: hand_over_plan, undo: nothing },
    Step { name: GROUPS, run: make_groups, undo: remove_groups },
    Step { name: "supervise", run: supervise, undo: nothing },
    Step { name: "readback", run: read_back, undo: nothing },
    Step { name: "floor", run: check_floor, undo: nothing },
]);

/// The step that ends the beginning.
const LAUNCH: &str = "launch";
/// The step after which there is time for something else.
const GROUPS: &str = "cgroups";

/// A child at work in namespaces of its own, and nothing decided yet about what it will see.
pub(crate) struct Beginning(Standing<Making, Failure>);

pub(crate) fn begin(
    spec: SandboxSpec,
    without: &[String],
    fault: Fault,
) -> Result<Box<Beginning>, RuntimeError> {
    let making = Making {
        limits: limits::resolve(&spec.limits, spec.layer_place, spec.pausable),
        spec,
        without: without.to_vec(),
        users: None,
        layout: None,
        network: None,
        files: Vec::new(),
        groups: Groups::default(),
        given: Given::default(),
        holders: Vec::new(),
        born_in_group: false,
        inherited: None,
        upper: None,
        began: layer::Began::default(),
        channel: None,
        launched: None,
        listener: None,
        doors: None,
        landlock_probe: None,
        layer: None,
        report: None,
        waited: false,
    };
    let standing = RECIPE.start(making, fault).run_to(Some(LAUNCH)).map_err(told)?;
    Ok(Box::new(Beginning(standing)))
}

impl Begun for Beginning {
    fn complete(self: Box<Self>, meanwhile: &mut dyn FnMut()) -> Result<Box<dyn Sandbox>, RuntimeError> {
        let mut standing = self.0.run_to(Some(GROUPS)).map_err(told)?;
        // The child mounts by itself now; helpers that have served take a while to die.
        meanwhile();
        standing.context.holders.clear();
        let standing = standing.run_to(None).map_err(told)?;
        Ok(Box::new(ProcessSandbox::new(standing)))
    }
}

fn told((step, failure): (&'static str, Failure)) -> RuntimeError {
    match failure {
        Failure::Runtime(error) => error,
        Failure::What(what, fix) => RuntimeError::Step { step, what, fix },
        Failure::Injected(fault) => {
            RuntimeError::Step { step, what: fault.to_string(), fix: "this is a test".into() }
        }
    }
}

fn choose_users(m: &mut Making) -> Result<(), Failure> {
    m.began = layer::Began::now();
    m.users = Some(users::choose(m.spec.users, m.spec.profile, &m.spec.ranges)?);
    if !m.limits.layer_in_scratch && m.users.as_ref().is_some_and(|u| u.way == Way::Range) {
        let what = "what several inside users write on disk could not be removed by a plain user".into();
        let fix = "leave `--layer disk` out, or use `--users single`".into();
        return Err(RuntimeError::Refused { what, fix }.into());
    }
    Ok(())
}

fn chosen(m: &Making) -> Result<(&Users, &Layout), Failure> {
    match (&m.users, &m.layout) {
        (Some(users), Some(layout)) => Ok((users, layout)),
        _ => Err(Failure::What("steps ran out of order".into(), "report this".into())),
    }
}

fn look_around(m: &mut Making) -> Result<(), Failure> {
    let Some(users) = &m.users else { return chosen(m).map(drop) };
    let layout = layout::gather(&m.spec, users)?;
    if users.way == Way::Root {
        let (uid_map, gid_map) = users.idmap_for(layout.workdir_owner);
        let (of_workdir, one) = idmap::namespace(&uid_map, &gid_map)
            .map_err(RuntimeError::io("make the id map of the work dir"))?;
        let (of_sandbox, two) = users.namespace()?;
        m.given = Given { id_map: Some(of_workdir), user_namespace: Some(of_sandbox) };
        m.holders.extend([one, two]);
    }
    m.layout = Some(layout);
    Ok(())
}

fn make_layer(m: &mut Making) -> Result<(), Failure> {
    let (users, layout) = chosen(m)?;
    let owner = (users.way == Way::Root).then_some((users.host_uid, users.host_gid));
    if !m.limits.layer_in_scratch {
        m.upper = Some(layer::make(&m.spec.layer, layout, owner)?);
    }
    Ok(())
}

fn remove_layer(m: &mut Making) {
    end(m);
    // The open directory would keep a memory layer's file system alive.
    m.upper = None;
    m.layer = None;
    layer::leave(&m.spec.layer);
}

/// Into a group of version 2 a process is best born: to move it later would stop all others on the machine for a
/// moment. Where controllers are of version 1, only what can be paused has such a group.
fn make_unified_group(m: &mut Making) -> Result<(), Failure> {
    match cgroup::is_unified() || m.spec.pausable {
        true => place_groups(m).and_then(|()| make_groups(m)),
        false => Ok(()),
    }
}

/// A group goes when its last process has gone.
fn remove_groups(m: &mut Making) {
    end(m);
    m.groups.remove();
}

/// While the child mounts; it waits for them before it closes its root.
fn make_groups(m: &mut Making) -> Result<(), Failure> {
    let fix = "run `cofferdam doctor` to see what this host lacks";
    if let Err(what) = m.groups.make(&m.limits.cgroup) {
        remove_groups(m);
        return Err(RuntimeError::Refused { what, fix: fix.into() }.into());
    }
    match m.launched.as_ref().filter(|_| !m.groups.entrances(m.born_in_group).is_empty()) {
        Some(launched) => Ok(launched.go().map_err(hearing)?),
        None => Ok(()),
    }
}

fn place_groups(m: &mut Making) -> Result<(), Failure> {
    if m.born_in_group || m.without.iter().any(|name| name.starts_with("cgroup")) {
        return Ok(());
    }
    let found = hierarchies_of(&m.limits.cgroup.controllers().collect::<Vec<_>>());
    m.groups = Groups::place(&found, &group_name(&m.spec.id), &m.limits.cgroup);
    let demanded = [("memory", m.spec.limits.memory.is_some()), ("cpu", m.spec.limits.cpu.is_some())];
    let accepts = m.spec.accept.contains(&Weakness::Rlimits);
    for (controller, reason) in &m.groups.missing {
        let asked = demanded.iter().any(|(name, is)| *is && *name == controller.name());
        if asked && !accepts {
            let what =
                format!("the {} limit cannot be held for the whole session: {reason}", controller.name());
            let fix = "run as root or under `systemd-run --user --scope -p Delegate=yes`, or accept a limit per process with `--accept rlimits`";
            return Err(RuntimeError::Refused { what, fix: fix.into() }.into());
        }
    }
    Ok(())
}

/// Those that a process cannot enter later: it is the first of its pid namespace, and all others belong to its
/// user namespace.
fn born_in(m: &Making, users: &Users) -> UnshareFlags {
    let mut flags = UnshareFlags::empty();
    flags.set(UnshareFlags::NEWUSER, users.way != Way::Root);
    flags.set(UnshareFlags::NEWPID, !m.without.iter().any(|w| w == "namespace.pid"));
    flags
}

fn launch(m: &mut Making) -> Result<(), Failure> {
    let mut files = std::mem::take(&mut m.spec.files);
    if m.spec.network == Network::Doors {
        m.network = Some(network::look());
        files.extend(network::files());
    }
    m.files = shown::place(files);
    let Some(users) = &m.users else { return chosen(m).map(drop) };
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| RuntimeError::io("make the guest's channel")(errno.into()))?;
    let image = image::seal(guest_program()).map_err(|errno| explain_launch("guest image", errno))?;
    let unified = m.groups.groups.iter().find(|group| group.version == Version::V2);
    let unified = unified.and_then(|group| layer::open_dir(&group.path).ok());
    let first = plan::first(users, m.network.as_ref(), &m.without);
    let launched = boot::launch(born_in(m, users), unified.as_ref().map(AsFd::as_fd), first)
        .map_err(|errno| explain_launch("new namespaces", errno))?;
    m.born_in_group = unified.is_some();
    m.inherited = Some(Inherited { channel: theirs.as_raw_fd(), image: image.as_raw_fd() });
    m.channel = Some(ours);
    m.launched = Some(launched);
    Ok(())
}

fn rlimits(m: &Making) -> Vec<(Resource, u64)> {
    let mut limits = vec![(Resource::Core, 0), (Resource::OpenFiles, m.limits.files.into())];
    for (controller, _) in &m.groups.missing {
        match (controller.name(), m.limits.cgroup.pids, m.spec.limits.memory) {
            ("pids", Some(pids), _) => limits.push((Resource::Processes, pids.into())),
            ("memory", _, Some(memory)) => limits.push((Resource::AddressSpace, memory.0)),
            _ => {}
        }
    }
    limits
}

/// Decides all that is left, and lets the child go on.
fn hand_over_plan(m: &mut Making) -> Result<(), Failure> {
    let (users, layout) = chosen(m)?;
    let Some((launched, inherited)) = m.launched.as_ref().zip(m.inherited) else {
        return chosen(m).map(drop);
    };
    let choice = Choice {
        nested: m.spec.nested,
        writes_host: layout.mounts.iter().any(|asked| asked.mount.writable),
        notify: !m.without.iter().any(|w| w == "seccomp.record"),
    };
    let filtered = !m.without.iter().any(|w| w == "seccomp");
    let in_box = m.spec.profile == Profile::Box;
    let (uid, gid) = if in_box { (0, 0) } else { (users.uid, users.gid) };
    let decided = Decided {
        layout,
        users,
        staging: &m.spec.staging,
        layer: (!m.limits.layer_in_scratch).then_some(m.spec.layer.as_path()),
        scratch: Scratch { bytes: m.limits.scratch, inodes: limits::inodes(m.limits.scratch) },
        idmapped: m.given.id_map.is_some(),
        rlimits: rlimits(m),
        guest: Access { uid, gid, drop_groups: users.way != Way::Single },
        keep_capabilities: if in_box { BOX_CAPABILITIES } else { 0 },
        groups: m.groups.entrances(m.born_in_group),
        landlock: landlock::version(),
        nested: m.spec.nested,
        seccomp: filtered.then(|| (Arc::new(filter::program(choice)), choice.notify)),
        files: &m.files,
        network: m.network.as_ref(),
        inherited,
        without: &m.without,
    };
    let rest = plan::operations(&decided);
    if users.way == Way::Range {
        users.write_maps(launched.pid().as_raw_nonzero().get())?;
    }
    launched.perform(rest, &m.given).map_err(hearing)?;
    Ok(())
}

fn hearing(errno: rustix::io::Errno) -> RuntimeError {
    RuntimeError::io("hear from the boot child")(errno.into())
}

/// Ends everything inside: the first process of a pid namespace takes all others with it.
fn end(m: &mut Making) {
    let Some(launched) = &m.launched else { return };
    // What is frozen by version 1 does not even die.
    m.groups.thaw();
    let _ = rustix::process::pidfd_send_signal(launched.pidfd(), Signal::KILL);
    if !m.waited {
        let _ = rustix::process::waitid(WaitId::PidFd(launched.pidfd()), WaitIdOptions::EXITED);
        m.waited = true;
    }
    m.launched = None;
}

/// Does the supervisor's part while the child works, until the guest runs.
fn supervise(m: &mut Making) -> Result<(), Failure> {
    let Some(mut launched) = m.launched.take() else { return chosen(m).map(drop) };
    let result = converse(m, &mut launched);
    m.launched = Some(launched);
    result
}

fn converse(m: &mut Making, launched: &mut Launched) -> Result<(), Failure> {
    loop {
        match launched.hear().map_err(hearing)? {
            Message::LandlockProbe(errno) => m.landlock_probe = errno,
            Message::Listener(fd) => m.listener = Some(seccomp::Listener::new(fd)),
            Message::Layer(fd) => m.upper = Some(fd),
            Message::Doors(fds) => {
                let guest = launched.pid().as_raw_nonzero().get();
                m.doors = m.network.as_ref().map(|network| network.doors(guest, fds)).transpose()?;
            }
            Message::Failed { at, errno } => {
                let workdir = &m.spec.workdir;
                return Err(launched.op(at).map_or_else(
                    || Failure::What("an unknown operation failed".into(), "report this".into()),
                    |op| explain_op(op, errno, workdir),
                ));
            }
            Message::Started => return Ok(()),
        }
    }
}

fn read_back(m: &mut Making) -> Result<(), Failure> {
    let (users, layout) = chosen(m)?;
    let Some(launched) = &m.launched else { return Ok(()) };
    let observed = Observed {
        pid: launched.pid().as_raw_nonzero().get(),
        users,
        layout,
        groups: &m.groups,
        limits: &m.limits,
        profile: m.spec.profile,
        nested: m.spec.nested,
        landlock_probe: m.landlock_probe,
        listens: m.listener.is_some(),
        doors: m.network.as_ref().map(|network| (network, m.doors.as_ref())),
    };
    let report = report::read(&observed)?;
    let owner = (users.way == Way::Root).then_some(layout.workdir_owner);
    let planted: BTreeSet<_> = layout.hidden.paths.iter().cloned().collect();
    let workdir = layer::open_dir(&layout.workdir)?;
    let by_root = users.way == Way::Root;
    let (workdir_path, inside) =
        (layout.workdir.clone(), by_root.then_some((users.host_uid, users.host_gid)));
    m.report = Some(report);
    let began = m.began;
    m.layer = m.upper.take().map(|upper| Layer {
        upper,
        workdir,
        workdir_path,
        planted,
        began,
        owner,
        inside,
        by_root,
    });
    Ok(())
}

fn check_floor(m: &mut Making) -> Result<(), Failure> {
    let Some(report) = &m.report else { return Ok(()) };
    report::check(report, &m.spec.require, &m.spec.accept, &m.without).map_err(Failure::Runtime)
}
