//! Cuts a byte stream into frames, within a buffer of a bounded size.
//!
//! Messages are handed out whole, data in whatever pieces have come: a large frame needs no large buffer, and
//! bytes are passed on as slices of what was read.

use super::{FrameError, HEADER_LEN, Header, Kind, Side, Stream};
use alloc::vec;
use alloc::vec::Vec;

/// The next thing in the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Message {
        header: Header,
        body: &'a [u8],
    },
    /// A piece of a data frame, never empty. `opens` has the frame's whole length with its first piece, so that
    /// it can be judged before it has come.
    Data {
        id: u32,
        stream: Stream,
        opens: Option<u32>,
        bytes: &'a [u8],
    },
}

/// A data frame of which more is to come.
#[derive(Clone, Copy)]
struct Open {
    id: u32,
    stream: Stream,
    left: u32,
    untouched: bool,
}

/// A header and the longest message but for `Exec`.
const LEAST: usize = HEADER_LEN + super::CONTROL_MAX as usize;
/// What one that grows begins with: enough for what is said, if not for what is carried.
const RESTING: usize = 4096;

pub struct Reader {
    from: Side,
    buffer: Vec<u8>,
    /// Its size while little comes, and while much does; a longer message makes it longer for as long as it takes.
    least: usize,
    usual: usize,
    /// The last that came took all the room there was.
    brim: bool,
    start: usize,
    end: usize,
    /// What the message at the start takes, once its header is known.
    needed: usize,
    data: Option<Open>,
}

impl Reader {
    /// `size` is at least that of a header and the longest message but for `Exec`.
    pub fn new(from: Side, size: usize) -> Self {
        let usual = size.max(LEAST);
        Self::sized(from, usual, usual)
    }

    /// The same for who waits long and for many: it holds little until much comes, and again when that is over.
    pub fn growing(from: Side, size: usize) -> Self {
        Self::sized(from, RESTING, size.max(RESTING))
    }

    fn sized(from: Side, least: usize, usual: usize) -> Self {
        let buffer = vec![0; least];
        Self { from, buffer, least, usual, brim: false, start: 0, end: 0, needed: 0, data: None }
    }

    /// Where to put what comes next; empty while what came before is not taken.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let now = self.buffer.len();
        let size = match (self.end == 0, self.brim) {
            _ if self.needed > now => self.needed,
            (true, true) => self.usual,
            (true, false) => self.least,
            (false, true) => now.max(self.usual),
            (false, false) => now,
        };
        if size > now {
            self.buffer.resize(size, 0);
        } else if size < now {
            self.buffer.truncate(size);
            self.buffer.shrink_to_fit();
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// So many bytes were put there.
    pub fn filled(&mut self, count: usize) {
        self.end = self.buffer.len().min(self.end + count);
        self.brim = self.end == self.buffer.len();
    }

    /// `None`: more bytes are needed. After an error the stream is of no more use.
    pub fn next_part(&mut self) -> Result<Option<Part<'_>>, FrameError> {
        if self.data.is_none() {
            let Some(header) = self.header()? else { return Ok(None) };
            if let (Kind::Data, Some(stream)) = (header.kind, header.stream) {
                self.start += HEADER_LEN;
                self.data = Some(Open { id: header.id, stream, left: header.length, untouched: true });
            } else {
                return Ok(self.message(header));
            }
        }
        Ok(self.piece())
    }

    fn header(&mut self) -> Result<Option<Header>, FrameError> {
        let waiting = self.buffer.get(self.start..self.end).unwrap_or_default();
        match waiting.first_chunk() {
            Some(bytes) => Header::decode(*bytes, self.from).map(Some),
            None => Ok(None),
        }
    }

    fn message(&mut self, header: Header) -> Option<Part<'_>> {
        let whole = HEADER_LEN + header.length as usize;
        if self.end - self.start < whole {
            self.needed = whole;
            return None;
        }
        self.needed = 0;
        let body = self.start + HEADER_LEN..self.start + whole;
        self.start += whole;
        self.buffer.get(body).map(|body| Part::Message { header, body })
    }

    fn piece(&mut self) -> Option<Part<'_>> {
        let open = self.data.as_mut()?;
        let count = (self.end - self.start).min(open.left as usize);
        if count == 0 {
            return None;
        }
        let Open { id, stream, left, untouched } = *open;
        let opens = untouched.then_some(left);
        let rest = left - count as u32;
        self.data = (rest > 0).then_some(Open { left: rest, untouched: false, ..*open });
        let bytes = self.start..self.start + count;
        self.start += count;
        self.buffer.get(bytes).map(|bytes| Part::Data { id, stream, opens, bytes })
    }
}
