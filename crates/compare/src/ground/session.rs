//! Groundedness of a run: every statement of what the model said, held against what the run had read before it. A run
//! in which nothing could be evaluated has no score, which is not the same as a good one.

use super::index::Index;
use super::score::{Band, Groundedness, Score, Unscored};
use crate::claims::{self, answer};
use crate::reason::{Outcome, Place, Reason, Scorer};
use cofferdam_model::{ActKind, Run};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GroundReport {
    /// Of the answers: the mean over their statements, longer ones weighing more. Nothing where nothing was evaluated.
    pub value: Option<f64>,
    /// One for each time the model said something, answers and what led there.
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub act: usize,
    /// The last words of a turn: what the user gets.
    pub answer: bool,
    pub value: Option<f64>,
    pub statements: Vec<Said>,
}

/// One statement. Passages of its evidence are acts of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    pub bytes: (usize, usize),
    /// Its beginning, for whoever reads a reason without the run at hand.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Of an exact conflict: what it says, and what was read there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<(String, String)>,
    pub result: Groundedness,
}

/// Fewer terms than this are no statement that prose could support.
const FEWEST_WORDS: usize = 3;
/// Characters of a statement that a reason quotes.
const EXCERPT: usize = 80;

pub fn check(run: &Run) -> GroundReport {
    // the model's own words are no evidence, but they keep their place so that a passage's number is its act's
    let passages = run.acts.iter().map(|act| match act.kind {
        ActKind::Said | ActKind::Model => "",
        _ => act.text.as_str(),
    });
    let index = Index::new(passages);
    let answers = claims::answers(run);
    let mut report = GroundReport::default();
    for (act, said) in run.acts.iter().enumerate().filter(|(_, a)| a.kind == ActKind::Said) {
        let upto = index.sentences.partition_point(|s| (s.passage as usize) < act);
        let statements = answer::statements(&said.text)
            .iter()
            .map(|s| judge(run, &index, upto, (&said.text, s)))
            .collect::<Vec<_>>();
        let answer = answers.contains(&act);
        report.steps.push(Step { act, answer, value: mean(statements.iter()), statements });
    }
    report.value = mean(report.steps.iter().filter(|s| s.answer).flat_map(|s| &s.statements));
    report
}

fn judge(run: &Run, index: &Index, upto: usize, (text, statement): (&str, &answer::Statement)) -> Said {
    let bytes = (statement.range.start, statement.range.end);
    let said = &text[statement.range.clone()];
    let result = if statement.heading || statement.manner == answer::Manner::NotAsserted {
        Groundedness::NotEvaluated { why: Unscored::NotAsserted }
    } else if said.split_whitespace().count() < FEWEST_WORDS {
        Groundedness::NotEvaluated { why: Unscored::NothingToCheck }
    } else {
        index.score_upto(said, upto)
    };
    let doubt = match &result {
        Groundedness::Scored(score) if doubted(score) => Some(score),
        _ => None,
    };
    let exact = doubt.and_then(|score| score.conflicts.iter().find(|c| c.exact));
    let against = exact.and_then(|c| {
        let read = run.acts.get(c.passage)?.text.get(c.found.0..c.found.1)?;
        Some((said.get(c.bytes.0..c.bytes.1)?.to_owned(), read.to_owned()))
    });
    Said { bytes, text: doubt.map(|_| beginning(said)).unwrap_or_default(), against, result }
}

/// Whether a score is told as a reason.
fn doubted(score: &Score) -> bool {
    score.band == Band::Ungrounded || score.conflicts.iter().any(|c| c.exact)
}

fn beginning(said: &str) -> String {
    match said.char_indices().nth(EXCERPT) {
        Some((at, _)) => format!("{}…", said[..at].trim_end()),
        None => said.to_owned(),
    }
}

fn mean<'s>(statements: impl Iterator<Item = &'s Said>) -> Option<f64> {
    let (mut sum, mut weight) = (0.0, 0.0);
    for said in statements {
        if let Groundedness::Scored(score) = &said.result {
            let long = (said.bytes.1 - said.bytes.0) as f64;
            sum += score.value * long;
            weight += long;
        }
    }
    (weight > 0.0).then(|| sum / weight)
}

impl GroundReport {
    /// Statements of answers that rest on nothing are for a person to see; the score alone never fails a run.
    pub fn reasons(&self) -> Vec<Reason> {
        let answers = self.steps.iter().filter(|s| s.answer);
        let mut reasons: Vec<Reason> =
            answers.flat_map(|step| step.statements.iter().filter_map(|said| reason(step, said))).collect();
        if self.value.is_none() && self.steps.iter().any(|s| s.answer) {
            let text = "groundedness was not evaluated: the answer states nothing that could be held against what was read".to_owned();
            reasons.push(Reason {
                scorer: Scorer::Groundedness,
                code: "ground-not-evaluated".into(),
                rule: None,
                outcome: Outcome::Pass,
                weight: 0.1,
                text,
                places: Vec::new(),
            });
        }
        reasons
    }
}

