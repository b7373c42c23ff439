//! Starts a VMM where it can do little: in a sandbox of the process tier, from which nothing of the host is seen but
//! its program. Everything it works with is handed to it open: sockets, memory, disks. It can open nothing else.
//!
//! The host runs this program a second time, in that sandbox; that one takes the descriptors, starts the VMM with
//! them, and stays to carry the machine's connections to the sandbox's network, whose doors the host serves.

use crate::machine::readable;
use crate::memory;
use cofferdam_inside::carry::{self, Far};
use cofferdam_sys::seccomp;
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Descriptors that are given at once.
const MOST: usize = 16;
/// Until a VMM that was started asks for its memory.
const ASKS: Duration = Duration::from_secs(30);
/// Of the order.
const ORDER: usize = 64 << 10;

/// What is to be started, and what is given along, by name: `{name}` in an argument is that descriptor's number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) argv: Vec<String>,
    pub(crate) given: Vec<String>,
    /// Which of them is the machine's network, to be carried. It is not the VMM's.
    pub(crate) network: Option<String>,
    /// Which of them it may only read, and opens for writing too: it asks for that one, and is given it as it is.
    #[serde(default)]
    pub(crate) lent: Option<String>,
    /// Where the VMM makes its sockets, if it makes them by itself; what is given is found there by name. Then the host
    /// goes on asking, and when it does no more, the VMM ends.
    pub(crate) place: Option<PathBuf>,
}

