//! What was measured, as a table of 80 columns and as JSON, and against each goal: holds, does not hold,
//! cannot be told from these samples, or was not measured.

use super::append::Append;
use super::contenders::{DURABLE, OURS, YARDSTICK};
use super::memory::Memory;
use super::stats::{Estimate, Summary};
use serde::Serialize;
use std::fmt;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) host: Host,
    pub(crate) rounds: usize,
    pub(crate) seed: u64,
    pub(crate) start: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<Memory>,
    /// Ours to bare, for a command that prints 100 MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Output>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) append: Option<Append>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Host {
    pub(crate) kernel: String,
    pub(crate) cores: usize,
    pub(crate) load: String,
    pub(crate) user: &'static str,
}

/// Times in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    #[serde(flatten)]
    pub(crate) summary: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to_yardstick: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Output {
    pub(crate) bare: Summary,
    pub(crate) ours: Summary,
    pub(crate) ratio: Estimate,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Judgement {
    Holds,
    DoesNotHold,
    CannotTell,
    NotMeasured,
}

#[derive(Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) goal: &'static str,
    pub(crate) judgement: Judgement,
}

/// An upper bound; the whole interval has to lie on one side of it.
pub(crate) fn at_most(bound: f64, seen: Option<Estimate>) -> Judgement {
    match seen {
        Some(seen) if seen.high <= bound => Judgement::Holds,
        Some(seen) if seen.low > bound => Judgement::DoesNotHold,
        Some(_) => Judgement::CannotTell,
        None => Judgement::NotMeasured,
    }
}

impl Report {
    pub(crate) fn goals(&self) -> Vec<Goal> {
        let start =
            |name: &str| self.start.iter().find(|row| row.name == name).and_then(|row| row.to_yardstick);
        let resident = self.memory.map(|m| Estimate::exact(m.resident / 1024.0));
        let rate = self.append.as_ref().and_then(|a| a.events_per_second);
        let goal = |goal, judgement| Goal { goal, judgement };
        vec![
            goal("starts no slower than bubblewrap", at_most(1.0, start(OURS))),
            goal("durable starts in at most 1.3 x bubblewrap", at_most(1.3, start(DURABLE))),
            goal("the supervisor stays under 12 MB resident", at_most(12.0, resident)),
            goal(
                "printing 100 MB takes at most 2 x bare",
                at_most(2.0, self.output.as_ref().map(|o| o.ratio)),
            ),
            goal("appends at least 200,000 events/s", at_most(-200_000.0, rate.map(|r| Estimate::exact(-r)))),
        ]
    }

    pub(crate) fn json(&self) -> Result<String, serde_json::Error> {
        let mut json = serde_json::to_value(self)?;
        json["yardstick"] = YARDSTICK.into();
        json["goals"] = serde_json::to_value(self.goals())?;
        serde_json::to_string_pretty(&json)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { kernel, cores, load, user } = &self.host;
        writeln!(f, "kernel {kernel}, {cores} cores, load {load}, as {user}")?;
        writeln!(f, "{} rounds in random order, seed {}; milliseconds\n", self.rounds, self.seed)?;
        writeln!(
            f,
            "{:<23} {:>8} {:>8} {:>7} {:>23} {:>5}",
            "start `true`", "median", "p95", "MAD", "x bwrap (95 %)", "n"
        )?;
        self.start.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        if let Some(memory) = &self.memory {
            let mib = |kib: f64| kib / 1024.0;
            let Memory { resident, proportional, peak } = *memory;
            writeln!(
                f,
                "\nsupervisor: {:.1} MiB resident, {:.1} proportional, {:.1} peak",
                mib(resident),
                mib(proportional),
                mib(peak)
            )?;
        }
        if let Some(Output { bare, ours, ratio }) = &self.output {
            writeln!(
                f,
                "100 MB printed: bare {:.0} ms, ours {:.0} ms, {}",
                bare.median,
                ours.median,
                times(ratio)
            )?;
        }
        if let Some(append) = &self.append {
            writeln!(f, "\ntrace append:")?;
            append.lines.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        writeln!(f)?;
        self.goals().iter().try_for_each(|goal| writeln!(f, "{goal}"))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Summary { samples, median, p95, mad }) = self.summary else {
            let words = self.refusal.as_deref().unwrap_or("not measured");
            return write!(f, "{:<23} {}", self.name, clipped(words, 56));
        };
        let ratio = self.to_yardstick.as_ref().map(times).unwrap_or_default();
        write!(f, "{:<23} {median:>8.2} {p95:>8.2} {mad:>7.2} {ratio:>23} {samples:>5}", self.name)
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.judgement {
            Judgement::Holds => "holds",
            Judgement::DoesNotHold => "DOES NOT HOLD",
            Judgement::CannotTell => "cannot tell",
            Judgement::NotMeasured => "not measured",
        };
        write!(f, "{word:<14} {}", self.goal)
    }
}

fn times(Estimate { value, low, high }: &Estimate) -> String {
    format!("{value:.2} ({low:.2} to {high:.2})")
}

pub(crate) fn clipped(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let summary = Summary { samples: 200, median: 3.456, p95: 4.5, mad: 0.1 };
        let measured = |name, value: f64| Row {
            name,
            command: None,
            summary: Some(summary),
            to_yardstick: Some(Estimate { value, low: value - 0.1, high: value + 0.1 }),
            refusal: None,
        };
        let refused = Row {
            refusal: Some("no ".repeat(40)),
            summary: None,
            to_yardstick: None,
            ..measured("crun", 1.0)
        };
        let start = vec![measured(OURS, 0.5), measured(DURABLE, 1.25), refused];
        let host = Host { kernel: "6.1".into(), cores: 2, load: "0.10".into(), user: "root" };
        Report { host, rounds: 200, seed: 1, start, memory: None, output: None, append: None }
    }

    #[test]
    fn a_table_fits_80_columns() {
        let text = report().to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(
            text.contains("cofferdam run               3.46     4.50    0.10     0.50 (0.40 to 0.60)   200"),
            "{text}"
        );
    }

    #[test]
    fn a_goal_needs_the_whole_interval() {
        let goals = report().goals();
        let judged: Vec<_> = goals.into_iter().map(|g| g.judgement).collect();
        assert_eq!(judged[0], Judgement::Holds);
        assert_eq!(judged[1], Judgement::CannotTell);
        assert_eq!(judged[2], Judgement::NotMeasured);
        assert_eq!(at_most(1.0, Some(Estimate { value: 2.0, low: 1.1, high: 3.0 })), Judgement::DoesNotHold);
    }

    #[test]
    fn the_json_holds_all_of_it() {
        let json: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        assert_eq!(json["start"][0]["median"], 3.456);
        assert_eq!(json["goals"][0]["judgement"], "holds");
        assert!(json["start"][2]["refusal"].is_string());
    }
}
