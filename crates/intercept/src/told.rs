//! A call of a model as it stands on record: in one form for all providers, with what it cost, what it repeats and
//! what it goes on from.

use crate::body::{Capture, decoded};
use crate::budget::Amount;
use crate::exchange::{Answering, Request, WITHOUT};
use crate::kept::{Texts, clipped};
use crate::model::{Api, Asked, Message, Said};
use crate::price::{Price, Table};
use crate::tap::{Shared, Spent};
use cofferdam_model::{
    Body, Digest, Ending, ModelCall, ModelCalled, ModelError, ModelMessage, ModelTool, NotRecorded, Tokens,
};
use cofferdam_seal::digest;
use std::collections::VecDeque;
use std::sync::PoisonError;

/// Messages and tools that one event tells; the bytes have them all.
const MESSAGES: usize = 256;
const TOOLS: usize = 256;
const CALLS: usize = 64;
/// Calls that a later one may go on from or repeat.
const REMEMBERED: usize = 32;
/// Where no usage is told, text is taken for so many bytes a token.
const BYTES_PER_TOKEN: u64 = 4;

/// The calls before.
#[derive(Default)]
pub(crate) struct Calls {
    /// Each with its event and its messages.
    recent: VecDeque<(u64, Vec<Digest>)>,
    /// Those that failed, by their request.
    failed: VecDeque<(Digest, u64)>,
}

pub(crate) struct Call<'a> {
    pub(crate) event: u64,
    pub(crate) exchange: u64,
    pub(crate) api: Api,
    pub(crate) asked: Asked,
    pub(crate) request: &'a Request,
    pub(crate) sent: &'a Capture,
    pub(crate) answer: Option<&'a Answering>,
    pub(crate) ending: Ending,
    pub(crate) total_us: u64,
    pub(crate) without_bodies: bool,
}

/// Puts the call on record and says what it cost.
pub(crate) fn tell(shared: &Shared, call: Call<'_>) -> Result<Spent, NotRecorded> {
    let said = call.said();
    let found = shared.prices.find(&call.asked.model).or_else(|| shared.prices.find(&said.model));
    let mut fact = call.fact(&said);
    let (tokens, estimated) = call.tokens(&said, fact.error.is_some());
    (fact.tokens, fact.estimated) = (tokens, estimated);
    (fact.cost_micros, fact.price) = cost(found, &tokens, &call.asked.model);
    fact.price_table = found.map(|(_, table)| shared.record.keep(table.text.as_bytes())).transpose()?;
    let identity = digest(
        &[
            call.request.host.as_bytes(),
            b"\n",
            call.request.path.as_bytes(),
            b"\n",
            call.sent.whole().unwrap_or_default(),
        ]
        .concat(),
    );
    let seen: Vec<Digest> = call.asked.messages.iter().map(Message::digest).collect();
    let mut calls = shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
    fact.retries = calls.failed.iter().rev().find(|(failed, _)| *failed == identity).map(|(_, event)| *event);
    (fact.follows, fact.same) = calls.before(&seen);
    call.texts(&mut fact, &said, &mut Texts::new(&*shared.record))?;
    let is_whole = call.ending == Ending::Complete || said.is_over;
    let is_failed = fact.error.is_some() || !is_whole;
    let amount =
        Amount { micros: fact.cost_micros.unwrap_or(0), tokens: tokens.input.saturating_add(tokens.output) };
    let is_certain = !estimated || (is_whole && fact.problems.is_empty());
    let event = shared.record.append(Some(call.event), &Body::ModelCalled(Box::new(fact)))?;
    if is_failed {
        remember(&mut calls.failed, (identity, event));
    }
    remember(&mut calls.recent, (event, seen));
    Ok(is_certain.then_some(amount))
}

fn remember<T>(held: &mut VecDeque<T>, one: T) {
    if held.len() == REMEMBERED {
        held.pop_front();
    }
    held.push_back(one);
}

impl Calls {
    /// The call whose messages these begin with, and how many they share. The latest of the best.
    fn before(&self, messages: &[Digest]) -> (Option<u64>, u64) {
        let shared =
            |held: &[Digest]| held.iter().zip(messages).take_while(|(one, other)| one == other).count();
        let best = self.recent.iter().map(|(event, held)| (shared(held), *event)).max();
        match best {
            Some((same, event)) if same > 0 => (Some(event), same as u64),
            _ => (None, 0),
        }
    }
}

impl Message {
    fn digest(&self) -> Digest {
        let mut bytes = Vec::new();
        let mut field = |text: &str| {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        };
        [&self.role, &self.text, &self.answers].into_iter().for_each(|text| field(text));
        for call in &self.calls {
            [&call.id, &call.name, &call.arguments].into_iter().for_each(|text| field(text));
        }
        digest(&bytes)
    }
}

fn cost(found: Option<(&Price, &Table)>, tokens: &Tokens, model: &str) -> (Option<u64>, String) {
    match found {
        Some((price, table)) => {
            (Some(price.cost(tokens)), format!("{} of {}", price.name(), table.standing()))
        }
        None => (None, format!("no price is known for `{model}`")),
    }
}

