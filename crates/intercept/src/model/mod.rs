//! Calls of models, whoever's API they go through: recognised by path and shape, so that another base URL or a
//! model on this machine is recognised too, and told in one form. What cannot be understood is said, not guessed;
//! it never fails, because the bytes come from a hostile inside and an unknown outside.

mod anthropic;
mod chat;
mod embed;
mod gemini;
mod json;
mod ollama;
mod responses;
#[cfg(test)]
mod tests;

use crate::body::sse;
use cofferdam_model::Tokens;
use serde_json::Value;
use std::collections::BTreeMap;

/// The APIs that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Responses,
    Messages,
    Generate,
    Ollama,
    Embeddings,
}

/// What was asked of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) streamed: bool,
    /// Each as JSON.
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) messages: Vec<Message>,
    /// Name and definition.
    pub(crate) tools: Vec<(String, String)>,
    /// The most that may be said, where the request bounds it.
    pub(crate) most: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) answers: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// What the model said.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) model: String,
    pub(crate) message: Message,
    pub(crate) stop: String,
    /// None where the provider told no usage.
    pub(crate) tokens: Option<Tokens>,
    /// The provider's word and message.
    pub(crate) error: Option<(String, String)>,
    /// Where in the body the first part of text or of a call stands.
    pub(crate) first: Option<usize>,
    /// Something came that says that nothing more comes.
    pub(crate) is_over: bool,
    pub(crate) problems: Vec<String>,
}

impl Said {
    pub(crate) fn problem(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.problems.len() < 8 && !self.problems.contains(&text) {
            self.problems.push(text);
        }
    }

    fn is_empty(&self) -> bool {
        self.message.text.is_empty() && self.message.calls.is_empty()
    }
}

impl Api {
    /// What a request may be, by its method and path alone.
    pub(crate) fn of(method: &str, path: &str) -> Option<Self> {
        if method != "POST" {
            return None;
        }
        let path = path.trim_end_matches('/');
        let last = path.rsplit('/').next().unwrap_or_default();
        match last {
            "completions" if path.ends_with("/chat/completions") => Some(Self::Chat),
            "responses" => Some(Self::Responses),
            "messages" => Some(Self::Messages),
            "chat" | "generate" if path.ends_with("/api/chat") || path.ends_with("/api/generate") => {
                Some(Self::Ollama)
            }
            "embeddings" | "embed" => Some(Self::Embeddings),
            _ if last.ends_with(":embedContent") || last.ends_with(":batchEmbedContents") => {
                Some(Self::Embeddings)
            }
            _ if last.ends_with(":generateContent") || last.ends_with(":streamGenerateContent") => {
                Some(Self::Generate)
            }
            _ => None,
        }
    }

    /// Whether the body is what this API takes: many services have a path that ends in `messages`.
    pub(crate) fn fits(self, body: &Value) -> bool {
        let has = |name: &str| body.get(name).is_some();
        match self {
            Self::Chat => has("messages"),
            Self::Responses => has("model") && (has("input") || has("prompt") || has("previous_response_id")),
            Self::Messages => has("model") && has("max_tokens") && body["messages"].is_array(),
            Self::Generate => has("contents"),
            Self::Ollama => has("model") && (body["messages"].is_array() || body["prompt"].is_string()),
            Self::Embeddings => {
                (has("model") && (has("input") || has("prompt"))) || has("content") || has("requests")
            }
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat.completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Generate => "generateContent",
            Self::Ollama => "ollama",
            Self::Embeddings => "embeddings",
        }
    }

