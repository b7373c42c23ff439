//! Which program inside holds the other end of a connection: the kernel names the socket, and the open files of
//! the sandbox's processes name its holders.
//!
//! Where two programs hold it, or a process cannot be looked at, nobody is named: then a rule that names a program
//! does not apply. A program is what was executed, not who wrote its arguments or environment.

use cofferdam_runtime::Callers;
use cofferdam_sys::netlink;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// More processes than this are not searched.
const MOST: usize = 4_096;

#[derive(Debug)]
pub(crate) struct Inside {
    /// The guest of the room that there is now: the first process, of which all others inside are descendants.
    pub(crate) guest: Arc<AtomicI32>,
    /// A socket of the sandbox's network by which the kernel is asked about others.
    pub(crate) diagnosis: Mutex<OwnedFd>,
}

impl Callers for Inside {
    fn program(&self, peer: SocketAddr, local: SocketAddr) -> Option<PathBuf> {
        let diagnosis = self.diagnosis.lock().unwrap_or_else(PoisonError::into_inner);
        let inode = netlink::inode(diagnosis.as_fd(), peer, local).ok()?;
        drop(diagnosis);
        holder(self.guest.load(Ordering::Acquire), &format!("socket:[{inode}]")).ok()?
    }
}

/// The one program that holds a socket, if it is one.
fn holder(guest: i32, socket: &str) -> io::Result<Option<PathBuf>> {
    let mut found: Option<PathBuf> = None;
    let mut pids = children(guest)?;
    let mut at = 0;
    while let Some(&pid) = pids.get(at) {
        at += 1;
        if pids.len() > MOST {
            return Ok(None);
        }
        pids.extend(gone_is(Vec::new(), children(pid))?);
        let process = Path::new("/proc").join(pid.to_string());
        if !gone_is(false, holds(&process, socket))? {
            continue;
        }
        let program = gone_is(None, fs::read_link(process.join("exe")).map(Some))?;
        if program.is_none() || found.as_ref().is_some_and(|known| Some(known) != program.as_ref()) {
            return Ok(None);
        }
        found = program;
    }
    Ok(found)
}

/// Processes and files may go while they are looked at.
fn gone_is<T>(instead: T, read: io::Result<T>) -> io::Result<T> {
    const NO_SUCH_PROCESS: i32 = libc::ESRCH;
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(instead),
        Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => Ok(instead),
        other => other,
    }
}

fn holds(process: &Path, socket: &str) -> io::Result<bool> {
    for file in fs::read_dir(process.join("fd"))? {
        let target = gone_is(PathBuf::new(), fs::read_link(file?.path()))?;
        if target.as_os_str() == socket {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn children(pid: i32) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = gone_is(String::new(), fs::read_to_string(task?.path().join("children")))?;
        found.extend(text.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
    }
    Ok(found)
}
