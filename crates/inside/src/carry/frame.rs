//! The frames: a kind, a number, a length, a body.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) const HEAD: usize = 9;
/// Of one body. A datagram is no longer either.
pub(super) const MOST: usize = 64 << 10;
/// What of one stream may be under way in one direction.
pub(super) const WINDOW: u32 = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// From inside: a connection to this address.
    Open = 1,
    Data = 2,
    /// No more from this side.
    Eof = 3,
    /// There is no such connection, or no more.
    Reset = 4,
    /// So many bytes more may come.
    Window = 5,
    /// From inside: a datagram that may be answered, with where it is to go.
    Ask = 6,
    Answer = 7,
    /// From inside: a datagram that nobody answers: where it was to go, and how long it was.
    Stray = 8,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        use Kind::{Answer, Ask, Data, Eof, Open, Reset, Stray, Window};
        [Open, Data, Eof, Reset, Window, Ask, Answer, Stray].into_iter().find(|kind| *kind as u8 == byte)
    }
}

pub(super) fn put(out: &mut Vec<u8>, kind: Kind, id: u32, parts: &[&[u8]]) {
    out.push(kind as u8);
    out.extend_from_slice(&id.to_le_bytes());
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&(length as u32).to_le_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A whole frame at the beginning of `bytes`, with how long it is; nothing yet; or none that there is.
#[expect(clippy::type_complexity, reason = "used in one place, where it is taken apart at once")]
pub(super) fn next(bytes: &[u8]) -> Result<Option<(Kind, u32, &[u8], usize)>, ()> {
    let Some(head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    let [kind, i0, i1, i2, i3, l0, l1, l2, l3] = *head;
    let kind = Kind::of(kind).ok_or(())?;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > MOST + ADDRESS {
        return Err(());
    }
    let whole = HEAD + length;
    Ok(bytes.get(HEAD..whole).map(|body| (kind, u32::from_le_bytes([i0, i1, i2, i3]), body, whole)))
}

pub(super) const ADDRESS: usize = 19;

pub(super) fn address(address: SocketAddr) -> [u8; ADDRESS] {
    let mut bytes = [0u8; ADDRESS];
    let (kind, ip) = match address.ip() {
        IpAddr::V4(ip) => (4, ip.to_ipv6_mapped()),
        IpAddr::V6(ip) => (6, ip),
    };
    bytes[0] = kind;
    bytes[1..17].copy_from_slice(&ip.octets());
    bytes[17..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

/// An address at the beginning, and the rest.
pub(super) fn addressed(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let ([kind, ip @ .., p0, p1], rest) = bytes.split_first_chunk::<ADDRESS>()?;
    let ip = Ipv6Addr::from(*ip);
    let ip = match kind {
        4 => IpAddr::V4(ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)),
        6 => IpAddr::V6(ip),
        _ => return None,
    };
    Some((SocketAddr::new(ip, u16::from_le_bytes([*p0, *p1])), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_put_is_found_again() {
        let to: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
        let mut out = Vec::new();
        put(&mut out, Kind::Ask, 7, &[&address(to), b"hello"]);
        let (kind, id, body, whole) = next(&out).unwrap().unwrap();
        assert_eq!((kind, id, whole), (Kind::Ask, 7, out.len()));
        assert_eq!(addressed(body).unwrap(), (to, b"hello".as_slice()));
        assert_eq!(next(&out[..out.len() - 1]), Ok(None));
        let four: SocketAddr = "192.0.2.1:80".parse().unwrap();
        assert_eq!(addressed(&address(four)).unwrap().0, four);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = next(&bytes);
            let _ = addressed(&bytes);
        }
    }
}
