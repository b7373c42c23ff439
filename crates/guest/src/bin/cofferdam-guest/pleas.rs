//! Those inside who ask for a command as somebody else. The guest decides nothing about it: it passes the question to the
//! host, and what came of it to whoever asked.
//!
//! It hears neither from them: each has somebody who attends to it (`attend`), and that one is heard here. What it can cost
//! is bounded: so many askers, so many bytes each, and nobody is waited for.

use crate::attend;
use crate::line::Line;
use crate::outbox::Outbox;
use alloc::vec::Vec;
use cofferdam_guest::wire::{Deny, Kind, PLEAS_MAX, Plea, SOCKET};
use cofferdam_sys::spawn::{self, Beginning};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};

/// What waits to be accepted.
const BACKLOG: i32 = 64;
/// The one asker that a line is about.
const HERE: u32 = 1;

/// Who attends to an asker and will be its command.
pub(crate) struct Attendant {
    pub(crate) pid: Pid,
    pub(crate) line: Line,
    /// Says whether it has become the command.
    pub(crate) beginning: Beginning,
}

struct Asker {
    /// Zero until it has asked.
    number: u32,
    /// It was let in: the next may be.
    came: bool,
    /// Until it leaves or is answered. One that has left counts until the host has answered it, who counts it too.
    here: Option<Attendant>,
    over: bool,
}

impl Asker {
    fn leave(&mut self) {
        self.here = None;
        self.over |= self.number == 0;
    }
}

#[derive(Default)]
pub(crate) struct Pleas {
    most: usize,
    listener: Option<OwnedFd>,
    askers: Vec<Asker>,
    last: u32,
    /// There is no process to be had for the next one. When another has ended there may be.
    crowded: bool,
}

impl Pleas {
    pub(crate) fn invite(&mut self, most: u16) {
        self.most = usize::from(most).min(PLEAS_MAX);
        self.open();
    }

    /// The guest before this one may have the name for a moment longer: then the next command tries again.
    pub(crate) fn open(&mut self) {
        self.crowded = false;
        if self.most > 0 && self.listener.is_none() {
            self.listener = bound().ok();
        }
    }

    /// Another host knows nothing of what its predecessor was asked.
    pub(crate) fn forget(&mut self) {
        let deny = Deny { why: b"the session is another one now: try again" };
        for attendant in self.askers.iter_mut().filter_map(|asker| asker.here.as_mut()) {
            attendant.line.say(Kind::Deny, HERE, &deny);
        }
        self.askers.clear();
        self.most = 0;
    }

    /// Whom to let in, and only one at a time: until it is in, it stands at the door. Where all places are taken, somebody
    /// who is in and says nothing goes for it.
    pub(crate) fn door(&self) -> Option<BorrowedFd<'_>> {
        let room = self.askers.len() < self.most || self.silent().is_some();
        let free = self.most > 0 && room && !self.crowded;
        let clear = self.askers.iter().all(|asker| asker.came || asker.here.is_none());
        self.listener.as_ref().filter(|_| free && clear).map(AsFd::as_fd)
    }

    /// The first of those who are in and have not asked.
    fn silent(&self) -> Option<usize> {
        self.askers.iter().position(|asker| asker.came && asker.number == 0 && asker.here.is_some())
    }

    /// By their place in the row, which stays theirs until `settle`.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        let all = self.askers.iter().enumerate();
        all.filter_map(|(at, asker)| asker.here.as_ref().map(|attendant| (at, &attendant.line)))
    }

    /// Has somebody attend to who stands at the door.
    pub(crate) fn accept(&mut self) {
        if self.askers.len() >= self.most {
            let Some(asker) = self.silent().and_then(|at| self.askers.get_mut(at)) else { return };
            if let Some(attendant) = &asker.here {
                // It may be held up by what it was given, and is reaped as any other.
                let _ = kill_process(attendant.pid, Signal::KILL);
            }
            asker.leave();
        }
        let Some(listener) = &self.listener else { return };
        match attend_to(listener.as_fd()) {
            Ok(attendant) => {
                let here = Some(attendant);
                self.askers.push(Asker { number: 0, came: false, here, over: false });
            }
            Err(_) => self.crowded = true,
        }
    }

    /// A process has ended.
    pub(crate) fn reaped(&mut self, pid: Pid) {
        self.crowded = false;
        let is_it = |asker: &&mut Asker| asker.here.as_ref().is_some_and(|attendant| attendant.pid == pid);
        // Its number may be another's from now on.
        self.askers.iter_mut().filter(is_it).for_each(Asker::leave);
    }

    /// One of them has said something, or has left.
    pub(crate) fn hear(&mut self, at: usize, outbox: &mut Outbox) {
        let Some(asker) = self.askers.get_mut(at) else { return };
        let Some(attendant) = &mut asker.here else { return };
        attendant.line.flush();
        if attendant.line.read().and_then(|()| listen_to(asker, &mut self.last, outbox)).is_err() {
            asker.leave();
        }
    }

    /// Between two rounds: nobody's place in the row changes during one.
    pub(crate) fn settle(&mut self) {
        self.askers.retain(|asker| !asker.over);
    }

    /// The host has answered this one; who attends to it, if it still waits.
    pub(crate) fn take(&mut self, number: u32) -> Option<Attendant> {
        let asker = self.askers.iter_mut().find(|asker| asker.number == number && !asker.over)?;
        asker.over = true;
        asker.here.take()
    }

    pub(crate) fn deny(&mut self, number: u32, deny: &Deny<'_>) {
        if let Some(mut attendant) = self.take(number) {
            attendant.line.say(Kind::Deny, HERE, deny);
        }
    }
}

/// All that it has said. Each asks once.
fn listen_to(asker: &mut Asker, last: &mut u32, outbox: &mut Outbox) -> Result<(), Errno> {
    let Some(attendant) = &mut asker.here else { return Ok(()) };
    while let Some((header, body)) = attendant.line.frame()? {
        match (header.kind, Plea::decode(&body)) {
            (Kind::Hello, _) => asker.came = true,
            (Kind::Plea, Ok(plea)) if asker.number == 0 => {
                *last += 1;
                asker.number = *last;
                outbox.put(Kind::Plea, asker.number, None, &plea);
            }
            _ => return Err(Errno::BADMSG),
        }
    }
    Ok(())
}

fn bound() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(SOCKET)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn attend_to(door: BorrowedFd<'_>) -> Result<Attendant, Errno> {
    let (line, theirs) = Line::open()?;
    let (status, told) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let pid = spawn::fork([theirs.as_fd(), told.as_fd(), door], None, attend::run);
    let pid = pid.map_err(|failure| failure.errno)?;
    Ok(Attendant { pid, line, beginning: Beginning::of(status) })
}