/// The host's part.
pub(crate) fn hand_over(stream: &mut UnixStream, order: &Order, given: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(order)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if given.len() > MOST || !control.push(SendAncillaryMessage::ScmRights(given)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let length = (text.len() as u32).to_le_bytes();
    rustix::net::sendmsg(stream.as_fd(), &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(&text)
}

fn take_over(stream: &mut UnixStream) -> io::Result<(Order, Vec<OwnedFd>)> {
    let mut length = [0u8; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut length)];
    let got = rustix::net::recvmsg(stream.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes != 4 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut given = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            given.extend(rights);
        }
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > ORDER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok((serde_json::from_slice(&text)?, given))
}

/// The part in the sandbox: starts what it is told to, and ends when that does, with its code.
pub fn launch(socket: &Path) -> io::Result<i32> {
    let mut stream = UnixStream::connect(socket)?;
    let (order, given) = take_over(&mut stream)?;
    let place = order.place;
    let asked = place.clone().zip(place.is_some().then_some(stream));
    let mut named: Vec<(String, OwnedFd)> = order.given.into_iter().zip(given).collect();
    let network = order.network.and_then(|name| {
        let at = named.iter().position(|(given, _)| *given == name)?;
        Some(named.swap_remove(at).1)
    });
    let number = |mut text: String| {
        for (name, descriptor) in &named {
            text = text.replace(&format!("{{{name}}}"), &descriptor.as_raw_fd().to_string());
        }
        text
    };
    let argv: Vec<String> = order.argv.into_iter().map(number).collect();
    let Some((program, arguments)) = argv.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if let Some(place) = &place {
        // A VMM before this one may have left its sockets.
        let _ = std::fs::remove_dir_all(place);
        std::fs::create_dir_all(place)?;
    }
    let lent = order.lent;
    for (name, descriptor) in &named {
        if lent.as_ref() == Some(name) {
            continue;
        }
        rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
        if let Some(place) = &place {
            // Whoever follows it has the same descriptors.
            symlink(format!("/proc/self/fd/{}", descriptor.as_raw_fd()), place.join(name))?;
        }
    }
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let lent = named.iter_mut().find(|(name, _)| lent.as_ref() == Some(name));
    let mut vmm = match lent {
        Some((_, lent)) => lend(lent, &mut command)?,
        None => command.spawn()?,
    };
    drop(named);
    if let Some(network) = network {
        let ended = end_of(&vmm)?;
        carry::carry(network, Far::Outside, Some(ended))?;
    }
    if let Some((place, stream)) = asked {
        crate::ask::answer(&stream, &place, &vmm)?;
        let _ = vmm.kill();
    }
    Ok(vmm.wait()?.code().unwrap_or(1))
}

fn end_of(vmm: &Child) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_child(vmm);
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// Whether who is started here could write to what is open for reading. This is who it will be, and tries.
fn can_write(lent: &OwnedFd) -> io::Result<bool> {
    let is_open = rustix::fs::fcntl_getfl(lent)? & OFlags::RWMODE != OFlags::RDONLY;
    let again = format!("/proc/self/fd/{}", lent.as_raw_fd());
    Ok(is_open || OpenOptions::new().write(true).open(again).is_ok())
}

/// Starts it with a copy in the place of what is lent, which nobody can write to.
fn copied(lent: &mut OwnedFd, command: &mut Command) -> io::Result<Child> {
    let copy = memory::sealed(&File::from(lent.try_clone()?))?;
    // At the same number, and whoever is started has it.
    rustix::io::dup2(&copy, lent)?;
    command.spawn()
}

/// Starts it, and gives it what is lent for the one file that it opens for reading and writing: QEMU does so even where it
/// keeps what it changes to itself. From then on it opens nothing so. Others begin with what is lent: who could change it, or
/// cannot be asked, has a copy.
fn lend(lent: &mut OwnedFd, command: &mut Command) -> io::Result<Child> {
    if can_write(lent)? {
        return copied(lent, command);
    }
    let (listener, vmm) = match seccomp::asking(|| command.spawn()) {
        // Somebody listens to all of us already, as some container runtimes do, and there can be no other.
        Err(Errno::BUSY) => return copied(lent, command),
        asking => asking?,
    };
    let vmm = vmm?;
    let (ended, until) = (end_of(&vmm)?, Instant::now() + ASKS);
    // One that has ended is heard of first: nobody asks any more, and there is always something to be heard of that.
    while readable(&[ended.as_fd(), listener.as_fd()], until)? == Some(1) {
        if let Some(attempt) = listener.next()? {
            listener.give(&attempt, lent.as_fd())?;
            break;
        }
    }
    Ok(vmm)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// One at a time: whoever is being started has for a moment all that is open here, a program that is being written and
    /// a number that is listened to among it.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static STARTS: Mutex<()> = Mutex::new(());
        STARTS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it started, by `how`, with a file that is its own.
    fn check(how: impl FnOnce(&mut OwnedFd, &mut Command) -> io::Result<Child>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        std::fs::write(&path, "memory").unwrap();
        let said = dir.path().join("said");
        let mut lent = OwnedFd::from(File::open(&path).unwrap());
        assert!(can_write(&lent).unwrap(), "whose it is can open it again");
        let mut shell = Command::new("/bin/sh");
        // Opened again for both, it cannot be written to all the same.
        let script = "exec 4<>/proc/self/fd/$0; cat <&4; (echo x >&4) 2>/dev/null || echo no";
        shell.args(["-c", script, &lent.as_raw_fd().to_string()]).stdout(File::create(&said).unwrap());
        how(&mut lent, &mut shell).unwrap().wait().unwrap();
        assert_eq!(std::fs::read_to_string(said).unwrap(), "memoryno\n");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "memory");
    }

    #[test]
    fn what_could_be_written_to_is_not_lent() {
        let _alone = alone();
        check(lend);
        let runs = File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(!can_write(&runs.into()).unwrap(), "nobody can write to a program that runs");
        let own = memory::own(4096).unwrap();
        assert!(can_write(&own.into()).unwrap());
    }

    #[test]
    fn one_that_ends_without_a_word_is_waited_for_no_longer() {
        let _alone = alone();
        let runs = File::open(std::env::current_exe().unwrap()).unwrap();
        let mut lent = OwnedFd::from(runs);
        let mut ended = lend(&mut lent, &mut Command::new("/bin/true")).unwrap();
        assert!(ended.wait().unwrap().success());
        assert!(lend(&mut lent, &mut Command::new("/nowhere/program")).is_err());
    }

    #[test]
    fn where_somebody_else_listens_it_has_a_copy_that_is_sealed() {
        let _alone = alone();
        let runs = File::open(std::env::current_exe().unwrap()).unwrap();
        let mut lent = OwnedFd::from(runs);
        let started = || lend(&mut lent, &mut Command::new("/bin/true")).and_then(|mut vmm| vmm.wait());
        let (_listener, ended) = seccomp::asking(started).unwrap();
        assert!(ended.unwrap().success());
        assert!(rustix::fs::fcntl_get_seals(&lent).unwrap().contains(rustix::fs::SealFlags::WRITE));
    }
}
