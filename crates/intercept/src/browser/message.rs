//! One message of the protocol. Of a message only the outermost members are read; what they hold is carried as it
//! is, because a browser's texts need not be whole characters.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A request of a client. Whatever else it has beside these members goes nowhere.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Command<'a> {
    pub(super) id: i64,
    #[serde(borrow)]
    pub(super) method: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) session_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
}

/// What the browser says: an answer, or an event.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Said<'a> {
    #[serde(default)]
    pub(super) id: Option<u64>,
    #[serde(borrow, default)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) session_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// A request to the browser, as its pipe wants it.
pub(super) fn command(id: u64, method: &str, session: Option<&str>, params: &str) -> Vec<u8> {
    let mut text = format!("{{\"id\":{id},\"method\":{}", quoted(method));
    if let Some(session) = session {
        text.push_str(&format!(",\"sessionId\":{}", quoted(session)));
    }
    text.push_str(&format!(",\"params\":{}}}", if params.is_empty() { "{}" } else { params }));
    text.into_bytes()
}

/// An answer to a client: `member` is `result` or `error`.
pub(super) fn answer(id: i64, member: &str, value: &str, session: Option<&str>) -> String {
    let session = session.map(|session| format!(",\"sessionId\":{}", quoted(session))).unwrap_or_default();
    format!("{{\"id\":{id},\"{member}\":{value}{session}}}")
}

/// An error in the protocol's own form; clients show its words.
pub(super) fn error(id: i64, code: i32, words: &str, session: Option<&str>) -> String {
    let value = serde_json::json!({ "code": code, "message": words }).to_string();
    answer(id, "error", &value, session)
}

pub(super) fn event(method: &str, params: &str, session: Option<&str>) -> String {
    let session = session.map(|session| format!(",\"sessionId\":{}", quoted(session))).unwrap_or_default();
    format!("{{\"method\":{},\"params\":{params}{session}}}", quoted(method))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
