//! Which addresses may be dialled on behalf of a sandbox: public unicast ones, and nothing else.
//!
//! The tables are data with a reason on every line. An address that carries another one (mapped, translated) is
//! judged by what it carries. It is for the caller to judge the address that a name was resolved to, and to dial
//! that address and no other. Nothing here resolves a name.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Why an address or a way of writing one is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    #[error("address {address} is refused: {reason} ({range}); only public addresses are reached")]
    Range { address: IpAddr, range: Range, reason: &'static str },
    #[error(
        "address {address} is refused: it stands for {carried}, {reason} ({range}); only public addresses are reached"
    )]
    Carried { address: Ipv6Addr, carried: Ipv4Addr, range: Range, reason: &'static str },
    #[error(
        "host `{host}` is refused: {notation}; write an address in its one usual form, as 192.0.2.1 or 2001:db8::1"
    )]
    Notation { host: String, notation: &'static str },
}

/// A range of addresses, as in `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub first: IpAddr,
    pub prefix: u8,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

const METADATA: &str = "a cloud's metadata service, which hands out credentials";
const DOCUMENTATION: &str = "documentation only";

const fn v4(a: u8, b: u8, c: u8, d: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}

/// The first line that matches gives the reason, so the special ones come first.
#[rustfmt::skip]
const FORBIDDEN_V4: &[(Ipv4Addr, u8, &str)] = &[
    (v4(169, 254, 169, 254), 32, METADATA), // AWS, Google, Azure, Oracle, IBM, DigitalOcean, Hetzner, OpenStack and most others
    (v4(169, 254, 169, 253), 32, "AWS's resolver"),
    (v4(169, 254, 169, 123), 32, "AWS's time service"),
    (v4(169, 254, 170, 2), 32, METADATA), // AWS ECS tasks
    (v4(169, 254, 170, 23), 32, METADATA), // AWS EKS pod identity
    (v4(169, 254, 0, 23), 32, METADATA), // Tencent
    (v4(169, 254, 42, 42), 32, METADATA), // Scaleway
    (v4(100, 100, 100, 200), 32, METADATA), // Alibaba
    (v4(100, 96, 0, 96), 32, METADATA), // Volcano Engine
    (v4(192, 0, 0, 192), 32, METADATA), // Oracle Classic
    (v4(168, 63, 129, 16), 32, METADATA), // Azure's host agent, in the middle of public space
    (v4(0, 0, 0, 0), 8, "this host and network (RFC 791)"),
    (v4(10, 0, 0, 0), 8, "private (RFC 1918)"),
    (v4(100, 64, 0, 0), 10, "shared by carriers, and by overlay networks (RFC 6598)"),
    (v4(127, 0, 0, 0), 8, "loopback: this host's own services"),
    (v4(169, 254, 0, 0), 16, "link-local (RFC 3927)"),
    (v4(172, 16, 0, 0), 12, "private (RFC 1918)"),
    (v4(192, 0, 0, 0), 24, "protocol assignments (RFC 6890)"),
    (v4(192, 0, 2, 0), 24, DOCUMENTATION),
    (v4(192, 88, 99, 0), 24, "6to4 relays, given up (RFC 7526)"),
    (v4(192, 168, 0, 0), 16, "private (RFC 1918)"),
    (v4(198, 18, 0, 0), 15, "benchmarks, and the names a sandbox is given (RFC 2544)"),
    (v4(198, 51, 100, 0), 24, DOCUMENTATION),
    (v4(203, 0, 113, 0), 24, DOCUMENTATION),
    (v4(224, 0, 0, 0), 4, "multicast"),
    (v4(255, 255, 255, 255), 32, "broadcast"),
    (v4(240, 0, 0, 0), 4, "reserved (RFC 1112)"),
];

