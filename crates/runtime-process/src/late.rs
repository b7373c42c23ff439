//! What is bound to a sandbox after its namespaces have been begun: whose it is, its limits, mounts, files and the
//! work dir. A prepared one is given all of it at once, and is then the same as one that was made for it.

use crate::cgroup::Groups;
use crate::create::{Failure, Making};
use crate::users::Way;
use crate::{backing, layer, limits, network, rooted, shown, wait};
use cofferdam_model::{LayerPlace, Weakness};
use cofferdam_runtime::{RuntimeError, SandboxSpec};

fn refused(what: impl Into<String>, fix: &str) -> Failure {
    RuntimeError::Refused { what: what.into(), fix: fix.into() }.into()
}

/// What does not depend on the child.
pub(crate) fn bind(m: &mut Making) -> Result<(), Failure> {
    m.began = m.spec.base.since.map_or_else(layer::Began::now, layer::Began::at);
    m.system = rooted::system_layers(&m.spec)?;
    if let Some(users) = m.users.as_ref().filter(|_| m.limits.in_file) {
        backing::check(users)?;
        m.limits.scratch = backing::room(&m.spec.layer, m.spec.limits.disk)?;
    }
    if !m.limits.layer_in_scratch && m.users.as_ref().is_some_and(|u| u.way == Way::Range) {
        let what = "what several inside users write on disk could not be removed by a plain user";
        return Err(refused(what, "leave `--layer disk` out, or use `--users single`"));
    }
    Ok(())
}

/// Finds places for the files that are to be shown.
pub(crate) fn show(m: &mut Making) {
    let mut files = std::mem::take(&mut m.spec.files);
    if m.network.is_some() {
        files.extend(network::files());
    }
    m.files = shown::place(files, m.spec.root.is_some());
}

/// Finds the control groups; one that is demanded and cannot be had is refused.
pub(crate) fn place_groups(m: &mut Making) -> Result<(), Failure> {
    let placed = m.early.as_mut().and_then(|early| early.groups_for(&m.group, &m.limits.cgroup));
    // One that was born into another group goes, with that: it may have the place of the one that is wanted.
    m.early.take_if(|early| early.session().is_some());
    m.groups = placed.unwrap_or_else(|| Groups::place(&m.group, &m.limits.cgroup));
    let demanded = [("memory", m.spec.limits.memory.is_some()), ("cpu", wants_cpu(m))];
    let accepts = m.spec.accept.contains(&Weakness::Rlimits);
    for (controller, reason) in &m.groups.missing {
        let asked = demanded.iter().any(|(name, is)| *is && *name == controller.name());
        if asked && !accepts {
            let what =
                format!("the {} limit cannot be held for the whole session: {reason}", controller.name());
            let fix = "run as root or under `systemd-run --user --scope -p Delegate=yes`, or accept a limit per process with `--accept rlimits`";
            return Err(refused(what, fix));
        }
    }
    Ok(())
}

fn wants_cpu(m: &Making) -> bool {
    m.spec.limits.cpu.is_some() || m.spec.limits.share.is_some()
}

/// Makes what was prepared for nobody the sandbox of this spec.
pub(crate) fn adopt(m: &mut Making, spec: SandboxSpec) -> Result<(), Failure> {
    let kind = |spec: &SandboxSpec| (spec.profile, spec.users, spec.network, spec.pausable);
    // The skeleton has a home, all programs, and the host's directories, and its scratch space is in memory.
    let in_file = spec.layer_place == LayerPlace::Disk && spec.limits.bound_files();
    let plain = spec.programs.is_none() && spec.root.is_none() && !in_file;
    let furnished = m.ahead.is_none() || (spec.home == m.spec.home && plain);
    let ids = spec.base.since.and_then(|since| since.ids);
    let other_ids = ids.is_some() && m.users.as_ref().is_none_or(|users| users.slot != ids);
    if kind(&spec) != kind(&m.spec) || other_ids || !furnished {
        return Err(refused("it was prepared for another kind of session", "make one from nothing"));
    }
    wait::check(m, &spec)?;
    let before = m.limits.cgroup;
    m.limits = limits::resolve(&spec.limits, spec.layer_place, spec.pausable);
    m.spec = spec;
    bind(m)?;
    show(m);
    // What holds for all is held already; what is demanded is looked at again.
    let demanded = m.spec.limits.memory.is_some() || wants_cpu(m);
    let held = m.born_in_group || m.waiting.is_some();
    if held && (demanded || m.limits.cgroup != before) {
        // The groups that it was born in get the limits that are wanted now, and those that it lacks are made.
        let made = std::mem::take(&mut m.groups);
        let placed = place_groups(m);
        // Into one that it is not in, a process that runs would have to be moved.
        let entrances = made.entrances(false);
        if m.waiting.is_some() && m.groups.entrances(false).iter().any(|one| !entrances.contains(one)) {
            m.groups = made;
            return Err(refused("it lacks a control group", "make one from nothing"));
        }
        if placed.is_err() || m.groups.make(&m.limits.cgroup).is_err() {
            m.groups = made;
            placed?;
            return Err(refused("its limits could not be set", "run `cofferdam doctor`"));
        }
    }
    wait::settle_in(m)
}
