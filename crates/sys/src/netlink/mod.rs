//! Requests to the kernel's network configuration, as bytes that are made before the boot child starts; the
//! child only sends them and reads what came of each.
//!
//! The programs `ip` and `nft` are not needed, on the host or inside.

mod capture;
mod diagnose;
mod route;

pub use capture::{Capture, capture};
pub use diagnose::inode;
pub use route::everything_is_local;

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

const HEADER: usize = 16;
const NESTED: u16 = 0x8000;

/// One or more messages, sent at once.
pub struct Request {
    /// For errors and recordings.
    pub name: &'static str,
    /// None is the routing protocol, whose number is zero.
    protocol: Option<Protocol>,
    bytes: Vec<u8>,
    /// Each message that asks for it is answered, also when it succeeds.
    answers: usize,
}

impl Request {
    fn new(name: &'static str, protocol: Option<Protocol>) -> Self {
        Self { name, protocol, bytes: Vec::with_capacity(2048), answers: 0 }
    }

    /// A message: its kind, its flags, the structure it begins with, and its attributes.
    fn message(&mut self, kind: u16, flags: u16, start: &[u8], attributes: impl FnOnce(&mut Attributes<'_>)) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&(self.answers as u32).to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(start);
        attributes(&mut Attributes(&mut self.bytes));
        let length = (self.bytes.len() - at) as u32;
        self.bytes[at..at + 4].copy_from_slice(&length.to_ne_bytes());
        self.answers += usize::from(flags & libc::NLM_F_ACK as u16 != 0);
    }

    /// Sends it and reads the answers. The kernel has worked it off when sending returns, so nobody waits.
    pub(crate) fn send(&self) -> Result<(), Errno> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            self.protocol,
        )?;
        rustix::net::send(&socket, &self.bytes, SendFlags::empty())?;
        let mut left = self.answers;
        let mut buffer = [0u8; 4096];
        while left > 0 {
            let (_, length) = rustix::net::recv(&socket, &mut buffer, RecvFlags::DONTWAIT)?;
            let mut rest = buffer.get(..length).ok_or(Errno::BADMSG)?;
            while !rest.is_empty() {
                let (answer, after) = split_message(rest).ok_or(Errno::BADMSG)?;
                succeeded(answer)?;
                left = left.saturating_sub(1);
                rest = after;
            }
        }
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..at + 4).and_then(|four| Some(i32::from_ne_bytes(four.try_into().ok()?)))
}

fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::try_from(number(bytes, 0)?).ok().filter(|length| *length >= HEADER)?;
    let padded = length.next_multiple_of(4).min(bytes.len());
    Some((bytes.get(..length)?, bytes.get(padded..)?))
}

/// An answer is an error message, whose error may be none.
fn succeeded(answer: &[u8]) -> Result<(), Errno> {
    let kind = answer.get(4..6).map(|two| u16::from_ne_bytes([two[0], two[1]]));
    match (kind, number(answer, HEADER)) {
        (Some(kind), Some(0)) if i32::from(kind) == libc::NLMSG_ERROR => Ok(()),
        (Some(kind), Some(code)) if i32::from(kind) == libc::NLMSG_ERROR => {
            Err(Errno::from_raw_os_error(-code))
        }
        _ => Err(Errno::BADMSG),
    }
}

/// Attributes of a message, or of another attribute.
struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    fn put(&mut self, kind: u16, value: &[u8]) {
        self.0.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.pad();
    }

    fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Attributes<'_>)) {
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        inner(&mut Attributes(self.0));
        let length = (self.0.len() - at) as u16;
        self.0[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.pad();
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, code: i32) -> Vec<u8> {
        let mut bytes = [20u32.to_ne_bytes().to_vec(), kind.to_ne_bytes().to_vec(), vec![0; 10]].concat();
        bytes.extend_from_slice(&code.to_ne_bytes());
        bytes
    }

    #[test]
    fn an_answer_is_read_for_its_error() {
        let error = libc::NLMSG_ERROR as u16;
        assert_eq!(succeeded(&answer(error, 0)), Ok(()));
        assert_eq!(succeeded(&answer(error, -libc::ENOENT)), Err(Errno::NOENT));
        assert_eq!(succeeded(&answer(3, 0)), Err(Errno::BADMSG));
        assert_eq!(succeeded(b""), Err(Errno::BADMSG));
        let two = [answer(error, 0), answer(error, -1)].concat();
        let (first, rest) = split_message(&two).unwrap();
        assert_eq!((first.len(), rest.len()), (20, 20));
        assert!(split_message(&[1, 0, 0, 0]).is_none());
        assert!(split_message(&[255, 0, 0, 0, 0, 0, 0, 0]).is_none());
    }

    #[test]
    fn a_message_is_as_long_as_it_says_and_padded() {
        let mut request = Request::new("test", None);
        request.message(7, libc::NLM_F_ACK as u16, &[1, 2, 3, 4], |attributes| {
            attributes.put(9, b"abcde");
            attributes.nest(1, |inner| inner.put(2, b"x"));
        });
        assert_eq!(number(&request.bytes, 0), Some(request.bytes.len() as i32));
        assert_eq!(&request.bytes[20..32], b"\x09\0\x09\0abcde\0\0\0");
        assert_eq!(&request.bytes[32..], b"\x0c\0\x01\x80\x05\0\x02\0x\0\0\0");
        assert_eq!(request.answers, 1);
    }
}
