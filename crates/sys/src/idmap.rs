//! User namespaces made by a helper that does nothing else: to translate owners on an idmapped mount, or for a
//! sandbox to join.

use crate::clone::{Request, Sharer, share};
use crate::raw;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::io;

/// What is left of the helper once its namespace has a file. Dropping it ends the helper and waits for that, so
/// whoever has something better to do dismisses it and keeps it for a while.
pub struct Holder {
    child: Sharer<Pid>,
}

impl Holder {
    /// Ends the helper, without waiting for that.
    pub fn dismiss(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.child.pidfd, Signal::KILL);
    }
}

/// A namespace with these maps, each in the form of `/proc/PID/uid_map`. Needs CAP_SETUID and CAP_SETGID here.
pub fn namespace(uid_map: &str, gid_map: &str) -> io::Result<(OwnedFd, Holder)> {
    let request = Request { namespaces: libc::CLONE_NEWUSER as u64, cgroup: None, within: None };
    let holder = share(&request, rustix::process::getpid(), hold)?;
    let pid = holder.pid.as_raw_nonzero();
    std::fs::write(format!("/proc/{pid}/uid_map"), uid_map)?;
    std::fs::write(format!("/proc/{pid}/gid_map"), gid_map)?;
    let file = std::fs::File::open(format!("/proc/{pid}/ns/user"))?;
    Ok((file.into(), Holder { child: holder }))
}

extern "C" fn hold(parent: &Pid) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // One that was killed before this ran has sent no signal, and nobody else ends us.
    if rustix::process::getppid() != Some(*parent) {
        raw::exit_now(0);
    }
    let mut nothing = [];
    while rustix::event::poll(&mut nothing, None).is_ok() {}
    raw::exit_now(0)
}

/// Whether this errno means that the file system or kernel has no idmapped mounts.
pub fn unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}
