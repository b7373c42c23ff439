//! Scorers of the user's own, as data: what one is asked, what its answer means, and what is said where there is none.
//! Nothing here calls anyone. A scorer that fails, hangs or talks nonsense makes a session one for review; it never
//! makes it pass, and it never takes back what others found.

use crate::reason::{Outcome, Place, Reason, Scorer};
use cofferdam_model::Run;
use serde::{Deserialize, Serialize};

/// Goes up when the question changes in a way that a scorer could misread.
pub const CONTRACT: u32 = 1;

/// What a scorer reads.
#[derive(Debug, Clone, Serialize)]
pub struct Question<'a> {
    pub version: u32,
    /// Its name in the suite.
    pub scorer: &'a str,
    /// The session's name in the suite.
    pub session: &'a str,
    /// All recorded runs of this session that could be read.
    pub baselines: Vec<&'a Run>,
    pub new: &'a Run,
    /// What the agent wrote to its standard output.
    pub output: &'a str,
}

/// What it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub outcome: Outcome,
    /// For whoever wants to follow it over time; nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Said>,
}

/// One reason of a scorer's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    pub text: String,
    /// Of this reason alone; without it, the answer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The act of the new run that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<usize>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("it had not answered after {0} s: it hangs, or `timeout` is too short")]
    Late(u64),
    #[error("it {how}{}", said(.words))]
    Broke { how: String, words: String },
    #[error("it could not be asked: {0}")]
    NotAsked(String),
    #[error("its answer is longer than {0} bytes")]
    TooLong(u64),
    #[error(
        "its answer is not the JSON that is asked for ({0}): it has to be as in {{\"outcome\": \"fail\", \"reasons\": [{{\"text\": \"…\"}}]}}"
    )]
    Nonsense(String),
    #[error("it says `{0}` without a reason: give one in `reasons`, since someone will be stopped by it")]
    NoReason(Outcome),
}

fn said(words: &str) -> String {
    match words.trim() {
        "" => String::new(),
        words => format!(" and says `{}`", line(words, 200)),
    }
}

/// Reasons more than these are the scorer's own affair.
const MOST: usize = 20;
const LONGEST: usize = 500;

/// The one JSON object that a scorer answers with.
pub fn read(bytes: &[u8]) -> Result<Answer, Failure> {
    let answer: Answer =
        serde_json::from_slice(bytes).map_err(|error| Failure::Nonsense(line(&error.to_string(), 120)))?;
    if answer.score.is_some_and(|score| !score.is_finite()) {
        return Err(Failure::Nonsense("`score` is no number".into()));
    }
    let told = answer.reasons.iter().any(|reason| !reason.text.trim().is_empty());
    if answer.outcome != Outcome::Pass && !told {
        return Err(Failure::NoReason(answer.outcome));
    }
    Ok(answer)
}

/// What the verdict has to know. `most` is as far as the suite lets this scorer go; `acts` is how many the new run has.
pub fn reasons(name: &str, most: Outcome, asked: &Result<Answer, Failure>, acts: usize) -> Vec<Reason> {
    let reason = |code: &str, outcome: Outcome, text: String, act: Option<usize>| Reason {
        scorer: Scorer::Custom,
        code: code.into(),
        rule: None,
        outcome,
        weight: 0.6,
        text,
        places: act.filter(|act| *act < acts).map(Place::new).into_iter().collect(),
    };
    match asked {
        Err(failure) => {
            let text = format!("the scorer `{name}` said nothing that can be used: {failure}");
            vec![reason("scorer-failed", Outcome::Review, text, None)]
        }
        Ok(answer) => {
            let told = answer.reasons.iter().filter(|said| !said.text.trim().is_empty());
            let mut found: Vec<Reason> = told
                .take(MOST)
                .map(|said| {
                    let outcome = said.outcome.unwrap_or(answer.outcome).min(answer.outcome).min(most);
                    let text = format!("the scorer `{name}` says: {}", line(&said.text, LONGEST));
                    reason("scorer", outcome, text, said.act)
                })
                .collect();
            // Its outcome counts even where each of its reasons says less.
            let worst = found.iter().map(|reason| reason.outcome).max().unwrap_or_default();
            if let Some(first) = found.first_mut().filter(|_| worst < answer.outcome.min(most)) {
                first.outcome = answer.outcome.min(most);
            }
            found
        }
    }
}

/// In one line, and not longer than a report can show.
fn line(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut cut: String = text.trim().chars().take(most).map(plain).collect();
    if text.trim().chars().count() > most {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_is_read_or_refused_with_what_it_lacks() {
        let check = |text: &str, expected: &str| {
            let found = read(text.as_bytes()).unwrap_err().to_string();
            assert!(found.contains(expected), "{found}");
        };
        check("", "not the JSON");
        check("pass", "not the JSON");
        check("{}", "missing field `outcome`");
        check(r#"{"outcome": "good"}"#, "unknown variant `good`");
        check(r#"{"outcome": "fail"}"#, "`fail` without a reason");
        check(r#"{"outcome": "review", "reasons": [{"text": " "}]}"#, "`review` without a reason");
        assert_eq!(read(br#"{"outcome": "pass", "score": 0.5}"#).unwrap().score, Some(0.5));
    }

    #[test]
    fn a_scorer_goes_as_far_as_the_suite_lets_it_and_no_answer_is_for_review() {
        let answer = read(br#"{"outcome": "fail", "reasons": [{"text": "rude\nwords", "act": 1}, {"text": "long", "outcome": "pass", "act": 9}]}"#);
        let found = reasons("tone", Outcome::Fail, &answer, 3);
        assert_eq!((found[0].outcome, found[1].outcome), (Outcome::Fail, Outcome::Pass));
        assert_eq!(found[0].text, "the scorer `tone` says: rude words");
        assert_eq!((found[0].places.as_slice(), found[1].places.len()), (&[Place::new(1)][..], 0));
        assert_eq!(reasons("tone", Outcome::Review, &answer, 3)[0].outcome, Outcome::Review);
        let mild = read(br#"{"outcome": "fail", "reasons": [{"text": "x", "outcome": "review"}]}"#);
        assert_eq!(reasons("tone", Outcome::Fail, &mild, 0)[0].outcome, Outcome::Fail);
        let failed = reasons("tone", Outcome::Fail, &Err(Failure::Late(5)), 3);
        assert_eq!((failed[0].outcome, failed[0].code.as_str()), (Outcome::Review, "scorer-failed"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_a_failure(bytes in proptest::collection::vec(any::<u8>(), 0..60), text in "\\{\"outcome\": ?\"(pass|fail|revie?w)\"(, \"(score|reasons|x)\": (1|\\[\\]|\\[\\{\\}\\]|\"a\"|null))?\\}") {
            let _ = read(&bytes);
            let answer = read(text.as_bytes());
            for reason in reasons("s", Outcome::Fail, &answer, 0) {
                prop_assert!(!reason.text.contains('\n'));
            }
        }
    }
}