impl Call<'_> {
    fn said(&self) -> Said {
        let Some(answer) = self.answer else { return Said::default() };
        let mut said = match answer.body.whole() {
            None => {
                let mut said = Said::default();
                said.problem("the answer is too long to be read");
                said
            }
            Some(bytes) => match decoded(bytes, answer.coding()) {
                Ok(plain) => self.api.said(&plain),
                Err(error) => {
                    let mut said = Said::default();
                    said.problem(error.to_string());
                    said
                }
            },
        };
        if !answer.coding().is_empty() && said.first.is_some() {
            // Where a compressed byte came from is not known.
            said.first = Some(0);
        }
        // Who has read the last event need not wait for the end of the body.
        if self.ending != Ending::Complete && !said.is_over {
            said.problem(format!("the answer broke off: {:?}", self.ending));
        } else if self.asked.streamed && !said.is_over && said.error.is_none() && answer.status < 400 {
            said.problem("the stream ended without saying so");
        }
        said
    }

    /// All but the texts, the price and what went before.
    fn fact(&self, said: &Said) -> ModelCalled {
        let asked = &self.asked;
        let tools = asked.tools.iter().take(TOOLS);
        let first = |answer: &Answering| Some(answer.first_us + answer.body.came_at(said.first? as u64));
        let mut problems = said.problems.clone();
        if asked.tools.len() > TOOLS {
            problems.push(format!("{} tools were offered; {TOOLS} are told", asked.tools.len()));
        }
        ModelCalled {
            exchange: self.exchange,
            provider: self.api.provider(&self.request.host).to_owned(),
            api: self.api.name().to_owned(),
            model: asked.model.clone(),
            answered_by: if said.model == asked.model { String::new() } else { said.model.clone() },
            streamed: asked.streamed,
            parameters: asked.parameters.clone(),
            tools: tools
                .map(|(name, text)| ModelTool { name: clipped(name, 200), schema: digest(text.as_bytes()) })
                .collect(),
            stop: said.stop.clone(),
            first_token_us: self.answer.and_then(first),
            total_us: self.total_us,
            error: self.error(said),
            problems,
            ..ModelCalled::default()
        }
    }

    fn error(&self, said: &Said) -> Option<ModelError> {
        let status = self.answer.map(|answer| answer.status);
        match (&said.error, status) {
            (Some((kind, message)), _) => {
                Some(ModelError { status, kind: kind.clone(), message: message.clone() })
            }
            (None, Some(code)) if code >= 400 => {
                let body = self.answer.and_then(|answer| answer.body.whole()).unwrap_or_default();
                let message = clipped(&String::from_utf8_lossy(body), 200);
                Some(ModelError { status, kind: String::new(), message })
            }
            (None, None) => {
                let message = format!("there was no answer: {:?}", self.ending);
                Some(ModelError { status, kind: String::new(), message })
            }
            _ => None,
        }
    }

    /// What the provider counted; else an estimate, unless nothing was said.
    fn tokens(&self, said: &Said, is_error: bool) -> (Tokens, bool) {
        if let Some(tokens) = said.tokens {
            return (tokens, false);
        }
        let length = |message: &Message| {
            message.text.len()
                + message.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        };
        let output = length(&said.message) as u64;
        if is_error && output == 0 {
            return (Tokens::default(), false);
        }
        let tools: usize = self.asked.tools.iter().map(|(_, definition)| definition.len()).sum();
        let input = (self.asked.messages.iter().map(length).sum::<usize>() + tools) as u64;
        let tokens = Tokens {
            input: input.div_ceil(BYTES_PER_TOKEN),
            output: output.div_ceil(BYTES_PER_TOKEN),
            ..Tokens::default()
        };
        (tokens, true)
    }

    fn texts(&self, fact: &mut ModelCalled, said: &Said, texts: &mut Texts<'_>) -> Result<(), NotRecorded> {
        if self.without_bodies {
            fact.problems.push(WITHOUT.to_owned());
            fact.parameters.clear();
            (fact.follows, fact.same) = (None, 0);
            return Ok(());
        }
        let is_said = !said.message.text.is_empty() || !said.message.calls.is_empty();
        if is_said {
            fact.answer = Some(message(&said.message, texts)?);
        }
        let new = self.asked.messages.get(fact.same as usize..).unwrap_or_default();
        if new.len() > MESSAGES {
            fact.problems.push(format!("{} messages are new; {MESSAGES} are told", new.len()));
        }
        fact.messages =
            new.iter().take(MESSAGES).map(|one| message(one, texts)).collect::<Result<_, NotRecorded>>()?;
        Ok(())
    }
}

fn message(message: &Message, texts: &mut Texts<'_>) -> Result<ModelMessage, NotRecorded> {
    let text = match message.text.is_empty() {
        true => None,
        false => Some(texts.put(message.text.clone())?),
    };
    let mut calls = Vec::new();
    for call in message.calls.iter().take(CALLS) {
        let arguments = texts.put(call.arguments.clone())?;
        calls.push(ModelCall { id: call.id.clone(), name: clipped(&call.name, 200), arguments });
    }
    Ok(ModelMessage { role: message.role.clone(), text, calls, answers: message.answers.clone() })
}
