//! A result with one session of each outcome, in every format. What an agent wrote stands in it as text.
#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

mod formats;
mod page;

use cofferdam_compare::Outcome;
use cofferdam_compare::effects::Effects;
use cofferdam_compare::verdict::{Comparison, Evidence, Share, Thresholds, judge};
use cofferdam_gate::{
    Agent, Attempt, Counts, GateResult, Input, Material, Measures, Rates, RunInfo, SessionVerdict, VERSION,
};
use cofferdam_model::{Act, ActKind, Digest, EffectOf, Exit, Run, Status};
use serde_json::{Value, json};

/// Breaks out of every format that does not keep it in.
const HOSTILE: &str = "\"'</pre></script><script>alert(1)</script>]]>\u{1b}[31m";

fn act(kind: ActKind, name: &str, args: Value, text: &str) -> Act {
    let effect = if name == "refund" { EffectOf::Changes } else { EffectOf::Reads };
    let (name, text) = (name.to_owned(), text.to_owned());
    Act { at: 0, within: None, kind, name, args, text, status: Status::Ok, effect, decided: None }
}

fn run(id: &str, amount: u64, said: &str) -> Run {
    let acts = vec![
        act(ActKind::Told, "", Value::Null, "please refund order 7"),
        act(ActKind::Tool, "find_order", json!({"order": 7}), "{\"total\": 500}"),
        act(ActKind::Tool, "find_customer", json!({"id": 3}), "Ada"),
        act(ActKind::Tool, "list_notes", json!({}), "none"),
        act(ActKind::Tool, "refund", json!({"order": 7, "amount": amount}), "done"),
        act(ActKind::Said, "", Value::Null, said),
    ];
    Run { id: id.into(), origin: "cofferdam".into(), acts, ..Run::default() }
}

fn compared(base: &Run, new: &Run) -> Comparison {
    let effects = Effects::learned([base, new]);
    judge(&[base], new, &effects, &Thresholds::default(), Evidence::default())
}

fn verdict(id: &str, comparison: &Comparison) -> SessionVerdict {
    let attempt = Attempt {
        outcome: comparison.verdict.outcome,
        trace: None,
        exit: Some(Exit::Code(0)),
        tier: None,
        enforcement: None,
        wall_us: 250_000,
    };
    let measures = Measures { acts: 6, tool_calls: 4, tokens_in: 100, tokens_out: 20, ..Measures::default() };
    SessionVerdict {
        id: id.into(),
        outcome: comparison.verdict.outcome,
        score: comparison.verdict.score,
        reasons: comparison.verdict.reasons.clone(),
        input: Input { stdin: format!("please refund order 7 {HOSTILE}"), ..Input::default() },
        baselines: Vec::new(),
        attempts: vec![attempt],
        told: 0,
        base: Some(measures),
        new: Some(Measures { acts: 7, ..measures }),
        scores: Vec::new(),
        asked: None,
        reproduce: ["cofferdam", "gate", "suite.toml", "--only", id].map(String::from).to_vec(),
    }
}

fn result(sessions: Vec<SessionVerdict>) -> GateResult {
    let count = |outcome| sessions.iter().filter(|s| s.outcome == outcome).count();
    let (pass, review, fail) = (count(Outcome::Pass), count(Outcome::Review), count(Outcome::Fail));
    let n = sessions.len();
    let material = |name: &str| Material { name: name.into(), digest: Digest::ZERO };
    GateResult {
        version: VERSION,
        outcome: Outcome::Fail,
        why: vec![format!("{fail} of {n} sessions failed {HOSTILE}")],
        counts: Counts {
            sessions: n as u64,
            pass: pass as u64,
            review: review as u64,
            fail: fail as u64,
            flaky: 0,
        },
        rates: Rates {
            passed: Share::of(pass, n),
            failed: Share::of(fail, n),
            reviewed: Share::of(review, n),
        },
        thresholds: Thresholds::default(),
        suite: material("suite.toml"),
        policy: Some(material("policy.toml")),
        agent: Agent {
            command: vec!["python3".into(), "agent.py".into()],
            commit: Some("0f".repeat(20)),
            modified: true,
        },
        sessions: sessions.into_iter().collect(),
        run: RunInfo {
            by: "cofferdam 0.1.0".into(),
            started_us: 1_000_000,
            ended_us: 3_500_000,
            shard: None,
            only: Vec::new(),
        },
    }
}

/// A session that is as before, one that pays another amount, and one of which nothing is known.
fn sample() -> (GateResult, [Run; 3], [Comparison; 3]) {
    let base = run("base", 500, "I refunded 500.");
    let same = run("same", 500, "I refunded 500.");
    let other = run("other", 900, &format!("I refunded 900. {HOSTILE}"));
    let comparisons = [compared(&base, &same), compared(&base, &other), {
        let mut unknown = compared(&base, &same);
        unknown.verdict.outcome = Outcome::Review;
        unknown.verdict.reasons = compared(&base, &other).verdict.reasons;
        unknown.verdict.reasons.iter_mut().for_each(|reason| reason.outcome = Outcome::Review);
        unknown
    }];
    let sessions = ["order-same", "order-other", "order-unsure"];
    let sessions =
        sessions.iter().zip(&comparisons).map(|(id, comparison)| verdict(id, comparison)).collect();
    (result(sessions), [base, same, other], comparisons)
}
