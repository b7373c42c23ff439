//! What is said to a command: at once, or as it comes.

use super::Call;
use super::connect::{self, Messages};
use super::fault::{Code, Fault};
use super::process::find;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_api::e2b::{ProcessInput, StreamInputRequest};
use cofferdam_engine::inside::Process;
use serde_json::json;
use std::sync::Arc;

pub(super) async fn give(process: &Process, input: Option<&ProcessInput>) -> Result<(), Fault> {
    let Some(input) = input else { return Err(Fault::invalid("`input` is missing")) };
    let (text, of_terminal) = match (&input.stdin, &input.pty) {
        (Some(text), None) => (text, false),
        (None, Some(text)) => (text, true),
        _ => return Err(Fault::invalid("`input` is one of `stdin` and `pty`")),
    };
    if of_terminal != process.tty {
        let text = if process.tty {
            "it runs on a terminal: send `pty`"
        } else {
            "it has no terminal: send `stdin`"
        };
        return Err(Fault::new(Code::FailedPrecondition, text));
    }
    if !process.tty && !process.stdin {
        return Err(Fault::new(Code::FailedPrecondition, "stdin is not open: start it with `stdin`"));
    }
    let bytes = STANDARD.decode(text).map_err(|_| Fault::invalid("`input` is not base64"))?;
    let closed = |_| Fault::new(Code::FailedPrecondition, "nobody reads its input any more");
    process.input(bytes.into()).await.map_err(closed)
}

pub(super) async fn close(process: &Process) -> Result<(), Fault> {
    if process.tty {
        return Err(Fault::new(Code::FailedPrecondition, "a terminal's input cannot be closed: send Ctrl+D"));
    }
    process.end_input().await.map_err(|_| Fault::gone())
}

/// Messages as they come, for the command that the first of them names.
pub(super) async fn stream(call: &Call, mut messages: Messages) -> Response {
    let mut process: Option<Arc<Process>> = None;
    let done = async {
        while let Some(message) = messages.next::<StreamInputRequest>().await? {
            if let Some(start) = message.start {
                process = Some(find(call, &start.process)?);
            }
            if let Some(data) = message.data {
                let process =
                    process.as_ref().ok_or_else(|| Fault::invalid("the first message is `start`"))?;
                give(process, Some(&data.input)).await?;
            }
        }
        Ok(())
    };
    match done.await {
        Ok(()) => {
            let pieces = [Ok(connect::wrap(&json!({}))), Ok(connect::last(None))];
            connect::stream(futures_util::stream::iter(pieces))
        }
        Err(fault) => connect::refuse(fault, true),
    }
}
