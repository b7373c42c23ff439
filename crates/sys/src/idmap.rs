//! User namespaces that exist only to translate owners: the argument of an idmapped mount.

use crate::raw::{self, CloneArgs};
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitIdOptions};
use std::io;

/// A namespace with these maps, each in the form of `/proc/PID/uid_map`. Needs CAP_SETUID and CAP_SETGID here.
pub fn namespace(uid_map: &str, gid_map: &str) -> io::Result<OwnedFd> {
    let mut pidfd: libc::c_int = -1;
    let args = CloneArgs {
        flags: libc::CLONE_NEWUSER as u64 | libc::CLONE_PIDFD as u64,
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: a live, correctly sized `clone_args`; the child only sleeps and dies, and shares no memory.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, std::ptr::from_ref(&args), size_of::<CloneArgs>()) };
    if pid == 0 {
        sleep_until_killed();
    }
    let pid = raw::check(pid)?;
    // SAFETY: the kernel has just stored a fresh descriptor there, which nobody else owns.
    let holder = Holder { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } };
    std::fs::write(format!("/proc/{}/uid_map", holder.pid), uid_map)?;
    std::fs::write(format!("/proc/{}/gid_map", holder.pid), gid_map)?;
    Ok(std::fs::File::open(format!("/proc/{}/ns/user", holder.pid))?.into())
}

/// The sleeping child that keeps the namespace alive until its file is open.
struct Holder {
    pid: libc::c_long,
    pidfd: OwnedFd,
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        if Pid::from_raw(self.pid as i32).is_some() {
            let id = rustix::process::WaitId::PidFd(rustix::fd::AsFd::as_fd(&self.pidfd));
            let _ = rustix::process::waitid(id, WaitIdOptions::EXITED);
        }
    }
}

fn sleep_until_killed() -> ! {
    // SAFETY: both calls take no pointers; the child dies with its parent and otherwise waits for the kill.
    unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        loop {
            libc::syscall(
                libc::SYS_ppoll,
                std::ptr::null::<u8>(),
                0,
                std::ptr::null::<u8>(),
                std::ptr::null::<u8>(),
                0,
            );
        }
    }
}

/// Whether this errno means that the file system or kernel has no idmapped mounts.
pub fn unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}
