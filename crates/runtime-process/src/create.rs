//! How a sandbox comes to be: a table of steps, each with its undo.

use crate::cgroup::{Groups, Version, hierarchies};
use crate::explain::{explain_launch, explain_op};
use crate::filter::{self, Choice};
use crate::layer::{self, Layer};
use crate::layout::{self, Layout};
use crate::limits::{self, Resolved};
use crate::plan::{self, Decided, Scratch};
use crate::reap::group_name;
use crate::report::{self, Observed};
use crate::sandbox::ProcessSandbox;
use crate::users::{self, Users, Way};
use cofferdam_model::{EnforcementReport, Profile, Weakness};
use cofferdam_runtime::{Fault, Injected, Recipe, RuntimeError, Sandbox, SandboxSpec, Step, guest_program};
use cofferdam_sys::boot::{self, Access, Launched, Message, Op, Resource};
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
    pub(crate) groups: Groups,
    idmap: Option<Arc<OwnedFd>>,
    namespace: Option<Arc<OwnedFd>>,
    upper: Option<OwnedFd>,
    began: (i64, u32),
    ops: Arc<[Op]>,
    pub(crate) channel: Option<OwnedFd>,
    pub(crate) launched: Option<Launched>,
    pub(crate) listener: Option<seccomp::Listener>,
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

pub(crate) const RECIPE: Recipe<Making, Failure> = Recipe(&[
    Step { name: "users", run: choose_users, undo: |m| m.users = None },
    Step { name: "layout", run: look_around, undo: nothing },
    Step { name: "layer", run: make_layer, undo: remove_layer },
    Step { name: "cgroups", run: make_groups, undo: |m| m.groups.remove() },
    Step { name: "launch", run: launch, undo: end },
    Step { name: "supervise", run: supervise, undo: nothing },
    Step { name: "readback", run: read_back, undo: nothing },
    Step { name: "floor", run: check_floor, undo: nothing },
]);

pub(crate) fn create(
    spec: SandboxSpec,
    without: &[String],
    fault: Fault,
) -> Result<Box<dyn Sandbox>, RuntimeError> {
    let making = Making {
        limits: limits::resolve(&spec.limits, spec.layer_place),
        spec,
        without: without.to_vec(),
        users: None,
        layout: None,
        groups: Groups::default(),
        idmap: None,
        namespace: None,
        upper: None,
        began: (0, 0),
        ops: Arc::new([]),
        channel: None,
        launched: None,
        listener: None,
        landlock_probe: None,
        layer: None,
        report: None,
        waited: false,
    };
    match RECIPE.run(making, fault) {
        Ok(standing) => Ok(Box::new(ProcessSandbox::new(standing))),
        Err((_, Failure::Runtime(error))) => Err(error),
        Err((step, Failure::What(what, fix))) => Err(RuntimeError::Step { step, what, fix }),
        Err((step, Failure::Injected(fault))) => {
            Err(RuntimeError::Step { step, what: fault.to_string(), fix: "this is a test".into() })
        }
    }
}

fn choose_users(m: &mut Making) -> Result<(), Failure> {
    // The fine clock: files that were looked at are stamped by it, and one written just now is no conflict.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    m.began = (now.tv_sec, now.tv_nsec as u32);
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
        let namespace = idmap::namespace(&uid_map, &gid_map)
            .map_err(RuntimeError::io("make the id map of the work dir"))?;
        m.idmap = Some(Arc::new(namespace));
        m.namespace = Some(Arc::new(users.namespace()?));
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
    // The open directory would keep a memory layer's file system alive.
    m.upper = None;
    m.layer = None;
    if !m.limits.layer_in_scratch {
        let _ = layer::remove_tree(&m.spec.layer);
    }
}

fn make_groups(m: &mut Making) -> Result<(), Failure> {
    if m.without.iter().any(|name| name.starts_with("cgroup")) {
        return Ok(());
    }
    m.groups = Groups::make(&hierarchies(), &group_name(&m.spec.id), &m.limits.cgroup);
    let demanded = [("memory", m.spec.limits.memory.is_some()), ("cpu", m.spec.limits.cpu.is_some())];
    let accepts = m.spec.accept.contains(&Weakness::Rlimits);
    for (controller, reason) in &m.groups.missing {
        let asked = demanded.iter().any(|(name, is)| *is && *name == controller.name());
        if asked && !accepts {
            let what =
                format!("the {} limit cannot be held for the whole session: {reason}", controller.name());
            let fix = "run as root or under `systemd-run --user --scope -p Delegate=yes`, or accept a limit per process with `--accept rlimits`";
            m.groups.remove();
            return Err(RuntimeError::Refused { what, fix: fix.into() }.into());
        }
    }
    Ok(())
}

