//! `aws-chunked`: a body in pieces, each under a line with its size and, where it is signed, its signature; behind
//! the last one fields of which the head said that they come. Read strictly: what two readers could read in two ways
//! is refused.

/// The longest line of a size, a signature or a field behind the body.
const LONGEST_LINE: usize = 1024;
/// Fields behind a body.
const MOST_FIELDS: usize = 8;
const SIGNATURE: &str = "chunk-signature=";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a line is too long")]
    LongLine,
    #[error("a piece has no size")]
    Size,
    #[error("a piece has no signature, or one that nobody asked for")]
    Signature,
    #[error("the signature of a piece does not fit")]
    OtherSignature,
    #[error("a piece of {0} bytes is too large to be signed")]
    LargePiece(u64),
    #[error("a piece is longer or shorter than its size")]
    End,
    #[error("a field behind the body was not announced, or is none")]
    Field,
    #[error("the head tells another length")]
    Length,
    #[error("it ends before its end")]
    Cut,
    #[error("it goes on behind its end")]
    Surplus,
}

/// What the line above a piece says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PieceLine {
    pub(crate) size: u64,
    /// Where in the line its signature stands.
    pub(crate) signature: Option<std::ops::Range<usize>>,
}

/// A line without its end.
pub(crate) fn piece_line(line: &[u8]) -> Result<PieceLine, FrameError> {
    let text = std::str::from_utf8(line).map_err(|_| FrameError::Size)?;
    let (size, rest) = text.split_once(';').map_or((text, None), |(size, rest)| (size, Some(rest)));
    let is_size = (1..=15).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
    let bytes = u64::from_str_radix(size, 16).ok().filter(|_| is_size).ok_or(FrameError::Size)?;
    let Some(rest) = rest else { return Ok(PieceLine { size: bytes, signature: None }) };
    let signature = rest.strip_prefix(SIGNATURE).ok_or(FrameError::Signature)?;
    let fits = |b: u8| b.is_ascii_hexdigit() || b == b'*';
    if signature.is_empty() || !signature.bytes().all(fits) {
        return Err(FrameError::Signature);
    }
    Ok(PieceLine { size: bytes, signature: Some(text.len() - signature.len()..text.len()) })
}

/// The end of the first line, behind its line end; none if it is not all here.
pub(crate) fn line_end(text: &[u8]) -> Result<Option<usize>, FrameError> {
    let window = text.get(..LONGEST_LINE).unwrap_or(text);
    match memchr::memmem::find(window, b"\r\n") {
        Some(at) => Ok(Some(at + 2)),
        None if text.len() >= LONGEST_LINE => Err(FrameError::LongLine),
        None => Ok(None),
    }
}

/// Reads frames as they come, however they are cut, and gives what is in them.
pub(crate) struct Frames {
    at: At,
    /// A line that is not all here.
    line: Vec<u8>,
    read: u64,
    /// Fields that may follow; any where nobody said.
    fields: Option<Vec<String>>,
    seen: usize,
    /// Whether pieces carry signatures; either where nobody said.
    signed: Option<bool>,
    length: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Line,
    Piece { left: u64 },
    PieceEnd,
    Fields,
    Done,
}

impl Frames {
    /// For whoever looks at what is inside, whoever signed it.
    pub(crate) fn any() -> Self {
        Self { at: At::Line, line: Vec::new(), read: 0, fields: None, seen: 0, signed: None, length: None }
    }

    /// Without signatures, in all `length` bytes, with these fields behind it.
    pub(crate) fn unsigned(length: u64, fields: Vec<String>) -> Self {
        Self { fields: Some(fields), signed: Some(false), length: Some(length), ..Self::any() }
    }

    /// Gives every piece of data, and every line behind the body, to `inside`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], inside: &mut dyn FnMut(&[u8])) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            if let At::Piece { left } = self.at {
                let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let (piece, rest) = bytes.split_at(take);
                inside(piece);
                bytes = rest;
                let left = left - take as u64;
                self.at = if left == 0 { At::PieceEnd } else { At::Piece { left } };
                continue;
            }
            let Some(line) = self.take_line(&mut bytes)? else { return Ok(()) };
            self.line_is(&line, inside)?;
        }
        Ok(())
    }

    /// The next line without its end; none if it is not all here.
    fn take_line(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        if self.at == At::Done {
            return Err(FrameError::Surplus);
        }
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            self.line.push(byte);
            if self.line.ends_with(b"\r\n") {
                self.line.truncate(self.line.len() - 2);
                return Ok(Some(std::mem::take(&mut self.line)));
            }
            if self.line.len() >= LONGEST_LINE {
                return Err(FrameError::LongLine);
            }
        }
        Ok(None)
    }

    fn line_is(&mut self, line: &[u8], inside: &mut dyn FnMut(&[u8])) -> Result<(), FrameError> {
        match self.at {
            At::Line => {
                let piece = piece_line(line)?;
                if self.signed.is_some_and(|signed| signed != piece.signature.is_some()) {
                    return Err(FrameError::Signature);
                }
                self.read = self.read.checked_add(piece.size).ok_or(FrameError::Length)?;
                if self.length.is_some_and(|length| self.read > length) {
                    return Err(FrameError::Length);
                }
                self.at = if piece.size == 0 { At::Fields } else { At::Piece { left: piece.size } };
            }
            At::PieceEnd if line.is_empty() => self.at = At::Line,
            At::Fields if line.is_empty() => self.at = At::Done,
            At::Fields => {
                self.seen += 1;
                field(line, self.fields.as_deref(), self.seen)?;
                inside(b"\n");
                inside(line);
            }
            At::PieceEnd | At::Piece { .. } => return Err(FrameError::End),
            At::Done => return Err(FrameError::Surplus),
        }
        Ok(())
    }

    pub(crate) fn finish(&self) -> Result<(), FrameError> {
        match self.at {
            At::Done if self.length.is_none_or(|length| length == self.read) => Ok(()),
            At::Done => Err(FrameError::Length),
            _ => Err(FrameError::Cut),
        }
    }
}

