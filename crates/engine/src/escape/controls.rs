//! The negative controls: the same attempt where nothing stops it, on the bare host and in a sandbox with exactly
//! those controls left out that should have stopped it.

use super::check::{Check, Finding, Host};
use super::inside;
use super::probe::answer;
use super::stage::Stage;
use super::table::ROAD;
use crate::error::EngineError;
use cofferdam_model::Tier;
use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command, Stdio};

/// What was shown of one check.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Where the attempt succeeds.
    open: Vec<String>,
    /// Where it does not, and why.
    closed: Vec<String>,
}

impl Shown {
    pub(super) fn is_proof(&self) -> bool {
        !self.open.is_empty()
    }

    fn add(&mut self, place: &str, finding: &Finding) {
        match finding.open {
            true => self.open.push(format!("{place}: {}", finding.how)),
            false => self.closed.push(format!("{place}: {}", finding.how)),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_proof() {
            true => write!(f, "succeeds elsewhere: {}", self.open.join("; ")),
            false => write!(f, "not possible here: {}", self.closed.join("; ")),
        }
    }
}

pub(super) fn find(
    stage: &Stage,
    tier: Tier,
    checks: &[&'static Check],
    found: &BTreeMap<String, Finding>,
) -> Result<BTreeMap<&'static str, Shown>, EngineError> {
    let mut shown: BTreeMap<&'static str, Shown> = BTreeMap::new();
    for (number, check) in checks.iter().enumerate() {
        let place = match check.host {
            Host::Same | Host::Shell => "on the host",
            Host::Apart => "on the host, in throw-away namespaces",
            Host::World => "on the host, in a throw-away network",
            Host::Road => "inside, a request that is allowed",
        };
        let finding = match check.host {
            Host::Road => found.get(ROAD).cloned().unwrap_or_else(|| Finding::blocked("was not made")),
            _ => on_host(stage, check, number)?,
        };
        shown.entry(check.id).or_default().add(place, &finding);
    }
    let mut profiles: BTreeMap<&[&str], Vec<&'static Check>> = BTreeMap::new();
    for check in checks.iter().filter(|check| !check.weakened.is_empty()) {
        profiles.entry(check.weakened).or_default().push(check);
    }
    for (without, these) in profiles {
        let place = format!("without {}", without.join(", "));
        let without: Vec<String> = without.iter().map(|name| (*name).to_owned()).collect();
        match inside::attempt(stage, tier, &without, &these) {
            Ok(weakened) => {
                for (check, finding) in these.iter().filter_map(|check| Some((check, weakened.get(check.id)?))) {
                    shown.entry(check.id).or_default().add(&place, finding);
                }
            }
            // A tier that cannot be weakened so shows nothing, and breaks nothing.
            Err(error) => {
                let finding = Finding::blocked(error.to_string());
                these.iter().for_each(|check| shown.entry(check.id).or_default().add(&place, &finding));
            }
        }
    }
    Ok(shown)
}

/// The same attempt outside, in a directory like the one inside.
fn on_host(stage: &Stage, check: &Check, number: usize) -> Result<Finding, EngineError> {
    let failed = |source| EngineError::Io { doing: "make an attempt on the host", source };
    let work = stage.work_dir(&format!("host-{number}"))?;
    let facts = serde_json::to_string(&stage.facts).map_err(|error| failed(error.into()))?;
    let mut command = Command::new(&stage.program);
    command.args(["probe", "one", &facts, check.id]).current_dir(&work);
    match check.host {
        Host::Apart => drop(command.args(["--in", "apart"])),
        Host::World => drop(command.args(["--in", "world"])),
        Host::Same | Host::Shell | Host::Road => {}
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let finding = command.spawn().and_then(answer).map_err(failed)?;
    if check.host == Host::Shell {
        let mut careless = Command::new("sh");
        careless.args(["-c", "eval \"true $(ls)\""]).current_dir(&work).stdin(Stdio::null());
        // What the names make of it is the point; how it ends is not.
        let _ = careless.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    Ok(check.after.map_or(finding, |look| look(&stage.facts, &work)))
}
