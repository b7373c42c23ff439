//! One output stream on its way to the caller: captured, then written.
//!
//! Little output is written by the relay itself, as long as the caller's descriptor would not block. From the
//! first piece that is large or would block, a thread of the stream's own takes over, so that a slow reader
//! holds up nothing but its stream, and hashing runs beside relaying. The guest's credit bounds what can be
//! waiting here.

use super::capture::{Capture, Captured};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What a pipe takes without blocking when it says it is writable.
const AT_ONCE: usize = 4096;

pub(crate) struct Sink {
    out: Arc<OwnedFd>,
    state: State,
}

enum State {
    Inline(Box<Capture>),
    Threaded(Writer),
    Done,
}

struct Writer {
    pieces: Sender<Vec<u8>>,
    empties: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    thread: JoinHandle<Captured>,
}

/// What the thread tells the relay.
struct Shared {
    written: AtomicU64,
    closed: AtomicBool,
    wake: OwnedFd,
}

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Written: so much credit can be given back at once.
    Now(usize),
    /// On its way; `progress` tells.
    Later,
}

impl Sink {
    pub(crate) fn new(out: OwnedFd) -> Self {
        Self { out: Arc::new(out), state: State::Inline(Box::new(Capture::new())) }
    }

    /// Takes a piece of output.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Taken, Errno> {
        if let State::Inline(capture) = &mut self.state {
            if bytes.len() <= AT_ONCE && capture.bytes() < 16 * AT_ONCE as u64 && writable(self.out.as_fd()) {
                capture.add(bytes);
                // A reader that is gone is seen by `is_closed` once the thread has met it; here the piece is lost
                // as it would be without us.
                return match write_all(&self.out, bytes) {
                    Ok(()) => Ok(Taken::Now(bytes.len())),
                    Err(Errno::PIPE) => {
                        self.spawn()?;
                        self.close();
                        Ok(Taken::Now(bytes.len()))
                    }
                    Err(errno) => Err(errno),
                };
            }
            self.spawn()?;
        }
        if let State::Threaded(writer) = &mut self.state {
            let mut piece = writer.empties.try_recv().unwrap_or_default();
            piece.clear();
            piece.extend_from_slice(bytes);
            // The thread ends only when this sender is dropped.
            let _ = writer.pieces.send(piece);
        }
        Ok(Taken::Later)
    }

    fn spawn(&mut self) -> Result<(), Errno> {
        let State::Inline(capture) = std::mem::replace(&mut self.state, State::Done) else { return Ok(()) };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { written: AtomicU64::new(0), closed: AtomicBool::new(false), wake });
        let (pieces, inbox) = channel();
        let (outbox, empties) = channel();
        let (out, told) = (self.out.clone(), shared.clone());
        let thread = std::thread::Builder::new()
            .name("output".into())
            .stack_size(64 << 10)
            .spawn(move || drain(capture, &out, &told, &inbox, &outbox))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        self.state = State::Threaded(Writer { pieces, empties, shared, thread });
        Ok(())
    }

    fn close(&mut self) {
        if let State::Threaded(writer) = &self.state {
            writer.shared.closed.store(true, Ordering::Release);
        }
    }

    /// Readable when `progress` has something to tell.
    pub(crate) fn wake(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Threaded(writer) => Some(writer.shared.wake.as_fd()),
            _ => None,
        }
    }

    /// Bytes written since the last time.
    pub(crate) fn progress(&self) -> usize {
        let State::Threaded(writer) = &self.state else { return 0 };
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&writer.shared.wake, &mut count);
        writer.shared.written.swap(0, Ordering::AcqRel) as usize
    }

    /// Whether nobody reads this stream any more.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(&self.state, State::Threaded(writer) if writer.shared.closed.load(Ordering::Acquire))
    }

    /// Waits until everything is written.
    pub(crate) fn finish(&mut self) -> Captured {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Inline(capture) => capture.finish(),
            State::Threaded(writer) => {
                drop(writer.pieces);
                writer.thread.join().unwrap_or_else(|_| Capture::new().finish())
            }
            State::Done => Capture::new().finish(),
        }
    }
}

fn drain(
    mut capture: Box<Capture>,
    out: &OwnedFd,
    told: &Shared,
    inbox: &Receiver<Vec<u8>>,
    outbox: &Sender<Vec<u8>>,
) -> Captured {
    while let Ok(piece) = inbox.recv() {
        if !told.closed.load(Ordering::Acquire) && write_all(out, &piece).is_err() {
            told.closed.store(true, Ordering::Release);
        }
        capture.add(&piece);
        told.written.fetch_add(piece.len() as u64, Ordering::AcqRel);
        let _ = rustix::io::write(&told.wake, &1u64.to_ne_bytes());
        let _ = outbox.send(piece);
    }
    capture.finish()
}

fn writable(fd: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut set, Some(&now)), Ok(1))
}

/// The caller's descriptor may be non-blocking for reasons of its own; then this waits as a write would.
fn write_all(out: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(out, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut set = [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::OUT)];
                let _ = rustix::event::poll(&mut set, None);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn little_and_much_arrive_whole() {
        for size in [0usize, 10, AT_ONCE, 3 << 20] {
            let (mut reader, writer) = std::io::pipe().unwrap();
            let mut sink = Sink::new(writer.into());
            let all: Vec<u8> = (0..size).map(|n| n as u8).collect();
            let reading = std::thread::spawn(move || {
                let mut seen = Vec::new();
                reader.read_to_end(&mut seen).unwrap();
                seen
            });
            for piece in all.chunks(100_000) {
                sink.take(piece).unwrap();
            }
            assert_eq!(sink.finish().bytes, size as u64);
            drop(sink);
            assert_eq!(reading.join().unwrap(), all);
        }
    }

    #[test]
    fn a_reader_that_leaves_is_noticed_and_the_rest_still_counted() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut sink = Sink::new(writer.into());
        drop(reader);
        sink.take(b"first").unwrap();
        assert!(sink.is_closed());
        sink.take(&[7; 10_000]).unwrap();
        assert_eq!(sink.finish().bytes, 10_005);
    }
}
