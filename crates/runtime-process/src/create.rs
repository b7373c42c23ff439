//! How a sandbox comes to be: a table of steps, each with its undo.

use crate::backing;
use crate::birth::{self, Early};
use crate::cgroup::{self, Groups};
use crate::decide;
use crate::ids::Ids;
use crate::late;
use crate::layer::{self, Layer};
use crate::layout::{self, Layout};
use crate::limits::{self, Resolved};
use crate::meanwhile::Meanwhile;
use crate::network;
use crate::plan::{self, Inherited, Room, Scratch, Skeleton};
use crate::readback;
use crate::reap::group_name;
use crate::report::Settled;
use crate::room::Place;
use crate::sandbox::ProcessSandbox;
use crate::shown::Placed;
use crate::supervise;
use crate::users::{self, Users, Way};
use crate::wait::{self, Waiting};
use crate::watch::Ear;
use crate::{Channels, ProcessBackend};
use cofferdam_model::{EnforcementReport, Weakness};
use cofferdam_runtime::{
    Begun, Doors, Injected, Network, Recipe, RuntimeError, Sandbox, SandboxSpec, Standing, Step, Waits,
};
use cofferdam_sys::boot::{Given, Launched, Op};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;

/// Everything that exists of a sandbox so far. The steps fill it in.
pub(crate) struct Making {
    pub(crate) spec: SandboxSpec,
    /// What its control groups are called: after the session, or after whoever prepared it.
    pub(crate) group: String,
    pub(crate) without: Vec<String>,
    pub(crate) kvm: Option<PathBuf>,
    pub(crate) limits: Resolved,
    pub(crate) users: Option<Users>,
    pub(crate) layout: Option<Layout>,
    /// What was seen of the host a moment ago.
    host: Option<layout::Host>,
    pub(crate) network: Option<network::Wanted>,
    pub(crate) files: Vec<Placed>,
    pub(crate) groups: Groups,
    pub(crate) ids: Ids,
    /// The file system for its scratch space, where that lies in a file, until the child has it.
    pub(crate) scratch: Option<OwnedFd>,
    pub(crate) born_in_group: bool,
    /// Born before anything was known of the session, and not yet taken.
    pub(crate) early: Option<Early>,
    /// What the child was not told when it was born, and does before all else.
    pub(crate) owed: Vec<Op>,
    pub(crate) inherited: Option<Inherited>,
    pub(crate) upper: Option<OwnedFd>,
    /// Directories that the child handed over, in order.
    pub(crate) handed: VecDeque<OwnedFd>,
    /// What other rooms are made in.
    pub(crate) place: Option<Place>,
    pub(crate) room: Room,
    /// The scratch space of a skeleton that was made ahead.
    pub(crate) ahead: Option<Scratch>,
    /// Its guest runs, and waits to be somebody's.
    pub(crate) waiting: Option<Waiting>,
    /// What it waited with is being seen off.
    pub(crate) left: Option<Meanwhile<()>>,
    pub(crate) began: layer::Began,
    /// What was done to the image's files before, the upper ones first.
    pub(crate) system: Vec<PathBuf>,
    pub(crate) channel: Option<OwnedFd>,
    /// Where the guest's end of it comes from, where the other is not ours.
    pub(crate) given_channel: Option<Channels>,
    /// The guest's program, where it was sealed before.
    pub(crate) given_image: Option<Arc<OwnedFd>>,
    /// The first process of the room that there is, for who asks from elsewhere.
    pub(crate) guest: Arc<AtomicI32>,
    pub(crate) launched: Option<Launched>,
    pub(crate) ear: Option<Ear>,
    pub(crate) doors: Option<Doors>,
    pub(crate) landlock_probe: Option<rustix::io::Errno>,
    /// Read back while the guest's image was executed.
    pub(crate) settled: Option<Settled>,
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
    Step { name: "users", run: choose_users, undo: leave_users },
    Step { name: "cgroup-to-be-born-in", run: make_unified_group, undo: remove_groups },
    Step { name: LAUNCH, run: launch, undo: end },
    Step { name: "limits", run: place_groups, undo: nothing },
    Step { name: "layout", run: look_around, undo: nothing },
    Step { name: "layer", run: make_layer, undo: remove_layer },
    Step { name: PLAN, run: decide::hand_over, undo: nothing },
    Step { name: GROUPS, run: make_groups, undo: remove_groups },
    Step { name: "confine", run: decide::confine, undo: nothing },
    Step { name: "supervise", run: supervise::supervise, undo: nothing },
    Step { name: "readback", run: readback::read_back, undo: nothing },
    Step { name: "floor", run: readback::check_floor, undo: nothing },
]);

/// The step that ends the beginning.
const LAUNCH: &str = "launch";
/// The step after which there is time for something else, and of nothing that others could take for left behind.
const PLAN: &str = "plan";
/// The step after which helpers have served.
const GROUPS: &str = "cgroups";

/// A child at work in namespaces of its own, and nothing decided yet about what it will see.
pub(crate) struct Beginning(Standing<Making, Failure>);

