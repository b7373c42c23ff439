//! Who else is asked about a session: the suite's own scorers and its judge. Everything that is asked and answered is
//! kept beside the result, so that it can be read and, for the judge, answered from there again. Whoever cannot be
//! asked, hangs or talks nonsense makes the session one for review.

mod command;
mod judge;
mod module;

use super::GateError;
use super::plan::Plan;
use super::side::Side;
use super::written::replace;
use crate::suite::{Case, Endpoint, How, ScorerSpec, Suite};
use crate::{Engine, EngineError, Stop};
use cofferdam_compare::custom::{self, Answer, CONTRACT, Failure};
use cofferdam_compare::ground::JudgeRecord;
use cofferdam_compare::{Outcome, Reason};
use cofferdam_egress::{AskError, Question};
use cofferdam_gate::{Material, Scored};
use cofferdam_model::{Digest, Run, SessionId};
use cofferdam_vault::Bound;
use judge::Judge;
use module::Module;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Where it is kept, in the directory of the result.
pub(super) const ASKED: &str = "asked";
/// More of a scorer's answer is not read.
const MOST: u64 = 1 << 20;

/// Those who are asked, with what they need for it.
pub(crate) struct Panel {
    scorers: Vec<Scorer>,
    judge: Option<Judge>,
}

struct Scorer {
    spec: ScorerSpec,
    way: Way,
}

/// How it is asked, made ready.
enum Way {
    Command(Vec<String>),
    Http(String, Box<Line>),
    Module(Box<Module>),
}

/// An endpoint that can be asked.
#[derive(Default)]
struct Line {
    credential: Option<Bound>,
    ca: Option<Vec<u8>>,
}

/// What came of asking.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) reasons: Vec<Reason>,
    pub(super) scores: Vec<Scored>,
    pub(super) file: Option<Material>,
}

/// The file of one attempt.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    session: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scorers: Vec<ScorerRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    judge: Vec<JudgeRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScorerRecord {
    scorer: String,
    /// Of what it was asked; the runs in it are those of the traces.
    question: Digest,
    /// Of the module that was asked, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    module: Option<Digest>,
    /// As it came, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl Panel {
    /// Opens the vault for those who need a secret: what cannot be asked at all is told before anything is run.
    pub(crate) fn new(engine: &Engine, suite: &Suite, judged: Option<&Path>) -> Result<Self, EngineError> {
        let way = |how: &How| -> Result<Way, EngineError> {
            Ok(match how {
                How::Command(words) => Way::Command(words.clone()),
                How::Http(endpoint) => Way::Http(endpoint.url.clone(), Box::new(Line::to(engine, endpoint)?)),
                How::Wasm(file) => Way::Module(Box::new(Module::read(file)?)),
            })
        };
        let scorer = |spec: &ScorerSpec| Ok(Scorer { spec: spec.clone(), way: way(&spec.how)? });
        let scorers = suite.scorers.iter().map(scorer).collect::<Result<_, EngineError>>()?;
        let judge = suite.judge.as_ref().map(|spec| Judge::new(engine, spec, judged)).transpose()?;
        Ok(Self { scorers, judge })
    }

    pub(super) fn ask(
        &self,
        engine: &Engine,
        plan: &Plan<'_>,
        case: &Case,
        (bases, new): (&[Side], &Side),
        (again, stop): (usize, &Stop),
    ) -> Result<Asked, EngineError> {
        if self.scorers.is_empty() && self.judge.is_none() {
            return Ok(Asked::default());
        }
        let (mut asked, mut record) =
            (Asked::default(), Record { session: case.id.clone(), ..Record::default() });
        let baselines: Vec<&Run> = bases.iter().map(|side| &side.run).collect();
        for scorer in self.scorers.iter().take_while(|_| !stop.is_raised()) {
            let question = custom::Question {
                version: CONTRACT,
                scorer: &scorer.spec.name,
                session: &case.id,
                baselines: baselines.clone(),
                new: &new.run,
                output: &new.output,
            };
            let body = serde_json::to_vec(&question).unwrap_or_default();
            let answered = scorer.answer(engine, plan, &body, stop);
            asked.scored(scorer, &answered, new.run.acts.len());
            record.scorers.push(ScorerRecord {
                scorer: scorer.spec.name.clone(),
                question: cofferdam_seal::digest(&body),
                module: scorer.module(),
                answer: answered.as_ref().ok().map(|(text, _)| text.clone()),
                failure: answered.err().map(|failure| failure.to_string()),
            });
        }
        if let Some(judge) = &self.judge {
            judge.ask(&new.run, stop, &mut asked, &mut record.judge);
        }
        let name = format!("{ASKED}/{}.{}.json", case.id, again + 1);
        let mut text = serde_json::to_vec_pretty(&record).unwrap_or_default();
        text.push(b'\n');
        replace(&plan.options.out.join(&name), &text)?;
        asked.file = Some(Material { digest: cofferdam_seal::digest(&text), name });
        Ok(asked)
    }
}

