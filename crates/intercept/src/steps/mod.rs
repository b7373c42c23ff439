//! What an agent tells of its own workflow: a small append-only endpoint inside its sandbox, for steps that it
//! begins, ends and gives up, and for spans of OpenTelemetry. Everything in it comes from inside, so all of it is
//! bounded, and nothing of it is believed: a step is on record as a claim. It listens nowhere itself.

mod read;
mod spans;
#[cfg(test)]
mod tests;

use crate::mcp::InForce;
use crate::pace::Pace;
use cofferdam_model::{
    Answer, ApprovalAnswered, Body, Content, NotRecorded, OwnAnswer, OwnRequest, Record, StepEnded,
    StepReplanned, StepStarted, StepVia, Verdict,
};
use cofferdam_policy::{Action, Step};
use read::{Asked, Told};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest body of a request.
pub const LONGEST: usize = 4 << 20;
/// Steps that are known at a time; the oldest that are over make room.
const MOST_STEPS: usize = 10_000;
/// What is longer is kept beside the events.
const SHORT: usize = 4 << 10;

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Answer(OwnAnswer),
    /// A person is to be asked first; then [`Steps::answered`] has the answer.
    Hold(Held),
}

/// A step that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub event: u64,
    pub rule: String,
    pub reason: String,
    pub name: String,
    /// JSON.
    pub input: String,
    id: String,
    words: String,
}

/// One for a session.
pub struct Steps {
    record: Arc<dyn Record>,
    in_force: InForce,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By the inside's name for it: the event of its start, and whether it is over.
    steps: BTreeMap<String, (u64, bool)>,
    made: u64,
    pace: Pace,
}

/// What is wrong, and with which field.
fn refused(status: u16, field: &str, why: &str) -> OwnAnswer {
    OwnAnswer::json(status, &json!({ "error": { "field": field, "message": why } }))
}

/// What a policy says of a step.
struct Ruling {
    effect: Verdict,
    rule: Option<String>,
    reason: String,
    words: String,
}

impl Steps {
    pub fn new(record: Arc<dyn Record>, in_force: InForce) -> Self {
        Self { record, in_force, known: Mutex::default() }
    }

    pub fn take(&self, request: &OwnRequest<'_>) -> Result<Next, NotRecorded> {
        let answered = match (request.method, request.path) {
            _ if request.body.len() > LONGEST => {
                Err(refused(413, "body", &format!("longer than {} MiB", LONGEST >> 20)))
            }
            ("POST", "/v1/steps") => return self.step(request.body),
            ("POST", "/v1/traces") => self.spans(request)?,
            // Exporters that send spans send these too; there is nothing in them that a trace has a place for.
            ("POST", "/v1/metrics" | "/v1/logs") => Ok(spans::accepted(request, 0)),
            ("GET", "/") => Ok(OwnAnswer::json(200, &json!({ "post": ["/v1/steps", "/v1/traces"] }))),
            (_, "/v1/steps" | "/v1/traces") => Err(refused(405, "method", "only POST is taken here")),
            _ => Err(refused(404, "path", "there are /v1/steps and /v1/traces")),
        };
        Ok(Next::Answer(answered.unwrap_or_else(|refused| refused)))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, body: &[u8]) -> Result<Next, NotRecorded> {
        let told = match read::step(body) {
            Ok(told) => told,
            Err(wrong) => return Ok(Next::Answer(refused(400, wrong.field, &wrong.to_string()))),
        };
        if !self.known().pace.takes(1) {
            return Ok(Next::Answer(too_fast()));
        }
        match told {
            Told::Start(asked) => self.start(asked),
            Told::End { id, output, error } => self.end(&id, output, error).map(Next::Answer),
            Told::Replan(asked, output) => self.replan(asked, output).map(Next::Answer),
        }
    }

    fn start(&self, asked: Asked) -> Result<Next, NotRecorded> {
        let Asked { name, id, parent, input } = asked;
        let mut known = self.known();
        let id = match id {
            Some(id) if known.steps.contains_key(&id) => {
                return Ok(Next::Answer(refused(409, "id", "a step has this id already")));
            }
            Some(id) => id,
            None => known.new_id(),
        };
        let within = match parent.as_ref().map(|parent| known.steps.get(parent).copied()) {
            Some(None) => {
                return Ok(Next::Answer(refused(400, "parent", "there is no step of this id")));
            }
            Some(Some((event, _))) => Some(event),
            None => None,
        };
        if !known.has_room() {
            return Ok(Next::Answer(refused(429, "name", "too many steps are open: end some first")));
        }
        let args = input.clone().unwrap_or_else(|| json!({}));
        let ruling = self.judge(&name, &args);
        let fact = StepStarted {
            via: StepVia::Endpoint,
            id: id.clone(),
            name: name.clone(),
            parent,
            input: self.content(input.as_ref())?,
            sort: String::new(),
            effect: ruling.effect,
            rule: ruling.rule.clone(),
            reason: ruling.reason.clone(),
            claimed_us: None,
        };
        let event = self.record.append(within, &Body::StepStarted(Box::new(fact)))?;
        Ok(match ruling.effect {
            Verdict::Allow => {
                known.steps.insert(id.clone(), (event, false));
                Next::Answer(OwnAnswer::json(201, &json!({ "id": id })))
            }
            Verdict::Deny => Next::Answer(refused(403, "name", &format!("cofferdam: {}", ruling.words))),
            Verdict::Review => Next::Hold(Held {
                event,
                rule: ruling.rule.unwrap_or_default(),
                reason: ruling.reason,
                name,
                input: args.to_string(),
                id,
                words: ruling.words,
            }),
        })
    }

