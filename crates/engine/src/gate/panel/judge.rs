//! A model as judge: asked about the statements of an answer that rest least on what was read. Its word can make a
//! session one for review and nothing else: it clears nobody, and what others found stands. A judge that is silent or
//! cannot be understood makes it one for review too.

use super::{Asked, Line, recorded};
use crate::suite::{JudgeApi, JudgeSpec};
use crate::{Engine, EngineError, Stop};
use cofferdam_compare::ground::{
    self, Groundedness, JudgeAnswer, JudgeFailure, JudgeRecord, JudgeRequest, Opinion, combine, judge_prompt,
    read_answer,
};
use cofferdam_compare::{Outcome, Place, Reason, Scorer};
use cofferdam_gate::Scored;
use cofferdam_model::{ActKind, Run};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

/// Of an answer; a judge has one sentence to say.
const TOKENS: u32 = 400;

pub(super) struct Judge {
    spec: JudgeSpec,
    line: Line,
    /// Answers of before: then nobody is asked.
    before: Option<HashMap<(String, String), Option<String>>>,
}

/// A statement to ask about.
struct Doubtful<'r> {
    place: Place,
    text: &'r str,
    value: f64,
    scored: Groundedness,
    evidence: Vec<&'r str>,
}

impl Judge {
    pub(super) fn new(engine: &Engine, spec: &JudgeSpec, judged: Option<&Path>) -> Result<Self, EngineError> {
        let (line, before) = match judged {
            None => (Line::to(engine, &spec.endpoint)?, None),
            Some(dir) => {
                let key = |one: &JudgeRecord| (one.model.clone(), one.request.user.clone());
                let answers = recorded(dir)?.into_iter().map(|one| (key(&one), one.answer)).collect();
                (Line::default(), Some(answers))
            }
        };
        Ok(Self { spec: spec.clone(), line, before })
    }

    pub(super) fn ask(&self, run: &Run, stop: &Stop, asked: &mut Asked, records: &mut Vec<JudgeRecord>) {
        let mut doubtful = statements(run);
        doubtful.sort_by(|a, b| a.value.total_cmp(&b.value).then(a.place.cmp(&b.place)));
        let (mut agreed, mut answered, mut failed) = (0.0, 0.0, None);
        for one in doubtful.iter().take(self.spec.questions).take_while(|_| !stop.is_raised()) {
            let request = judge_prompt(one.text, &one.evidence);
            let (answer, unreachable) = match self.answer(&request) {
                Ok(answer) => (Some(answer), None),
                Err(why) => (None, Some(why)),
            };
            let record = JudgeRecord { model: self.spec.model.clone(), request, answer };
            let judged = read_answer(&record);
            records.push(record);
            match &judged {
                Err(failure) => {
                    // Once is enough: a judge that is down is down for all of them.
                    failed.get_or_insert_with(|| unreachable.unwrap_or_else(|| failure.to_string()));
                    if matches!(failure, JudgeFailure::Silent) {
                        break;
                    }
                }
                Ok(said) => {
                    answered += 1.0;
                    agreed += f64::from(u8::from(said.opinion == Opinion::Supported));
                    asked.reasons.extend(self.doubt(one, said, &judged));
                }
            }
        }
        if let Some(why) = &failed {
            let text = format!("the judge `{}` could not be used: {why}", self.spec.model);
            asked.reasons.push(reason("judge-failed", 0.5, text, None));
        }
        let doubts = asked.reasons.iter().any(|one| one.code.starts_with("judge-"));
        asked.scores.push(Scored {
            scorer: "judge".into(),
            outcome: if doubts { Outcome::Review } else { Outcome::Pass },
            score: (answered > 0.0).then(|| agreed / answered),
        });
    }

