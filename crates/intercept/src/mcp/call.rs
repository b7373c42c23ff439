//! A call on its way, and how it is told.

use super::message::Id;
use cofferdam_model::{Body, Content, NotRecorded, Record, ToolOutcome, ToolReturned, ToolSide};
use serde_json::Value;
use std::time::Instant;

/// What is longer is kept beside the events.
const SHORT: usize = 4 << 10;

/// A request that has no answer yet.
pub(super) struct Call {
    pub(super) from: ToolSide,
    pub(super) id: Id,
    pub(super) began: Instant,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Plain,
    Listing,
    /// On record as this event.
    Judged {
        event: u64,
        is_tool: bool,
    },
    /// The same, and it waits for a person: this is what will be sent.
    Held {
        event: u64,
        tool: String,
        rule: Option<String>,
        is_tool: bool,
        line: Vec<u8>,
        words: String,
    },
}

pub(super) fn content(record: &dyn Record, text: &str) -> Result<Content, NotRecorded> {
    match text.len() <= SHORT {
        true => Ok(Content::Text(text.to_owned())),
        false => Ok(Content::Kept(record.keep(text.as_bytes())?)),
    }
}

/// What a server's answer says of the call.
pub(super) fn outcome(answer: &Result<Value, Value>) -> ToolOutcome {
    match answer {
        Err(_) => ToolOutcome::Error,
        Ok(result) if result.get("isError") == Some(&Value::Bool(true)) => ToolOutcome::Failed,
        Ok(_) => ToolOutcome::Ok,
    }
}

impl Call {
    /// Puts the end of a judged call on record.
    pub(super) fn returned(
        &self,
        record: &dyn Record,
        outcome: ToolOutcome,
        result: Option<&Value>,
    ) -> Result<(), NotRecorded> {
        let (Kind::Judged { event, .. } | Kind::Held { event, .. }) = &self.kind else { return Ok(()) };
        let result = result.map(|value| content(record, &value.to_string())).transpose()?;
        let total_us = self.began.elapsed().as_micros() as u64;
        record.append(Some(*event), &Body::ToolReturned(ToolReturned { outcome, result, total_us }))?;
        Ok(())
    }
}
