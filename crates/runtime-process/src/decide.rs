//! From what exists of a sandbox to what is decided about the rest, and to the child that performs it.

use crate::create::{Failure, Making, chosen, scratch};
use crate::filter::{self, Choice};
use crate::layout::Layout;
use crate::plan::{self, Decided, Room};
use crate::supervise;
use crate::users::Way;
use crate::wait;
use cofferdam_model::{Profile, Syscalls};
use cofferdam_runtime::SandboxSpec;
use cofferdam_sys::boot::{Access, Given, Op, Resource};
use cofferdam_sys::{capability, landlock};
use std::os::fd::AsFd;

/// What root inside a box may do, within its own user namespace.
const BOX_CAPABILITIES: u64 = capability::CHOWN
    | capability::DAC_OVERRIDE
    | capability::FOWNER
    | capability::KILL
    | capability::SETUID
    | capability::SETGID;

pub(crate) fn rlimits(m: &Making) -> Vec<(Resource, u64)> {
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

pub(crate) fn filter_of(m: &Making) -> Result<Choice, Failure> {
    let (_, layout) = chosen(m)?;
    Ok(filter_for(&m.spec, layout, &m.without))
}

pub(crate) fn filter_for(spec: &SandboxSpec, layout: &Layout, without: &[String]) -> Choice {
    Choice {
        nested: spec.nested,
        tracing: spec.tracing,
        writes_host: layout.mounts.iter().any(|asked| asked.mount.writable),
        notify: !without.iter().any(|w| w == "seccomp.record"),
        all: spec.syscalls == Syscalls::All,
    }
}

/// The operations that `plan` makes of all that is decided. The filter is compiled only where it is one of them.
pub(crate) fn decided(
    m: &Making,
    filtered: bool,
    plan: impl FnOnce(&Decided<'_>) -> Vec<Op>,
) -> Result<Vec<Op>, Failure> {
    let (users, layout) = chosen(m)?;
    let Some(inherited) = m.inherited else {
        return Err(Failure::What("steps ran out of order".into(), "report this".into()));
    };
    let choice = filter_of(m)?;
    let filtered = filtered && !m.without.iter().any(|w| w == "seccomp");
    let another = matches!(m.room, Room::Another { .. });
    let in_box = m.spec.profile == Profile::Box;
    let (uid, gid) = if in_box { (0, 0) } else { (users.uid, users.gid) };
    Ok(plan(&Decided {
        layout,
        users,
        staging: &m.spec.staging,
        layer: (!m.limits.layer_in_scratch).then_some(m.spec.layer.as_path()),
        base: &m.spec.base.layers,
        system: &m.system,
        room: m.room,
        scratch: scratch(m),
        ahead: m.ahead,
        idmapped: m.ids.translate(),
        rlimits: rlimits(m),
        guest: Access { uid, gid, drop_groups: users.way != Way::Single },
        keep_capabilities: if in_box { BOX_CAPABILITIES } else { 0 },
        groups: m.groups.entrances(m.born_in_group),
        landlock: landlock::version(),
        nested: m.spec.nested,
        seccomp: filtered.then(|| (filter::program(choice), choice.notify)),
        files: &m.files,
        // The doors of a place that was kept are served already: nobody knocks at them again.
        network: m.network.as_ref().filter(|_| !another),
        inherited,
        without: &m.without,
        kvm: m.kvm.as_deref(),
    }))
}

/// Hands over the last of it. The word that the groups are there has gone out before.
pub(crate) fn confine(m: &mut Making) -> Result<(), Failure> {
    if m.waiting.is_some() {
        return Ok(());
    }
    let last = decided(m, true, plan::confinement)?;
    supervise::tell(m, |launched, _| launched.perform(last, Given::default()))
}

/// Decides what the sandbox shows, and lets the child go on.
pub(crate) fn hand_over(m: &mut Making) -> Result<(), Failure> {
    if m.waiting.is_some() {
        return wait::bind(m);
    }
    let mut rest = std::mem::take(&mut m.owed);
    rest.extend(decided(m, false, plan::operations)?);
    let (users, _) = chosen(m)?;
    let Some(launched) = &m.launched else { return chosen(m).map(drop) };
    if users.way == Way::Range && !matches!(m.room, Room::Another { .. }) {
        users.write_maps(launched.pid().as_raw_nonzero().get())?;
    }
    supervise::tell(m, |launched, m| {
        let scratch = m.scratch.as_ref().map(AsFd::as_fd);
        launched.perform(rest, Given { scratch, ..m.ids.given() })
    })?;
    // It is the child's to hold now.
    m.scratch = None;
    Ok(())
}
