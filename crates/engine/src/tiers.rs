//! Which tier a session gets.

use crate::error::EngineError;
use cofferdam_model::{Isolation, SessionSpec, Tier};
use cofferdam_runtime::{Backend, Probe};
use cofferdam_runtime_process::{CAN_BE_LEFT_OUT, ProcessBackend};
use serde::Serialize;

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

/// Every tier, with whether it works here.
pub fn tiers() -> Vec<TierFact> {
    let missing = |tier: Tier| TierFact {
        tier,
        works: false,
        detail: "not in this build".into(),
        fix: Some("use the process tier".into()),
    };
    Tier::ALL
        .into_iter()
        .map(
            |tier| {
                if tier == Tier::Process { ProcessBackend::default().probe().into() } else { missing(tier) }
            },
        )
        .collect()
}

/// The backend for a spec, or why there is none.
pub(crate) fn choose(spec: &SessionSpec) -> Result<Box<dyn Backend>, EngineError> {
    let tier = match spec.isolation {
        Isolation::Auto => Tier::Process,
        Isolation::Tier(tier) => tier,
    };
    let backend = backend(tier, &[])?;
    match spec.floor {
        Some(floor) if !tier.meets(floor) => Err(EngineError::Floor { floor, have: tier }),
        _ => Ok(backend),
    }
}

/// The backend of a tier. What is left out weakens it on purpose, for the controls of the escape checks.
pub(crate) fn backend(tier: Tier, without: &[String]) -> Result<Box<dyn Backend>, EngineError> {
    if tier != Tier::Process {
        return Err(EngineError::NoTier { tier });
    }
    if let Some(name) = without.iter().find(|name| !CAN_BE_LEFT_OUT.contains(&name.as_str())) {
        return Err(EngineError::NoControl { name: name.clone(), known: CAN_BE_LEFT_OUT.join(", ") });
    }
    let without =
        without.iter().flat_map(|name| [name.as_str()].into_iter().chain(follows(name).iter().copied()));
    let without = without.map(str::to_owned).collect();
    Ok(Box::new(ProcessBackend { without, ..ProcessBackend::default() }))
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
    fn a_floor_that_is_not_met_is_refused() {
        let spec = SessionSpec { floor: Some(Tier::Microvm), ..Default::default() };
        assert!(matches!(choose(&spec), Err(EngineError::Floor { floor: Tier::Microvm, .. })));
        let spec = SessionSpec { isolation: Isolation::Tier(Tier::Gvisor), ..Default::default() };
        assert!(choose(&spec).is_err_and(|error| error.is_refusal()));
        assert!(choose(&SessionSpec::default()).is_ok());
    }
}
