//! Whether what is sent out of a sandbox comes to the doors: tried, not read from settings. Before the guest was
//! executed, its process knocked at addresses that nobody has; here it is seen who was heard.

use super::line;
use cofferdam_model::{Control, State};
use cofferdam_runtime::Doors;
use cofferdam_sys::door;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// For all doors together. What was sent is there already, unless the machine is very busy.
const PATIENCE: Duration = Duration::from_secs(1);

/// The line, given the doors and what was knocked at.
pub(super) fn capture(namespace: u64, doors: Option<&Doors>, knocks: &[SocketAddr]) -> Control {
    let off = |detail: String| line("network.capture", State::Off, detail, json!(null));
    let Some(doors) = doors else { return off("there are no doors".into()) };
    match are_inside(namespace, doors) {
        Ok(true) => {}
        Ok(false) => return off("the doors are not in the sandbox's network".into()),
        Err(error) => return off(format!("the doors cannot be looked at: {error}")),
    }
    let heard = heard(doors);
    if let Some(missed) =
        knocks.iter().find(|knock| !heard.contains(&("TCP", **knock)) || !heard.contains(&("UDP", **knock)))
    {
        return off(format!(
            "what is sent to {missed} and the like does not come to the doors, and nowhere else: only what asks the proxy is carried"
        ));
    }
    let address = |local: io::Result<SocketAddr>| local.map(|at| at.to_string()).unwrap_or_default();
    let (proxy, dns) = (address(doors.proxy.local_addr()), address(doors.dns_udp.local_addr()));
    let tried: Vec<String> = heard.iter().map(|(kind, at)| format!("{kind} {at}")).collect();
    line(
        "network.capture",
        State::Enforced,
        format!(
            "every TCP and UDP destination comes to us, tried with {}; proxy {proxy}, DNS {dns}",
            tried.join(", ")
        ),
        json!({ "proxy": proxy, "dns": dns, "tried": tried }),
    )
}

/// Takes from each door what has come to it.
fn heard(doors: &Doors) -> BTreeSet<(&'static str, SocketAddr)> {
    let mut heard = BTreeSet::new();
    let until = Instant::now() + PATIENCE;
    for listener in doors.transparent.iter().filter(|listener| waits(listener.as_fd(), until)) {
        let taken = listener.accept().and_then(|(stream, _)| stream.local_addr());
        heard.extend(taken.ok().map(|at| ("TCP", at)));
    }
    for socket in doors.stray_udp.iter().filter(|socket| waits(socket.as_fd(), until)) {
        heard.extend(door::receive(socket.as_fd()).ok().map(|(_, at)| ("UDP", at)));
    }
    heard
}

fn waits(door: BorrowedFd<'_>, until: Instant) -> bool {
    let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
    let mut set = [PollFd::from_borrowed_fd(door, PollFlags::IN)];
    poll(&mut set, left.as_ref()).is_ok_and(|ready| ready > 0)
}

/// The kernel says of each door that it belongs to this network namespace.
fn are_inside(namespace: u64, doors: &Doors) -> io::Result<bool> {
    let tcp = doors.transparent.iter().chain([&doors.proxy, &doors.dns_tcp]).map(AsFd::as_fd);
    let udp = doors.stray_udp.iter().chain([&doors.dns_udp]).map(AsFd::as_fd);
    let found = tcp.chain(udp).map(door::namespace).collect::<Result<Vec<u64>, _>>()?;
    Ok(found.iter().all(|inode| *inode == namespace))
}