pub(crate) fn begin(
    spec: SandboxSpec,
    backend: &ProcessBackend,
    given_channel: Option<Channels>,
    early: Option<Early>,
) -> Result<Box<Beginning>, RuntimeError> {
    let ProcessBackend { without, fault, kvm, image: given_image, .. } = backend;
    let (fault, kvm) = (*fault, kvm.clone());
    // Whoever makes one that stays makes many.
    let given_image = given_image.clone().or_else(|| spec.pausable.then(birth::image_of_all).flatten());
    let making = Making {
        limits: limits::resolve(&spec.limits, spec.layer_place, spec.pausable),
        group: group_name(&spec.id),
        spec,
        without: without.clone(),
        kvm,
        users: None,
        layout: None,
        host: None,
        network: None,
        files: Vec::new(),
        groups: Groups::default(),
        ids: Ids::default(),
        scratch: None,
        born_in_group: false,
        early,
        owed: Vec::new(),
        inherited: None,
        upper: None,
        handed: VecDeque::new(),
        place: None,
        room: Room::Only,
        ahead: None,
        waiting: None,
        left: None,
        began: layer::Began::default(),
        system: Vec::new(),
        channel: None,
        given_channel,
        given_image,
        guest: Arc::default(),
        launched: None,
        ear: None,
        doors: None,
        landlock_probe: None,
        settled: None,
        layer: None,
        report: None,
        waited: false,
    };
    let standing = RECIPE.start(making, fault).run_to(Some(LAUNCH)).map_err(told)?;
    Ok(Box::new(Beginning(standing)))
}

impl Begun for Beginning {
    fn adopt(&mut self, spec: SandboxSpec) -> Result<(), RuntimeError> {
        late::adopt(&mut self.0.context, spec).map_err(|failure| told((LAUNCH, failure)))
    }

    fn go_ahead(&mut self) -> Result<(), RuntimeError> {
        wait::go_ahead(&mut self.0.context).map_err(|failure| told(("wait", failure)))
    }

    fn waits(&self) -> Option<Waits<'_>> {
        let making = &self.0.context;
        let (launched, place) = (making.launched.as_ref()?, making.place.as_ref()?);
        making.waiting.as_ref()?;
        Some(Waits { guest: launched.pidfd(), mounts: place.mounts.as_fd() })
    }

    fn complete(self: Box<Self>, meanwhile: &mut dyn FnMut()) -> Result<Box<dyn Sandbox>, RuntimeError> {
        let standing = self.0.run_to(Some(PLAN)).map_err(told)?;
        // The child mounts by itself now.
        meanwhile();
        let standing = standing.run_to(Some(GROUPS)).map_err(told)?;
        // They end while the child goes on.
        standing.context.ids.dismiss();
        let mut standing = standing.run_to(None).map_err(told)?;
        standing.context.left.take().map(Meanwhile::get);
        // What a `run` is made for is to begin, and it waits for them then.
        if standing.context.spec.pausable {
            standing.context.ids.wait();
        }
        Ok(Box::new(ProcessSandbox::new(standing)))
    }
}

