//! What a head of HTTP/1 must look like, byte for byte, before a lenient parser sees it. Two readers must
//! not be able to disagree about where a request ends: whatever could make them is refused, not repaired.

use std::mem::MaybeUninit;
use thiserror::Error;

/// The largest head, and the most fields in one.
pub(crate) const MAX_HEAD: usize = 64 << 10;
pub(crate) const MAX_FIELDS: usize = 128;

/// How the body behind a head is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes; none for most requests.
    Length(u64),
    Chunked,
}

macro_rules! malformed {
    ($($variant:ident = $code:literal, $text:literal;)*) => {
        /// Why a message was refused for its shape.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
        pub(crate) enum Malformed {
            $(#[error($text)] $variant,)*
        }

        impl Malformed {
            /// A word that stays the same, for the record and for the way through the HTTP server.
            pub(crate) const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            pub(crate) fn from_code(code: &str) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

malformed! {
    LineEnd = "bare-line-end", "a line ends in a bare CR or LF: end lines with CR LF";
    Syntax = "head-syntax", "the head is not HTTP/1: check the request line and the fields";
    Version = "http-version", "the version is neither HTTP/1.0 nor HTTP/1.1: use one of these";
    Target = "request-target", "the target holds bytes that must be percent-encoded: encode them";
    Host = "host-count", "HTTP/1.1 needs exactly one Host: send one";
    LengthAndChunked = "length-and-chunked", "Content-Length and Transfer-Encoding stand together: send one of them";
    Lengths = "lengths", "Content-Length stands twice or is no number: send one number";
    Coding = "transfer-coding", "Transfer-Encoding is not exactly `chunked`: send that or a Content-Length";
    TooLarge = "head-too-large", "the head is over 64 KiB or 128 fields: send less";
    Chunk = "chunk-syntax", "a chunk has no plain hexadecimal size or no CR LF: send plain chunks";
    Trailer = "trailer-field", "a trailer names a field of framing or routing: send it in the head";
    Method = "method", "the method is reserved: use another";
}

/// The method under which a refusal travels to where it is answered. No client can use it.
pub(crate) const REFUSED: &str = "COFFERDAM-REFUSED";

/// Judges a whole head, from the request line to the empty line.
pub(crate) fn check_head(head: &[u8]) -> Result<Framing, Malformed> {
    lines_end_in_crlf(head)?;
    if head.starts_with(b"\r") {
        return Err(Malformed::Syntax);
    }
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut fields) {
        Ok(httparse::Status::Complete(len)) if len == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Malformed::TooLarge),
        Err(httparse::Error::Version) => return Err(Malformed::Version),
        _ => return Err(Malformed::Syntax),
    }
    if request.method == Some(REFUSED) {
        return Err(Malformed::Method);
    }
    let target = request.path.unwrap_or_default();
    if target.bytes().any(|b| !matches!(b, 0x21..=0x7e) || matches!(b, b'\\' | b'#')) {
        return Err(Malformed::Target);
    }
    framing(head, request.version == Some(1), request.headers)
}

fn framing(head: &[u8], is_1_1: bool, fields: &[httparse::Header<'_>]) -> Result<Framing, Malformed> {
    let (mut length, mut chunked, mut hosts) = (None, false, 0);
    for field in fields {
        let name = field.name;
        if name.eq_ignore_ascii_case("content-length") {
            let value = exact(head, field.value).ok_or(Malformed::Lengths)?;
            if length.replace(decimal(value).ok_or(Malformed::Lengths)?).is_some() {
                return Err(Malformed::Lengths);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            let value = exact(head, field.value).ok_or(Malformed::Coding)?;
            if chunked || !is_1_1 || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed::Coding);
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case("host") {
            hosts += 1;
        }
    }
    match (length, chunked) {
        _ if hosts > 1 || (is_1_1 && hosts == 0) => Err(Malformed::Host),
        (Some(_), true) => Err(Malformed::LengthAndChunked),
        (None, true) => Ok(Framing::Chunked),
        (length, false) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

/// The value if nothing stands between it and the line's end: blanks there are read differently by many.
fn exact<'a>(head: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
    let end = (value.as_ptr() as usize).checked_sub(head.as_ptr() as usize)? + value.len();
    head.get(end..)?.starts_with(b"\r\n").then_some(value)
}

fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 18 {
        return None;
    }
    value.iter().try_fold(0u64, |sum, b| b.is_ascii_digit().then(|| sum * 10 + u64::from(b - b'0')))
}

fn lines_end_in_crlf(head: &[u8]) -> Result<(), Malformed> {
    for at in memchr::memchr2_iter(b'\n', b'\r', head) {
        let ok = if head[at] == b'\n' {
            at > 0 && head[at - 1] == b'\r'
        } else {
            head.get(at + 1) == Some(&b'\n')
        };
        if !ok {
            return Err(Malformed::LineEnd);
        }
    }
    Ok(())
}

/// The size a chunk begins with: `1a` and CR LF, no sign, no extension.
pub(crate) fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.strip_suffix(b"\r\n").ok_or(Malformed::Chunk)?;
    if digits.is_empty() || digits.len() > 15 {
        return Err(Malformed::Chunk);
    }
    digits.iter().try_fold(0u64, |sum, b| {
        let digit = char::from(*b).to_digit(16).ok_or(Malformed::Chunk)?;
        Ok(sum << 4 | u64::from(digit))
    })
}

/// One line of the trailers, with its line end.
pub(crate) fn check_trailer(line: &[u8]) -> Result<(), Malformed> {
    lines_end_in_crlf(line)?;
    let colon = memchr::memchr(b':', line).ok_or(Malformed::Trailer)?;
    let name = &line[..colon];
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    if name.is_empty() || !name.iter().all(is_token) {
        return Err(Malformed::Trailer);
    }
    const KEPT: &[&str] = &[
        "content-length",
        "transfer-encoding",
        "host",
        "connection",
        "content-encoding",
        "content-type",
        "content-range",
        "authorization",
        "cookie",
        "upgrade",
        "te",
        "trailer",
        "expect",
    ];
    let is_kept = KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_bytes()));
    if is_kept { Err(Malformed::Trailer) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(head: &str, expected: Result<Framing, Malformed>) {
        assert_eq!(check_head(head.as_bytes()), expected, "{head:?}");
    }

    #[test]
    fn plain_heads_pass() {
        check("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Framing::Length(0)));
        check("GET / HTTP/1.0\r\n\r\n", Ok(Framing::Length(0)));
        check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", Ok(Framing::Length(5)));
        check("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n", Ok(Framing::Chunked));
    }

    #[test]
    fn c1_shapes_that_two_readers_take_differently_are_refused() {
        use Malformed::*;
        let post = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        check(&post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), Err(LengthAndChunked));
        check(&post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), Err(LengthAndChunked));
        check(&post("Content-Length: 5\r\nContent-Length: 5\r\n"), Err(Lengths));
        check(&post("Content-Length: 5\r\nContent-Length: 6\r\n"), Err(Lengths));
        check(&post("Content-Length: 5, 5\r\n"), Err(Lengths));
        check(&post("Content-Length: +5\r\n"), Err(Lengths));
        check(&post("Content-Length: \r\n"), Err(Lengths));
        check(&post("Transfer-Encoding: chunked\t\r\n"), Err(Coding));
        check(&post("Transfer-Encoding: xchunked\r\n"), Err(Coding));
        check(&post("Transfer-Encoding: chunked, identity\r\n"), Err(Coding));
        check(&post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), Err(Coding));
        check(&post("Transfer-Encoding : chunked\r\n"), Err(Syntax));
        check(&post("X: a\r\n b\r\n"), Err(Syntax));
        check(&post("X: a\0b\r\n"), Err(Syntax));
        check(&post("X: a\nY: b\r\n"), Err(LineEnd));
        check(&post("X: a\rY: b\r\n"), Err(LineEnd));
        check(&post("Host: b\r\n"), Err(Host));
        check("GET / HTTP/1.1\r\n\r\n", Err(Host));
        check("GET / HTTP/1.1\nHost: a\n\n", Err(LineEnd));
        check("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Syntax));
        check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Err(Coding));
        check("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Err(Version));
        check("GET /\r\n\r\n", Err(Syntax));
        check("GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n", Err(Target));
        check("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", Err(Target));
        check("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", Err(Target));
        check(&format!("{REFUSED} /x HTTP/1.1\r\nHost: a\r\n\r\n"), Err(Method));
        let many: String = (0..200).map(|n| format!("x{n}: y\r\n")).collect();
        check(&post(&many), Err(TooLarge));
    }

    #[test]
    fn chunks_and_trailers() {
        assert_eq!(chunk_size(b"1a\r\n"), Ok(26));
        for bad in ["\r\n", "+1\r\n", "0x1\r\n", "1;a=b\r\n", "1 \r\n", "1\n", "1", "fffffffffffffffff\r\n"] {
            assert_eq!(chunk_size(bad.as_bytes()), Err(Malformed::Chunk), "{bad:?}");
        }
        assert_eq!(check_trailer(b"grpc-status: 0\r\n"), Ok(()));
        for bad in ["Content-Length: 1\r\n", "host: a\r\n", "a b: c\r\n", "nothing\r\n", ": x\r\n"] {
            assert_eq!(check_trailer(bad.as_bytes()), Err(Malformed::Trailer), "{bad:?}");
        }
    }

    #[test]
    fn codes_read_back() {
        assert_eq!(Malformed::from_code(Malformed::Lengths.code()), Some(Malformed::Lengths));
        assert_eq!(Malformed::from_code("else"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(head in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = check_head(&head);
            let _ = chunk_size(&head);
            let _ = check_trailer(&head);
        }

        #[test]
        fn what_passes_has_one_reading(fields in proptest::collection::vec(
            "(Content-Length|Transfer-Encoding|Host|X)(:|: | :)(chunked|5|07|a|\t)(\r\n|\n|\r\n )", 0..5)) {
            let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{}\r\n", fields.concat());
            if check_head(head.as_bytes()).is_ok() {
                let lower = head.to_ascii_lowercase();
                prop_assert!(lower.matches("content-length").count() + lower.matches("transfer-encoding").count() <= 1);
                prop_assert_eq!(lower.matches("host").count(), 1);
                prop_assert!(!lower.replace("\r\n", "").contains(['\r', '\n']));
            }
        }
    }
}
