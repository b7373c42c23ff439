//! One table of nftables that hands every connection and datagram to a listener, whatever its destination.

use super::{Attributes, Request};
use std::net::{IpAddr, SocketAddr};

const TABLE: &[u8] = b"cofferdam\0";
const CHAIN: &[u8] = b"capture\0";
/// Before anything else decides about a packet (`mangle`).
const PRIORITY: i32 = -150;
const SUBSYSTEM: u16 = libc::NFNL_SUBSYS_NFTABLES as u16;
const ACK: u16 = libc::NLM_F_ACK as u16;
const CREATE: u16 = libc::NLM_F_CREATE as u16 | ACK;

/// Attributes of linux/netfilter/nf_tables.h.
mod attribute {
    pub(super) const TABLE_NAME: u16 = 1;
    pub(super) const CHAIN_TABLE: u16 = 1;
    pub(super) const CHAIN_NAME: u16 = 3;
    pub(super) const CHAIN_HOOK: u16 = 4;
    pub(super) const CHAIN_POLICY: u16 = 5;
    pub(super) const CHAIN_TYPE: u16 = 7;
    pub(super) const HOOK_NUMBER: u16 = 1;
    pub(super) const HOOK_PRIORITY: u16 = 2;
    pub(super) const RULE_TABLE: u16 = 1;
    pub(super) const RULE_CHAIN: u16 = 2;
    pub(super) const RULE_EXPRESSIONS: u16 = 4;
    pub(super) const LIST_ELEMENT: u16 = 1;
    pub(super) const EXPRESSION_NAME: u16 = 1;
    pub(super) const EXPRESSION_DATA: u16 = 2;
    pub(super) const DATA_VALUE: u16 = 1;
    pub(super) const DATA_VERDICT: u16 = 2;
    pub(super) const VERDICT_CODE: u16 = 1;
    pub(super) const META_TO: u16 = 1;
    pub(super) const META_KEY: u16 = 2;
    pub(super) const COMPARE_FROM: u16 = 1;
    pub(super) const COMPARE_HOW: u16 = 2;
    pub(super) const COMPARE_DATA: u16 = 3;
    pub(super) const PAYLOAD_TO: u16 = 1;
    pub(super) const PAYLOAD_BASE: u16 = 2;
    pub(super) const PAYLOAD_OFFSET: u16 = 3;
    pub(super) const PAYLOAD_LENGTH: u16 = 4;
    pub(super) const IMMEDIATE_TO: u16 = 1;
    pub(super) const IMMEDIATE_DATA: u16 = 2;
    pub(super) const TPROXY_FAMILY: u16 = 1;
    pub(super) const TPROXY_ADDRESS: u16 = 2;
    pub(super) const TPROXY_PORT: u16 = 3;
}

const REGISTER_1: u32 = libc::NFT_REG_1 as u32;
const REGISTER_2: u32 = libc::NFT_REG_2 as u32;

/// What is let through as it is, and who is handed the rest.
pub struct Capture<'a> {
    /// Addresses of the namespace's own services, by their first bytes.
    pub here: &'a [(IpAddr, usize)],
    /// Transparent listeners for connections and sockets for datagrams, at most one for each family.
    pub tcp: &'a [SocketAddr],
    pub udp: &'a [SocketAddr],
}

/// What no rule takes is dropped: other protocols, and everything once the listeners are gone.
pub fn capture(capture: &Capture<'_>) -> Request {
    let mut request = Request::new("capture", Some(rustix::net::netlink::NETFILTER));
    batch(&mut request, libc::NFNL_MSG_BATCH_BEGIN);
    put(&mut request, libc::NFT_MSG_NEWTABLE, CREATE, |a| a.put(attribute::TABLE_NAME, TABLE));
    put(&mut request, libc::NFT_MSG_NEWCHAIN, CREATE, |a| {
        a.put(attribute::CHAIN_TABLE, TABLE);
        a.put(attribute::CHAIN_NAME, CHAIN);
        a.nest(attribute::CHAIN_HOOK, |hook| {
            hook.put_be(attribute::HOOK_NUMBER, libc::NF_INET_PRE_ROUTING as u32);
            hook.put_be(attribute::HOOK_PRIORITY, PRIORITY as u32);
        });
        a.put_be(attribute::CHAIN_POLICY, libc::NF_DROP as u32);
        a.put(attribute::CHAIN_TYPE, b"filter\0");
    });
    for (address, bytes) in capture.here {
        rule(&mut request, |e| {
            destined_for(e, *address, *bytes);
            accept(e);
        });
    }
    let tcp = capture.tcp.iter().map(|to| (libc::IPPROTO_TCP, to));
    let udp = capture.udp.iter().map(|to| (libc::IPPROTO_UDP, to));
    for (protocol, to) in tcp.chain(udp) {
        rule(&mut request, |e| {
            family_is(e, to.ip());
            meta_is(e, libc::NFT_META_L4PROTO as u32, protocol as u8);
            hand_to(e, *to);
            accept(e);
        });
    }
    batch(&mut request, libc::NFNL_MSG_BATCH_END);
    request
}

