//! The escape score: attempts to get out, made from inside each tier that this host has, with a control for each:
//! the same attempt succeeds where nothing stops it. An attempt of which nothing is known counts as a way out; one
//! whose control could not be made counts as blocked and not as proven.
//!
//! It harms nothing: what is attacked was made for it, and what belongs to the host is opened and left alone.

mod check;
mod collector;
mod controls;
mod facts;
mod inside;
mod keeper;
mod kept;
mod probe;
mod stage;
mod table;

pub use check::{Check, Finding};
pub use keeper::Held;
pub(crate) use kept::kept;
pub use probe::{Surroundings, all as probe_all, one as probe_one};

use crate::error::EngineError;
use crate::tiers;
use cofferdam_model::Tier;
use controls::Shown;
use serde::Serialize;
use stage::Stage;
use std::collections::BTreeMap;
use table::{CHECKS, ROADS};

/// What is to be scored.
#[derive(Debug, Default)]
pub struct Options {
    /// Nothing: every tier that works here.
    pub tiers: Vec<Tier>,
    /// Nothing: all checks.
    pub only: Vec<String>,
    /// Controls to leave out on purpose: the score of a weakened profile. No controls are looked for.
    pub without: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Score {
    pub tiers: Vec<TierScore>,
}

#[derive(Debug, Serialize)]
pub struct TierScore {
    pub tier: Tier,
    pub blocked: usize,
    pub total: usize,
    /// Of those that are blocked: how many are known to succeed elsewhere.
    pub proven: usize,
    pub checks: Vec<Checked>,
}

/// What a check came to.
#[derive(Debug, Serialize)]
pub struct Checked {
    pub id: &'static str,
    pub scenario: &'static str,
    pub blocked: bool,
    /// What stopped it, or why it was not.
    pub why: String,
    /// Where the same attempt succeeds, or why that cannot be shown here.
    pub control: String,
    pub proven: bool,
}

/// What every check tries and what should stop it.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().flat_map(|table| table.iter())
}

pub fn score(options: &Options) -> Result<Score, EngineError> {
    let chosen: Vec<&Check> = checks()
        .filter(|check| options.only.is_empty() || options.only.iter().any(|id| id == check.id))
        .collect();
    let stage = Stage::set()?;
    let facts = tiers::tiers(stage.engine.home.path());
    let works = |tier: &Tier| facts.iter().any(|fact| fact.tier == *tier && fact.works);
    // One that has to be emulated is slow: it is tried where it is named.
    let is_slow =
        |tier: &Tier| *tier == Tier::Microvm && !tiers::machines(stage.engine.home.path()).is_quick();
    let tiers: Vec<Tier> = match options.tiers.as_slice() {
        [] => Tier::ALL.into_iter().filter(|tier| works(tier) && !is_slow(tier)).collect(),
        // The stage is a place of its own, where no machine was booted yet: it is now, or says why not.
        named => match named.iter().find(|tier| !works(tier) && **tier != Tier::Microvm) {
            Some(&tier) => return Err(EngineError::NoTier { tier }),
            None => Tier::ALL.into_iter().filter(|tier| named.contains(tier)).collect(),
        },
    };
    let mut scores = Vec::new();
    // An attempt that succeeds in a weakened sandbox of the host's kernel is one that can succeed: no machine has to be
    // booted for each, and what was shown for one tier is shown for the next.
    let mut shown: Option<BTreeMap<&'static str, Shown>> = None;
    for tier in tiers {
        let found = inside::attempt(&stage, tier, &options.without, &chosen)?;
        let mut controls = match (&shown, options.without.is_empty()) {
            (_, false) => BTreeMap::new(),
            (Some(shown), true) => shown.clone(),
            (None, true) => shown.insert(controls::find(&stage, Tier::Process, &chosen)?).clone(),
        };
        if options.without.is_empty() {
            controls::add_roads(&mut controls, &chosen, &found);
        }
        scores.push(judge(tier, &chosen, &found, &controls));
    }
    Ok(Score { tiers: scores })
}

fn judge(
    tier: Tier,
    chosen: &[&'static Check],
    found: &BTreeMap<String, Finding>,
    controls: &BTreeMap<&'static str, Shown>,
) -> TierScore {
    let checked = chosen.iter().map(|check| {
        let nothing = Finding::open("nothing is known of the attempt: it was not made, or said nothing");
        let finding = found.get(check.id).unwrap_or(&nothing);
        let why = match finding.open {
            true => finding.how.clone(),
            false => format!("{}: {}", check.because, finding.how),
        };
        let shown = controls.get(check.id);
        Checked {
            id: check.id,
            scenario: check.scenario(),
            blocked: !finding.open,
            why,
            control: shown.map_or_else(|| "not looked for: a weakened profile".into(), ToString::to_string),
            proven: shown.is_some_and(Shown::is_proof),
        }
    });
    let checks: Vec<Checked> = checked.collect();
    let count = |wanted: fn(&Checked) -> bool| checks.iter().filter(|check| wanted(check)).count();
    TierScore {
        tier,
        blocked: count(|check| check.blocked),
        total: checks.len(),
        proven: count(|check| check.blocked && check.proven),
        checks,
    }
}
