//! Throw-away namespaces for attempts that are to succeed: nothing that is done in them reaches the host.

use crate::boot::{loopback_up, map_own_ids, unshare};
use crate::{Errno, mounts, netlink};
use rustix::thread::UnshareFlags;
use std::net::Ipv4Addr;

/// Moves this process, which must have one thread only, to namespaces of its own. Root keeps its powers over the
/// host's kernel; a plain user becomes root of a user namespace.
pub fn apart() -> Result<(), Errno> {
    match rustix::process::geteuid().is_root() {
        true => unshare(OWN)?,
        false => become_root()?,
    }
    mounts::make_private()
}

const OWN: UnshareFlags =
    UnshareFlags::NEWNS.union(UnshareFlags::NEWNET).union(UnshareFlags::NEWUTS).union(UnshareFlags::NEWIPC);

/// Makes this process, which must have one thread only, root of a user namespace and of namespaces that belong to
/// it: what somebody without power does first.
pub fn become_root() -> Result<(), Errno> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(OWN | UnshareFlags::NEWUSER)?;
    let map = |id: u32| format!("0 {id} 1\n").into_bytes();
    map_own_ids(&map(uid.as_raw()), &map(gid.as_raw()))
}

/// The same, in a network where every address of the world is this process's own.
pub fn world() -> Result<(), Errno> {
    apart()?;
    loopback_up()?;
    netlink::everything_is_local(Ipv4Addr::new(198, 18, 0, 1), false).send()
}
