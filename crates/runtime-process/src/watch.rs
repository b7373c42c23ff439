//! The thread that hears of system calls: it has each told to a witness, then refuses it or lets it through, as the
//! filter decided. It does nothing else, so that a caller waits as short as can be.
//!
//! What it reads of a caller (its name, its arguments, what its pointers lead to) is for the record and decides
//! nothing.

mod caller;

use crate::filter::{self, Choice};
use crate::watched::Look;
use caller::Callers;
use cofferdam_model::{BlockedAttempt, SyscallSeen};
use cofferdam_runtime::{Heard, Witness};
use cofferdam_sys::seccomp::{Attempt, Listener, Rule, Verdict};
use cofferdam_sys::{Errno, memory};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Of a path or an argument.
const TEXT: usize = 512;
/// Arguments of a program.
const ARGUMENTS: usize = 32;

/// The listener of a filter, with or without someone who listens.
pub(crate) struct Ear {
    listener: Arc<Listener>,
    choice: Choice,
    watch: Option<Watch>,
}

struct Watch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Ear {
    pub(crate) fn new(fd: OwnedFd, choice: Choice) -> Self {
        Self { listener: Arc::new(Listener::new(fd)), choice, watch: None }
    }

    /// Lets the one call through that makes the guest, where such calls are told of.
    pub(crate) fn admit(&self) -> Result<(), Errno> {
        if !self.choice.all {
            return Ok(());
        }
        let mut set = [PollFd::from_borrowed_fd(self.listener.as_ref().as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut set, None)?;
        // Nobody is left who could make it.
        if !set[0].revents().contains(PollFlags::IN) {
            return Err(Errno::CANCELED);
        }
        match self.listener.next()? {
            Some(call) => self.listener.let_through(&call),
            None => Err(Errno::CANCELED),
        }
    }

    /// Readable when somebody waits to be heard and nobody listens.
    pub(crate) fn alarm(&self) -> Option<BorrowedFd<'_>> {
        self.watch.is_none().then(|| self.listener.as_ref().as_fd())
    }

