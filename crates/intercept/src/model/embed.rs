//! Embeddings: OpenAI's, Ollama's and Gemini's. What comes back is numbers, which stay where the bytes are.

use super::json::{content, list, name, number, parameters, text};
use super::{Asked, Message, Said};
use cofferdam_model::Tokens;
use serde_json::Value;

pub(super) fn asked(path: &str, body: &Value) -> Asked {
    let mut texts = Vec::new();
    for field in ["input", "prompt"] {
        match &body[field] {
            Value::String(text) => texts.push(text.clone()),
            // Texts, or tokens as numbers.
            Value::Array(all) if all.iter().all(Value::is_string) => {
                texts.extend(all.iter().map(content));
            }
            Value::Null => {}
            other => texts.push(other.to_string()),
        }
    }
    for one in std::iter::once(body).chain(list(body, "requests")) {
        let parts = list(&one["content"], "parts").iter().map(|part| text(part, "text"));
        texts.push(parts.collect::<Vec<_>>().join("\n"));
    }
    texts.retain(|text| !text.is_empty());
    let message = |text| Message { role: "user".to_owned(), text, ..Message::default() };
    let named = name(body, "model");
    let mut model = named.strip_prefix("models/").unwrap_or(&named).to_owned();
    if model.is_empty() {
        model = super::gemini::model(path);
    }
    let mut asked = Asked {
        model,
        messages: texts.into_iter().map(message).collect(),
        // Nothing is said.
        most: Some(0),
        ..Asked::default()
    };
    parameters(body, &["model", "input", "prompt", "content", "requests"], &mut asked);
    asked
}

pub(super) fn whole(value: &Value, said: &mut Said) {
    said.model = name(value, "model");
    let usage = [("/usage/prompt_tokens", "usage"), ("/prompt_eval_count", "prompt_eval_count")];
    for (pointer, field) in usage {
        if value.get(field).is_some() {
            said.tokens = Some(Tokens { input: number(value, pointer), ..Tokens::default() });
        }
    }
    let found = ["data", "embeddings", "embedding"].iter().any(|field| value.get(field).is_some());
    if !found {
        said.problem("the answer has no embeddings");
    }
}
