//! What makes a session a repetition, and what it asked for that was never recorded.

use crate::output::Paint;
use cofferdam_model::{Fallback, Matching, Miss, ReplayMissed, ReplayStarted, Speed};

pub(super) fn started(fact: &ReplayStarted) -> (&'static str, Paint, String) {
    let matching = match fact.matching {
        Matching::Strict => "strict",
        Matching::Normalised => "normalised",
    };
    let fallback = match fact.fallback {
        Fallback::Error => "refused",
        Fallback::Review => "refused, to be reviewed",
        Fallback::Live => "sent",
    };
    let speed = match fact.speed {
        Speed::Full => "full",
        Speed::Recorded => "recorded",
    };
    let mut text = format!(
        "of {}: {} recorded exchanges, {matching}, what is not among them is {fallback}, {speed} speed",
        fact.of, fact.exchanges
    );
    if let Some(clock) = &fact.clock {
        text.push_str(&format!(", clock at {clock}"));
    }
    if let Some(seed) = fact.seed {
        text.push_str(&format!(", seed {seed}"));
    }
    if !fact.without.is_empty() {
        text.push_str(&format!("; not repeated: {}", fact.without.join(", ")));
    }
    ("replay", Paint::Bold, text)
}

pub(super) fn missed(fact: &ReplayMissed) -> (&'static str, Paint, String) {
    let why = why(fact.why);
    let mut text = format!("{}: {why}", fact.request);
    if let Some(nearest) = fact.nearest.as_ref().filter(|_| fact.why == Miss::Different) {
        let places: Vec<&str> = nearest.differences.iter().map(|difference| difference.at.as_str()).collect();
        text.push_str(&format!(
            "; nearest is event {} of the recording, but for {}",
            nearest.recorded,
            places.join(", ")
        ));
    }
    ("missed", Paint::Bad, text)
}

/// In words, for people.
pub(crate) fn why(miss: Miss) -> &'static str {
    match miss {
        Miss::UnknownHost => "nothing was recorded for this host",
        Miss::Different => "not recorded",
        Miss::UsedUp => "recorded fewer times than it was made",
        Miss::NoAnswer => "recorded without an answer",
    }
}