pub(crate) fn told((step, failure): (&'static str, Failure)) -> RuntimeError {
    match failure {
        Failure::Runtime(error) => error,
        Failure::What(what, fix) => RuntimeError::Step { step, what, fix },
        Failure::Injected(fault) => {
            RuntimeError::Step { step, what: fault.to_string(), fix: "this is a test".into() }
        }
    }
}

fn choose_users(m: &mut Making) -> Result<(), Failure> {
    let slot = m.spec.base.since.and_then(|since| since.ids);
    m.users = Some(users::choose(m.spec.users, m.spec.profile, &m.spec.ranges, slot)?);
    late::bind(m)
}

/// The last of all that is undone: whoever was in a pid namespace has gone with it.
fn leave_users(m: &mut Making) {
    if m.without.is_empty() {
        m.ids.give_back();
    }
    m.users = None;
}

pub(crate) fn chosen(m: &Making) -> Result<(&Users, &Layout), Failure> {
    match (&m.users, &m.layout) {
        (Some(users), Some(layout)) => Ok((users, layout)),
        _ => Err(Failure::What("steps ran out of order".into(), "report this".into())),
    }
}

fn look_around(m: &mut Making) -> Result<(), Failure> {
    // Decided when it became this session's.
    if m.waiting.is_some() {
        return Ok(());
    }
    let Some(users) = &m.users else { return chosen(m).map(drop) };
    let layout = layout::gather_over(m.host.take(), &m.spec, users)?;
    map_ids(m, layout.workdir_owner)?;
    m.layout = Some(layout);
    Ok(())
}

/// Makes the namespaces by which root's sandboxes map ids, where they are not there already.
pub(crate) fn map_ids(m: &mut Making, owner: (u32, u32)) -> Result<(), Failure> {
    match &m.users {
        Some(users) => Ok(m.ids.map(users, owner)?),
        None => Ok(()),
    }
}

/// Whose the layer's directories are, where that is not us.
pub(crate) fn layer_owner(users: &Users) -> Option<(u32, u32)> {
    (users.way == Way::Root).then_some((users.host_uid, users.host_gid))
}

fn make_layer(m: &mut Making) -> Result<(), Failure> {
    let (users, layout) = chosen(m)?;
    if m.limits.in_file {
        let inodes = m.limits.inodes_in_file(own_inodes(m, layout));
        m.scratch = Some(backing::make(&m.spec.layer, m.limits.scratch, inodes)?);
    } else if !m.limits.layer_in_scratch {
        let upper = layer::make(&m.spec.layer, layout, layer_owner(users))?;
        if layout.root.is_some() {
            layer::make_system(&m.spec.layer.join("system"), users.root_outside())?;
        }
        m.upper = Some(upper);
    }
    Ok(())
}

/// More than a sandbox has in its scratch space before anything runs in it.
fn own_inodes(m: &Making, layout: &Layout) -> u64 {
    let hidden = layout.hidden.paths.len() + layout.hidden_parents.len();
    let shown = (m.files.len() + layout.mounts.len() + layout.toolchains.len()) * 16;
    512 + (hidden + shown) as u64
}

fn remove_layer(m: &mut Making) {
    end(m);
    // Open directories would keep the file system of a layer that has one alive.
    (m.upper, m.scratch) = (None, None);
    m.layer = None;
    m.handed.clear();
    m.place = None;
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
pub(crate) fn make_groups(m: &mut Making) -> Result<(), Failure> {
    if m.waiting.is_some() {
        return Ok(());
    }
    let fix = "run `cofferdam doctor` to see what this host lacks";
    if let Err(what) = m.groups.make(&m.limits.cgroup) {
        cgroup::look_again();
        remove_groups(m);
        return Err(RuntimeError::Refused { what, fix: fix.into() }.into());
    }
    let_join(m)
}

/// Tells a child that waits for its groups that they are there.
pub(crate) fn let_join(m: &mut Making) -> Result<(), Failure> {
    match m.launched.is_none() || m.groups.entrances(m.born_in_group).is_empty() {
        true => Ok(()),
        false => supervise::tell(m, |launched, _| launched.go()),
    }
}

pub(crate) fn place_groups(m: &mut Making) -> Result<(), Failure> {
    if m.waiting.is_some() || m.born_in_group || m.without.iter().any(|name| name.starts_with("cgroup")) {
        return Ok(());
    }
    late::place_groups(m)
}

fn launch(m: &mut Making) -> Result<(), Failure> {
    let may_lack = m.spec.accept.contains(&Weakness::NoCapture);
    m.network = (m.spec.network == Network::Doors).then(|| network::look(may_lack));
    late::show(m);
    let Some(users) = &m.users else { return chosen(m).map(drop) };
    // What only plain users' own ids touch, or root, can be rearranged by us.
    m.room = if m.spec.pausable && users.way != Way::Range { Room::First } else { Room::Only };
    let born_in = birth::namespaces(users.way, &m.without);
    let second = plan::second(users, m.network.as_ref(), &m.without);
    match m.early.take().and_then(|early| early.child_for(m)) {
        Some((born, in_group)) => {
            birth::take_in(m, born, in_group);
            m.owed = second;
        }
        None => {
            let mut first = plan::first(&m.without);
            first.extend(second);
            birth::bear(m, born_in, None, first, &[])?;
        }
    }
    furnish(m)?;
    if m.spec.ahead {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        map_ids(m, own)?;
        // It may be long before anyone comes.
        m.ids.wait();
    }
    Ok(())
}

/// Hands over what does not depend on the session, while the child still makes its namespaces.
fn furnish(m: &mut Making) -> Result<(), Failure> {
    let Some(users) = &m.users else { return chosen(m).map(drop) };
    // The ids of a range are mapped by us, and only when the child waits. What a registry leaves out is not known yet, and
    // a file system in a file is not there yet.
    if users.way == Way::Range || m.spec.programs.is_some() || m.limits.in_file {
        return Ok(());
    }
    let host = layout::Host::look(&m.spec, users);
    let layout = layout::skeleton(host.clone(), &m.spec, users);
    let scratch = scratch(m);
    let mut ops = std::mem::take(&mut m.owed);
    ops.reserve(100);
    plan::skeleton(&Skeleton { layout: &layout, users, staging: &m.spec.staging, scratch }, &mut ops);
    supervise::tell(m, |launched, _| launched.perform(ops, Given::default()))?;
    m.ahead = Some(scratch);
    // One that waits may wait for long.
    m.host = (!m.spec.ahead).then_some(host);
    Ok(())
}

pub(crate) fn scratch(m: &Making) -> Scratch {
    let Resolved { scratch, inodes, allowed_inodes, in_file, .. } = m.limits;
    Scratch { bytes: scratch, inodes, allowed: allowed_inodes, in_file }
}

pub(crate) fn hearing(errno: rustix::io::Errno) -> RuntimeError {
    RuntimeError::io("hear from the boot child")(errno.into())
}

/// Ends everything inside: the first process of a pid namespace takes all others with it.
pub(crate) fn end(m: &mut Making) {
    m.waiting = None;
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
