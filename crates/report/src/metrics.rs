//! A result in numbers: for a program that keeps them (`metrics.json`), and for one that scrapes them.

use cofferdam_compare::{Outcome, Scorer};
use cofferdam_gate::{GateResult, Measures};
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metrics {
    pub suite: String,
    pub outcome: Outcome,
    pub sessions: u64,
    pub pass: u64,
    pub review: u64,
    pub fail: u64,
    pub flaky: u64,
    /// Of all sessions; none where there are none.
    pub pass_rate: Option<f64>,
    pub regression_rate: Option<f64>,
    /// Reasons that the policy gave, and acts that were refused live.
    pub boundary_violations: u64,
    pub refused_acts: u64,
    /// The mean distance from the baselines, in effects.
    pub drift: Option<f64>,
    /// How many acts more than the baselines, on average.
    pub length_delta: Option<f64>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub cost_usd: f64,
    pub duration_seconds: f64,
    /// Of all attempts together.
    pub session_seconds: f64,
}

pub fn metrics(result: &GateResult) -> Metrics {
    let counts = &result.counts;
    let sums = Sums::of(result);
    let rate = |part: u64| (counts.sessions > 0).then(|| part as f64 / counts.sessions as f64);
    let mean = |sum: f64| (sums.compared > 0).then(|| sum / sums.compared as f64);
    Metrics {
        suite: result.suite.name.clone(),
        outcome: result.outcome,
        sessions: counts.sessions,
        pass: counts.pass,
        review: counts.review,
        fail: counts.fail,
        flaky: counts.flaky,
        pass_rate: rate(counts.pass),
        regression_rate: rate(counts.fail),
        boundary_violations: sums.by_policy,
        refused_acts: sums.new.refused,
        drift: mean(sums.score),
        length_delta: mean(sums.length),
        tokens_in: sums.new.tokens_in,
        tokens_out: sums.new.tokens_out,
        cost_usd: sums.new.cost_micros as f64 / 1e6,
        duration_seconds: result.run.ended_us.saturating_sub(result.run.started_us) as f64 / 1e6,
        session_seconds: sums.wall_us as f64 / 1e6,
    }
}

/// Over all sessions, gone through once.
#[derive(Default)]
struct Sums {
    by_policy: u64,
    new: Measures,
    /// Those that had something to be compared with, and over them:
    compared: u64,
    score: f64,
    length: f64,
    wall_us: u64,
}

impl Sums {
    fn of(result: &GateResult) -> Self {
        let mut sums = Self::default();
        for session in result.sessions.iter() {
            let found = session.reasons.iter();
            let by_policy =
                found.filter(|reason| reason.scorer == Scorer::Policy && reason.outcome != Outcome::Pass);
            sums.by_policy += by_policy.count() as u64;
            sums.wall_us += session.attempts.iter().map(|attempt| attempt.wall_us).sum::<u64>();
            let Some(new) = session.new else { continue };
            sums.new.refused += new.refused;
            sums.new.tokens_in += new.tokens_in;
            sums.new.tokens_out += new.tokens_out;
            sums.new.cost_micros += new.cost_micros;
            let Some(base) = session.base else { continue };
            sums.compared += 1;
            sums.score += session.score;
            sums.length += new.acts as f64 - base.acts as f64;
        }
        sums
    }
}

impl Metrics {
    /// In the text format of Prometheus. What is not known is left out.
    pub fn prometheus(&self) -> String {
        let suite = self.suite.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let mut out = String::new();
        let mut family = |name: &str, help: &str, samples: &[(&str, Option<f64>)]| {
            let known: Vec<_> =
                samples.iter().filter_map(|(label, value)| Some((label, (*value)?))).collect();
            if known.is_empty() {
                return;
            }
            let _ = writeln!(out, "# HELP cofferdam_gate_{name} {help}\n# TYPE cofferdam_gate_{name} gauge");
            for (label, value) in known {
                let more = if label.is_empty() { String::new() } else { format!(",{label}") };
                let _ = writeln!(out, "cofferdam_gate_{name}{{suite=\"{suite}\"{more}}} {value}");
            }
        };
        let some = |count: u64| Some(count as f64);
        let by_outcome = [
            ("outcome=\"pass\"", some(self.pass)),
            ("outcome=\"review\"", some(self.review)),
            ("outcome=\"fail\"", some(self.fail)),
        ];
        family("sessions", "Sessions of the last gate, by outcome.", &by_outcome);
        family(
            "flaky_sessions",
            "Sessions that passed at least once and not every time.",
            &[("", some(self.flaky))],
        );
        family("pass_ratio", "Share of sessions that passed.", &[("", self.pass_rate)]);
        family("regression_ratio", "Share of sessions that failed.", &[("", self.regression_rate)]);
        family("boundary_violations", "Findings of the policy.", &[("", some(self.boundary_violations))]);
        family("refused_acts", "Acts that were not let through.", &[("", some(self.refused_acts))]);
        family("drift", "Mean distance from the baselines, in effects.", &[("", self.drift)]);
        family("length_delta", "Mean number of acts more than the baselines.", &[("", self.length_delta)]);
        let tokens =
            [("direction=\"in\"", some(self.tokens_in)), ("direction=\"out\"", some(self.tokens_out))];
        family("tokens", "Tokens that the sessions used.", &tokens);
        family("cost_usd", "What the sessions cost, in US dollars.", &[("", Some(self.cost_usd))]);
        family("duration_seconds", "Time from start to end.", &[("", Some(self.duration_seconds))]);
        family("session_seconds", "Time of all attempts together.", &[("", Some(self.session_seconds))]);
        out
    }
}
