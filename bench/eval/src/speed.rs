//! How fast the comparison is: medians of repeated runs over made-up sessions, beside the goals.

use crate::table::Table;
use cofferdam_compare::delta::{Options, diff};
use cofferdam_compare::effects::Effects;
use cofferdam_compare::verdict::{Evidence, Thresholds, judge};
use cofferdam_compare::{Setup, compare};
use cofferdam_model::{Act, ActKind, EffectOf, Run, Status};
use fastrand::Rng;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Orders that an answer tells of.
const LISTED: usize = 20;

/// A session of this many calls, with words and results of the usual length between them, and an answer that tells what
/// was read, so that there is something to check.
pub fn session(seed: u64, calls: usize) -> Run {
    let mut rng = Rng::with_seed(seed);
    let mut acts =
        vec![act(ActKind::Told, "user", json!(null), "please see to the order and tell me the total")];
    let mut list = String::from("All of it is done. These are the orders:\n");
    for at in 0..calls {
        let name = ["get_order", "search_items", "update_order", "send_message"][rng.usize(..4)];
        let args = json!({ "id": format!("ord_{}", rng.u32(..500)), "note": "as agreed", "count": at });
        let total = rng.u32(..9999);
        let text = format!(
            "{{\"id\": \"ord_{at}\", \"total\": {total}, \"customer\": \"Ann Archer {at}\", \"lines\": [{}]}}",
            "1, ".repeat(60)
        );
        // as many as a person would be told of
        if at < LISTED {
            list.push_str(&format!(
                "- Order ord_{at} of Ann Archer {at}: the total is {total}, on May {}.\n",
                at + 1
            ));
        }
        acts.push(act(ActKind::Tool, name, args, &text));
        acts.push(act(ActKind::Said, "assistant", json!(null), "That is done; the total is as shown above."));
    }
    if let Some(last) = acts.last_mut() {
        last.text = list;
    }
    Run { id: seed.to_string(), origin: "made".into(), acts, ..Run::default() }
}

fn act(kind: ActKind, name: &str, args: serde_json::Value, text: &str) -> Act {
    let effect = EffectOf::Unknown;
    Act {
        at: 0,
        within: None,
        kind,
        name: name.into(),
        args,
        text: text.into(),
        status: Status::Ok,
        effect,
        decided: None,
    }
}

/// Every twentieth act is gone, and every seventeenth is another.
pub fn mutated(run: &Run) -> Run {
    let mut new = run.clone();
    let mut at = 0;
    new.acts.retain(|_| {
        at += 1;
        at % 20 != 0
    });
    for act in new.acts.iter_mut().step_by(17).filter(|act| act.kind == ActKind::Tool) {
        act.args["count"] = json!(-1);
    }
    new
}

fn events(count: usize) -> Run {
    let mut run = session(5, count.div_ceil(2));
    run.acts.truncate(count);
    run
}

pub fn run() -> Table {
    let mut table = Table::default();
    let (effects, options, thresholds) = (Effects::default(), Options::default(), Thresholds::default());
    let bases: Vec<Run> = (0..500).map(|seed| session(seed, 5)).collect();
    let news: Vec<Run> = bases.iter().map(mutated).collect();
    timed(&mut table, "500 sessions of 5 calls, differ and verdict, s", 9, "< 1", || {
        for (base, new) in bases.iter().zip(&news) {
            std::hint::black_box(judge(&[base], new, &effects, &thresholds, Evidence::default()));
        }
    });
    let setup = Setup { effects: &effects, thresholds: &thresholds, policy: None };
    timed(&mut table, "500 sessions of 5 calls, with claims and groundedness, s", 5, "< 1", || {
        for (base, new) in bases.iter().zip(&news) {
            std::hint::black_box(compare(&[base], new, &setup, Vec::new()));
        }
    });
    on_two_threads(&mut table, &bases, &news, &setup);
    timed(&mut table, "500 sessions of 5 calls, differ alone, s", 9, "50 × faster than agentevals", || {
        for (base, new) in bases.iter().zip(&news) {
            std::hint::black_box(diff(base, new, &effects, &options));
        }
    });
    let mut pair = |what: &str, base: &Run, new: &Run, rounds: usize, goal: &str| {
        timed(&mut table, what, rounds, goal, || {
            std::hint::black_box(diff(base, new, &effects, &options));
        });
    };
    let (small, large) = (events(500), events(10_000));
    pair("a pair of 500 events, s", &small, &mutated(&small), 21, "< 0.02");
    pair("a pair of 10,000 events, s", &large, &mutated(&large), 3, "< 2");
    let mut reversed = large.clone();
    reversed.acts.reverse();
    pair("10,000 events against their reverse, s", &large, &reversed, 3, "< 2");
    let same = |count: usize| Run { acts: vec![large.acts[1].clone(); count], ..Run::default() };
    pair("10,000 equal calls against 9,000, s", &same(10_000), &same(9_000), 3, "< 2");
    memory_rows(&mut table);
    table.note("Seconds of one thread on the processor where nothing else is said; in the place of the interval the fastest and the slowest round.");
    table.note(format!("Peak memory of the process {} MiB.", peak() >> 10));
    table
}