/// `struct nfgenmsg`: family, version, and for the ends of a batch whom it concerns.
fn batch(request: &mut Request, end: i32) {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    request.message(end as u16, 0, &[libc::AF_UNSPEC as u8, 0, high, low], |_| {});
}

fn put(request: &mut Request, kind: i32, flags: u16, attributes: impl FnOnce(&mut Attributes<'_>)) {
    let kind = SUBSYSTEM << 8 | kind as u16;
    request.message(kind, flags, &[libc::NFPROTO_INET as u8, 0, 0, 0], attributes);
}

fn rule(request: &mut Request, expressions: impl FnOnce(&mut Attributes<'_>)) {
    put(request, libc::NFT_MSG_NEWRULE, CREATE | libc::NLM_F_APPEND as u16, |a| {
        a.put(attribute::RULE_TABLE, TABLE);
        a.put(attribute::RULE_CHAIN, CHAIN);
        a.nest(attribute::RULE_EXPRESSIONS, expressions);
    });
}

impl Attributes<'_> {
    fn put_be(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    fn expression(&mut self, name: &[u8], data: impl FnOnce(&mut Attributes<'_>)) {
        self.nest(attribute::LIST_ELEMENT, |element| {
            element.put(attribute::EXPRESSION_NAME, name);
            element.nest(attribute::EXPRESSION_DATA, data);
        });
    }
}

fn compare(e: &mut Attributes<'_>, with: &[u8]) {
    e.expression(b"cmp\0", |a| {
        a.put_be(attribute::COMPARE_FROM, REGISTER_1);
        a.put_be(attribute::COMPARE_HOW, libc::NFT_CMP_EQ as u32);
        a.nest(attribute::COMPARE_DATA, |data| data.put(attribute::DATA_VALUE, with));
    });
}

fn meta_is(e: &mut Attributes<'_>, key: u32, value: u8) {
    e.expression(b"meta\0", |a| {
        a.put_be(attribute::META_TO, REGISTER_1);
        a.put_be(attribute::META_KEY, key);
    });
    compare(e, &[value]);
}

fn family(address: IpAddr) -> i32 {
    if address.is_ipv4() { libc::NFPROTO_IPV4 } else { libc::NFPROTO_IPV6 }
}

fn family_is(e: &mut Attributes<'_>, address: IpAddr) {
    meta_is(e, libc::NFT_META_NFPROTO as u32, family(address) as u8);
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

/// The first `bytes` of the destination are those of `address`.
fn destined_for(e: &mut Attributes<'_>, address: IpAddr, bytes: usize) {
    let offset = if address.is_ipv4() { 16 } else { 24 };
    let octets = octets(address);
    let start = &octets[..bytes.min(octets.len())];
    family_is(e, address);
    e.expression(b"payload\0", |a| {
        a.put_be(attribute::PAYLOAD_TO, REGISTER_1);
        a.put_be(attribute::PAYLOAD_BASE, libc::NFT_PAYLOAD_NETWORK_HEADER as u32);
        a.put_be(attribute::PAYLOAD_OFFSET, offset);
        a.put_be(attribute::PAYLOAD_LENGTH, start.len() as u32);
    });
    compare(e, start);
}

fn load(e: &mut Attributes<'_>, register: u32, value: &[u8]) {
    e.expression(b"immediate\0", |a| {
        a.put_be(attribute::IMMEDIATE_TO, register);
        a.nest(attribute::IMMEDIATE_DATA, |data| data.put(attribute::DATA_VALUE, value));
    });
}

fn hand_to(e: &mut Attributes<'_>, to: SocketAddr) {
    load(e, REGISTER_1, &octets(to.ip()));
    load(e, REGISTER_2, &to.port().to_be_bytes());
    e.expression(b"tproxy\0", |a| {
        a.put_be(attribute::TPROXY_FAMILY, family(to.ip()) as u32);
        // An IPv6 address fills the first of the old, large registers, so the port goes to the second.
        a.put_be(attribute::TPROXY_ADDRESS, REGISTER_1);
        a.put_be(attribute::TPROXY_PORT, REGISTER_2);
    });
}

fn accept(e: &mut Attributes<'_>) {
    e.expression(b"immediate\0", |a| {
        a.put_be(attribute::IMMEDIATE_TO, libc::NFT_REG_VERDICT as u32);
        a.nest(attribute::IMMEDIATE_DATA, |data| {
            data.nest(attribute::DATA_VERDICT, |verdict| {
                verdict.put_be(attribute::VERDICT_CODE, libc::NF_ACCEPT as u32);
            });
        });
    });
}
