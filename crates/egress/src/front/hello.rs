//! The first bytes of a stream: what the client speaks and, for TLS, which name it asks for. Only looked at,
//! never consumed: whoever serves the stream reads the same bytes again.

use bytes::BytesMut;
use rustls::server::Acceptor;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest ClientHello we wait for; those with post-quantum keys and many tickets stay far below.
const MAX_HELLO: usize = 32 << 10;
/// The longest method of a request that begins a plain stream.
const MAX_METHOD: usize = 32;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Tls(Hello),
    Http,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// As the client wrote it.
    pub(crate) sni: Option<String>,
    pub(crate) ech: Ech,
}

/// What the client says about an encrypted ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ech {
    None,
    /// Offered, or only pretended (GREASE): no one but its server can tell.
    Outer,
    /// A hello that belongs inside of another.
    Inner,
}

/// Reads into `seen` until it is clear what the client speaks. An end before that is `Other`.
pub(crate) async fn peek<T: AsyncRead + Unpin>(stream: &mut T, seen: &mut BytesMut) -> io::Result<Opening> {
    let mut acceptor = Acceptor::default();
    let mut fed = 0;
    loop {
        match seen.first() {
            Some(0x16) => {
                if let Some(opening) = read_hello(&mut acceptor, seen, &mut fed) {
                    return Ok(opening);
                }
            }
            Some(_) => {
                if let Some(opening) = read_method(seen) {
                    return Ok(opening);
                }
            }
            None => {}
        }
        seen.reserve(2048);
        if stream.read_buf(seen).await? == 0 {
            return Ok(Opening::Other);
        }
    }
}

fn read_method(seen: &[u8]) -> Option<Opening> {
    let method = &seen[..seen.len().min(MAX_METHOD)];
    let end = method.iter().position(|b| !(b.is_ascii_uppercase() || matches!(b, b'-' | b'_')));
    match end {
        Some(at) if at > 0 && method[at] == b' ' => Some(Opening::Http),
        Some(_) => Some(Opening::Other),
        None if seen.len() >= MAX_METHOD => Some(Opening::Other),
        None => None,
    }
}

fn read_hello(acceptor: &mut Acceptor, seen: &[u8], fed: &mut usize) -> Option<Opening> {
    while *fed < seen.len() {
        match acceptor.read_tls(&mut &seen[*fed..]) {
            Ok(n) if n > 0 => *fed += n,
            _ => return Some(Opening::Other),
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let sni = accepted.client_hello().server_name().map(str::to_owned);
                let ech = find_ech(seen);
                return Some(ech.map_or(Opening::Other, |ech| Opening::Tls(Hello { sni, ech })));
            }
            Ok(None) => {}
            Err(_) => return Some(Opening::Other),
        }
    }
    (seen.len() > MAX_HELLO).then_some(Opening::Other)
}

const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// Walks a hello that the TLS library found whole to the one extension it does not tell of.
fn find_ech(records: &[u8]) -> Option<Ech> {
    let hello = join_records(records)?;
    let mut at = Walk(hello.get(4..)?);
    at.skip(2 + 32)?;
    at.block8()?;
    at.block16()?;
    at.block8()?;
    let mut extensions = Walk(at.block16()?);
    let mut found = Ech::None;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let body = extensions.block16()?;
        if kind == ENCRYPTED_CLIENT_HELLO {
            found = if body.first() == Some(&1) { Ech::Inner } else { Ech::Outer };
        }
    }
    Some(found)
}

/// The handshake message that begins these records, put together.
fn join_records(mut records: &[u8]) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(records.len());
    loop {
        let len = usize::from(u16::from_be_bytes([*records.get(3)?, *records.get(4)?]));
        message.extend_from_slice(records.get(5..5 + len)?);
        records = &records[5 + len..];
        if let [_, a, b, c, ..] = message[..] {
            let whole = 4 + usize::from(a) * 65536 + usize::from(b) * 256 + usize::from(c);
            if message.len() >= whole {
                message.truncate(whole);
                return Some(message);
            }
        }
    }
}

struct Walk<'a>(&'a [u8]);

impl<'a> Walk<'a> {
    fn skip(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.skip(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    fn block8(&mut self) -> Option<&'a [u8]> {
        let n = self.skip(1)?[0];
        self.skip(usize::from(n))
    }

    fn block16(&mut self) -> Option<&'a [u8]> {
        let n = self.u16()?;
        self.skip(usize::from(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::pki_types::ServerName;
    use std::sync::Arc;

    fn hello_for(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut out = Vec::new();
        client.write_tls(&mut out).unwrap();
        out
    }

    /// The same hello with one more extension at its end.
    fn with_extension(hello: &[u8], extension: &[u8]) -> Vec<u8> {
        let mut body = hello[9..].to_vec();
        let start = 34 + 1 + usize::from(body[34]);
        let suites = usize::from(u16::from_be_bytes([body[start], body[start + 1]]));
        let at = start + 2 + suites + 1 + usize::from(body[start + 2 + suites]);
        let len = u16::from_be_bytes([body[at], body[at + 1]]) + extension.len() as u16;
        body[at..at + 2].copy_from_slice(&len.to_be_bytes());
        body.splice(at + 2..at + 2, extension.iter().copied());
        let mut out = vec![0x16, 3, 1];
        out.extend_from_slice(&(body.len() as u16 + 4).to_be_bytes());
        out.push(1);
        out.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&body);
        out
    }

    fn look(bytes: &[u8]) -> Opening {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(peek(&mut &bytes[..], &mut BytesMut::new())).unwrap()
    }

    #[test]
    fn what_a_client_speaks_is_seen_in_its_first_bytes() {
        let tls = |sni: Option<&str>, ech| Opening::Tls(Hello { sni: sni.map(str::to_owned), ech });
        let hello = hello_for("api.example.com");
        assert_eq!(look(&hello), tls(Some("api.example.com"), Ech::None));
        assert_eq!(look(&hello_for("192.0.2.1")), tls(None, Ech::None));
        let outer = with_extension(&hello, &[0xfe, 0x0d, 0, 12, 0, 0, 1, 0, 1, 7, 0, 1, 9, 0, 1, 9]);
        assert_eq!(look(&outer), tls(Some("api.example.com"), Ech::Outer));
        let inner = with_extension(&hello, &[0xfe, 0x0d, 0, 1, 1]);
        assert_eq!(look(&inner), tls(Some("api.example.com"), Ech::Inner));
        assert_eq!(look(b"GET / HTTP/1.1\r\n"), Opening::Http);
        assert_eq!(look(b"M-SEARCH * HTTP/1.1\r\n"), Opening::Http);
        for other in [&b"SSH-2.0-x"[..], b"", b"\x00\x00", b"EHLO", b"get /", b"\x16\x03\x01\x00\x02hi"] {
            assert_eq!(look(other), Opening::Other, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_something(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), tls in any::<bool>()) {
            if tls && bytes.len() > 3 {
                bytes[..3].copy_from_slice(&[0x16, 3, 1]);
            }
            look(&bytes);
            let _ = find_ech(&bytes);
        }
    }
}