    pub(crate) fn provider(self, host: &str) -> &'static str {
        let is_at =
            |domain: &str| host == domain || host.strip_suffix(domain).is_some_and(|sub| sub.ends_with('.'));
        match self {
            Self::Chat | Self::Responses if is_at("openai.com") || is_at("openai.azure.com") => "openai",
            Self::Chat | Self::Responses => "openai-compatible",
            Self::Messages if is_at("anthropic.com") => "anthropic",
            Self::Messages => "anthropic-compatible",
            Self::Generate if is_at("googleapis.com") => "google",
            Self::Generate => "google-compatible",
            Self::Ollama => "ollama",
            Self::Embeddings if is_at("openai.com") || is_at("openai.azure.com") => "openai",
            Self::Embeddings if is_at("googleapis.com") => "google",
            // Theirs is what others imitate.
            Self::Embeddings => "openai-compatible",
        }
    }

    pub(crate) fn asked(self, path: &str, body: &Value) -> Asked {
        match self {
            Self::Chat => chat::asked(body),
            Self::Responses => responses::asked(body),
            Self::Messages => anthropic::asked(body),
            Self::Generate => gemini::asked(path, body),
            Self::Ollama => ollama::asked(body),
            Self::Embeddings => embed::asked(path, body),
        }
    }

    /// Reads an answer in whatever form it came: one object, server-sent events, or Gemini's array.
    pub(crate) fn said(self, body: &[u8]) -> Said {
        let mut said = Said::default();
        let start = body.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
        let is_json = matches!(body.get(start), Some(b'{' | b'['));
        if !is_json {
            self.events(body, &mut said);
        } else if body.get(start) == Some(&b'[') {
            self.array(body, &mut said);
        } else if self == Self::Ollama {
            self.lines(body, &mut said);
        } else {
            match serde_json::from_slice::<Value>(body) {
                Ok(value) => {
                    self.whole(&value, &mut said);
                    said.first = (!said.is_empty()).then_some(body.len().saturating_sub(1));
                    said.is_over = true;
                }
                Err(error) => said.problem(format!("the answer is not JSON: {error}")),
            }
        }
        said
    }

    fn whole(self, value: &Value, said: &mut Said) {
        if let Some(error) = json::error(value) {
            said.error = Some(error);
            return;
        }
        match self {
            Self::Chat => chat::whole(value, said),
            Self::Responses => responses::whole(value, said),
            Self::Messages => anthropic::whole(value, said),
            Self::Generate => gemini::part(value, said),
            Self::Ollama => ollama::part(value, said),
            Self::Embeddings => embed::whole(value, said),
        }
    }

    fn events(self, body: &[u8], said: &mut Said) {
        let mut blocks = Vec::new();
        let mut none = true;
        for event in sse::events(body) {
            none = false;
            if event.data == "[DONE]" {
                said.is_over = true;
                continue;
            }
            match serde_json::from_str::<Value>(&event.data) {
                Ok(value) => self.event(&event.name, &value, &mut blocks, said),
                Err(error) => said.problem(format!("an event is not JSON: {error}")),
            }
            let is_first = said.first.is_none() && (!said.is_empty() || !blocks.is_empty());
            if is_first {
                said.first = Some(event.at);
            }
        }
        if none && !body.is_empty() {
            said.problem("the answer is neither JSON nor an event stream");
        }
        said.message.calls.append(&mut blocks);
        said.message.calls.retain(|call| !call.name.is_empty() || !call.arguments.is_empty());
        for call in said.message.calls.iter_mut().filter(|call| call.arguments.is_empty()) {
            // A call without arguments has none to send in parts.
            call.arguments.push_str("{}");
        }
    }

    /// `blocks`: the calls that are being put together, by their index.
    fn event(self, name: &str, value: &Value, blocks: &mut Vec<Call>, said: &mut Said) {
        if let Some(error) = json::error(value).filter(|_| self != Self::Responses) {
            said.error = Some(error);
            return;
        }
        match self {
            Self::Chat => chat::event(value, blocks, said),
            Self::Responses => responses::event(value, said),
            Self::Messages => anthropic::event(name, value, blocks, said),
            Self::Generate => gemini::part(value, said),
            Self::Ollama => ollama::part(value, said),
            Self::Embeddings => embed::whole(value, said),
        }
    }

    /// A stream of lines of JSON; where it was cut off, what there is of it.
    fn lines(self, body: &[u8], said: &mut Said) {
        let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
        loop {
            let at = values.byte_offset();
            match values.next() {
                None => return,
                Some(Ok(value)) => self.event("", &value, &mut Vec::new(), said),
                Some(Err(error)) => return said.problem(format!("a line is not JSON: {error}")),
            }
            if said.first.is_none() && !said.is_empty() {
                said.first = Some(at);
            }
        }
    }

    /// A stream in the form of one array; where it was cut off, what there is of it.
    fn array(self, body: &[u8], said: &mut Said) {
        let is_between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        let mut at = body.iter().position(|byte| *byte == b'[').map_or(body.len(), |at| at + 1);
        loop {
            let rest = body.get(at..).unwrap_or_default();
            at += rest.iter().take_while(|byte| is_between(byte)).count();
            let rest = body.get(at..).unwrap_or_default();
            let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
            let Some(Ok(value)) = values.next() else { break };
            self.event("", &value, &mut Vec::new(), said);
            if said.first.is_none() && !said.is_empty() {
                said.first = Some(at);
            }
            at += values.byte_offset();
        }
        match body.get(at) {
            Some(b']') => said.is_over = true,
            _ => said.problem("the answer is not a whole JSON array"),
        }
    }
}

/// The call at this index, which a stream may name in any order but not at any height.
fn block(blocks: &mut Vec<Call>, index: u64) -> Option<&mut Call> {
    const MOST: usize = 256;
    let index = usize::try_from(index).ok().filter(|index| *index < MOST)?;
    if blocks.len() <= index {
        blocks.resize(index + 1, Call::default());
    }
    blocks.get_mut(index)
}