    /// Starts to listen. Whoever cannot be told of ends the guest.
    pub(crate) fn listen(&mut self, witness: Arc<dyn Witness>, guest: OwnedFd) -> Result<(), Errno> {
        if self.watch.is_some() {
            return Ok(());
        }
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        self.listener.answer_at_once();
        let rules = filter::rules(self.choice);
        let mut hearing =
            Hearing { listener: self.listener.clone(), rules, witness, guest, callers: Callers::default() };
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("syscalls".into())
            .stack_size(256 << 10)
            .spawn(move || hearing.run(&stopped))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        self.watch = Some(Watch { stop, thread: Some(thread) });
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Hearing {
    listener: Arc<Listener>,
    rules: BTreeMap<u32, Rule>,
    witness: Arc<dyn Witness>,
    guest: OwnedFd,
    callers: Callers,
}

impl Hearing {
    /// Until it is stopped, or nobody is left under the filter.
    fn run(&mut self, stop: &OwnedFd) {
        loop {
            let mut set = [
                PollFd::from_borrowed_fd(self.listener.as_ref().as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            ];
            match rustix::event::poll(&mut set, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let [listener, stopped] = [set[0].revents(), set[1].revents()];
            if !stopped.is_empty() || (!listener.is_empty() && !listener.contains(PollFlags::IN)) {
                return;
            }
            if listener.contains(PollFlags::IN) && self.answer().is_err() {
                self.end();
            }
        }
    }

    /// What cannot be heard or recorded must not go on.
    fn end(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.guest, Signal::KILL);
    }

    fn answer(&mut self) -> Result<(), Errno> {
        let Some(attempt) = self.listener.next()? else { return Ok(()) };
        let verdict = self.rules.get(&attempt.number).map(|rule| rule.verdict(&attempt.args));
        if verdict == Some(Verdict::Tell) {
            let seen = self.seen(&attempt);
            if self.witness.hear(Heard::Passed(seen)) {
                return self.listener.let_through(&attempt);
            }
            self.end();
            return self.listener.refuse(&attempt, Errno::PERM);
        }
        let told = self.refused(&attempt);
        let words = filter::in_words(&told, attempt.number);
        let on_record = self.witness.hear(Heard::Refused(told));
        if let Some(words) = words.filter(|_| on_record && self.listener.still_waits(&attempt)) {
            self.callers.explain(attempt.pid, attempt.number, &words);
        }
        if !on_record {
            self.end();
        }
        self.listener.refuse(&attempt, Errno::PERM)
    }

    fn refused(&mut self, attempt: &Attempt) -> BlockedAttempt {
        let who = self.callers.who(attempt.pid, true);
        let who = if self.listener.still_waits(attempt) { who } else { Default::default() };
        let (syscall, reason) = filter::explain(attempt.number);
        BlockedAttempt {
            syscall: syscall.into(),
            args: attempt.args.to_vec(),
            pid: who.pid,
            program: who.program,
            argv: who.argv,
            reason: reason.into(),
            times: 1,
        }
    }

    fn seen(&mut self, attempt: &Attempt) -> SyscallSeen {
        let who = self.callers.who(attempt.pid, false);
        let watched = crate::watched::all().find(|row| row.1 as u32 == attempt.number);
        let about = watched.map_or_else(Vec::new, |row| look(attempt, row.3));
        // Whatever was read under this number was the caller's only if it still waits.
        let (who, about) = match self.listener.still_waits(attempt) {
            true => (who, about),
            false => Default::default(),
        };
        SyscallSeen {
            syscall: watched.map_or("unknown", |row| row.0).into(),
            class: watched.map_or("", |row| row.2).into(),
            args: attempt.args.to_vec(),
            pid: who.pid,
            program: who.program,
            about,
            times: 1,
        }
    }
}

fn look(attempt: &Attempt, look: Look) -> Vec<String> {
    let arg = |at: u8| attempt.args.get(usize::from(at)).copied().unwrap_or(0);
    let text = |pointer: u64| {
        let bytes = memory::text(attempt.pid, pointer, TEXT)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    match look {
        Look::Path(at) => text(arg(at)).into_iter().collect(),
        Look::Paths(one, other) => [one, other].into_iter().filter_map(|at| text(arg(at))).collect(),
        Look::Exec(path, argv) => {
            let rest = memory::pointers(attempt.pid, arg(argv), ARGUMENTS).into_iter().filter_map(text);
            text(arg(path)).into_iter().chain(rest).collect()
        }
        Look::Address(at, length) => {
            let mut bytes = [0u8; 128];
            let length = usize::try_from(arg(length)).unwrap_or(0).min(bytes.len());
            let seen = bytes.get_mut(..length).and_then(|room| memory::read(attempt.pid, arg(at), room).ok());
            seen.and_then(|seen| address(bytes.get(..seen)?)).into_iter().collect()
        }
    }
}

/// A socket's address as text; other families by their number.
fn address(bytes: &[u8]) -> Option<String> {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match i32::from(family) {
        libc::AF_INET => {
            let host: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::from((Ipv4Addr::from(host), port()?)).to_string())
        }
        libc::AF_INET6 => {
            let host: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketAddr::from((Ipv6Addr::from(host), port()?)).to_string())
        }
        libc::AF_UNIX => {
            let name = bytes.get(2..)?;
            let (mark, name) = match name {
                [0, abstract_name @ ..] => ("@", abstract_name),
                path => ("", path.split(|byte| *byte == 0).next().unwrap_or_default()),
            };
            Some(format!("unix:{mark}{}", String::from_utf8_lossy(name)))
        }
        other => Some(format!("family {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_as_people_write_them() {
        let of = |family: i32, rest: &[u8]| address(&[&(family as u16).to_ne_bytes(), rest].concat());
        assert_eq!(of(libc::AF_INET, &[1, 187, 10, 0, 0, 9, 0, 0]).unwrap(), "10.0.0.9:443");
        let six = [&[0, 80, 0, 0, 0, 0][..], &[0; 15], &[1]].concat();
        assert_eq!(of(libc::AF_INET6, &six).unwrap(), "[::1]:80");
        assert_eq!(of(libc::AF_UNIX, b"/run/x.sock\0junk").unwrap(), "unix:/run/x.sock");
        assert_eq!(of(libc::AF_UNIX, b"\0name").unwrap(), "unix:@name");
        assert_eq!(of(38, b"").unwrap(), "family 38");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut seed = 1u64;
        for length in (0..130).chain(0..130) {
            let mut bytes: Vec<u8> = Vec::new();
            for _ in 0..length {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bytes.push((seed >> 56) as u8 % 12);
            }
            address(&bytes);
        }
    }
}
