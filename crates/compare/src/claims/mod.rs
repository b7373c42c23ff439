//! Claims: what a model's words assert, linked to where it was read. An answer is cut into values, names, quotes and
//! statuses; each is looked up in what the run had read, done and been told before it. It refuses to guess: what was
//! not vouched for or cannot be looked up is "not checkable", which is neither good nor bad.

mod about;
pub(crate) mod amount;
pub(crate) mod answer;
mod bind;
mod company;
mod context;
mod cue;
mod derive;
mod equation;
pub(crate) mod evidence;
mod exchange;
mod extract;
mod extreme;
mod fit;
mod form;
mod joint;
pub(crate) mod layout;
mod link;
pub(crate) mod moment;
mod money;
mod naming;
mod noun;
mod object;
mod person;
mod rank;
mod reading;
mod report;
mod rival;
mod rules;
pub(crate) mod scan;
mod status;
mod subject;
mod titled;
mod together;
mod twice;
mod unknown;
mod usual;
mod whom;
mod whose;
pub(crate) mod words;

pub use amount::{Amount, Unit};
pub use fit::{FITS, Fit};
pub use moment::{Date, Time};
pub use rank::Candidate;
pub use report::{Claim, ClaimKind, ClaimReport, ClaimStatus, Operation, Quoted, Totals, Why};
pub use scan::Value;

use cofferdam_model::{ActKind, Run};
use evidence::Evidence;

/// Every claim of a run's answers. An answer is what the model said last before the user spoke again or the run ended;
/// what it said on the way there was to itself.
pub fn check(run: &Run) -> ClaimReport {
    check_with(run, 1.0)
}

/// The same with more caution than usual, or with less: another value has to be so many times as far ahead of what was
/// said. What is known without weighing values stays as it is.
pub fn check_with(run: &Run, caution: f32) -> ClaimReport {
    let evidence = Evidence::of(run);
    let mut report = ClaimReport::default();
    for act in answers(run) {
        report.answers.push(act);
        let text = &run.acts[act].text;
        let answer = extract::extract(text);
        let judge = link::Judge { caution, ..link::Judge::new(run, &evidence, act, text, &answer) };
        let (mut claims, rankings): (Vec<Claim>, Vec<_>) =
            answer.claims.iter().map(|raw| judge.claim(raw)).unzip();
        judge.exchanged(&mut claims, &rankings);
        derive::derive(&judge, &mut claims);
        judge.displaced(&mut claims, &rankings);
        report.claims.extend(claims);
    }
    report.count();
    report
}

/// A claim beside the other candidates for its place: what the weights are fitted on.
pub struct Weighed {
    pub bytes: (usize, usize),
    pub candidates: Vec<Candidate>,
    /// The rules that speak against it.
    pub against: Vec<&'static str>,
}

/// How each claim of a run's answers that has a value looks.
pub fn weigh(run: &Run) -> Vec<Weighed> {
    let evidence = Evidence::of(run);
    let mut found = Vec::new();
    for act in answers(run) {
        let text = &run.acts[act].text;
        let answer = extract::extract(text);
        let judge = link::Judge::new(run, &evidence, act, text, &answer);
        for raw in &answer.claims {
            let statement = &answer.statements[raw.statement];
            let about = judge.about(raw, statement);
            let candidates = judge.candidates(raw, statement, &about);
            let (bytes, against) = ((raw.range.start, raw.range.end), judge.against(raw, statement));
            found.push(Weighed { bytes, candidates, against });
        }
    }
    found
}

/// The acts that answer: the last words of each turn.
pub(crate) fn answers(run: &Run) -> Vec<usize> {
    let mut found = Vec::new();
    let mut last = None;
    for (at, act) in run.acts.iter().enumerate() {
        match act.kind {
            ActKind::Said if !act.text.trim().is_empty() => last = Some(at),
            ActKind::Told => found.extend(last.take()),
            _ => {}
        }
    }
    found.extend(last);
    found
}

#[cfg(test)]
mod tests;
