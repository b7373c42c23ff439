//! Bodies under a signature, as they pass: their hash compared with the one that was signed, their frames read, and
//! the signature of each piece checked and made anew. Of what streams, one piece is held at a time, because a piece
//! comes behind its signature and the signature covers all of it.

use super::super::SignError;
use super::super::frames::{FrameError, Frames, field, line_end, piece_line};
use super::canonical::sha256;
use super::keys::Key;
use bytes::{Bytes, BytesMut};
use cofferdam_seal::Hasher;

/// Clients send pieces of 64 KiB to 1 MiB.
const LARGEST_PIECE: u64 = 16 << 20;
/// A version 4A signature in a piece is filled up to this.
const PADDED: usize = 144;
const TRAILER: &str = "x-amz-trailer-signature:";

pub(crate) enum Stream {
    Hash(Box<HashCheck>),
    Frames(Box<Frames>),
    Chunks(Box<Chunks>),
}

impl Stream {
    pub(crate) fn push(&mut self, bytes: Bytes) -> Result<Bytes, SignError> {
        match self {
            Self::Hash(check) => Ok(check.push(bytes)),
            Self::Frames(frames) => {
                frames.push(&bytes, &mut |_| {})?;
                Ok(bytes)
            }
            Self::Chunks(chunks) => chunks.push(&bytes),
        }
    }

    pub(crate) fn finish(&mut self) -> Result<Bytes, SignError> {
        match self {
            Self::Hash(check) => check.finish(),
            Self::Frames(frames) => {
                frames.finish()?;
                Ok(Bytes::new())
            }
            Self::Chunks(chunks) => chunks.finish(),
        }
    }
}

/// The last bytes are held until all are known to be right: a body that is another never arrives whole.
pub(crate) struct HashCheck {
    signed: String,
    hasher: Hasher,
    held: Bytes,
}

impl HashCheck {
    pub(super) fn new(signed: String) -> Self {
        Self { signed, hasher: Hasher::new(), held: Bytes::new() }
    }

    fn push(&mut self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        self.hasher.update(&bytes);
        std::mem::replace(&mut self.held, bytes)
    }

    fn finish(&mut self) -> Result<Bytes, SignError> {
        match std::mem::take(&mut self.hasher).finish().to_string().eq_ignore_ascii_case(&self.signed) {
            true => Ok(std::mem::take(&mut self.held)),
            false => Err(SignError::OtherBody),
        }
    }
}

/// One side of a chain of signatures: the client's, or ours.
pub(super) struct Chain {
    pub(super) key: Key,
    /// The signature before.
    pub(super) last: String,
    pub(super) time: String,
    /// `20150830/us-east-1/s3/aws4_request`
    pub(super) scope: String,
    pub(super) algorithm: &'static str,
}

impl Chain {
    fn text(&self, kind: &str, hashes: &[&str]) -> String {
        let Self { last, time, scope, algorithm, .. } = self;
        format!("{algorithm}-{kind}\n{time}\n{scope}\n{last}\n{}", hashes.join("\n"))
    }

    fn next(&mut self, kind: &str, hashes: &[&str]) -> &str {
        self.last = self.key.sign(self.text(kind, hashes).as_bytes());
        &self.last
    }

    fn fits(&mut self, kind: &str, hashes: &[&str], signature: &str) -> bool {
        let fits = self.key.fits(self.text(kind, hashes).as_bytes(), signature);
        signature.clone_into(&mut self.last);
        fits
    }
}

/// Signed pieces.
pub(crate) struct Chunks {
    buffer: BytesMut,
    at: At,
    theirs: Chain,
    ours: Chain,
    left: u64,
    /// Fields behind the body, as they are signed; none for a body that has none.
    trailer: Option<Trailer>,
}

pub(super) struct Trailer {
    pub(super) announced: Vec<String>,
    /// Names and values, one line each.
    pub(super) lines: String,
    pub(super) seen: usize,
    pub(super) signed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Piece,
    Trailer,
    Done,
}

