//! Lines from a descriptor, of bounded length: what is longer is read to its end and forgotten.

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::io::PipeReader;
use std::os::fd::{AsFd, OwnedFd};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    TooLong,
}

pub(super) struct Lines {
    from: OwnedFd,
    /// Ends the wait when its other end is closed.
    wake: Option<PipeReader>,
    longest: usize,
    buffer: Vec<u8>,
    /// So much of the buffer holds no line end.
    searched: usize,
    /// Within a line that is too long.
    skipping: bool,
    ended: bool,
}

impl Lines {
    pub(super) fn new(from: OwnedFd, wake: Option<PipeReader>, longest: usize) -> Self {
        Self { from, wake, longest, buffer: Vec::new(), searched: 0, skipping: false, ended: false }
    }

    /// Nothing at the end, or when nobody wants more. What follows the last line end is a line too.
    pub(super) fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = self.take() {
                return Some(line);
            }
            if self.ended {
                let rest = std::mem::take(&mut self.buffer);
                self.searched = 0;
                return (!rest.is_empty()).then_some(Line::Whole(rest));
            }
            self.ended = !self.wait() || !self.read();
        }
    }

    fn take(&mut self) -> Option<Line> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                if self.buffer.len() > self.longest {
                    self.buffer = Vec::new();
                    self.searched = 0;
                    let first = !std::mem::replace(&mut self.skipping, true);
                    return first.then_some(Line::TooLong);
                }
                if self.skipping {
                    self.buffer.clear();
                    self.searched = 0;
                }
                return None;
            };
            let end = self.searched + at;
            let rest = self.buffer.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            self.searched = 0;
            line.truncate(end);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            return Some(if line.len() > self.longest { Line::TooLong } else { Line::Whole(line) });
        }
    }

    /// Until there is something to read; false when it is over.
    fn wait(&self) -> bool {
        let mut set = vec![PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN)];
        set.extend(self.wake.as_ref().map(|wake| PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)));
        loop {
            match rustix::event::poll(&mut set, None) {
                Ok(_) => return set.get(1).is_none_or(|wake| wake.revents().is_empty()),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0u8; 64 << 10];
        match rustix::io::read(&self.from, &mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&bytes[..count]);
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[track_caller]
    fn check(pieces: &[&str], expected: &[Option<&str>]) {
        let (from, mut to) = std::io::pipe().unwrap();
        let pieces: Vec<String> = pieces.iter().map(|piece| (*piece).to_owned()).collect();
        let writing = std::thread::spawn(move || {
            pieces.iter().for_each(|piece| to.write_all(piece.as_bytes()).unwrap())
        });
        let mut lines = Lines::new(from.into(), None, 8);
        let mut seen = Vec::new();
        while let Some(line) = lines.next() {
            seen.push(match line {
                Line::Whole(line) => Some(String::from_utf8(line).unwrap()),
                Line::TooLong => None,
            });
        }
        writing.join().unwrap();
        assert_eq!(seen.iter().map(|line| line.as_deref()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn lines_come_whole_and_long_ones_not_at_all() {
        check(&[], &[]);
        check(&["a\nb", "c\n", "d"], &[Some("a"), Some("bc"), Some("d")]);
        check(&["12345678\n123456789\nx\n"], &[Some("12345678"), None, Some("x")]);
        check(&[&"y".repeat(300_000), "\nz\n"], &[None, Some("z")]);
        check(&[&"y".repeat(300_000)], &[None]);
    }

    #[test]
    fn closing_the_wake_ends_it() {
        let (from, _to) = std::io::pipe().unwrap();
        let (wake, stop) = std::io::pipe().unwrap();
        drop(stop);
        assert_eq!(Lines::new(from.into(), Some(wake), 8).next(), None);
    }
}
