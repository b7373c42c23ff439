//! Routes of a network namespace that has only its loopback interface.

use super::{Attributes, Request};
use std::net::{Ipv4Addr, Ipv6Addr};

/// In a new namespace the loopback interface is the first.
const LOOPBACK: u32 = 1;
const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL | libc::NLM_F_ACK) as u16;

/// Gives the loopback interface the address `own` besides its usual one, and makes every address one of this
/// namespace: what is sent to any is received here. Connections come from `own` (or `::1`) unless their client
/// chose another address.
pub fn everything_is_local(own: Ipv4Addr, ipv6: bool) -> Request {
    let mut request = Request::new("routes", None);
    let inet = libc::AF_INET as u8;
    // struct ifaddrmsg: family, prefix, flags, scope, interface
    let start = [[inet, 32, 0, libc::RT_SCOPE_UNIVERSE], LOOPBACK.to_ne_bytes()].concat();
    request.message(libc::RTM_NEWADDR, CREATE, &start, |attributes| {
        attributes.put(libc::IFA_LOCAL, &own.octets());
        attributes.put(libc::IFA_ADDRESS, &own.octets());
    });
    local_route(&mut request, inet, &own.octets());
    if ipv6 {
        local_route(&mut request, libc::AF_INET6 as u8, &Ipv6Addr::LOCALHOST.octets());
    }
    request
}

fn local_route(request: &mut Request, family: u8, source: &[u8]) {
    // struct rtmsg: family, destination and source prefix, type of service, table, protocol, scope, type, flags
    let (table, protocol) = (libc::RT_TABLE_LOCAL, libc::RTPROT_BOOT);
    let start = [family, 0, 0, 0, table, protocol, libc::RT_SCOPE_HOST, libc::RTN_LOCAL, 0, 0, 0, 0];
    request.message(libc::RTM_NEWROUTE, CREATE, &start, |attributes: &mut Attributes<'_>| {
        attributes.put(libc::RTA_OIF, &LOOPBACK.to_ne_bytes());
        attributes.put(libc::RTA_PREFSRC, source);
    });
}
