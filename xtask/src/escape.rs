//! The escape score may only go up: what `cofferdam escape` scores here, held against a floor that is checked in.

use crate::command::{self, CommandError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const FLOOR: &str = "xtask/escape-floor.toml";

#[derive(Debug, thiserror::Error)]
pub(crate) enum EscapeError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("could not read {path}: {source}; it belongs to the repository")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{FLOOR}: {0}")]
    Floor(#[from] toml::de::Error),
    #[error("`cofferdam escape --json` said no score: {0}; {1}")]
    Score(serde_json::Error, String),
}

/// The least of a tier.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Least {
    blocked: usize,
    total: usize,
    /// As root. Kernels differ in what can be shown on them.
    proven: usize,
}

#[derive(Debug, Deserialize)]
struct Score {
    tiers: Vec<Tier>,
}

#[derive(Debug, Deserialize)]
struct Tier {
    tier: String,
    blocked: usize,
    total: usize,
    proven: usize,
    checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
struct Check {
    id: String,
    blocked: bool,
    why: String,
}

/// The score in a few words, or everything that is wrong with it.
pub(crate) fn check(root: &Path) -> Result<Result<String, Vec<String>>, EscapeError> {
    let path = root.join(FLOOR);
    let text = std::fs::read_to_string(&path).map_err(|source| EscapeError::Read { path, source })?;
    let floor: BTreeMap<String, Least> = toml::from_str(&text)?;
    let mut cargo = command::cargo();
    cargo.current_dir(root).args(["run", "--quiet", "--package", "cofferdam-cli", "--", "escape", "--json"]);
    // Each by its name: a tier that has a floor is tried, or it is said why not.
    floor.keys().for_each(|tier| _ = cargo.args(["--tier", tier]));
    let score = run(&mut cargo)?;
    let wrong = judge(&floor, &score, command::is_root());
    let told = score.tiers.iter().map(|t| {
        format!("{}: {} of {} blocked, {} proven by a control", t.tier, t.blocked, t.total, t.proven)
    });
    Ok(if wrong.is_empty() { Ok(told.collect::<Vec<_>>().join("; ")) } else { Err(wrong) })
}

/// An open check is exit code 1, and a score all the same.
fn run(command: &mut Command) -> Result<Score, EscapeError> {
    let line = command::line(command);
    let output = command.output().map_err(|source| CommandError::Start { line, source })?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).map_err(|error| EscapeError::Score(error, said))
}

fn judge(floor: &BTreeMap<String, Least>, score: &Score, root: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in floor.keys().filter(|name| !score.tiers.iter().any(|tier| tier.tier == **name)) {
        wrong.push(format!("{name}: the tier does not work here; run `cofferdam doctor`"));
    }
    for tier in &score.tiers {
        let name = &tier.tier;
        let Some(least) = floor.get(name) else {
            wrong.push(format!("{name}: has no floor; add one to {FLOOR}"));
            continue;
        };
        for check in tier.checks.iter().filter(|check| !check.blocked) {
            wrong.push(format!("{name}: {} is open: {}", check.id, check.why));
        }
        for (what, have, floor) in
            [("blocked", tier.blocked, least.blocked), ("total", tier.total, least.total)]
        {
            if have < floor {
                wrong.push(format!("{name}: {what} is {have}, and was {floor}; it can only go up"));
            } else if have > floor {
                wrong.push(format!("{name}: {what} is {have}; raise the floor of {floor} in {FLOOR}"));
            }
        }
        if root && tier.proven < least.proven {
            wrong.push(format!("{name}: only {} are proven by a control, not {}", tier.proven, least.proven));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(blocked: usize, total: usize, proven: usize) -> Vec<String> {
        let floor = BTreeMap::from([("process".to_owned(), Least { blocked: 5, total: 5, proven: 3 })]);
        let open = (blocked < total).then(|| Check { id: "a.b".into(), blocked: false, why: "x".into() });
        let tier =
            Tier { tier: "process".into(), blocked, total, proven, checks: open.into_iter().collect() };
        judge(&floor, &Score { tiers: vec![tier] }, true)
    }

    #[test]
    fn the_score_is_the_floor_or_the_floor_is_raised() {
        assert!(judged(5, 5, 3).is_empty() && judged(5, 5, 5).is_empty());
        for (blocked, total, proven, says) in [
            (4, 5, 3, "a.b is open: x"),
            (4, 5, 3, "blocked is 4, and was 5"),
            (4, 4, 3, "total is 4, and was 5"),
            (6, 6, 3, "raise the floor of 5"),
            (5, 5, 2, "only 2 are proven"),
        ] {
            let wrong = judged(blocked, total, proven);
            assert!(wrong.iter().any(|line| line.contains(says)), "{says}: {wrong:?}");
        }
    }

    #[test]
    fn a_tier_without_a_floor_and_a_floor_without_its_tier_are_told() {
        let floor = BTreeMap::from([("microvm".to_owned(), Least { blocked: 1, total: 1, proven: 1 })]);
        let tier = Tier { tier: "process".into(), blocked: 1, total: 1, proven: 1, checks: Vec::new() };
        let wrong = judge(&floor, &Score { tiers: vec![tier] }, false);
        assert!(wrong[0].starts_with("microvm: the tier does not work") && wrong[1].contains("has no floor"));
    }
}
