//! Finds a value that comes back in pieces, each in a message of its own: in the events of an event stream, the lines
//! of a stream of JSON, the messages of a WebSocket. The pieces are put together as a reader would: by the string of
//! the document in which they stand, or one message after the other.
//!
//! A message is held back only while it ends in what may be the start of a value: in more than one character beyond what
//! the placeholder starts with too, because every other word ends in one of those. Where nothing more comes, a few
//! characters are let go and the rest still covered; more are not let go.

use super::mask::Screen;
use super::strings::texts;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Characters of a value that are let go at once: whoever reads a stream of words would wait for them at many of them.
const AT_ONCE: usize = 1;
/// Characters of a value that are let go when nothing follows: ordinary text ends so by chance.
const LET_GO: usize = 3;
/// Longer messages, and more of them at once than this, are not put together: both are far from any stream of text.
const LONGEST: usize = 1 << 20;
const MOST_STRANDS: usize = 1024;
const MOST_HELD: usize = 4096;

/// One message; `kind` is its sender's own.
#[derive(Debug)]
pub(crate) struct Message<K> {
    pub(crate) kind: K,
    pub(crate) bytes: Vec<u8>,
}

/// The end of a text that may be the start of a value.
#[derive(Default)]
struct Strand {
    tail: Vec<u8>,
    /// The message in which each byte stands, and where.
    at: Vec<(u64, usize, usize)>,
}

pub(crate) struct Seams<K> {
    screen: Arc<Screen>,
    strands: HashMap<u64, Strand>,
    held: VecDeque<Message<K>>,
    /// The number of the first that is held.
    first: u64,
    covered: u64,
}

impl<K> Seams<K> {
    pub(crate) fn new(screen: Arc<Screen>) -> Self {
        Self { screen, strands: HashMap::new(), held: VecDeque::new(), first: 0, covered: 0 }
    }

    pub(crate) fn covered(&self) -> u64 {
        self.covered
    }

    /// Whether something is held back that [`Self::idle`] lets go.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.held.is_empty() && self.due(LET_GO) > 0
    }

    /// What may go on now that this has come, `part` of it being what a reader puts together with others.
    pub(crate) fn push(&mut self, message: Message<K>, part: Range<usize>) -> Vec<Message<K>> {
        let number = self.first + self.held.len() as u64;
        let found = match message.bytes.get(part.clone()) {
            Some(text) if text.len() <= LONGEST => texts(text),
            _ => Vec::new(),
        };
        self.held.push_back(message);
        for text in found {
            let place = |(byte, at, length): (u8, usize, usize)| (byte, (number, part.start + at, length));
            let (bytes, at): (Vec<u8>, Vec<_>) = text.bytes.into_iter().map(place).unzip();
            self.follow(text.path, &bytes, at);
        }
        let due = if self.held.len() > MOST_HELD { self.held.len() } else { self.due(AT_ONCE) };
        self.let_go(due)
    }

    /// What may go on because nothing has come for a while.
    pub(crate) fn idle(&mut self) -> Vec<Message<K>> {
        let due = self.due(LET_GO);
        self.let_go(due)
    }

    pub(crate) fn finish(&mut self) -> Vec<Message<K>> {
        self.let_go(self.held.len())
    }

    fn let_go(&mut self, count: usize) -> Vec<Message<K>> {
        self.first += count as u64;
        self.held.drain(..count).collect()
    }

    /// Puts a text at the end of what came before at the same place.
    fn follow(&mut self, path: u64, bytes: &[u8], places: Vec<(u64, usize, usize)>) {
        let Strand { mut tail, mut at } = self.strands.remove(&path).unwrap_or_default();
        tail.extend_from_slice(bytes);
        at.extend(places);
        let screen = Arc::clone(&self.screen);
        let mut from = 0;
        while let Some(hit) = screen.finder().find(&tail, from) {
            let cover = screen.cover(hit.pattern);
            for (byte, place) in cover.iter().zip(at.get(hit.start..hit.end).unwrap_or_default()) {
                self.write(*place, *byte);
            }
            self.covered += 1;
            from = hit.end;
        }
        let pending = screen.finder().pending(&tail, from);
        let (tail, at) = (tail.split_off(pending), at.split_off(pending));
        if !tail.is_empty() && self.strands.len() < MOST_STRANDS {
            self.strands.insert(path, Strand { tail, at });
        }
    }

    /// Writes one byte of a cover where one of a value stood, as it was written there; what has left stays.
    fn write(&mut self, (number, at, length): (u64, usize, usize), byte: u8) {
        let index = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let message = index.and_then(|index| self.held.get_mut(index));
        let Some(place) = message.and_then(|message| message.bytes.get_mut(at..at + length)) else { return };
        match length {
            1 => place.fill(byte),
            6 => place.copy_from_slice(format!("\\u{byte:04x}").as_bytes()),
            // A short escape, as `\/`: no placeholder's character needs one, so two take its place.
            _ => place.fill(byte),
        }
    }

    /// How many messages may go, where strands of up to `free` characters beyond the harmless are no reason to wait.
    fn due(&self, free: usize) -> usize {
        let mut due = self.held.len();
        for strand in self.strands.values() {
            let harmless = self.screen.harmless(&strand.tail);
            if strand.tail.len() <= harmless + free {
                continue;
            }
            if let Some((number, ..)) = strand.at.get(harmless) {
                due = due.min(number.saturating_sub(self.first) as usize);
            }
        }
        due
    }
}

/// Lines of a stream, put together as messages.
pub(crate) struct Lines {
    seams: Seams<()>,
    /// Only what follows `data:` is a message.
    events: bool,
    partial: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(screen: Arc<Screen>, events: bool) -> Self {
        Self { seams: Seams::new(screen), events, partial: Vec::new() }
    }

    pub(crate) fn covered(&self) -> u64 {
        self.seams.covered()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.seams.is_waiting()
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) -> Bytes {
        let mut out = Vec::new();
        let mut rest = chunk;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            self.partial.extend_from_slice(line);
            rest = after;
            self.line(&mut out);
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > LONGEST {
            self.line(&mut out);
        }
        out.into()
    }

    pub(crate) fn idle(&mut self) -> Bytes {
        joined(self.seams.idle())
    }

    pub(crate) fn finish(&mut self) -> Bytes {
        let mut out = Vec::new();
        self.line(&mut out);
        out.extend_from_slice(&joined(self.seams.finish()));
        out.into()
    }

    fn line(&mut self, out: &mut Vec<u8>) {
        let bytes = std::mem::take(&mut self.partial);
        let end = bytes.trim_ascii_end().len();
        let start = match (self.events, bytes.strip_prefix(b"data:")) {
            (true, Some(data)) => bytes.len() - data.strip_prefix(b" ").unwrap_or(data).len(),
            (true, None) => end,
            (false, _) => 0,
        };
        let ready = self.seams.push(Message { kind: (), bytes }, start.min(end)..end);
        out.extend_from_slice(&joined(ready));
    }
}

fn joined(messages: Vec<Message<()>>) -> Bytes {
    messages.into_iter().flat_map(|message| message.bytes).collect()
}
