//! The verdict on runs that are known to have passed or failed, against other passing runs of their task.

use crate::data::Data;
use crate::stats::{auc, bootstrap};
use crate::table::Table;
use cofferdam_compare::effects::Effects;
use cofferdam_compare::verdict::{Comparison, Evidence, Thresholds, judge};
use cofferdam_compare::{Outcome, Setup, compare};
use cofferdam_model::Run;
use std::collections::BTreeMap;

/// A run with its label, and what was said of it.
struct Judged {
    good: bool,
    outcome: Outcome,
    score: f64,
}

/// One task: its runs, with whether each passed and who made it.
struct Task<'a> {
    runs: Vec<(&'a Run, bool, &'a str)>,
}

pub fn run(data: &Data) -> Table {
    let mut table = Table::default();
    let mut tau: BTreeMap<u64, Task<'_>> = BTreeMap::new();
    for run in &data.tau {
        tau.entry(run.task).or_insert(Task { runs: Vec::new() }).runs.push((&run.run, run.passed, ""));
    }
    let tau: Vec<Task<'_>> = tau.into_values().collect();
    rows(&mut table, "τ-bench airline, all tasks", &tau.iter().map(all).collect::<Vec<_>>(), true);
    rows(&mut table, "τ-bench airline, one baseline", &tau.iter().map(single).collect::<Vec<_>>(), false);

    let whole: Vec<Vec<Judged>> = tau.iter().map(|task| against(task, usize::MAX, true)).collect();
    rows(&mut table, "τ-bench airline, with claims and groundedness", &whole, false);

    let mut dojo: BTreeMap<(&str, &str), Task<'_>> = BTreeMap::new();
    for run in data.dojo.iter().filter(|run| run.attack.is_none()) {
        let task = dojo.entry((&run.suite, &run.task)).or_insert(Task { runs: Vec::new() });
        task.runs.push((&run.run, run.utility, &run.pipeline));
    }
    let effects_only: Vec<Vec<Judged>> = dojo.values().map(all).collect();
    rows(&mut table, "AgentDojo benign, across models", &effects_only, false);
    let whole: Vec<Vec<Judged>> = dojo.values().map(|task| against(task, usize::MAX, true)).collect();
    rows(&mut table, "AgentDojo benign, with claims and groundedness", &whole, false);
    table.note(
        "A run is judged against the other passing runs of its task (all of them, or the first). Positives are runs that \
         failed; AUC intervals are bootstrapped over tasks. AgentDojo's runs of one task are by different models, so that \
         it is harder than comparing two versions of one agent. Nothing is fitted: the weights and thresholds are round \
         numbers, set while looking at τ-bench; the rows of AgentDojo were computed after that. How far claims and groundedness may go by default was decided after seeing the rows with them.",
    );
    table
}

fn all(task: &Task<'_>) -> Vec<Judged> {
    against(task, usize::MAX, false)
}

fn single(task: &Task<'_>) -> Vec<Judged> {
    against(task, 1, false)
}

fn against(task: &Task<'_>, most: usize, whole: bool) -> Vec<Judged> {
    let mut found = Vec::new();
    for (at, (new, good, who)) in task.runs.iter().enumerate() {
        let others = task.runs.iter().enumerate().filter(|(other, run)| *other != at && run.1);
        let mut bases: Vec<&Run> = others.map(|(_, run)| run.0).collect();
        bases.truncate(most);
        if bases.is_empty() {
            continue;
        }
        let effects = Effects::learned(bases.iter().copied());
        let thresholds = Thresholds::default();
        let setup = Setup { effects: &effects, thresholds: &thresholds, policy: None };
        let said = if whole {
            compare(&bases, new, &setup, Vec::new())
        } else {
            judge(&bases, new, &effects, &thresholds, Evidence::default())
        };
        verbose(&said, *good, who);
        found.push(Judged { good: *good, outcome: said.verdict.outcome, score: said.verdict.score });
    }
    found
}

fn verbose(said: &Comparison, good: bool, who: &str) {
    let wrong = if good { Outcome::Pass } else { Outcome::Fail };
    if std::env::var_os("EVAL_VERBOSE").is_some() && said.verdict.outcome != wrong {
        eprintln!(
            "{} good={good} {} score {:.3} {who} {:?}",
            said.new, said.verdict.outcome, said.verdict.score, said.features
        );
        said.verdict
            .reasons
            .iter()
            .take(4)
            .for_each(|r| eprintln!("    {} {} {}", r.outcome, r.code, r.text));
    }
}

fn rows(table: &mut Table, name: &str, tasks: &[Vec<Judged>], goal: bool) {
    let area = |chosen: &[usize]| {
        let of = |good: bool| -> Vec<f64> {
            let all = chosen.iter().flat_map(|at| &tasks[*at]);
            all.filter(|run| run.good == good).map(|run| run.score).collect()
        };
        auc(&of(false), &of(true))
    };
    let everything: Vec<usize> = (0..tasks.len()).collect();
    let n = tasks.iter().map(Vec::len).sum();
    let interval = bootstrap(tasks.len(), 1000, area);
    table.row(format!("{name}: AUC"), area(&everything), interval, n, if goal { "≥ 0.97" } else { "" });
    let count = |good: bool, outcome: Outcome| {
        tasks.iter().flatten().filter(|run| run.good == good && run.outcome == outcome).count()
    };
    let total = |good: bool| tasks.iter().flatten().filter(|run| run.good == good).count();
    let limit = if goal { "≤ 0.05" } else { "" };
    table.share(format!("{name}: good runs failed"), count(true, Outcome::Fail), total(true), limit);
    table.share(format!("{name}: good runs for review"), count(true, Outcome::Review), total(true), "");
    table.share(format!("{name}: bad runs failed"), count(false, Outcome::Fail), total(false), "");
    table.share(format!("{name}: bad runs passed"), count(false, Outcome::Pass), total(false), "");
}
