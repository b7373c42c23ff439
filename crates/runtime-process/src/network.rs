//! The network of a sandbox whose egress is governed: a loopback interface and nothing else, on which every
//! address of the world is found. Whatever is sent to one comes out at a door: a socket that the boot child makes
//! in the sandbox's network namespace and gives away, so that nobody inside holds it.
//!
//! All of it is done before capabilities are dropped, by messages to the kernel. Nobody inside can change it, not
//! even root of a nested user namespace: the network belongs to the namespace around it.

use crate::caller::Inside;
use cofferdam_runtime::{Doors, RuntimeError, ShownFile};
use cofferdam_sys::boot::Op;
use cofferdam_sys::door::{Door, Kind};
use cofferdam_sys::netlink::{self, Capture};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicI32;
use std::sync::{Arc, Mutex};

/// An address for programs that want one that is not loopback's: the first of the range from which names get
/// theirs. Without it the C library finds "no network" and refuses to resolve.
const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Where clients that know of proxies find ours.
const PROXY: u16 = 3128;
const DNS: u16 = 53;
/// Where captured traffic is handed over. Below 1024, so that nothing inside can want it for itself.
const CAPTURE: u16 = 1;

/// Behind these ports of the inside's loopback is the host. Nobody is led to them from outside.
pub const DOOR_PORTS: [u16; 3] = [PROXY, DNS, CAPTURE];

/// Addresses that nobody has (RFC 5737, RFC 3849), to try the capture with.
const KNOCK_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const KNOCK_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const KNOCK_PORT: u16 = 9;

const RESOLV_CONF: &str = "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n";
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n198.18.0.1 cofferdam\n";

/// What is to be made, decided by a look at the host.
#[derive(Debug)]
pub(crate) struct Wanted {
    ipv6: bool,
    /// The capture may be lacking: nothing leaves then but by the proxy.
    may_lack: bool,
}

pub(crate) fn look(may_lack: bool) -> Wanted {
    Wanted { ipv6: has_ipv6(), may_lack }
}

/// Settings of the inside's own, by which programs find our DNS.
pub(crate) fn files() -> Vec<ShownFile> {
    let file = |at: &str, content: &str| ShownFile { at: at.into(), content: content.as_bytes().to_vec() };
    vec![file("/etc/resolv.conf", RESOLV_CONF), file("/etc/hosts", HOSTS)]
}

/// Whether a new network namespace will have IPv6: not where the kernel lacks it, or new ones inherit its lack.
fn has_ipv6() -> bool {
    let setting = |name: &str| fs::read_to_string(Path::new("/proc/sys/net").join(name)).unwrap_or_default();
    let inherits = matches!(setting("core/devconf_inherit_init_net").trim(), "1" | "3");
    let off = setting("ipv6/conf/default/disable_ipv6");
    match off.trim() {
        "" => false,
        "1" => !inherits,
        _ => true,
    }
}

impl Wanted {
    fn loopbacks(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let v6 = self.ipv6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
        [IpAddr::V4(Ipv4Addr::LOCALHOST)].into_iter().chain(v6)
    }

    fn captures(&self) -> Vec<SocketAddr> {
        self.loopbacks().map(|ip| (ip, CAPTURE).into()).collect()
    }

    /// The order in which `doors` takes them.
    fn list(&self) -> Vec<Door> {
        let plain = |port, kind| Door { at: (Ipv4Addr::LOCALHOST, port).into(), kind, transparent: false };
        let mut doors = vec![plain(PROXY, Kind::Tcp), plain(DNS, Kind::Tcp), plain(DNS, Kind::Udp)];
        for kind in [Kind::Tcp, Kind::Udp] {
            doors.extend(self.captures().into_iter().map(|at| Door { at, kind, transparent: true }));
        }
        doors.push(plain(0, Kind::Diagnosis));
        doors
    }

    /// What to try the capture with: one address of each family.
    pub(crate) fn knocks(&self) -> Vec<SocketAddr> {
        let v6 = self.ipv6.then_some(SocketAddr::from((KNOCK_V6, KNOCK_PORT)));
        [SocketAddr::from((KNOCK_V4, KNOCK_PORT))].into_iter().chain(v6).collect()
    }

    /// Loopback is up; capabilities are all there. The doors stand before anything can be sent to them.
    pub(crate) fn open(&self, capture: bool, ops: &mut Vec<Op>) {
        ops.push(Op::Doors { doors: self.list() });
        if !capture {
            return;
        }
        let routes = netlink::everything_is_local(OWN, self.ipv6);
        ops.push(Op::Netlink { request: routes, optional: false });
        let mut here = vec![(IpAddr::V4(Ipv4Addr::LOCALHOST), 1), (OWN.into(), 4)];
        here.extend(self.ipv6.then_some((IpAddr::V6(Ipv6Addr::LOCALHOST), 16)));
        let to = self.captures();
        let request = netlink::capture(&Capture { here: &here, tcp: &to, udp: &to });
        ops.push(Op::Netlink { request, optional: self.may_lack });
    }

    /// The sockets that were handed over, in the order of `list`.
    pub(crate) fn doors(&self, guest: Arc<AtomicI32>, sockets: Vec<OwnedFd>) -> Result<Doors, RuntimeError> {
        let wrong = || RuntimeError::Step {
            step: "supervise",
            what: "the boot child has handed over other sockets than it was told to make".into(),
            fix: "report this".into(),
        };
        let families = self.loopbacks().count();
        if sockets.len() != self.list().len() {
            return Err(wrong());
        }
        let mut sockets = sockets.into_iter();
        let mut next = || sockets.next().ok_or_else(wrong);
        Ok(Doors {
            proxy: next()?.into(),
            dns_tcp: next()?.into(),
            dns_udp: next()?.into(),
            transparent: (0..families).map(|_| next().map(Into::into)).collect::<Result<_, _>>()?,
            stray_udp: (0..families).map(|_| next().map(Into::into)).collect::<Result<_, _>>()?,
            callers: Arc::new(Inside { guest, diagnosis: Mutex::new(next()?) }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_stand_before_traffic_is_led_to_them() {
        let shown = |ipv6, capture| {
            let mut ops = Vec::new();
            Wanted { ipv6, may_lack: false }.open(capture, &mut ops);
            ops.iter().map(Op::to_string).collect::<Vec<_>>()
        };
        let doors = "doors Tcp 127.0.0.1:3128 Tcp 127.0.0.1:53 Udp 127.0.0.1:53 Tcp 127.0.0.1:1 Udp 127.0.0.1:1 Diagnosis 127.0.0.1:0";
        assert_eq!(shown(false, true), [doors, "netlink routes", "netlink capture"]);
        assert_eq!(shown(false, false), [doors]);
        let is_optional = |may_lack| {
            let mut ops = Vec::new();
            Wanted { ipv6: false, may_lack }.open(true, &mut ops);
            let requests = ops.iter().filter_map(|op| match op {
                Op::Netlink { optional, .. } => Some(*optional),
                _ => None,
            });
            requests.collect::<Vec<_>>()
        };
        assert_eq!((is_optional(false), is_optional(true)), (vec![false, false], vec![false, true]));
        assert!(shown(true, true)[0].contains("Tcp [::1]:1 Udp 127.0.0.1:1 Udp [::1]:1"));
    }
}
