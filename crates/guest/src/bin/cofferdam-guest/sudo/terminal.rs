//! A terminal for the command alone, where the caller has one: whoever is root on a terminal of somebody else's could
//! not be its master, and no shell could manage its jobs on it. What is typed and shown passes through this process.

use super::{STDIN, STDOUT};
use crate::terminal::{self, Terminal};
use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::Size;
use cofferdam_sys::descriptor::standard;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// What is read at once.
const PIECE: usize = 4096;

pub(super) struct Own {
    master: OwnedFd,
    slave: Option<OwnedFd>,
    /// The caller's, as it was.
    before: Termios,
    /// Typed, and not taken yet.
    typed: Vec<u8>,
    reads: bool,
}

fn size() -> Size {
    tcgetwinsize(STDIN)
        .map_or(Size { rows: 24, columns: 80 }, |size| Size { rows: size.ws_row, columns: size.ws_col })
}

impl Own {
    /// Nothing where any of the three is something else: then the command has them as they are.
    pub(super) fn open() -> Option<Self> {
        let all = standard();
        if !all.iter().all(isatty) {
            return None;
        }
        let before = tcgetattr(STDIN).ok()?;
        let Terminal { master, slave } = Terminal::open(size()).ok()?;
        // The new one behaves as the old one did, and that passes everything on.
        tcsetattr(&slave, OptionalActions::Now, &before).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(STDIN, OptionalActions::Now, &raw).ok()?;
        Some(Self { master, slave: Some(slave), before, typed: Vec::new(), reads: true })
    }

    /// For the command. What is left open here would keep the terminal from ending.
    pub(super) fn take_slave(&mut self) -> Option<OwnedFd> {
        self.slave.take()
    }

    pub(super) fn resize(&self) {
        let _ = terminal::resize(&self.master, size());
    }

    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let mut master = PollFlags::IN;
        master.set(PollFlags::OUT, !self.typed.is_empty());
        let typing =
            (self.reads && self.typed.is_empty()).then(|| PollFd::from_borrowed_fd(STDIN, PollFlags::IN));
        [PollFd::from_borrowed_fd(self.master.as_fd(), master)].into_iter().chain(typing)
    }

    /// One piece each way, of what is there.
    pub(super) fn pass_on(&mut self) {
        if self.reads && self.typed.is_empty() && is_ready(STDIN) {
            let mut piece = vec![0; PIECE];
            match rustix::io::read(STDIN, &mut piece[..]) {
                Ok(0) | Err(Errno::IO) => self.reads = false,
                Ok(count) => {
                    piece.truncate(count);
                    self.typed = piece;
                }
                Err(_) => {}
            }
        }
        if let Ok(count) = rustix::io::write(&self.master, &self.typed)
            && !self.typed.is_empty()
        {
            self.typed.drain(..count);
        }
        self.show();
    }

    /// Whether there was anything.
    fn show(&self) -> bool {
        let mut piece = vec![0; PIECE];
        let Ok(count @ 1..) = rustix::io::read(&self.master, &mut piece[..]) else { return false };
        let mut rest = piece.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            match rustix::io::write(STDOUT, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// All that is left when the command has ended.
    pub(super) fn drain(&mut self) {
        while self.show() {}
    }
}

fn is_ready(fd: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut set, Some(&now)), Ok(1..))
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = tcsetattr(STDIN, OptionalActions::Now, &self.before);
    }
}
