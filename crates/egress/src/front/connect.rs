//! The proxy's own door: a CONNECT, answered by hand because what follows is another protocol, or requests
//! with full URLs.

use super::framing::{MAX_HEAD, Malformed, check_head};
use crate::host::split_port;
use crate::http::identify::host_of;
use crate::rescue::Failure;
use bytes::{Buf, BytesMut};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a client asks of a proxy with its first bytes.
pub(crate) enum Ask {
    /// A tunnel to here.
    Tunnel { host: Arc<str>, port: u16 },
    /// Requests that name their destination one by one.
    Requests,
}

/// Reads as far as it takes to know. The head of a CONNECT is taken out of `seen`; all else stays.
pub(crate) async fn read_ask<T: AsyncRead + Unpin>(
    stream: &mut T,
    seen: &mut BytesMut,
) -> io::Result<Result<Ask, Failure>> {
    const CONNECT: &[u8] = b"CONNECT ";
    loop {
        let n = seen.len().min(CONNECT.len());
        if seen[..n] != CONNECT[..n] {
            return Ok(Ok(Ask::Requests));
        }
        if let Some(end) = memchr::memmem::find(seen, b"\r\n\r\n") {
            let ask = read_connect(&seen[..end + 4]);
            seen.advance(end + 4);
            return Ok(ask);
        }
        if seen.len() > MAX_HEAD {
            return Ok(Err(Failure::Malformed(Malformed::TooLarge)));
        }
        seen.reserve(1024);
        if stream.read_buf(seen).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn read_connect(head: &[u8]) -> Result<Ask, Failure> {
    use super::framing::Framing;
    match check_head(head) {
        // Some old clients send a CONNECT of HTTP/1.0 or none of the fields; the target says it all.
        Ok(Framing::Length(0)) | Err(Malformed::Host) => {}
        Ok(_) => return Err(Failure::Malformed(Malformed::Lengths)),
        Err(why) => return Err(Failure::Malformed(why)),
    }
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let target = line.split(|b| *b == b' ').nth(1).and_then(|t| std::str::from_utf8(t).ok());
    let (host, port) = split_port(target.unwrap_or_default())?;
    let port = port.ok_or(Failure::Malformed(Malformed::Target))?;
    Ok(Ask::Tunnel { host: host_of(host)?, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(bytes: &[u8]) -> (String, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut seen = BytesMut::new();
        let told = match runtime.block_on(read_ask(&mut &bytes[..], &mut seen)) {
            Ok(Ok(Ask::Tunnel { host, port })) => format!("{host} {port}"),
            Ok(Ok(Ask::Requests)) => "requests".to_owned(),
            Ok(Err(failure)) => failure.status().as_str().to_owned(),
            Err(_) => "gone".to_owned(),
        };
        (told, seen.to_vec())
    }

    #[test]
    fn a_tunnel_names_a_host_and_a_port() {
        let check = |text: &str, expected: &str, left: &[u8]| {
            assert_eq!(ask(text.as_bytes()), (expected.to_owned(), left.to_vec()), "{text:?}");
        };
        check("CONNECT A.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\nrest", "a.example 443", b"rest");
        check("CONNECT a.example:443 HTTP/1.0\r\n\r\n", "a.example 443", b"");
        check("CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n", "2001:db8::1 443", b"");
        check("CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n", "400", b"");
        check("CONNECT 0x7f.1:443 HTTP/1.1\r\nHost: x\r\n\r\n", "403", b"");
        check("CONNECT u@a:443 HTTP/1.1\r\nHost: x\r\n\r\n", "400", b"");
        check("CONNECT a:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", "400", b"");
        check("CONNECT a:443 HTTP/1.1\nHost: x\n\r\n\r\n", "400", b"");
        check("CONNECT a:443", "gone", b"CONNECT a:443");
        check("GET http://a/ HTTP/1.1\r\n", "requests", b"GET http://a/ HTTP/1.1\r\n");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            ask(&bytes);
            ask(&[b"CONNECT ", &bytes[..], b"\r\n\r\n"].concat());
        }
    }
}
