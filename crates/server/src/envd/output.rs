//! What a command says, as a stream of messages: that it runs, its bytes, how it ended.

use super::connect;
use super::fault::{Code, Fault};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use cofferdam_api::e2b::{ProcessData, ProcessEvent, ProcessMessage};
use cofferdam_engine::inside::{Attached, Process};
use cofferdam_engine::{End, Heard, OutputStream};
use cofferdam_model::Exit;
use futures_util::stream::unfold;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// In one message.
const MOST: usize = 32 << 10;
const MOST_OF_TERMINAL: usize = 16 << 10;

struct Telling {
    attached: Attached,
    ping: Duration,
    over: bool,
}

/// `attached` has perhaps heard already that it runs; the first message says so in any case.
pub(super) fn stream(process: &Arc<Process>, attached: Attached, ping: Duration) -> Response {
    let first = message(ProcessEvent::Start { pid: process.pid });
    let telling = Telling { attached, ping, over: false };
    let rest = unfold(telling, |mut telling| async move {
        let next = telling.next().await?;
        Some((next, telling))
    });
    let first = futures_util::stream::iter([Ok(first)]);
    connect::stream(futures_util::StreamExt::chain(first, rest))
}

fn message(event: ProcessEvent) -> Bytes {
    connect::wrap(&ProcessMessage { event })
}

impl Telling {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        while !self.over {
            let heard = match tokio::time::timeout(self.ping, self.attached.next()).await {
                Err(_) => return Some(Ok(message(ProcessEvent::Keepalive {}))),
                Ok(heard) => heard,
            };
            match heard {
                Some(Heard::Started { .. }) => {}
                Some(Heard::Output { stream, piece }) => return Some(Ok(output(stream, piece.bytes()))),
                Some(Heard::Ended(end)) if !end.lost => {
                    self.over = true;
                    return Some(Ok(ended(&end)));
                }
                // The sandbox went: no clean end, so that the client looks whether it is there.
                Some(Heard::Ended(_)) | None => {
                    self.over = true;
                    return Some(Err(io::ErrorKind::ConnectionAborted.into()));
                }
            }
        }
        None
    }
}

fn output(stream: OutputStream, bytes: &[u8]) -> Bytes {
    let most = if stream == OutputStream::Tty { MOST_OF_TERMINAL } else { MOST };
    let mut all = BytesMut::new();
    for piece in bytes.chunks(most) {
        let text = STANDARD.encode(piece);
        let data = match stream {
            OutputStream::Stdout => ProcessData::Stdout(text),
            OutputStream::Stderr => ProcessData::Stderr(text),
            OutputStream::Tty => ProcessData::Pty(text),
        };
        all.extend_from_slice(&message(ProcessEvent::Data(data)));
    }
    all.freeze()
}

/// The last message, and the end of the stream.
fn ended(end: &End) -> Bytes {
    let of_code = |code: i32| {
        let status = format!("exit status {code}");
        let error = (code != 0).then(|| status.clone());
        ProcessEvent::End { exit_code: code, exited: true, status, error }
    };
    let event = match &end.exit {
        Ok(Exit::Code(code)) => of_code(*code),
        Ok(Exit::NotFound) => of_code(127),
        Ok(Exit::NotExecutable) => of_code(126),
        Ok(Exit::Signal(number)) => of_signal(*number),
        Ok(Exit::TimedOut) => {
            let fault = Fault::new(Code::DeadlineExceeded, "the command was ended: its time was over");
            return connect::last(Some(&fault));
        }
        Ok(Exit::LimitReached) => {
            let reason = end.reason.clone().unwrap_or_else(|| "it was ended at a limit".into());
            return connect::last(Some(&Fault::new(Code::ResourceExhausted, reason)));
        }
        Err(reason) => return connect::last(Some(&Fault::new(Code::Internal, reason.clone()))),
    };
    let mut all = BytesMut::from(message(event).as_ref());
    all.extend_from_slice(&connect::last(None));
    all.freeze()
}

fn of_signal(number: i32) -> ProcessEvent {
    let name = match number {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        _ => "",
    };
    let status = if name.is_empty() { format!("signal: signal {number}") } else { format!("signal: {name}") };
    ProcessEvent::End { exit_code: -1, exited: false, status: status.clone(), error: Some(status) }
}
