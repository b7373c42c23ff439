//! What is told of exchanges as they were carried: the bytes of each, and what they mean where they are a call of
//! a model. All of it is as the sandbox saw it: with placeholders where credentials go.

use crate::{BlobRef, Content, Digest, Ending};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A body: every byte is under `digest`. One that is too long to be kept is there with its first and last bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payload {
    pub bytes: u64,
    pub digest: Digest,
    /// All of it, or the first bytes if there is a `tail`.
    pub head: BlobRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<BlobRef>,
}

impl Payload {
    /// Whether every byte is kept.
    pub const fn is_whole(&self) -> bool {
        self.tail.is_none() && self.head.size == self.bytes
    }
}

/// How long after the one before a part of a body came (in microseconds), and how many bytes it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part(pub u64, pub u64);

/// An exchange with all that is needed to serve it again; its parent is the decision that let it go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeRecorded {
    pub scheme: String,
    pub host: String,
    pub port: u16,
    pub method: String,
    /// Both as they were written, of any length.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// In the order in which they came; bytes that are no text are replaced.
    pub headers: Vec<(String, String)>,
    /// None for an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerRecorded>,
    pub ending: Ending,
    /// Why no body is kept, where the policy wants that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub without_bodies: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRecorded {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Payload>,
    /// From the request to the answer's head.
    pub first_us: u64,
    /// The parts in which the body came, if there was more than one. A body of very many has its last ones in one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// A call of a model, whoever's API it went through; its parent is the decision that let it go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCalled {
    /// The event with the exact bytes.
    pub exchange: u64,
    /// Whose API it is by its shape: `openai`, `anthropic`, `google`, or `openai-compatible` at another's address.
    pub provider: String,
    /// `chat.completions`, `responses`, `messages`, `generateContent`…
    pub api: String,
    /// The model that was asked for, and the one that says it answered if that is another.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answered_by: String,
    pub streamed: bool,
    /// What else was asked for, each as JSON.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// The call whose first `same` messages stand before the ones here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub same: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<ModelMessage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ModelTool>,
    /// What the model said and asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ModelMessage>,
    /// The provider's own word: `stop`, `tool_use`, `MAX_TOKENS`…
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stop: String,
    pub tokens: Tokens,
    /// The provider told no count, so that it was taken from the length of the texts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// From the request to the first part of the answer's text or calls, and to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_us: Option<u64>,
    pub total_us: u64,
    /// In millionths of a US dollar; none where the price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// The price that was used, or why there is none.
    pub price: String,
    /// The table that it is from, so that a cost can be reckoned again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_table: Option<BlobRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ModelError>,
    /// The failed call that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// What of it could not be understood; the bytes are there nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelMessage {
    /// `system`, `developer`, `user`, `assistant`, `tool`; `model` becomes `assistant`.
    pub role: String,
    /// Its text, the parts of it one after the other; what is no text stands as `[image]`, `[file]`…
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Content>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ModelCall>,
    /// The call that this is the result of, by the model's id for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answers: String,
}

/// A tool that the model wants to be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCall {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    pub name: String,
    /// JSON, as the model wrote it: it need not be whole.
    pub arguments: Content,
}

/// A tool that the model was offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTool {
    pub name: String,
    /// Of its whole definition.
    pub schema: Digest,
}

/// `input` includes what was cached, `output` what was thought, whatever the provider's own way of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    /// Read from the provider's cache, and written to it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelError {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's own word for it: `rate_limit_error`, `overloaded_error`, `RESOURCE_EXHAUSTED`…
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    pub message: String,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