impl Chunks {
    /// `length` of what is inside.
    pub(super) fn new(theirs: Chain, ours: Chain, length: u64, announced: Option<Vec<String>>) -> Self {
        let trailer =
            announced.map(|announced| Trailer { announced, lines: String::new(), seen: 0, signed: false });
        Self { buffer: BytesMut::new(), at: At::Piece, theirs, ours, left: length, trailer }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<Bytes, SignError> {
        self.buffer.extend_from_slice(bytes);
        let mut done = 0;
        while let Some(length) = self.next(done)? {
            done += length;
        }
        Ok(self.buffer.split_to(done).freeze())
    }

    fn finish(&mut self) -> Result<Bytes, SignError> {
        match (self.at, self.buffer.is_empty()) {
            (At::Done, true) if self.left == 0 => Ok(Bytes::new()),
            (At::Done, true) => Err(FrameError::Length.into()),
            (At::Done, false) => Err(FrameError::Surplus.into()),
            _ => Err(FrameError::Cut.into()),
        }
    }

    /// Signs what comes next in the buffer, and says how much that is; none if it is not all here.
    fn next(&mut self, from: usize) -> Result<Option<usize>, SignError> {
        match self.at {
            At::Piece => self.piece(from),
            At::Trailer => self.field(from),
            At::Done if self.buffer.len() > from => Err(FrameError::Surplus.into()),
            At::Done => Ok(None),
        }
    }

    fn piece(&mut self, from: usize) -> Result<Option<usize>, SignError> {
        let rest = self.buffer.get(from..).unwrap_or_default();
        let Some(start) = line_end(rest)? else { return Ok(None) };
        let line = piece_line(rest.get(..start - 2).unwrap_or_default())?;
        let place = line.signature.ok_or(FrameError::Signature)?;
        if line.size > LARGEST_PIECE {
            return Err(FrameError::LargePiece(line.size).into());
        }
        if line.size > self.left {
            return Err(FrameError::Length.into());
        }
        let is_last = line.size == 0;
        // Behind the last piece there are fields, where any are announced, and then an empty line.
        let tail = if is_last && self.trailer.is_some() { 0 } else { 2 };
        let size = line.size as usize;
        let Some(whole) = rest.get(..start + size + tail) else { return Ok(None) };
        let data = whole.get(start..start + size).unwrap_or_default();
        if tail == 2 && !whole.ends_with(b"\r\n") {
            return Err(FrameError::End.into());
        }
        let hash = sha256(data);
        let hashes = [EMPTY, hash.as_str()];
        let signature = self.signature(rest.get(place.clone()).unwrap_or_default())?;
        if !self.theirs.fits("PAYLOAD", &hashes, &signature) {
            return Err(FrameError::OtherSignature.into());
        }
        let ours = padded(self.ours.next("PAYLOAD", &hashes), place.len());
        let length = start + size + tail;
        self.put(from + place.start, &ours)?;
        self.left -= line.size;
        self.at = match (is_last, &self.trailer) {
            (false, _) => At::Piece,
            (true, Some(_)) => At::Trailer,
            (true, None) => At::Done,
        };
        Ok(Some(length))
    }

    /// Fields, then the signature over them, then an empty line.
    fn field(&mut self, from: usize) -> Result<Option<usize>, SignError> {
        let rest = self.buffer.get(from..).unwrap_or_default();
        let Some(end) = line_end(rest)? else { return Ok(None) };
        let line = rest.get(..end - 2).unwrap_or_default().to_vec();
        let Some(trailer) = &mut self.trailer else { return Err(FrameError::Field.into()) };
        if line.is_empty() {
            if !trailer.signed {
                return Err(FrameError::Signature.into());
            }
            self.at = At::Done;
            return Ok(Some(end));
        }
        if trailer.signed {
            return Err(FrameError::Field.into());
        }
        if let Some(signature) = line.strip_prefix(TRAILER.as_bytes()) {
            trailer.signed = true;
            let hash = sha256(trailer.lines.as_bytes());
            let signature = self.signature(signature)?;
            if !self.theirs.fits("TRAILER", &[&hash], &signature) {
                return Err(FrameError::OtherSignature.into());
            }
            let room = line.len() - TRAILER.len();
            let ours = padded(self.ours.next("TRAILER", &[&hash]), room);
            self.put(from + TRAILER.len(), &ours)?;
            return Ok(Some(end));
        }
        trailer.seen += 1;
        let (name, value) = field(&line, Some(&trailer.announced), trailer.seen)?;
        trailer.lines.push_str(&format!("{}:{value}\n", name.to_ascii_lowercase()));
        Ok(Some(end))
    }

    /// A signature without what fills it up.
    fn signature(&self, text: &[u8]) -> Result<String, SignError> {
        let text = std::str::from_utf8(text).map_err(|_| FrameError::Signature)?;
        Ok(text.trim_end_matches('*').to_owned())
    }

    /// Ours has the length of theirs, so nothing moves.
    fn put(&mut self, at: usize, signature: &str) -> Result<(), SignError> {
        let place = self.buffer.get_mut(at..at + signature.len()).ok_or(FrameError::Signature)?;
        place.copy_from_slice(signature.as_bytes());
        Ok(())
    }
}

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Filled up to the length of the one that it replaces.
fn padded(signature: &str, length: usize) -> String {
    format!("{signature:*<length$}", length = length.max(if length > 64 { PADDED } else { 64 }))
}