/// The same for IPv6; what is in no line and not in 2000::/3 is refused too.
#[rustfmt::skip]
const FORBIDDEN_V6: &[(Ipv6Addr, u8, &str)] = &[
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, METADATA), // AWS
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x253), 128, "AWS's resolver"),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23), 128, METADATA), // AWS EKS pod identity
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, METADATA), // Google
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128, METADATA), // Oracle
    (Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1), 128, METADATA), // Akamai
    (Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128, METADATA), // Scaleway
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128, METADATA), // OpenStack
    (Ipv6Addr::UNSPECIFIED, 128, "this host"),
    (Ipv6Addr::LOCALHOST, 128, "loopback: this host's own services"),
    (Ipv6Addr::UNSPECIFIED, 96, "an IPv4 address written as IPv6, given up (RFC 4291)"),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, "an IPv4 address translated by a host (RFC 2765)"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "translated inside a local network (RFC 8215)"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discarded (RFC 6666)"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "Teredo: a tunnel to an IPv4 address (RFC 4380)"),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, "benchmarks (RFC 5180)"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "protocol assignments (RFC 2928)"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, DOCUMENTATION),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4: a tunnel to an IPv4 address, given up (RFC 7526)"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, DOCUMENTATION),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, "segment routing inside a network (RFC 9602)"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "private (RFC 4193)"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local (RFC 4291)"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "site-local, given up (RFC 3879)"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// All of IPv6 that is handed out to be reached by others.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const MAPPED: (Ipv6Addr, u8) = (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);
/// Networks without IPv4 resolve public names to these, so what they carry decides.
const NAT64: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

fn within_v4(address: Ipv4Addr, first: Ipv4Addr, prefix: u8) -> bool {
    let host_bits = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    (address.to_bits() ^ first.to_bits()) & !host_bits == 0
}

fn within_v6(address: Ipv6Addr, (first, prefix): (Ipv6Addr, u8)) -> bool {
    let host_bits = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
    (address.to_bits() ^ first.to_bits()) & !host_bits == 0
}

/// Whether this address may be dialled.
pub fn judge(address: IpAddr) -> Result<(), Forbidden> {
    match address {
        IpAddr::V4(v4) => match find_v4(v4) {
            Some((range, reason)) => Err(Forbidden::Range { address, range, reason }),
            None => Ok(()),
        },
        IpAddr::V6(v6) => judge_v6(v6),
    }
}

fn find_v4(address: Ipv4Addr) -> Option<(Range, &'static str)> {
    let found = FORBIDDEN_V4.iter().find(|(first, prefix, _)| within_v4(address, *first, *prefix));
    found.map(|(first, prefix, reason)| (Range { first: (*first).into(), prefix: *prefix }, *reason))
}

fn judge_v6(address: Ipv6Addr) -> Result<(), Forbidden> {
    if let Some(carried) = carried(address)
        && let Some((range, reason)) = find_v4(carried)
    {
        return Err(Forbidden::Carried { address, carried, range, reason });
    }
    if within_v6(address, MAPPED) || within_v6(address, NAT64) {
        return Ok(());
    }
    let refused = |(first, prefix): (Ipv6Addr, u8), reason| {
        let range = Range { first: first.into(), prefix };
        Err(Forbidden::Range { address: address.into(), range, reason })
    };
    let found = FORBIDDEN_V6.iter().find(|(first, prefix, _)| within_v6(address, (*first, *prefix)));
    match found {
        Some((first, prefix, reason)) => refused((*first, *prefix), reason),
        None if within_v6(address, GLOBAL_V6) => Ok(()),
        None => refused((Ipv6Addr::UNSPECIFIED, 0), "handed out to nobody (outside 2000::/3)"),
    }
}

/// The IPv4 address that an IPv6 one leads to, where its form says so.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., e, f, g, h] = address.segments();
    let last = Ipv4Addr::from_bits(u32::from(g) << 16 | u32::from(h));
    // ISATAP: any prefix, and an interface id that says "an IPv4 address follows".
    let isatap = matches!(e, 0 | 0x200) && f == 0x5efe;
    (isatap || within_v6(address, MAPPED) || within_v6(address, NAT64)).then_some(last)
}

