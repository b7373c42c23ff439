//! The tables of 80 columns, the JSON, and the goals.

use super::measures::Samples;
use super::peers::{Contender, DIRECT, MITMPROXY, NOOP, OURS, PLAIN, SQUID};
use crate::bench::report::{Goal, Host, Judgement, at_most, clipped};
use crate::bench::stats::{self, Estimate};
use fastrand::Rng;
use serde_json::{Value, json};
use std::fmt::Write;

pub(crate) struct Report {
    pub(crate) host: Host,
    pub(crate) rounds: usize,
    pub(crate) realtime: bool,
    pub(crate) rows: Vec<Row>,
    /// Milliseconds from the word to revoke to the last byte, of each try.
    pub(crate) revoked: Vec<f64>,
}

pub(crate) struct Row {
    name: &'static str,
    samples: Result<Samples, String>,
}

impl Row {
    pub(crate) fn new(contender: &Contender, samples: Option<&Samples>) -> Self {
        let refusal = || contender.refusal().unwrap_or("not measured").to_owned();
        Self { name: contender.name, samples: samples.cloned().ok_or_else(refusal) }
    }

    fn of(&self, what: &str) -> Option<&[f64]> {
        self.samples.as_ref().ok()?.of(what)
    }

    /// The median and how far the middle half of the samples lies from it.
    fn cell(&self, what: &str, digits: usize) -> String {
        let summary = self.of(what).and_then(stats::summary);
        let digits = if summary.is_some_and(|s| s.median >= 1000.0) { 0 } else { digits };
        match summary {
            Some(s) if s.samples > 1 => format!("{:.digits$} ±{:.digits$}", s.median, s.mad),
            Some(s) => format!("{:.digits$}", s.median),
            None => "–".to_owned(),
        }
    }
}

/// A heading, what it is of, and the digits that are worth showing.
type Column = (&'static str, &'static str, usize);

const TABLES: &[(&str, &[Column])] = &[
    (
        "GET, 90 bytes",
        &[
            ("CPU us", "cpu us", 1),
            ("req/s, 8", "per second", 0),
            ("p50 ms, 1", "p50 1", 2),
            ("p50 ms, 8", "p50 8", 2),
            ("p99 ms, 8", "p99 8", 2),
        ],
    ),
    (
        "",
        &[
            ("POST 4K us", "post cpu us", 1),
            ("POST/s, 8", "posts", 0),
            ("tunnel ms", "tunnel cpu ms", 2),
            ("event ms", "first event ms", 2),
        ],
    ),
    (
        "64 MiB",
        &[
            ("down MB/s", "download", 0),
            ("CPU s", "download cpu s", 2),
            ("up MB/s", "upload", 0),
            ("idle KiB", "idle kib", 0),
            ("used KiB", "used kib", 0),
        ],
    ),
    (
        "64 MiB, store",
        &[
            ("up MB/s", "store upload", 0),
            ("signed MB/s", "signed upload", 0),
            ("SHA us/64K", "pass us", 1),
            ("more us/64K", "piece us", 1),
        ],
    ),
];

impl Report {
    fn samples(&self, name: &str, what: &str) -> Option<&[f64]> {
        self.rows.iter().find(|row| row.name == name)?.of(what)
    }

    fn goals(&self, rng: &mut Rng) -> Vec<Goal> {
        let mut ratio = |what: &str, one: &str, other: &str| {
            stats::ratio(self.samples(one, what)?, self.samples(other, what)?, rng)
        };
        let cpu = ratio("cpu us", OURS, NOOP);
        let (squid, mitmproxy) = (ratio("per second", OURS, SQUID), ratio("per second", OURS, MITMPROXY));
        let pieces = self.samples(OURS, "signed upload").zip(self.samples(OURS, "store upload"));
        let signed = pieces.and_then(|(signed, plain)| stats::ratio(signed, plain, rng));
        let mut added =
            |what: &str| stats::difference(self.samples(OURS, what)?, self.samples(DIRECT, what)?, rng);
        let (one, eight, event) = (added("p50 1"), added("p50 8"), added("first event ms"));
        let mut middle = |name: &str, what: &str| stats::middle(self.samples(name, what)?, rng);
        let (scanned, unscanned) = (middle(OURS, "download"), middle(PLAIN, "download"));
        let (idle, gigabyte) = (middle(OURS, "idle kib"), middle(OURS, "gigabyte kib"));
        let piece = middle(OURS, "piece us");
        let worst = self.revoked.iter().copied().max_by(f64::total_cmp).map(Estimate::exact);
        let goal = |goal, judgement| Goal { goal, judgement };
        vec![
            goal("CPU for a request within 2 x of no-op hudsucker", at_most(2.0, cpu)),
            goal("requests/s at least 1.3 x squid", at_least(1.3, squid)),
            goal("requests/s at least 15 x mitmproxy", at_least(15.0, mitmproxy)),
            goal("adds at most 0.3 ms to the median, 1 connection", at_most(0.3, one)),
            goal("adds at most 0.3 ms to the median, 8 connections", at_most(0.3, eight)),
            goal("adds at most 1 ms to the first event", at_most(1.0, event)),
            goal("unscanned bodies at 200 MB/s or more", at_least(200.0, unscanned)),
            goal("scanned bodies at 100 MB/s or more", at_least(100.0, scanned)),
            goal("at most 64 KiB for an idle tunnel", at_most(64.0, idle)),
            goal("a gigabyte leaves under 16 MiB", at_most(16.0 * 1024.0, gigabyte)),
            goal("signed pieces at 80 % of an unsigned upload or more", at_least(0.8, signed)),
            goal("a piece of 64 KiB: a SHA-256 pass and at most 20 us more", at_most(20.0, piece)),
            goal("revoked to last byte in at most 10 ms, 1,000 streams", at_most(10.0, worst)),
        ]
    }

