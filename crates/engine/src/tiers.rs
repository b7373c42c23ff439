//! Which tier a session gets.

use crate::error::EngineError;
use cofferdam_model::{Isolation, SessionSpec, Tier};
use cofferdam_runtime::{Backend, Base, Probe};
use cofferdam_runtime_process::{CAN_BE_LEFT_OUT, Early, ProcessBackend};
use cofferdam_runtime_vm::VmBackend;
use cofferdam_store::Home;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A tier as `doctor` tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TierFact {
    pub tier: Tier,
    pub works: bool,
    pub detail: String,
    pub fix: Option<String>,
}

impl From<Probe> for TierFact {
    fn from(probe: Probe) -> Self {
        Self { tier: probe.tier, works: probe.works, detail: probe.detail, fix: probe.fix }
    }
}

/// Every tier, with whether it works here. What is booted for that is kept in the state directory `home`.
pub fn tiers(home: &Path) -> Vec<TierFact> {
    let missing = |tier: Tier| TierFact {
        tier,
        works: false,
        detail: "not in this build".into(),
        fix: Some("use the process tier".into()),
    };
    let one = |tier: Tier| match tier {
        Tier::Process => ProcessBackend::default().probe().into(),
        Tier::Microvm => machines(home).probe().into(),
        other => missing(other),
    };
    Tier::ALL.into_iter().map(one).collect()
}

/// The microVM tier, with its templates in the state directory.
pub(crate) fn machines(home: &Path) -> VmBackend {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    VmBackend { dir: home.join("vm"), program, without: Vec::new() }
}

/// The backend for a spec, or why there is none. Machines are taken of themselves where the processor runs them; one
/// that a program has to emulate only where it is asked for, or nothing else is enough. A child that was born ahead is
/// for the process tier.
pub(crate) fn choose(
    home: &Home,
    spec: &SessionSpec,
    early: Option<Early>,
) -> Result<Box<dyn Backend>, EngineError> {
    let backend = |tier| match tier {
        Tier::Process => {
            Ok(Box::new(ProcessBackend { early: early.into(), ..Default::default() }) as Box<dyn Backend>)
        }
        tier => backend(home.path(), tier, &[]),
    };
    if spec.image.is_some() {
        let demanded = spec.floor.is_some_and(|floor| !Tier::Process.meets(floor));
        return match spec.isolation {
            Isolation::Auto | Isolation::Tier(Tier::Process) if !demanded => backend(Tier::Process),
            _ => Err(EngineError::ImageTier),
        };
    }
    let tier = pick(spec, || machines(home.path()).is_quick());
    let backend = backend(tier)?;
    match spec.floor {
        Some(floor) if !tier.meets(floor) => Err(EngineError::Floor { floor, have: tier }),
        _ => Ok(backend),
    }
}

/// By what is asked for, what is demanded, the class of code, and what works here at its normal speed.
fn pick(spec: &SessionSpec, is_quick: impl FnOnce() -> bool) -> Tier {
    let demanded = spec.floor.is_some_and(|floor| !Tier::Process.meets(floor));
    match spec.isolation {
        Isolation::Auto if demanded => Tier::Microvm,
        Isolation::Auto if Class::of(spec) == Class::Code && is_quick() => Tier::Microvm,
        Isolation::Auto => Tier::Process,
        Isolation::Tier(tier) => tier,
    }
}

/// What kind of code a session is for, as far as that decides how it is kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Anything at all, or what a browser makes of the world: a kernel of its own, where there is one to be had.
    Code,
    /// One tool of a registry, whose programs, paths and hosts are written down.
    Tool,
}

impl Class {
    fn of(spec: &SessionSpec) -> Self {
        match spec.tool.is_some() && !spec.browser {
            true => Self::Tool,
            false => Self::Code,
        }
    }
}

/// What begins with a machine that was kept is a machine.
pub(crate) fn of_layers(spec: &mut SessionSpec, base: &Base) -> Result<(), EngineError> {
    let is_machine = base.layers.first().is_some_and(|layer| cofferdam_runtime_vm::is_machine(layer));
    match spec.isolation {
        _ if !is_machine => {}
        Isolation::Auto | Isolation::Tier(Tier::Microvm) => spec.isolation = Isolation::Tier(Tier::Microvm),
        Isolation::Tier(tier) => {
            return Err(EngineError::Declined(format!(
                "the snapshot is of a machine, and cannot begin in the {tier} tier: use `--isolation microvm`"
            )));
        }
    }
    Ok(())
}

/// The backend of a tier. What is left out weakens it on purpose, for the controls of the escape checks.
pub(crate) fn backend(home: &Path, tier: Tier, without: &[String]) -> Result<Box<dyn Backend>, EngineError> {
    if let Some(name) = without.iter().find(|name| !CAN_BE_LEFT_OUT.contains(&name.as_str())) {
        return Err(EngineError::NoControl { name: name.clone(), known: CAN_BE_LEFT_OUT.join(", ") });
    }
    let without =
        without.iter().flat_map(|name| [name.as_str()].into_iter().chain(follows(name).iter().copied()));
    let without = without.map(str::to_owned).collect();
    match tier {
        Tier::Process => Ok(Box::new(ProcessBackend { without, ..ProcessBackend::default() })),
        Tier::Microvm => Ok(Box::new(VmBackend { without, ..machines(home) })),
        _ => Err(EngineError::NoTier { tier }),
    }
}

/// What cannot hold without a control either: the host's interfaces are in the host's network, and the kernel takes
/// no filter and no rules from who could still gain privileges.
fn follows(control: &str) -> &'static [&'static str] {
    match control {
        "namespace.net" => &["network"],
        "no-new-privileges" => &["landlock", "seccomp", "seccomp.record"],
        "seccomp" => &["seccomp.record"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tier_is_chosen_by_what_works_by_class_and_by_floor() {
        let check = |isolation, floor, tool: Option<&str>, browser, quick: bool, expected| {
            let tool = tool.map(str::to_owned);
            let spec = SessionSpec { isolation, floor, tool, browser, ..Default::default() };
            assert_eq!(pick(&spec, || quick), expected, "{spec:?} {quick}");
        };
        let (auto, floor) = (Isolation::Auto, Some(Tier::Microvm));
        check(auto, None, None, false, true, Tier::Microvm);
        check(auto, None, None, false, false, Tier::Process);
        check(auto, None, None, true, true, Tier::Microvm);
        check(auto, None, Some("fetch"), false, true, Tier::Process);
        check(auto, None, Some("fetch"), true, true, Tier::Microvm);
        check(auto, floor, Some("fetch"), false, false, Tier::Microvm);
        check(auto, Some(Tier::Process), None, false, false, Tier::Process);
        check(Isolation::Tier(Tier::Process), floor, None, false, true, Tier::Process);
    }

    #[test]
    fn a_floor_that_is_not_met_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let asked = |isolation, floor| {
            let spec = SessionSpec { floor, isolation, ..Default::default() };
            choose(&home, &spec, None).map(|backend| backend.tier())
        };
        let process = Isolation::Tier(Tier::Process);
        assert!(matches!(
            asked(process, Some(Tier::Microvm)),
            Err(EngineError::Floor { floor: Tier::Microvm, .. })
        ));
        assert!(asked(Isolation::Tier(Tier::Gvisor), None).is_err_and(|error| error.is_refusal()));
        assert!(matches!(asked(Isolation::Auto, Some(Tier::Microvm)), Ok(Tier::Microvm)));
        assert!(asked(Isolation::Auto, None).is_ok());
    }
}
