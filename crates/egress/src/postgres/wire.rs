//! Messages of the Postgres protocol, version 3: what a client opens with, frames, and the few that we write ourselves.
//! Every length is the other side's word and is bounded before it is believed.

use bytes::{BufMut, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
const VERSION_3: u32 = 196_608;

/// As Postgres has it.
const MAX_STARTUP: usize = 10_000;
const MAX_PARAMETERS: usize = 64;

/// What a client says before it may say anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opening {
    Ssl,
    Gss,
    Cancel { pid: u32, secret: Vec<u8> },
    Startup(Startup),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Startup {
    /// The minor version that is asked for; we speak 0.
    pub(crate) minor: u16,
    pub(crate) parameters: Vec<(String, String)>,
}

impl Startup {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Whether these first bytes are those of a client of Postgres; none if there are too few to tell.
pub(crate) fn is_opening(seen: &[u8]) -> Option<bool> {
    let head = seen.get(..8)?;
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let code = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let known = matches!(code, SSL_REQUEST | GSS_REQUEST | CANCEL_REQUEST) || code >> 16 == 3;
    Some(known && (8..=MAX_STARTUP).contains(&length))
}

/// Reads one, without its length; none at the end of the stream.
pub(crate) async fn read_opening<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Opening>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_be_bytes(length) as usize;
    if !(8..=MAX_STARTUP).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length - 4];
    from.read_exact(&mut bytes).await?;
    opening(&bytes).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What follows the length; none if it has another shape.
pub(crate) fn opening(bytes: &[u8]) -> Option<Opening> {
    let (code, rest) = bytes.split_first_chunk::<4>()?;
    match u32::from_be_bytes(*code) {
        SSL_REQUEST => rest.is_empty().then_some(Opening::Ssl),
        GSS_REQUEST => rest.is_empty().then_some(Opening::Gss),
        CANCEL_REQUEST => {
            let (pid, secret) = rest.split_first_chunk::<4>()?;
            let fits = (4..=256).contains(&secret.len());
            fits.then(|| Opening::Cancel { pid: u32::from_be_bytes(*pid), secret: secret.to_vec() })
        }
        version if version >> 16 == 3 => {
            let mut parameters = Vec::new();
            let mut rest = rest;
            while rest != [0] {
                let (name, after) = text(rest)?;
                let (value, after) = text(after)?;
                // The same twice could be read in two ways.
                if name.is_empty()
                    || parameters.len() >= MAX_PARAMETERS
                    || parameters.iter().any(|(key, _)| key == name)
                {
                    return None;
                }
                parameters.push((name.to_owned(), value.to_owned()));
                rest = after;
            }
            Some(Opening::Startup(Startup { minor: (version & 0xffff) as u16, parameters }))
        }
        _ => None,
    }
}

/// A text up to its zero byte, and what follows.
pub(crate) fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = memchr::memchr(0, bytes)?;
    Some((std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

/// The tag and the length of the payload of the message that begins here; none if there are too few bytes.
pub(crate) fn head(bytes: &[u8]) -> Option<Result<(u8, usize), io::Error>> {
    let head = bytes.get(..5)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    Some(match length {
        4..0x4000_0000 => Ok((head[0], length - 4)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    })
}

/// Reads a whole message that must not be larger than `most`.
pub(crate) async fn read_message<R: AsyncRead + Unpin>(
    from: &mut R,
    most: usize,
) -> io::Result<(u8, Vec<u8>)> {
    let mut bytes = [0; 5];
    from.read_exact(&mut bytes).await?;
    let (tag, length) = match head(&bytes) {
        Some(head) => head?,
        None => return Err(io::ErrorKind::InvalidData.into()),
    };
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).await?;
    Ok((tag, payload))
}

/// Appends a message whose payload `write` makes.
pub(crate) fn message(to: &mut BytesMut, tag: u8, write: impl FnOnce(&mut BytesMut)) {
    to.put_u8(tag);
    let at = to.len();
    to.put_u32(0);
    write(to);
    let length = (to.len() - at) as u32;
    to[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

pub(crate) fn put_text(to: &mut BytesMut, text: &str) {
    to.extend(text.bytes().filter(|byte| *byte != 0));
    to.put_u8(0);
}

/// A startup message, which has no tag.
pub(crate) fn startup(parameters: &[(String, String)]) -> BytesMut {
    let mut bytes = BytesMut::new();
    bytes.put_u32(0);
    bytes.put_u32(VERSION_3);
    for (name, value) in parameters {
        put_text(&mut bytes, name);
        put_text(&mut bytes, value);
    }
    bytes.put_u8(0);
    let length = (bytes.len() as u32).to_be_bytes();
    bytes[..4].copy_from_slice(&length);
    bytes
}

/// An error as clients show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) fatal: bool,
    /// SQLSTATE.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Told {
    pub(crate) fn write(&self, to: &mut BytesMut) {
        let severity = if self.fatal { "FATAL" } else { "ERROR" };
        message(to, b'E', |to| {
            for (field, text) in
                [(b'S', severity), (b'V', severity), (b'C', self.code), (b'M', &self.message)]
            {
                to.put_u8(field);
                put_text(to, text);
            }
            if let Some(hint) = &self.hint {
                to.put_u8(b'H');
                put_text(to, hint);
            }
            to.put_u8(0);
        });
    }
}

/// One field of an error, by its letter.
pub(crate) fn error_field(payload: &[u8], wanted: u8) -> Option<&str> {
    let mut rest = payload;
    loop {
        let (&field, after) = rest.split_first()?;
        if field == 0 {
            return None;
        }
        let (value, after) = text(after)?;
        if field == wanted {
            return Some(value);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parameters(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn openings_are_read() {
        let bytes = startup(&parameters(&[("user", "a"), ("database", "b")]));
        assert_eq!(is_opening(&bytes), Some(true));
        let Some(Opening::Startup(found)) = opening(&bytes[4..]) else { panic!() };
        assert_eq!((found.minor, found.get("user"), found.get("x")), (0, Some("a"), None));
        assert_eq!(opening(&SSL_REQUEST.to_be_bytes()), Some(Opening::Ssl));
        assert_eq!(opening(&GSS_REQUEST.to_be_bytes()), Some(Opening::Gss));
        let cancel = [&CANCEL_REQUEST.to_be_bytes()[..], &[0, 0, 0, 7, 1, 2, 3, 4]].concat();
        assert_eq!(opening(&cancel), Some(Opening::Cancel { pid: 7, secret: vec![1, 2, 3, 4] }));
        let twice = startup(&parameters(&[("user", "a"), ("user", "b")]));
        assert_eq!(opening(&twice[4..]), None);
        assert_eq!(opening(b"\0\x03\0\0user\0a\0"), None, "without its end");
        assert_eq!(opening(b"\0\x02\0\0\0"), None, "version 2");
        assert_eq!(is_opening(b"GET / HT"), Some(false));
        assert_eq!(is_opening(b"\0\0"), None);
    }

    #[test]
    fn an_error_has_its_fields() {
        let mut bytes = BytesMut::new();
        let told = Told { fatal: false, code: "42501", message: "no\0".into(), hint: Some("ask".into()) };
        told.write(&mut bytes);
        assert_eq!(head(&bytes).unwrap().unwrap(), (b'E', bytes.len() - 5));
        for (field, expected) in [(b'S', "ERROR"), (b'C', "42501"), (b'M', "no"), (b'H', "ask")] {
            assert_eq!(error_field(&bytes[5..], field), Some(expected));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_opening_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = opening(&bytes);
            let _ = opening(&[&[0, 3, 0, 0], bytes.as_slice()].concat());
            let _ = is_opening(&bytes);
            let _ = head(&bytes);
            let _ = error_field(&bytes, b'M');
        }

        #[test]
        fn what_is_written_is_read(pairs in proptest::collection::btree_map("[a-z]{1,8}", "[^\0]{0,12}", 0..6)) {
            let pairs: Vec<_> = pairs.into_iter().collect();
            let Some(Opening::Startup(found)) = opening(&startup(&pairs)[4..]) else { panic!() };
            prop_assert_eq!(found.parameters, pairs);
        }
    }
}