fn namespaces(m: &Making, users: &Users) -> UnshareFlags {
    let all = [
        ("namespace.mount", UnshareFlags::NEWNS),
        ("namespace.pid", UnshareFlags::NEWPID),
        ("namespace.net", UnshareFlags::NEWNET),
        ("namespace.ipc", UnshareFlags::NEWIPC),
        ("namespace.uts", UnshareFlags::NEWUTS),
    ];
    let mut flags = if users.way == Way::Root { UnshareFlags::empty() } else { UnshareFlags::NEWUSER };
    for (_, flag) in
        all.iter().filter(|(name, _)| !m.without.iter().any(|w| w == name) || *name == "namespace.mount")
    {
        flags |= *flag;
    }
    flags
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

fn launch(m: &mut Making) -> Result<(), Failure> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| RuntimeError::io("make the guest's channel")(errno.into()))?;
    let program = image::seal(guest_program()).map_err(|errno| explain_launch("guest image", errno))?;
    let (users, layout) = chosen(m)?;
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
        idmap: m.idmap.clone(),
        namespace: m.namespace.clone(),
        rlimits: rlimits(m),
        guest: Access { uid, gid, drop_groups: users.way != Way::Single },
        keep_capabilities: if in_box { BOX_CAPABILITIES } else { 0 },
        groups: m.groups.groups.iter().filter(|g| g.version == Version::V1).map(|g| g.path.clone()).collect(),
        landlock: landlock::version(),
        nested: m.spec.nested,
        seccomp: filtered.then(|| (Arc::new(filter::program(choice)), choice.notify)),
        channel: theirs.as_raw_fd(),
        image: program.as_raw_fd(),
        without: &m.without,
    };
    let ops: Arc<[Op]> = plan::operations(&decided).into();
    let v2 = m.groups.groups.iter().find(|group| group.version == Version::V2);
    let v2 = v2.and_then(|group| layer::open_dir(&group.path).ok());
    let launched = boot::launch(namespaces(m, users), v2.as_ref().map(AsFd::as_fd), ops.clone())
        .map_err(|errno| explain_launch("new namespaces", errno))?;
    m.ops = ops;
    m.channel = Some(ours);
    m.launched = Some(launched);
    Ok(())
}

/// Ends everything inside: the first process of a pid namespace takes all others with it.
fn end(m: &mut Making) {
    let Some(launched) = &m.launched else { return };
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
    let pid = launched.pid().as_raw_nonzero().get();
    let hearing = |errno: rustix::io::Errno| RuntimeError::io("hear from the boot child")(errno.into());
    if let Some(users) = m.users.as_ref().filter(|users| users.way == Way::Range) {
        users.write_maps(pid)?;
        launched.go().map_err(hearing)?;
    }
    loop {
        match launched.hear().map_err(hearing)? {
            Message::LandlockProbe(errno) => m.landlock_probe = errno,
            Message::Listener(fd) => m.listener = Some(seccomp::Listener::new(fd)),
            Message::Layer(fd) => m.upper = Some(fd),
            Message::Failed { at, errno } => {
                let workdir = m.spec.workdir.clone();
                return Err(m.ops.get(at).map_or_else(
                    || Failure::What("an unknown operation failed".into(), "report this".into()),
                    |op| explain_op(op, errno, &workdir),
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
    };
    let report = report::read(&observed)?;
    let owner = (users.way == Way::Root).then_some(layout.workdir_owner);
    let planted: BTreeSet<_> = layout.hidden.paths.iter().cloned().collect();
    let workdir = layer::open_dir(&layout.workdir)?;
    let by_root = users.way == Way::Root;
    m.report = Some(report);
    m.layer = m.upper.take().map(|upper| Layer { upper, workdir, planted, began: m.began, owner, by_root });
    Ok(())
}

fn check_floor(m: &mut Making) -> Result<(), Failure> {
    let Some(report) = &m.report else { return Ok(()) };
    report::check(report, &m.spec.require, &m.spec.accept, &m.without).map_err(Failure::Runtime)
}