    pub(crate) fn text(&self, rng: &mut Rng) -> String {
        let Host { kernel, cores, load, user } = &self.host;
        let scheduler = if self.realtime { "; real-time scheduler" } else { "" };
        let mut out = format!("kernel {kernel}, {cores} cores, load {load}, as {user}{scheduler}\n");
        let _ = writeln!(out, "{} rounds in random order; medians ± median absolute deviation", self.rounds);
        for (title, columns) in TABLES {
            let heads: String = columns.iter().map(|(head, ..)| format!(" {head:>12}")).collect();
            let _ = writeln!(out, "\n{title:<15}{heads}");
            for row in &self.rows {
                let cells = match &row.samples {
                    Ok(_) => {
                        columns.iter().map(|(_, what, d)| format!(" {:>12}", row.cell(what, *d))).collect()
                    }
                    Err(words) => format!(" {}", clipped(words, 63)),
                };
                let _ = writeln!(out, "{:<15}{cells}", row.name);
            }
        }
        let tries: Vec<String> = self.revoked.iter().map(|ms| format!("{ms:.2}")).collect();
        let _ = writeln!(out, "\nrevoked to last byte, 1,000 streams, ms: {}\n", tries.join(" "));
        for goal in self.goals(rng) {
            let _ = writeln!(out, "{goal}");
        }
        out
    }

    pub(crate) fn json(&self, rng: &mut Rng) -> Result<String, serde_json::Error> {
        let row = |row: &Row| match &row.samples {
            Err(words) => json!({ "name": row.name.trim(), "refusal": words }),
            Ok(samples) => {
                let all =
                    samples.all().map(|(what, values)| (what.to_owned(), json!(stats::summary(values))));
                json!({ "name": row.name.trim(), "samples": all.collect::<serde_json::Map<_, _>>() })
            }
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        serde_json::to_string_pretty(&json!({
            "host": self.host,
            "rounds": self.rounds,
            "realtime": self.realtime,
            "rows": rows,
            "revoked_ms": self.revoked,
            "goals": self.goals(rng),
        }))
    }
}

fn at_least(bound: f64, seen: Option<Estimate>) -> Judgement {
    let turned = |Estimate { value, low, high }| Estimate { value: -value, low: -high, high: -low };
    at_most(-bound, seen.map(turned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, seen: &[(&'static str, f64)]) -> Row {
        let mut samples = Samples::default();
        for spread in [0.99, 1.0, 1.01] {
            samples.add(seen.iter().map(|(what, value)| (*what, value * spread)).collect());
        }
        Row { name, samples: Ok(samples) }
    }

    fn report() -> Report {
        let rows = vec![
            row(DIRECT, &[("p50 1", 0.1)]),
            row(OURS, &[("cpu us", 90.0), ("per second", 14_192.0), ("p50 1", 0.25), ("download", 100.0)]),
            row(NOOP, &[("cpu us", 60.0), ("per second", 16_000.0)]),
            Row { name: SQUID, samples: Err("not installed ".repeat(9)) },
            row(MITMPROXY, &[("per second", 1_000.0)]),
        ];
        let host = Host { kernel: "6.1".into(), cores: 2, load: "0.10".into(), user: "root" };
        Report { host, rounds: 3, realtime: false, rows, revoked: vec![0.4, 11.0] }
    }

    #[test]
    fn tables_fit_80_columns_and_keep_who_is_missing() {
        let text = report().text(&mut Rng::with_seed(1));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("cofferdam          90.0 ±0.9   14192 ±142   0.25 ±0.00"), "{text}");
        assert!(text.contains("squid ssl-bump  not installed not"), "{text}");
    }

    #[test]
    fn goals_are_judged_by_their_intervals() {
        let goals = report().goals(&mut Rng::with_seed(1));
        let of = |start: &str| &goals.iter().find(|g| g.goal.starts_with(start)).unwrap().judgement;
        assert_eq!(*of("CPU for a request"), Judgement::Holds);
        assert_eq!(*of("requests/s at least 1.3"), Judgement::NotMeasured);
        assert_eq!(*of("requests/s at least 15"), Judgement::DoesNotHold);
        assert_eq!(*of("adds at most 0.3 ms to the median, 1"), Judgement::Holds);
        assert_eq!(*of("scanned"), Judgement::CannotTell);
        assert_eq!(*of("revoked"), Judgement::DoesNotHold);
    }
}