    /// What a person said of a held step, or that nobody did.
    pub fn answered(
        &self,
        held: &Held,
        answer: Answer,
        by: &str,
        waited_us: u64,
    ) -> Result<OwnAnswer, NotRecorded> {
        let told = ApprovalAnswered { answer, by: by.to_owned(), waited_us };
        self.record.append(Some(held.event), &Body::ApprovalAnswered(told))?;
        if answer == Answer::Allowed {
            self.known().steps.insert(held.id.clone(), (held.event, false));
            return Ok(OwnAnswer::json(201, &json!({ "id": held.id })));
        }
        let why = if answer == Answer::Denied { "a person said no" } else { "nobody answered in time" };
        Ok(refused(403, "name", &format!("cofferdam: {why}; {}", held.words)))
    }

    fn end(&self, id: &str, output: Option<Value>, error: String) -> Result<OwnAnswer, NotRecorded> {
        let mut known = self.known();
        let event = match known.steps.get_mut(id) {
            None => return Ok(refused(404, "id", "there is no step of this id")),
            Some((_, true)) => return Ok(refused(409, "id", "this step is over already")),
            Some((event, over)) => {
                *over = true;
                *event
            }
        };
        let output = self.content(output.as_ref())?;
        let fact = StepEnded { id: id.to_owned(), output, error, claimed_us: None };
        self.record.append(Some(event), &Body::StepEnded(fact))?;
        Ok(OwnAnswer::json(200, &json!({ "id": id })))
    }

    fn replan(&self, asked: Asked, output: Option<Value>) -> Result<OwnAnswer, NotRecorded> {
        let known = self.known();
        let within = match asked.parent.as_ref().map(|parent| known.steps.get(parent).copied()) {
            Some(None) => return Ok(refused(400, "parent", "there is no step of this id")),
            Some(Some((event, _))) => Some(event),
            None => None,
        };
        let (input, output) = (self.content(asked.input.as_ref())?, self.content(output.as_ref())?);
        let fact = StepReplanned { name: asked.name, parent: asked.parent, input, output };
        self.record.append(within, &Body::StepReplanned(fact))?;
        Ok(OwnAnswer::json(200, &json!({})))
    }

    /// A step does nothing by itself: one that no rule is about is held up by nothing.
    fn judge(&self, name: &str, args: &Value) -> Ruling {
        let free = |reason: &str| Ruling {
            effect: Verdict::Allow,
            rule: None,
            reason: reason.to_owned(),
            words: String::new(),
        };
        let Some(policy) = (self.in_force)() else { return free("there is no policy") };
        let told = policy.explain(&Action::Step(Step { name, args }));
        if told.candidates.is_empty() {
            return free("no rule is about it");
        }
        let decision = told.decision;
        let effect = decision.effect.into();
        let (rule, reason) = (decision.rule_id().map(str::to_owned), decision.reason().to_owned());
        Ruling { effect, rule, reason, words: decision.to_string() }
    }

    fn content(&self, value: Option<&Value>) -> Result<Option<Content>, NotRecorded> {
        let Some(value) = value else { return Ok(None) };
        let text = value.to_string();
        match text.len() <= SHORT {
            true => Ok(Some(Content::Text(text))),
            false => Ok(Some(Content::Kept(self.record.keep(text.as_bytes())?))),
        }
    }
}

fn too_fast() -> OwnAnswer {
    refused(429, "", "steps come too fast: wait a second")
}

impl Known {
    fn new_id(&mut self) -> String {
        loop {
            self.made += 1;
            let id = format!("step-{}", self.made);
            if !self.steps.contains_key(&id) {
                return id;
            }
        }
    }

    /// Forgets steps that are over where it must, the oldest first.
    fn has_room(&mut self) -> bool {
        if self.steps.len() >= MOST_STEPS {
            let mut over: Vec<u64> =
                self.steps.values().filter(|(_, over)| *over).map(|(event, _)| *event).collect();
            over.sort_unstable();
            let Some(newest) = over.get((over.len() / 2).min(MOST_STEPS / 10)).copied() else { return false };
            self.steps.retain(|_, (event, over)| !*over || *event > newest);
        }
        self.steps.len() < MOST_STEPS
    }
}