fn reason(step: &Step, said: &Said) -> Option<Reason> {
    let Groundedness::Scored(score) = &said.result else { return None };
    let exact = score.conflicts.iter().find(|c| c.exact);
    if !doubted(score) {
        return None;
    }
    let said_so = &said.text;
    let mut places = vec![Place::new(step.act).bytes(said.bytes.0, said.bytes.1)];
    let (code, weight, text) = match exact {
        Some(conflict) => {
            places.push(Place::new(conflict.passage).bytes(conflict.found.0, conflict.found.1));
            (
                "ground-conflict",
                0.5,
                match &said.against {
                    Some((mine, theirs)) => format!(
                        "the answer says `{mine}` in “{said_so}”, where act {} says `{theirs}`: look which is right",
                        conflict.passage
                    ),
                    None => format!(
                        "“{said_so}” has another value than act {} where the rest is the same: compare the two",
                        conflict.passage
                    ),
                },
            )
        }
        None => {
            places.extend(score.evidence.first().map(|e| Place::new(e.passage).bytes(e.bytes.0, e.bytes.1)));
            let missing: Vec<&str> = score.missing.iter().take(4).map(|m| m.text.as_str()).collect();
            let lacking = if missing.is_empty() {
                "its words stand apart from each other".to_owned()
            } else {
                format!("nowhere read: {}", missing.join(", "))
            };
            (
                "ground-weak",
                0.3,
                format!(
                    "“{said_so}” rests weakly on what was read (score {:.2}; {lacking}): see where it came from",
                    score.value
                ),
            )
        }
    };
    Some(Reason {
        scorer: Scorer::Groundedness,
        code: code.into(),
        rule: None,
        outcome: Outcome::Review,
        weight,
        text,
        places,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::Act;

    fn act(kind: ActKind, text: &str) -> Act {
        Act {
            at: 0,
            within: None,
            kind,
            name: "notes".into(),
            args: serde_json::Value::Null,
            text: text.into(),
            status: Default::default(),
            effect: Default::default(),
            decided: None,
        }
    }

    fn run(acts: &[(ActKind, &str)]) -> Run {
        Run { acts: acts.iter().map(|(k, t)| act(*k, t)).collect(), ..Run::default() }
    }

    #[test]
    fn statements_are_scored_against_what_came_before_them() {
        let report = check(&run(&[
            (ActKind::Told, "What does the landlord want?"),
            (ActKind::Said, "I will read the notice."),
            (ActKind::Tool, "From next month the rent will be increased by 100.00."),
            (
                ActKind::Said,
                "From next month the rent will be increased by 100. Gareth bought three horses in Nairobi.",
            ),
        ]));
        let [_, answer] = &report.steps[..] else { panic!("{report:?}") };
        let bands: Vec<_> = answer
            .statements
            .iter()
            .filter_map(|s| match &s.result {
                Groundedness::Scored(s) => Some(s.band),
                _ => None,
            })
            .collect();
        assert_eq!(bands, [Band::Grounded, Band::Ungrounded]);
        let reasons = report.reasons();
        assert_eq!(reasons.len(), 1);
        assert!(
            reasons[0].text.starts_with("“Gareth bought three horses in Nairobi.” rests"),
            "{}",
            reasons[0].text
        );
    }

    #[test]
    fn a_conflict_names_both_values() {
        let report = check(&run(&[
            (ActKind::Tool, "From next month the rent will be increased by 100.00."),
            (ActKind::Said, "From next month the rent will be increased by 250."),
        ]));
        let reason = report.reasons().into_iter().find(|r| r.code == "ground-conflict").unwrap();
        let text = "the answer says `250` in “From next month the rent will be increased by 250.”, where act 0 says `100.00`: look which is right";
        assert_eq!(reason.text, text);
    }

    #[test]
    fn later_results_are_no_evidence_for_earlier_words() {
        let report = check(&run(&[
            (ActKind::Said, "The rent will be increased by 100 next month."),
            (ActKind::Tool, "The rent will be increased by 100 next month."),
        ]));
        assert_eq!((report.value, report.steps[0].value), (None, None));
    }

    #[test]
    fn nothing_evaluated_is_said_and_is_no_score() {
        assert_eq!(check(&Run::default()), GroundReport::default());
        let report = check(&run(&[(ActKind::Tool, "a b c"), (ActKind::Said, "Shall I go on?")]));
        assert_eq!(report.value, None);
        assert_eq!(report.reasons()[0].code, "ground-not-evaluated");
    }
}
