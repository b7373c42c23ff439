//! Covers the forms of real values in a stream of bytes, however it is cut.

use crate::forms::{Edge, Finder, Form};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use std::sync::Arc;
use zeroize::Zeroizing;

/// What to look for, and what to put in its place.
pub(crate) struct Screen {
    finder: Finder,
    covers: Vec<Cover>,
    /// Bytes that may be a base64 digit shared by a value and what stands before it.
    shared: [bool; 256],
}

struct Cover {
    text: Vec<u8>,
    before: Option<Edge>,
    after: Option<Edge>,
}

impl Screen {
    pub(crate) fn new(forms: Vec<Form>) -> Self {
        let texts: Vec<&[u8]> = forms.iter().map(|f| f.text.as_slice()).collect();
        let finder = Finder::new(&texts);
        let edges: Vec<Edge> = forms.iter().filter_map(|f| f.before).collect();
        let mut shared = [false; 256];
        for (byte, shared) in (0..=255u8).zip(&mut shared) {
            *shared = edges.iter().any(|edge| edge.covered(byte).is_some());
        }
        let covers =
            forms.into_iter().map(|f| Cover { text: f.cover, before: f.before, after: f.after }).collect();
        Self { finder, covers, shared }
    }
}

/// The stream between two chunks.
pub(crate) struct Mask {
    screen: Arc<Screen>,
    /// Bytes that may be the start of a secret.
    held: Zeroizing<Vec<u8>>,
    /// What the first byte to come shares with a value that ended just before it.
    after: Option<Edge>,
    covered: u64,
}

impl Mask {
    pub(crate) fn new(screen: Arc<Screen>) -> Self {
        Self { screen, held: Zeroizing::new(Vec::new()), after: None, covered: 0 }
    }

    pub(crate) fn covered(&self) -> u64 {
        self.covered
    }

    pub(crate) fn push(&mut self, mut chunk: Bytes) -> Bytes {
        // The usual chunk holds nothing and leaves as it came, without a copy.
        if self.held.is_empty() && self.after.is_none() && self.screen.finder.find(&chunk, 0).is_none() {
            let keep = self.keep(&chunk, 0, self.screen.finder.pending(&chunk, 0));
            let rest = chunk.split_off(keep);
            self.held.extend_from_slice(&rest);
            return chunk;
        }
        let mut buffer = Vec::with_capacity(self.held.len() + chunk.len());
        buffer.extend_from_slice(&self.held);
        buffer.extend_from_slice(&chunk);
        let keep = self.cover(&mut buffer, false);
        self.held = Zeroizing::new(buffer.split_off(keep));
        buffer.into()
    }

    pub(crate) fn finish(&mut self) -> Bytes {
        let mut rest = std::mem::take(&mut *self.held);
        self.cover(&mut rest, true);
        self.after = None;
        rest.into()
    }

    /// Covers all that is certain and says how much that is. A match is certain when nothing that starts no later
    /// could still grow: then it is the same however the stream was cut.
    fn cover(&mut self, buffer: &mut [u8], last: bool) -> usize {
        let screen = Arc::clone(&self.screen);
        let pending =
            |buffer: &[u8], from| if last { buffer.len() } else { screen.finder.pending(buffer, from) };
        let mut from = 0;
        if let (Some(edge), false) = (self.after, buffer.is_empty()) {
            patch(buffer.first_mut(), edge);
            self.after = None;
        }
        let mut certain = pending(buffer, from);
        while let Some(hit) = screen.finder.find(buffer, from).filter(|hit| hit.start < certain) {
            let Some(cover) = screen.covers.get(hit.pattern) else { break };
            if let Some(place) = buffer.get_mut(hit.start..hit.end) {
                place.copy_from_slice(&cover.text);
            }
            if let (Some(edge), true) = (cover.before, hit.start > from) {
                patch(buffer.get_mut(hit.start - 1), edge);
            }
            match cover.after {
                Some(edge) if hit.end < buffer.len() => patch(buffer.get_mut(hit.end), edge),
                edge => self.after = edge,
            }
            self.covered += 1;
            from = hit.end;
            certain = pending(buffer, from);
        }
        if last { buffer.len() } else { self.keep(buffer, from, certain) }
    }

    /// One byte less where it may be a digit that a value shares.
    fn keep(&self, buffer: &[u8], from: usize, certain: usize) -> usize {
        let shared = |at: usize| buffer.get(at).is_some_and(|&byte| self.screen.shared[usize::from(byte)]);
        match certain.checked_sub(1) {
            Some(before) if before >= from && shared(before) => before,
            _ => certain,
        }
    }

    /// All values of a head or of trailers.
    pub(crate) fn headers(&mut self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if self.screen.finder.find(value.as_bytes(), 0).is_some() {
                let mut text = value.as_bytes().to_vec();
                self.cover(&mut text, true);
                self.after = None;
                *value = HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""));
            }
        }
    }
}

fn patch(byte: Option<&mut u8>, edge: Edge) {
    if let Some(byte) = byte {
        *byte = edge.covered(*byte).unwrap_or(*byte);
    }
}
