//! A clock that stands and chance that repeats, for the programs that can be told so: Python and Node, by a small
//! program of ours that each of them runs when it starts. The kernel's own clock cannot be set for a sandbox, so other
//! programs see the real time; and keys are never drawn from a seed.

use cofferdam_model::SessionSpec;
use cofferdam_runtime::ShownFile;
use std::path::Path;
use std::str::FromStr;

const PLACE: &str = "/.cofferdam/pin";
const PYTHON: &str = include_str!("pin/sitecustomize.py");
const NODE: &str = include_str!("pin/pin.cjs");

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no clock: write `recorded`, or `fixed:` and a time, as in fixed:2026-01-01T00:00:00Z")]
pub struct ClockError(String);

/// What the inside takes for the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Microseconds since 1970.
    Fixed(u64),
    /// When the recorded session began.
    Recorded,
}

impl FromStr for Clock {
    type Err = ClockError;

    fn from_str(text: &str) -> Result<Self, ClockError> {
        let bad = || ClockError(text.chars().take(80).collect());
        if text == "recorded" {
            return Ok(Self::Recorded);
        }
        let time: jiff::Timestamp =
            text.strip_prefix("fixed:").and_then(|t| t.parse().ok()).ok_or_else(bad)?;
        u64::try_from(time.as_microsecond()).map(Self::Fixed).map_err(|_| bad())
    }
}

/// What is held still.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pins {
    pub clock: Option<Clock>,
    pub seed: Option<u64>,
}

pub(super) struct Pinned {
    pub(super) files: Vec<ShownFile>,
    pub(super) clock: Option<String>,
    /// What cannot be held still, in words.
    pub(super) without: Vec<String>,
}

impl Pins {
    /// Puts into the spec what tells programs of it.
    pub(super) fn pin(self, spec: &mut SessionSpec, began_us: u64) -> Pinned {
        let at = self.clock.map(|clock| match clock {
            Clock::Fixed(us) => us,
            Clock::Recorded => began_us,
        });
        let mut pinned = Pinned { files: Vec::new(), clock: None, without: Vec::new() };
        if at.is_none() && self.seed.is_none() {
            return pinned;
        }
        if let Some(us) = at {
            spec.env.insert("COFFERDAM_CLOCK".into(), us.to_string());
            spec.env.entry("SOURCE_DATE_EPOCH".into()).or_insert_with(|| (us / 1_000_000).to_string());
            let shown = i64::try_from(us).ok().and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
            pinned.clock = shown.map(|time| time.to_string());
            pinned.without.push("the clock of programs other than Python and Node".to_owned());
        }
        if let Some(seed) = self.seed {
            spec.env.insert("COFFERDAM_SEED".into(), seed.to_string());
            // Python takes no larger one.
            let hash = (seed % u64::from(u32::MAX)).to_string();
            spec.env.entry("PYTHONHASHSEED".into()).or_insert(hash);
            pinned.without.push("the chance of programs other than Python and Node".to_owned());
        }
        join(spec, "PYTHONPATH", PLACE, ":");
        join(spec, "NODE_OPTIONS", &format!("--require {PLACE}/pin.cjs"), " ");
        for (name, text) in [("sitecustomize.py", PYTHON), ("pin.cjs", NODE)] {
            pinned.files.push(ShownFile { at: Path::new(PLACE).join(name), content: text.into() });
        }
        pinned
    }
}

/// Ours first: it runs whatever else there is.
fn join(spec: &mut SessionSpec, name: &str, ours: &str, between: &str) {
    let value = match spec.env.get(name).filter(|theirs| !theirs.is_empty()) {
        Some(theirs) => format!("{ours}{between}{theirs}"),
        None => ours.to_owned(),
    };
    spec.env.insert(name.to_owned(), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks() {
        assert_eq!("recorded".parse(), Ok(Clock::Recorded));
        assert_eq!("fixed:2026-01-01T00:00:00Z".parse(), Ok(Clock::Fixed(1_767_225_600_000_000)));
        for bad in ["", "fixed", "fixed:yesterday", "fixed:1969-01-01T00:00:00Z", "2026-01-01T00:00:00Z"] {
            assert!(bad.parse::<Clock>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_is_told_where_nothing_is_pinned() {
        let mut spec = SessionSpec::default();
        assert!(Pins::default().pin(&mut spec, 5).files.is_empty() && spec == SessionSpec::default());
        spec.env.insert("PYTHONPATH".into(), "/own".into());
        let pins = Pins { clock: Some(Clock::Recorded), seed: None };
        assert_eq!(pins.pin(&mut spec, 1_767_225_600_000_000).clock.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!(spec.env["PYTHONPATH"], "/.cofferdam/pin:/own");
        assert!(!spec.env.contains_key("COFFERDAM_SEED"));
    }
}