/// Whether this host answers to the address itself: then its own services stand behind it, public or not.
///
/// Asks the kernel for the route and sends nothing.
pub fn is_this_host(address: IpAddr) -> io::Result<bool> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    match socket.connect((address, 9)) {
        Ok(()) => Ok(socket.local_addr()?.ip().to_canonical() == address.to_canonical()),
        // Without a way there it is not here.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The address that a host in a URL or header is, if it is one and not a name. The many other ways of writing
/// an address, which clients and servers read differently, are refused.
pub fn host_literal(host: &str) -> Result<Option<IpAddr>, Forbidden> {
    let refused = |notation| Err(Forbidden::Notation { host: shown(host), notation });
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(inner) = bracketed.or_else(|| host.contains(':').then_some(host)) {
        return match inner.parse::<Ipv6Addr>() {
            Ok(address) => Ok(Some(address.into())),
            Err(_) if inner.contains('%') => {
                refused("an address with a zone means another one on every host")
            }
            Err(_) if inner.parse::<SocketAddr>().is_ok() => refused("a host has no port in it"),
            Err(_) => refused("what has a colon or brackets is an IPv6 address, and this is none"),
        };
    }
    if host.contains(['[', ']']) {
        return refused("a bracket is missing");
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(Some(address.into()));
    }
    let ascii = idna::domain_to_ascii_cow(host.as_bytes(), idna::AsciiDenyList::EMPTY);
    let ascii = ascii.as_deref().unwrap_or(host);
    let last = ascii.strip_suffix('.').unwrap_or(ascii).rsplit('.').next().unwrap_or_default();
    if is_number(last) {
        return refused("a number at the end makes it an address, in a form that is read in several ways");
    }
    Ok(None)
}

/// What the C library and browsers take for a number: decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Hostile text for an error: short, and without control characters.
fn shown(host: &str) -> String {
    host.chars().take(80).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(address: &str, expected: &str) {
        let judged = judge(address.parse().unwrap());
        match expected {
            "" => assert_eq!(judged, Ok(()), "{address}"),
            text => {
                let error = judged.expect_err(address).to_string();
                assert!(error.contains(text), "{address}: {error}");
            }
        }
    }

    #[test]
    fn public_addresses_are_reached() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "168.63.129.15",
            "172.15.255.255",
            "172.32.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "100.63.255.255",
            "100.128.0.0",
            "2606:4700::1111",
            "2a00:1450::200e",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:200::1",
        ] {
            check(address, "");
        }
    }

    #[test]
    fn metadata_of_every_cloud_is_refused_by_name() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.0.23",
            "169.254.42.42",
            "100.100.100.200",
            "100.96.0.96",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:a9fe:a9fe::1",
            "fd00:42::42",
            "fe80::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            check(address, "metadata");
        }
    }

    #[test]
    fn what_is_not_public_is_refused_with_its_reason() {
        for (address, reason) in [
            ("0.0.0.0", "this host"),
            ("0.1.2.3", "this host"),
            ("10.0.0.1", "private"),
            ("10.255.255.255", "10.0.0.0/8"),
            ("100.64.0.1", "carriers"),
            ("127.0.0.1", "loopback"),
            ("127.8.9.1", "loopback"),
            ("169.254.1.1", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "172.16.0.0/12"),
            ("192.0.2.7", "documentation"),
            ("192.88.99.1", "6to4"),
            ("192.168.1.1", "private"),
            ("198.18.0.2", "benchmarks"),
            ("198.19.255.255", "benchmarks"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.1", "documentation"),
            ("224.0.0.251", "multicast"),
            ("239.255.255.250", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "this host"),
            ("::1", "loopback"),
            ("::127.0.0.1", "written as IPv6"),
            ("::8.8.8.8", "written as IPv6"),
            ("::ffff:127.0.0.1", "stands for 127.0.0.1"),
            ("::ffff:10.0.0.1", "stands for 10.0.0.1"),
            ("::ffff:0:8.8.8.8", "translated"),
            ("64:ff9b::7f00:1", "stands for 127.0.0.1"),
            ("64:ff9b:1::808:808", "local network"),
            ("2002:7f00:1::", "6to4"),
            ("2002:808:808::", "6to4"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"),
            ("2001:10::1", "protocol assignments"),
            ("2001:2::1", "benchmarks"),
            ("2001:db8::1", "documentation"),
            ("2606:4700::5efe:10.0.0.1", "stands for 10.0.0.1"),
            ("2606:4700::200:5efe:192.168.0.1", "stands for 192.168.0.1"),
            ("3fff:1::1", "documentation"),
            ("5f00::1", "segment routing"),
            ("4000::1", "handed out to nobody"),
            ("100::1", "discarded"),
            ("fc00::1", "private"),
            ("fd12:3456::1", "private"),
            ("fe80::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
        ] {
            check(address, reason);
        }
    }

    #[track_caller]
    fn literal(host: &str, expected: Result<Option<&str>, ()>) {
        let expected = expected.map(|found| found.map(|address| address.parse::<IpAddr>().unwrap()));
        assert_eq!(host_literal(host).map_err(drop), expected, "{host}");
    }

    #[test]
    fn an_address_has_one_way_to_be_written() {
        for (host, address) in [
            ("127.0.0.1", "127.0.0.1"),
            ("93.184.216.34", "93.184.216.34"),
            ("[::1]", "::1"),
            ("2606:4700::1111", "2606:4700::1111"),
            ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
        ] {
            literal(host, Ok(Some(address)));
        }
        for name in [
            "example.com",
            "a",
            "1e100.net",
            "0x.example",
            "127.0.0.1.example.com",
            "3com.com",
            "bücher.example",
            "",
        ] {
            literal(name, Ok(None));
        }
        for host in [
            "2130706433",
            "0177.0.0.1",
            "0x7f000001",
            "0x7f.0.0.1",
            "0X7F.1",
            "127.1",
            "127.0.1",
            "0",
            "127.0.0.01",
            "127.0.0.1.",
            "1.2.3.4.5",
            "256.1.1.1",
            "999999999999",
            "127.0.0.0x1",
            "example.1",
            "[::1%lo]",
            "fe80::1%25eth0",
            "[::1",
            "::1]",
            "[127.0.0.1]",
            "[v1.fe80::a]",
            "127.0.0.1:80",
            "１２７.０.０.１",
            "①②⑦.0.0.1",
            "127。0。0。1",
        ] {
            literal(host, Err(()));
        }
    }

    #[test]
    fn an_address_of_this_host_is_known_as_one() {
        assert!(is_this_host(Ipv4Addr::LOCALHOST.into()).unwrap());
        assert!(!is_this_host(v4(192, 0, 2, 1).into()).unwrap());
    }

    proptest! {
        /// Where the standard library has an opinion, ours is no milder.
        #[test]
        fn no_milder_than_the_standard_library_v4(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let bad = address.is_loopback() || address.is_private() || address.is_link_local() || address.is_multicast()
                || address.is_broadcast() || address.is_unspecified() || address.is_documentation();
            prop_assert!(!(bad && judge(address.into()).is_ok()), "{address}");
        }

        #[test]
        fn no_milder_than_the_standard_library_v6(high in prop::sample::select(vec![0u16, 0x64, 0x2001, 0x2002, 0xfc00, 0xfe80, 0xff02, 0x2606]), rest: [u16; 7]) {
            let mut segments = [high, 0, 0, 0, 0, 0, 0, 0];
            segments[1..].copy_from_slice(&rest);
            let address = Ipv6Addr::from(segments);
            let bad = address.is_loopback() || address.is_multicast() || address.is_unspecified()
                || address.is_unique_local() || address.is_unicast_link_local();
            prop_assert!(!(bad && judge(address.into()).is_ok()), "{address}");
        }

        /// However it is carried, a forbidden IPv4 address stays one.
        #[test]
        fn carrying_an_address_does_not_launder_it(bits: u32, form in 0usize..5) {
            let inner = Ipv4Addr::from_bits(bits);
            let [a, b, c, d] = inner.octets();
            let (g, h) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let outer = match form {
                0 => inner.to_ipv6_mapped(),
                1 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, g, h),
                2 => Ipv6Addr::new(0x2002, g, h, 0, 0, 0, 0, 1),
                3 => Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, g, h),
                _ => inner.to_ipv6_compatible(),
            };
            prop_assert!(judge(inner.into()).is_ok() || judge(outer.into()).is_err(), "{outer}");
        }

        #[test]
        fn any_text_is_a_name_an_address_or_refused(host in "\\PC{0,40}") {
            if let Ok(Some(address)) = host_literal(&host) {
                prop_assert_eq!(host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().unwrap(), address);
            }
        }

        /// What the C library would take for an address is never taken for a name.
        #[test]
        fn numbers_are_no_names(parts in prop::collection::vec("(0x)?[0-9]{1,4}", 1..5), dot: bool) {
            let host = format!("{}{}", parts.join("."), if dot { "." } else { "" });
            prop_assert!(!matches!(host_literal(&host), Ok(None)), "{}", host);
        }
    }
}
