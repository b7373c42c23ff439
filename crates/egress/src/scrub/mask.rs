//! Covers the forms of real values in a stream of bytes, however it is cut.

use crate::forms::{Edge, Finder, Form, Kind, Run, runs};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Digits at the end of a line that are let go though a value starts with them.
const BY_CHANCE: usize = 4;

/// What to look for, and what to put in its place.
pub(crate) struct Screen {
    finder: Finder,
    /// Base64, which is written in lines, and of each of its forms which one of all it is.
    lines: (Finder, Vec<usize>),
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
        let is_base64 = |form: &Form| matches!(form.kind, Kind::Base64 { .. });
        let base64: Vec<usize> =
            (0..forms.len()).filter(|at| forms.get(*at).is_some_and(is_base64)).collect();
        let digits: Vec<&[u8]> = base64.iter().filter_map(|at| texts.get(*at).copied()).collect();
        let lines = (Finder::new(&digits), base64);
        let edges: Vec<Edge> = forms.iter().filter_map(|f| f.before).collect();
        let mut shared = [false; 256];
        for (byte, shared) in (0..=255u8).zip(&mut shared) {
            *shared = edges.iter().any(|edge| edge.covered(byte).is_some());
        }
        let covers =
            forms.into_iter().map(|f| Cover { text: f.cover, before: f.before, after: f.after }).collect();
        Self { finder, lines, covers, shared }
    }

    pub(super) fn finder(&self) -> &Finder {
        &self.finder
    }

    pub(super) fn cover(&self, pattern: usize) -> &[u8] {
        self.covers.get(pattern).map_or(&[], |cover| &cover.text)
    }

    /// How much of the start of a value is the placeholder's own start too, so that it tells nothing.
    pub(super) fn harmless(&self, start: &[u8]) -> usize {
        let alike = |cover: &[u8]| start.iter().zip(cover).take_while(|(a, b)| a == b).count();
        self.finder.beginning_with(start).map(|pattern| alike(self.cover(pattern))).min().unwrap_or(0)
    }
}

/// The stream between two chunks.
pub(crate) struct Mask {
    screen: Arc<Screen>,
    /// Bytes that may be the start of a secret.
    held: Zeroizing<Vec<u8>>,
    /// What the first byte to come shares with a value that ended just before it.
    after: Option<Edge>,
    /// The end of what has left, where lines that break a value may go on from it.
    gone: Zeroizing<Vec<u8>>,
    covered: u64,
}

/// Where a run that may go on may become a value, and from where on it is held back for that.
struct Open {
    start: usize,
    held: usize,
}

impl Mask {
    pub(crate) fn new(screen: Arc<Screen>) -> Self {
        Self { screen, held: Zeroizing::default(), after: None, gone: Zeroizing::default(), covered: 0 }
    }

    pub(crate) fn covered(&self) -> u64 {
        self.covered
    }

    pub(crate) fn push(&mut self, mut chunk: Bytes) -> Bytes {
        // The usual chunk holds nothing and leaves as it came, without a copy.
        let is_fresh = self.held.is_empty() && self.after.is_none() && self.gone.is_empty();
        if is_fresh && self.screen.finder.find(&chunk, 0).is_none() {
            let runs = runs(&chunk);
            if runs.iter().all(|run| self.screen.lines.0.find(&run.digits, 0).is_none()) {
                let keep = self.keep(&chunk, 0, self.screen.finder.pending(&chunk, 0));
                let keep = self.leave(runs.last(), &chunk, 0, keep);
                let rest = chunk.split_off(keep);
                self.held.extend_from_slice(&rest);
                return chunk;
            }
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
        self.gone = Zeroizing::default();
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
        let keep = if last { buffer.len() } else { self.keep(buffer, from, certain) };
        self.cover_lines(buffer, keep, last)
    }

    /// Covers what is broken into lines, and says how much of what is certain otherwise is certain for that too.
    fn cover_lines(&mut self, buffer: &mut [u8], keep: usize, last: bool) -> usize {
        let screen = Arc::clone(&self.screen);
        let gone = self.gone.len();
        let text = Zeroizing::new([&self.gone, &*buffer].concat());
        let runs = runs(&text);
        for run in &runs {
            let mut from = 0;
            while let Some(hit) = screen.lines.0.find(&run.digits, from) {
                let form = screen.lines.1.get(hit.pattern);
                let Some(cover) = form.and_then(|form| screen.covers.get(*form)) else { break };
                // What has left stays as it was.
                let mut place = |index: Option<usize>, change: &dyn Fn(&mut u8)| {
                    let at = index.and_then(|index| run.at.get(index)).and_then(|at| at.checked_sub(gone));
                    at.and_then(|at| buffer.get_mut(at)).into_iter().for_each(change);
                };
                for (index, byte) in (hit.start..hit.end).zip(&cover.text) {
                    place(Some(index), &|digit| *digit = *byte);
                }
                if let Some(edge) = cover.before {
                    place(hit.start.checked_sub(1), &|digit| patch(Some(digit), edge));
                }
                if let Some(edge) = cover.after {
                    place(Some(hit.end), &|digit| patch(Some(digit), edge));
                }
                self.covered += 1;
                from = hit.end;
            }
        }
        if last { buffer.len() } else { self.leave(runs.last(), &text, gone, keep) }
    }

    /// How much may leave of a text of which `gone` bytes have left: `keep`, or less before a run that may go on.
    fn leave(&mut self, run: Option<&Run>, text: &[u8], gone: usize, keep: usize) -> usize {
        let open = run.filter(|run| run.is_open).and_then(|run| self.open(run));
        let Some(Open { start, held }) = open else {
            self.gone = Zeroizing::default();
            return keep;
        };
        let keep = keep.min(held.saturating_sub(gone));
        self.gone = Zeroizing::new(text.get(start..gone + keep).unwrap_or_default().to_vec());
        keep
    }

    /// Lines of ordinary text end in a few digits that fit by chance: these leave, and are remembered. Of more, one
    /// digit before them is held too, which a value may share.
    fn open(&self, run: &Run) -> Option<Open> {
        let pending = self.screen.lines.0.pending(&run.digits, 0);
        let start = *run.at.get(pending)?;
        let held = match run.digits.len() - pending {
            few if few < BY_CHANCE => usize::MAX,
            _ => *run.at.get(pending.saturating_sub(1))?,
        };
        Some(Open { start, held })
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
