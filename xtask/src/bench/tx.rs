//! What keeping and dropping a thousand changed files costs, beside `cp -a` of the same files. The samples are
//! made by a bench of the crate that does it, one by one, so that ours and the copy alternate.

use super::rounds;
use super::stats::{self, Estimate, Summary};
use crate::command::{self, CommandError};
use fastrand::Rng;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// What is measured, the copy it is compared with, and what is aimed at.
const ROWS: &[(&str, Option<&str>, Option<Aim>)] = &[
    ("rollback", None, Some(Aim::Milliseconds(20.0))),
    ("diff", None, None),
    ("commit modified", Some("cp -a over"), Some(Aim::Milliseconds(60.0))),
    ("commit created", Some("cp -a new"), Some(Aim::Times(1.5))),
    ("commit modified, layer in memory", Some("cp -a over, from memory"), Some(Aim::Times(1.5))),
    ("commit created, layer in memory", Some("cp -a new, from memory"), Some(Aim::Times(1.5))),
    ("cp -a over", None, None),
    ("cp -a new", None, None),
    ("cp -a over, from memory", None, None),
    ("cp -a new, from memory", None, None),
];

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Aim {
    Milliseconds(f64),
    /// Of the copy.
    Times(f64),
}

#[derive(clap::Args)]
pub(crate) struct Tx {
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// For the order of the rounds and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum TxError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("the bench `tx` printed `{0}` in place of milliseconds")]
    NoNumber(String),
}

#[derive(Debug, Serialize)]
struct Report {
    rounds: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_copy: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aim: Option<Aim>,
}

pub(crate) fn main(args: &Tx) -> crate::Outcome {
    let root = crate::workspace::root();
    // On a disk, not in a temporary directory that may be memory.
    let target = root.join("target");
    std::fs::create_dir_all(&target)?;
    let dir = tempfile::Builder::new().prefix("bench-tx.").tempdir_in(&target)?;
    let mut rng = Rng::with_seed(args.seed);
    let plan = rounds::Plan { rounds: args.rounds, warmup: 1, slow: Duration::MAX };
    eprintln!("bench: transactions of 1,000 files, {} rounds", args.rounds);
    let run = |who: usize| ROWS.get(who).map_or(Ok(Duration::ZERO), |row| sample(&root, row.0, dir.path()));
    let samples = rounds::interleave(&plan, ROWS.len(), &mut rng, run)?;
    let report = Report { rounds: args.rounds, rows: rows(&samples, &mut rng) };
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{report}"),
    }
    Ok(true)
}

fn sample(root: &Path, name: &str, dir: &Path) -> Result<Duration, TxError> {
    let mut cargo = command::cargo();
    cargo.current_dir(root).args([
        "bench",
        "--quiet",
        "--package",
        "cofferdam-runtime-process",
        "--bench",
        "tx",
    ]);
    cargo.arg("--").arg(name).arg(dir);
    let text = command::stdout(&mut cargo)?;
    let number = text.trim().parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms >= 0.0);
    number.map(|ms| Duration::from_secs_f64(ms / 1e3)).ok_or(TxError::NoNumber(text))
}

fn rows(samples: &[Vec<f64>], rng: &mut Rng) -> Vec<Row> {
    let of = |name: &str| ROWS.iter().position(|row| row.0 == name).and_then(|at| samples.get(at));
    let row = |(name, copy, aim): &(&'static str, Option<&str>, Option<Aim>)| {
        let own = of(name)?;
        let to_copy = copy.and_then(of).and_then(|copy| stats::ratio(own, copy, rng));
        Some(Row { name, summary: stats::summary(own)?, to_copy, aim: *aim })
    };
    ROWS.iter().filter_map(row).collect()
}

impl Row {
    fn judged(&self) -> &'static str {
        let holds = match (self.aim, self.to_copy) {
            (Some(Aim::Milliseconds(most)), _) => self.summary.median <= most,
            (Some(Aim::Times(most)), Some(ratio)) if ratio.low <= most && ratio.high > most => {
                return "cannot tell";
            }
            (Some(Aim::Times(most)), Some(ratio)) => ratio.value <= most,
            _ => return "",
        };
        if holds { "holds" } else { "does not hold" }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "1,000 files of 3 kB, {} rounds, milliseconds", self.rounds)?;
        writeln!(f, "{:<33} {:>7} {:>7} {:>6}  {:<19} goal", "", "median", "p95", "spread", "to `cp -a`")?;
        for row in &self.rows {
            let ratio = row.to_copy.map(|e| format!("{:.2} ({:.2} to {:.2})", e.value, e.low, e.high));
            let aim = match row.aim {
                Some(Aim::Milliseconds(most)) => format!("{most} ms: {}", row.judged()),
                Some(Aim::Times(most)) => format!("{most}×: {}", row.judged()),
                None => String::new(),
            };
            let Summary { median, p95, mad, .. } = row.summary;
            let ratio = ratio.unwrap_or_default();
            let line = format!("{:<33} {median:>7.1} {p95:>7.1} {mad:>6.1}  {ratio:<19} {aim}", row.name);
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_that_is_compared_with_is_measured() {
        for (name, copy, _) in ROWS {
            let known = copy.is_none_or(|copy| ROWS.iter().any(|row| row.0 == copy));
            assert!(known, "{name} is compared with nothing");
        }
    }

    #[test]
    fn a_ratio_that_straddles_its_bound_cannot_be_told() {
        let samples: Vec<Vec<f64>> = ROWS.iter().map(|_| vec![10.0, 11.0, 12.0]).collect();
        let mut rows = rows(&samples, &mut Rng::with_seed(1));
        let row = rows.iter_mut().find(|row| row.name == "commit created").unwrap();
        assert_eq!(row.judged(), "holds");
        row.to_copy = Some(Estimate { value: 1.4, low: 1.2, high: 1.7 });
        assert_eq!(row.judged(), "cannot tell");
        row.to_copy = Some(Estimate { value: 1.8, low: 1.6, high: 1.9 });
        assert_eq!(row.judged(), "does not hold");
    }
}
