//! The negative controls: the same attempt where nothing stops it, on the bare host and in a sandbox with exactly
//! those controls left out that should have stopped it.

use super::check::{Check, Finding, Host};
use super::inside;
use super::probe::{TOGETHER, answer};
use super::stage::Stage;
use super::table::ROAD;
use crate::error::EngineError;
use cofferdam_model::Tier;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What was shown of one check.
#[derive(Debug, Clone, Default)]
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

/// What is shown outside and in weakened sandboxes of a tier; the same whichever tier was scored.
pub(super) fn find(
    stage: &Stage,
    tier: Tier,
    checks: &[&'static Check],
) -> Result<BTreeMap<&'static str, Shown>, EngineError> {
    let mut shown: BTreeMap<&'static str, Shown> = BTreeMap::new();
    for some in checks.chunks(TOGETHER) {
        let started: Vec<_> = some
            .iter()
            .map(|check| Ok((*check, start(stage, check)?)))
            .collect::<Result<_, EngineError>>()?;
        for (check, attempt) in started.into_iter().filter_map(|(check, started)| Some((check, started?))) {
            shown.entry(check.id).or_default().add(place(check.host), &attempt.judge(stage, check));
        }
    }
    weakened(stage, tier, checks, &mut shown);
    Ok(shown)
}

/// What is shown by a request that is allowed, in the tier itself.
pub(super) fn add_roads(
    shown: &mut BTreeMap<&'static str, Shown>,
    checks: &[&'static Check],
    found: &BTreeMap<String, Finding>,
) {
    let road = found.get(ROAD).cloned().unwrap_or_else(|| Finding::blocked("was not made"));
    for check in checks.iter().filter(|check| check.host == Host::Road) {
        shown.entry(check.id).or_default().add(place(check.host), &road);
    }
}

fn place(host: Host) -> &'static str {
    match host {
        Host::Same | Host::Shell => "on the host",
        Host::Apart => "on the host, in throw-away namespaces",
        Host::World => "on the host, in a throw-away network",
        Host::Road => "inside, a request that is allowed",
    }
}

/// One session for each set of controls that some check names.
fn weakened(stage: &Stage, tier: Tier, checks: &[&'static Check], shown: &mut BTreeMap<&'static str, Shown>) {
    let mut profiles: BTreeMap<&[&str], Vec<&'static Check>> = BTreeMap::new();
    for check in checks.iter().filter(|check| !check.weakened.is_empty()) {
        profiles.entry(check.weakened).or_default().push(check);
    }
    for (without, these) in profiles {
        let place = format!("without {}", without.join(", "));
        let without: Vec<String> = without.iter().map(|name| (*name).to_owned()).collect();
        match inside::attempt(stage, tier, &without, &these) {
            Ok(weakened) => {
                for (check, finding) in
                    these.iter().filter_map(|check| Some((check, weakened.get(check.id)?)))
                {
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
}

/// The same attempt outside, under way, in a directory like the one inside.
struct Attempt {
    child: Child,
    work: PathBuf,
}

fn failed(source: io::Error) -> EngineError {
    EngineError::Io { doing: "make an attempt on the host", source }
}

/// Nothing, where the control is not made on the host.
fn start(stage: &Stage, check: &Check) -> Result<Option<Attempt>, EngineError> {
    let surroundings = match check.host {
        Host::Same | Host::Shell => "as-is",
        Host::Apart => "apart",
        Host::World => "world",
        Host::Road => return Ok(None),
    };
    let work = stage.work_dir(&format!("host-{}", check.id))?;
    let facts = serde_json::to_string(&stage.facts).map_err(|error| failed(error.into()))?;
    let mut command = Command::new(&stage.program);
    command.args(["probe", "one", &facts, check.id, "--in", surroundings]).current_dir(&work);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(Some(Attempt { child: command.spawn().map_err(failed)?, work }))
}

impl Attempt {
    /// An attempt that says nothing proves nothing.
    fn judge(self, stage: &Stage, check: &Check) -> Finding {
        let finding = answer(self.child).unwrap_or_else(|error| Finding::blocked(error.to_string()));
        if check.host == Host::Shell {
            let mut careless = Command::new("sh");
            careless.args(["-c", "eval \"true $(ls)\""]).current_dir(&self.work).stdin(Stdio::null());
            // What the names make of it is the point; how it ends is not.
            let _ = careless.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        check.after.map_or(finding, |look| look(&stage.facts, &self.work))
    }
}