/// The name and value of a field behind the body, if it was announced.
pub(crate) fn field<'a>(
    line: &'a [u8],
    announced: Option<&[String]>,
    seen: usize,
) -> Result<(&'a str, &'a str), FrameError> {
    let text = std::str::from_utf8(line).map_err(|_| FrameError::Field)?;
    // Some clients end a field with a line feed of its own.
    let text = text.strip_suffix('\n').unwrap_or(text);
    let (name, value) = text.split_once(':').ok_or(FrameError::Field)?;
    let is_known = |names: &[String]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    let is_plain = !value.bytes().any(|b| b.is_ascii_control());
    if seen > MOST_FIELDS || !is_plain || announced.is_some_and(|names| !is_known(names)) {
        return Err(FrameError::Field);
    }
    Ok((name, value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(frames: &mut Frames, bytes: &[u8], cut: usize) -> Result<Vec<u8>, FrameError> {
        let mut out = Vec::new();
        for part in bytes.chunks(cut) {
            frames.push(part, &mut |inside| out.extend_from_slice(inside))?;
        }
        frames.finish()?;
        Ok(out)
    }

    fn check(text: &str, expected: Result<&str, FrameError>) {
        for cut in [1, 3, 4096] {
            let mut frames = Frames::unsigned(5, vec!["x-amz-checksum-crc32".into()]);
            let found = read(&mut frames, text.as_bytes(), cut);
            assert_eq!(found, expected.clone().map(|text| text.as_bytes().to_vec()), "{text:?}");
        }
    }

    #[test]
    fn pieces_are_put_together() {
        check("5\r\nhello\r\n0\r\n\r\n", Ok("hello"));
        check(
            "2\r\nhe\r\n3\r\nllo\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n",
            Ok("hello\nx-amz-checksum-crc32:AAAA"),
        );
    }

    #[test]
    fn what_is_not_framed_as_it_says_is_refused() {
        check("4\r\nhello\r\n0\r\n\r\n", Err(FrameError::End));
        check("6\r\nhello!\r\n0\r\n\r\n", Err(FrameError::Length));
        check("4\r\nhell\r\n0\r\n\r\n", Err(FrameError::Length));
        check("5\r\nhello\r\n", Err(FrameError::Cut));
        check("5\r\nhello\r\n0\r\n\r\nx", Err(FrameError::Surplus));
        check("\r\n", Err(FrameError::Size));
        check("+5\r\nhello", Err(FrameError::Size));
        check("5;a=b\r\nhello", Err(FrameError::Signature));
        check("5;chunk-signature=ab\r\nhello", Err(FrameError::Signature));
        check("5\r\nhello\r\n0\r\nx-other:1\r\n\r\n", Err(FrameError::Field));
        check(&"5".repeat(2000), Err(FrameError::LongLine));
    }

    #[test]
    fn a_line_tells_where_its_signature_is() {
        let line = piece_line(b"10000;chunk-signature=ad80c7").unwrap();
        assert_eq!(line, PieceLine { size: 65536, signature: Some(22..28) });
        for bad in ["", "g", "1;", "1;chunk-signature=", "1;chunk-signature=x", "1234567890abcdef0"] {
            assert!(piece_line(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_cut_reads_the_same(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..6), cut in 1usize..40) {
            let mut framed: Vec<u8> = Vec::new();
            for piece in &pieces {
                framed.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                framed.extend_from_slice(piece);
                framed.extend_from_slice(b"\r\n");
            }
            framed.extend_from_slice(b"0\r\n\r\n");
            let whole = pieces.concat();
            let mut frames = Frames::unsigned(whole.len() as u64, vec![]);
            prop_assert_eq!(read(&mut frames, &framed, cut), Ok(whole));
        }

        #[test]
        fn any_bytes_are_survived(bytes in "[0-9a-f;:\r\n]{0,60}", cut in 1usize..9) {
            let _ = read(&mut Frames::any(), bytes.as_bytes(), cut);
        }
    }
}
