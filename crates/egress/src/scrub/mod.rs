//! Puts placeholders back where a response would show a real value: in its head, its body and its trailers.
//!
//! What is covered keeps its length (see [`crate::forms`]), so `content-length`, frames of gRPC and WebSocket and
//! multipart parts stay right. Nothing is held back but bytes that may be the start of a secret, so an event of an
//! event stream leaves when it comes. A compressed body is decompressed and sent on plain; one that cannot be
//! decompressed is refused, because what cannot be read cannot be vouched for.

pub(crate) mod coding;
mod head;
mod mask;
mod seams;
mod strings;

pub use coding::CodingError;
pub(crate) use head::scrub_head;
pub(crate) use mask::{Mask, Screen};
use seams::Lines;
pub(crate) use seams::{Message, Seams};

use bytes::Bytes;
use coding::Decoder;
use http::HeaderMap;
use std::sync::Arc;

/// One response's body and trailers.
pub struct Scrubber {
    mask: Mask,
    decoder: Option<Box<Decoder>>,
    /// Where a body is a stream of lines that a reader puts together.
    lines: Option<Box<Lines>>,
    screen: Arc<Screen>,
}

impl Scrubber {
    pub(crate) fn new(
        screen: Arc<Screen>,
        mask: Mask,
        decoder: Option<Box<Decoder>>,
        headers: &HeaderMap,
    ) -> Self {
        let lines = is_lines(headers).map(|events| Box::new(Lines::new(Arc::clone(&screen), events)));
        Self { mask, decoder, lines, screen }
    }

    /// What can be sent on now.
    pub fn push(&mut self, chunk: Bytes) -> Result<Bytes, CodingError> {
        let masked = match &mut self.decoder {
            None => self.mask.push(chunk),
            Some(decoder) => self.mask.push(decoder.push(&chunk)?.into()),
        };
        Ok(self.lined(masked))
    }

    fn lined(&mut self, masked: Bytes) -> Bytes {
        match &mut self.lines {
            Some(lines) if !masked.is_empty() => lines.push(&masked),
            _ => masked,
        }
    }

    /// Whether something is held back that may go when nothing more comes.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lines.as_ref().is_some_and(|lines| lines.is_waiting())
    }

    pub(crate) fn idle(&mut self) -> Bytes {
        self.lines.as_mut().map(|lines| lines.idle()).unwrap_or_default()
    }

    /// The rest, when the body has ended.
    pub fn finish(&mut self) -> Bytes {
        let masked = self.mask.finish();
        let first = self.lined(masked);
        match &mut self.lines {
            Some(lines) => [first, lines.finish()].concat().into(),
            None => first,
        }
    }

    pub fn trailers(&mut self, trailers: &mut HeaderMap) {
        self.mask.headers(trailers);
    }

    /// What looks over messages that follow one another.
    pub(crate) fn seams<K>(&self) -> Seams<K> {
        Seams::new(Arc::clone(&self.screen))
    }

    /// How many real values were covered so far, the head's included.
    pub fn covered(&self) -> u64 {
        self.mask.covered() + self.lines.as_ref().map_or(0, |lines| lines.covered())
    }
}

/// Whether a body consists of lines that are read one by one, and whether these are events.
fn is_lines(headers: &HeaderMap) -> Option<bool> {
    let value = headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    match value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "text/event-stream" => Some(true),
        "application/x-ndjson" | "application/jsonl" | "application/x-jsonlines" | "application/json-seq" => {
            Some(false)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