/// As a gate does it: every thread takes the next session. On the wall, so that a busy machine shows.
fn on_two_threads(table: &mut Table, bases: &[Run], news: &[Run], setup: &Setup<'_>) {
    let mut seconds: Vec<f64> = (0..5)
        .map(|_| {
            let (begun, next) = (std::time::Instant::now(), AtomicUsize::new(0));
            let work = || {
                while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < bases.len())
                {
                    std::hint::black_box(compare(&[&bases[at]], &news[at], setup, Vec::new()));
                }
            };
            std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
            begun.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let what = "500 sessions of 5 calls, all scorers on two threads, s on the wall";
    table.row(what, seconds[2], (seconds[0], seconds[4]), 5, "< 1");
}

/// What comparing a pair takes besides the pair itself, in MiB, each in a process of its own.
fn memory_rows(table: &mut Table) {
    let of = |count: usize| {
        let words = ["speed-memory".to_owned(), count.to_string()];
        let output =
            std::env::current_exe().and_then(|me| std::process::Command::new(me).args(words).output());
        let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
        text.trim().parse::<f64>().unwrap_or(f64::NAN) / 1024.0
    };
    let (half, whole, double) = (of(5_000), of(10_000), of(20_000));
    for (count, mib) in [("5,000", half), ("10,000", whole), ("20,000", double)] {
        table.row(format!("memory for a pair of {count} events, MiB"), mib, (mib, mib), 1, "");
    }
    let ratio = double / whole;
    table.row("memory, 20,000 to 10,000 events", ratio, (whole / half, ratio), 2, "≤ 2.2: linear");
}

/// KiB by which this process grew at most while it compared a pair of so many events.
pub fn memory(count: usize) -> u64 {
    let base = events(count);
    let new = mutated(&base);
    let before = status("VmRSS:");
    std::hint::black_box(diff(&base, &new, &Effects::default(), &Options::default()));
    peak().saturating_sub(before)
}

/// The 500 pairs of sessions as OpenAI messages, which others read too.
pub fn pairs() -> serde_json::Value {
    let bases = (0..500).map(|seed| session(seed, 5));
    bases.map(|base| json!({ "reference": messages(&base), "outputs": messages(&mutated(&base)) })).collect()
}

fn messages(run: &Run) -> serde_json::Value {
    let of = |(at, act): (usize, &Act)| match act.kind {
        ActKind::Tool => {
            let function = json!({ "name": act.name, "arguments": act.args.to_string() });
            let call = json!({ "id": at.to_string(), "type": "function", "function": function });
            vec![
                json!({ "role": "assistant", "content": "", "tool_calls": [call] }),
                json!({ "role": "tool", "tool_call_id": at.to_string(), "content": act.text }),
            ]
        }
        ActKind::Told => vec![json!({ "role": "user", "content": act.text })],
        _ => vec![json!({ "role": "assistant", "content": act.text })],
    };
    run.acts.iter().enumerate().flat_map(of).collect()
}

fn timed(table: &mut Table, what: &str, rounds: usize, goal: &str, mut work: impl FnMut()) {
    let mut seconds: Vec<f64> = (0..rounds)
        .map(|_| {
            let begun = on_cpu();
            work();
            on_cpu() - begun
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let range = (seconds[0], seconds[rounds - 1]);
    table.row(what, seconds[rounds / 2], range, rounds, goal);
}

/// Seconds that this thread has run: on a busy machine the clock on the wall measures the neighbours.
fn on_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos: f64 = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    nanos / 1e9
}

/// In KiB.
fn peak() -> u64 {
    status("VmHWM:")
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
