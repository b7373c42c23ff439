//! Puts placeholders back where a response would show a real value: in its head, its body and its trailers.
//!
//! What is covered keeps its length (see [`crate::forms`]), so `content-length`, frames of gRPC and WebSocket and
//! multipart parts stay right. Nothing is held back but bytes that may be the start of a secret, so an event of an
//! event stream leaves when it comes. A compressed body is decompressed and sent on plain; one that cannot be
//! decompressed is refused, because what cannot be read cannot be vouched for.

pub(crate) mod coding;
mod head;
mod mask;

pub use coding::CodingError;
pub(crate) use head::scrub_head;
pub(crate) use mask::{Mask, Screen};

use bytes::Bytes;
use coding::Decoder;
use http::HeaderMap;

/// One response's body and trailers.
pub struct Scrubber {
    mask: Mask,
    decoder: Option<Box<Decoder>>,
}

impl Scrubber {
    pub(crate) fn new(mask: Mask, decoder: Option<Box<Decoder>>) -> Self {
        Self { mask, decoder }
    }

    /// What can be sent on now.
    pub fn push(&mut self, chunk: Bytes) -> Result<Bytes, CodingError> {
        match &mut self.decoder {
            None => Ok(self.mask.push(chunk)),
            Some(decoder) => Ok(self.mask.push(decoder.push(&chunk)?.into())),
        }
    }

    /// The rest, when the body has ended.
    pub fn finish(&mut self) -> Bytes {
        self.mask.finish()
    }

    pub fn trailers(&mut self, trailers: &mut HeaderMap) {
        self.mask.headers(trailers);
    }

    /// How many real values were covered so far, the head's included.
    pub fn covered(&self) -> u64 {
        self.mask.covered()
    }
}

#[cfg(test)]
mod tests;
