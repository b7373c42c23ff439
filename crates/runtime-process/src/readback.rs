//! The last steps of a sandbox: what holds is read back from the kernel, and what is too weak is refused before
//! anything of the user's has run.

use crate::create::{Failure, Making, chosen};
use crate::layer::{self, Layer};
use crate::plan::Room;
use crate::report::{self, Observed};
use crate::users::Way;
use cofferdam_model::EnforcementReport;
use std::collections::BTreeSet;

pub(crate) fn read_back(m: &mut Making) -> Result<(), Failure> {
    if m.limits.layer_in_scratch {
        m.upper = m.handed.pop_front();
    }
    m.report = Some(observe(m)?);
    let (users, layout) = chosen(m)?;
    let by_root = users.way == Way::Root;
    let layer = (
        layer::open_dir(&layout.workdir)?,
        layout.workdir.clone(),
        layout.hidden.paths.iter().cloned().collect::<BTreeSet<_>>(),
        by_root.then_some(layout.workdir_owner),
        by_root.then_some((users.host_uid, users.host_gid)),
    );
    let (workdir, workdir_path, planted, owner, inside) = layer;
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
        linked: false,
        in_use: false,
    });
    Ok(())
}

/// What holds for the guest that runs now.
pub(crate) fn observe(m: &mut Making) -> Result<EnforcementReport, Failure> {
    let settled = m.settled.take();
    let (users, layout) = chosen(m)?;
    let Some(launched) = &m.launched else {
        return Err(Failure::What("steps ran out of order".into(), "report this".into()));
    };
    let upper = m.upper.as_ref().or(m.layer.as_ref().map(|layer| &layer.upper));
    let observed = Observed {
        left: upper.filter(|_| m.limits.in_file).and_then(|upper| rustix::fs::fstatvfs(upper).ok()),
        pid: launched.pid().as_raw_nonzero().get(),
        users,
        layout,
        groups: &m.groups,
        limits: &m.limits,
        profile: m.spec.profile,
        nested: m.spec.nested,
        tracing: m.spec.tracing,
        landlock_probe: m.landlock_probe,
        listens: m.ear.is_some(),
        syscalls: m.spec.syscalls,
        doors: match m.room {
            Room::Another { .. } => None,
            _ => m.network.as_ref().map(|network| (network, m.doors.as_ref())),
        },
    };
    Ok(report::read(&observed, settled)?)
}

pub(crate) fn check_floor(m: &mut Making) -> Result<(), Failure> {
    let Some(report) = &m.report else { return Ok(()) };
    // Where a limit on disk was asked for, it is that or nothing.
    let limit = m.limits.in_file.then(|| "limit.disk".to_owned());
    let require: Vec<String> = m.spec.require.iter().cloned().chain(limit).collect();
    report::check(report, &require, &m.spec.accept, &m.without).map_err(Failure::Runtime)
}