    /// What is said where the judge does not agree.
    fn doubt(
        &self,
        one: &Doubtful<'_>,
        said: &JudgeAnswer,
        judged: &Result<JudgeAnswer, JudgeFailure>,
    ) -> Option<Reason> {
        let word = match said.opinion {
            Opinion::Supported => return None,
            Opinion::Unsupported => "finds nothing that supports",
            Opinion::Contradicted => "finds that what was read contradicts",
            Opinion::Unsure => "cannot tell whether what was read supports",
        };
        // Never more than review, whatever the scorer made of it: that has reasons of its own.
        (combine(&one.scored, judged).outcome != Outcome::Pass).then(|| {
            let plain = |c: char| if c.is_control() { ' ' } else { c };
            let cut = |text: &str, most: usize| text.chars().take(most).map(plain).collect::<String>();
            let text = format!(
                "the judge `{}` {word} `{}`: {}",
                self.spec.model,
                cut(one.text, 160),
                cut(&said.why, 300)
            );
            reason("judge-doubts", 0.45, text, Some(one.place.clone()))
        })
    }

    fn answer(&self, request: &JudgeRequest) -> Result<String, String> {
        if let Some(before) = &self.before {
            let key = (self.spec.model.clone(), request.user.clone());
            let found = before.get(&key).cloned().flatten();
            return found.ok_or_else(|| "it was never asked this: ask it without `--judged`".to_owned());
        }
        let (path, headers, body) = self.wire(request);
        let url = format!("{}{path}", self.spec.endpoint.url);
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let answer = self.line.ask(&url, headers, &body, self.spec.timeout.0).map_err(|e| e.to_string())?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|_| format!("{} does not answer with JSON", self.spec.endpoint.host()))?;
        let text = match self.spec.api {
            JudgeApi::Openai => answer["choices"][0]["message"]["content"].as_str().map(str::to_owned),
            JudgeApi::Anthropic => answer["content"]
                .as_array()
                .map(|parts| parts.iter().filter_map(|part| part["text"].as_str()).collect::<String>()),
        };
        text.ok_or_else(|| {
            format!("{} does not answer as that API does: check `api` and `url`", self.spec.endpoint.host())
        })
    }

    fn wire(&self, request: &JudgeRequest) -> (&'static str, &'static [(&'static str, &'static str)], Value) {
        let (model, user) = (&self.spec.model, json!({ "role": "user", "content": request.user }));
        let (path, headers, mut body): (_, &[_], _) = match self.spec.api {
            JudgeApi::Openai => {
                let system = json!({ "role": "system", "content": request.system });
                ("/chat/completions", &[], json!({ "model": model, "messages": [system, user] }))
            }
            JudgeApi::Anthropic => {
                let body = json!({ "model": model, "max_tokens": TOKENS, "system": request.system, "messages": [user] });
                ("/messages", &[("anthropic-version", "2023-06-01")], body)
            }
        };
        for (name, value) in &self.spec.options {
            body[name] = value.clone();
        }
        (path, headers, body)
    }
}

/// Statements of answers that have a score, each with what was read before it.
fn statements(run: &Run) -> Vec<Doubtful<'_>> {
    let mut found = Vec::new();
    for step in ground::check(run).steps.into_iter().filter(|step| step.answer) {
        for said in step.statements {
            let Groundedness::Scored(score) = &said.result else { continue };
            let (value, place) = (score.value, Place::new(step.act).bytes(said.bytes.0, said.bytes.1));
            // The sentences that cover it first, then the rest of what they stand in.
            let mut acts: Vec<usize> = score.evidence.iter().map(|span| span.passage).collect();
            let read = |act: &usize| !matches!(run.acts[*act].kind, ActKind::Said | ActKind::Model);
            acts.extend((0..step.act).rev().filter(read));
            let mut seen = std::collections::HashSet::new();
            acts.retain(|act| *act < step.act && seen.insert(*act) && !run.acts[*act].text.trim().is_empty());
            let evidence = acts.iter().map(|act| run.acts[*act].text.as_str()).collect();
            let text = &run.acts[step.act].text[said.bytes.0..said.bytes.1];
            found.push(Doubtful { place, text, value, scored: said.result.clone(), evidence });
        }
    }
    found
}

fn reason(code: &str, weight: f64, text: String, place: Option<Place>) -> Reason {
    let places = place.into_iter().collect();
    let (scorer, outcome) = (Scorer::Groundedness, Outcome::Review);
    Reason { scorer, code: code.into(), rule: None, outcome, weight, text, places }
}