type Answered = Result<(String, Answer), Failure>;

impl Asked {
    fn scored(&mut self, scorer: &Scorer, answered: &Answered, acts: usize) {
        let answer = answered.as_ref().map(|(_, answer)| answer.clone()).map_err(Clone::clone);
        let ScorerSpec { name, most, .. } = &scorer.spec;
        self.reasons.extend(custom::reasons(name, *most, &answer, acts));
        let (outcome, score) =
            answer.map_or((Outcome::Review, None), |answer| (answer.outcome.min(*most), answer.score));
        self.scores.push(Scored { scorer: name.clone(), outcome, score });
    }
}

impl Scorer {
    fn module(&self) -> Option<Digest> {
        match &self.way {
            Way::Module(module) => Some(module.digest),
            _ => None,
        }
    }

    fn answer(&self, engine: &Engine, plan: &Plan<'_>, body: &[u8], stop: &Stop) -> Answered {
        let timeout = self.spec.timeout.0;
        let bytes = match &self.way {
            Way::Command(words) => command::ask(engine, plan, &self.spec, words, (body, stop))?,
            Way::Http(url, line) => line.ask(url, &[], body, timeout).map_err(|error| match error {
                AskError::Late => Failure::Late(timeout.as_secs()),
                AskError::TooLong(most) => Failure::TooLong(most),
                other => Failure::NotAsked(other.to_string()),
            })?,
            Way::Module(module) => module.ask(&self.spec, body, stop)?,
        };
        let answer = custom::read(&bytes)?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), answer))
    }
}

impl Line {
    fn to(engine: &Engine, endpoint: &Endpoint) -> Result<Self, EngineError> {
        let credential = match &endpoint.secret {
            None => None,
            Some(name) => {
                // Nobody else has this id: the placeholder that comes with it is never used.
                let session = SessionId::new(crate::record::now_us() / 1000, u64::from(std::process::id()));
                let bound = engine.secrets(&crate::nobody)?.bind(std::slice::from_ref(name), &session)?;
                bound.into_iter().next()
            }
        };
        Ok(Self { credential, ca: endpoint.authorities()? })
    }

    fn ask(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout: Duration,
    ) -> Result<Vec<u8>, AskError> {
        let (credential, ca) = (self.credential.as_ref(), self.ca.as_deref());
        Question { url, headers, body, credential, timeout, most: MOST, ca }.ask()
    }
}

/// What a judge answered before, by what it was asked.
fn recorded(dir: &Path) -> Result<Vec<JudgeRecord>, GateError> {
    let dir = dir.join(ASKED);
    let unreadable = |source| GateError::Read { path: dir.clone(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&dir).map_err(unreadable)?.flatten() {
        let bytes = std::fs::read(entry.path()).map_err(unreadable)?;
        let record: Record = serde_json::from_slice(&bytes)
            .map_err(|error| GateError::Read { path: entry.path(), source: error.into() })?;
        found.extend(record.judge);
    }
    Ok(found)
}
