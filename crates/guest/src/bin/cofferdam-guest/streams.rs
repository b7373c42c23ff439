//! The two directions of a command's streams, each within the credit that was given for it.

use crate::outbox::{COPY_MAX, Outbox, PIPE_SIZE, Source};
use alloc::vec::Vec;
use cofferdam_guest::wire::{Kind, Stream, WINDOW, Window};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr};

/// Bytes from the host to a command.
pub(crate) struct Input {
    stream: Stream,
    fd: OwnedFd,
    pending: Vec<u8>,
    written: usize,
    /// Written, and not yet granted to the host again.
    owed: u32,
    /// The host has ended it.
    ended: bool,
}

/// What became of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    /// All was written, and there is no more to come.
    Done,
    /// Nobody reads it.
    Unread,
}

impl Input {
    pub(crate) const fn new(stream: Stream, fd: OwnedFd) -> Self {
        Self { stream, fd, pending: Vec::new(), written: 0, owed: 0, ended: false }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) const fn stream(&self) -> Stream {
        self.stream
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.written < self.pending.len()
    }

    /// `false`: more than the host was allowed to send.
    pub(crate) fn accept(&mut self, bytes: &[u8]) -> bool {
        let held = self.pending.len() - self.written + self.owed as usize;
        if self.ended || held + bytes.len() > WINDOW as usize {
            return false;
        }
        if self.written > 0 {
            self.pending.drain(..self.written);
            self.written = 0;
        }
        self.pending.extend_from_slice(bytes);
        true
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Writes what can be written without waiting, and grants as much again.
    pub(crate) fn write(&mut self, id: u32, outbox: &mut Outbox) -> Fate {
        while let Some(rest @ [_, ..]) = self.pending.get(self.written..) {
            match rustix::io::write(&self.fd, rest) {
                Ok(count) => {
                    self.written += count;
                    self.owed += count as u32;
                }
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => break,
                Err(_) => return Fate::Unread,
            }
        }
        if !self.is_waiting() {
            self.pending.clear();
            self.written = 0;
            if self.ended {
                self.end_terminal();
                return Fate::Done;
            }
        }
        if self.owed >= WINDOW / 2 {
            let bytes = core::mem::take(&mut self.owed);
            outbox.put(Kind::Window, id, Some(self.stream), &Window { bytes });
        }
        Fate::Open
    }

    /// A terminal has no end but the character that stands for it, where it reads lines.
    fn end_terminal(&self) {
        if self.stream != Stream::Tty {
            return;
        }
        if let Ok(settings) = tcgetattr(&self.fd)
            && settings.local_modes.contains(LocalModes::ICANON)
        {
            let _ = rustix::io::write(&self.fd, &[settings.special_codes[SpecialCodeIndex::VEOF]]);
        }
    }
}

/// Bytes from a command to the host.
pub(crate) struct Output {
    stream: Stream,
    fd: OwnedFd,
    credit: u32,
    open: bool,
    splices: bool,
    /// The command has exited and this much of what it wrote is left: others may hold the stream open and
    /// write on, but nobody waits for them.
    left: Option<usize>,
    /// Nobody is to have it: it is read, so that whoever writes goes on, and that is all.
    unheard: bool,
}

impl Output {
    pub(crate) const fn new(stream: Stream, fd: OwnedFd) -> Self {
        Self { stream, fd, credit: WINDOW, open: true, splices: false, left: None, unheard: false }
    }

    pub(crate) const fn forget(&mut self) {
        self.unheard = true;
        self.credit = WINDOW;
    }

    fn drain(&mut self) -> Option<usize> {
        let mut bytes = [0; 4096];
        match rustix::io::read(&self.fd, &mut bytes) {
            Ok(count @ 1..) => {
                self.left = self.left.map(|left| left.saturating_sub(count));
                Some(count)
            }
            Err(Errno::INTR) => None,
            Err(Errno::AGAIN) if self.left.is_none() => None,
            _ => {
                self.open = false;
                None
            }
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) const fn stream(&self) -> Stream {
        self.stream
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    /// Whether bytes could be sent if there were any.
    pub(crate) const fn may_send(&self) -> bool {
        self.open && self.credit > 0
    }

    pub(crate) fn grant(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes).min(WINDOW);
    }

    /// From here on only what is there already. A terminal's is not known beforehand, but it has been hung up
    /// and holds no more than it can buffer.
    pub(crate) fn leave(&mut self) {
        self.left = Some(match self.stream {
            Stream::Tty => PIPE_SIZE,
            _ => rustix::io::ioctl_fionread(&self.fd).map_or(0, |count| count as usize),
        });
    }

    /// Moves one frame, if there is anything and room for it. Ends the stream where it ends.
    pub(crate) fn pump(&mut self, id: u32, outbox: &mut Outbox) -> Option<usize> {
        if self.unheard {
            self.open &= self.left != Some(0);
            return if self.open { self.drain() } else { None };
        }
        if self.open && self.left == Some(0) {
            self.finish(id, outbox);
        }
        if !self.may_send() || !outbox.takes_output() {
            return None;
        }
        let most = (self.credit as usize).min(self.left.unwrap_or(usize::MAX));
        let source = Source { fd: self.fd.as_fd(), id, stream: self.stream, most };
        let moved = if self.splices { outbox.splice(&source) } else { outbox.copy(&source) };
        match moved {
            Ok(count @ 1..) => {
                self.moved(count);
                Some(count)
            }
            Err(Errno::INTR) => None,
            Err(Errno::AGAIN) if self.left.is_none() => None,
            // A terminal whose other side is closed says EIO.
            _ => {
                self.finish(id, outbox);
                None
            }
        }
    }

    fn moved(&mut self, count: usize) {
        self.credit -= count as u32;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(count);
        }
        if count >= COPY_MAX && !self.splices && self.stream != Stream::Tty {
            self.splices = true;
            let _ = rustix::pipe::fcntl_setpipe_size(&self.fd, PIPE_SIZE);
        }
    }

    fn finish(&mut self, id: u32, outbox: &mut Outbox) {
        self.open = false;
        outbox.put_eof(id, self.stream);
    }
}
