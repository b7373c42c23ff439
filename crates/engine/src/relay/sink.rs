//! One output stream on its way to the caller: captured, then written.
//!
//! Little output is written by the relay itself, as long as the caller's descriptor would not block. From the
//! first piece that is large or would block, a thread of the stream's own takes over, so that a slow reader
//! holds up nothing but its stream, and hashing runs beside relaying. The guest's credit bounds what can be
//! waiting here.

use super::capture::{Capture, Captured, Seen};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What a pipe takes without blocking when it says it is writable.
const AT_ONCE: usize = 4096;

pub(crate) struct Sink {
    out: Arc<OwnedFd>,
    state: State,
    /// So much more is passed on. What comes then is counted and hashed only.
    room: Option<u64>,
}

enum State {
    Inline(Box<Capture>),
    Threaded(Writer),
    Done,
}

struct Writer {
    /// Nothing once there is no more to come.
    pieces: Option<Sender<Vec<u8>>>,
    empties: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// What the thread tells the relay.
struct Shared {
    written: AtomicU64,
    closed: AtomicBool,
    /// Everything is out, and the thread is about to end.
    out: AtomicBool,
    wake: OwnedFd,
    /// Held for the time that hashing one piece takes. Nothing once it was taken away.
    capture: Mutex<Option<Box<Capture>>>,
}

impl Shared {
    fn capture(&self) -> MutexGuard<'_, Option<Box<Capture>>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Captured {
        self.capture().take().map_or_else(|| Capture::new().finish(), |capture| capture.finish())
    }
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
    pub(crate) fn new(out: OwnedFd, room: Option<u64>) -> Self {
        Self { out: Arc::new(out), state: State::Inline(Box::new(Capture::new())), room }
    }

    /// Takes a piece of output.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Taken, Errno> {
        if let State::Inline(capture) = &mut self.state {
            if bytes.len() <= AT_ONCE && capture.bytes() < 16 * AT_ONCE as u64 && writable(self.out.as_fd()) {
                capture.add(bytes);
                let shown = within(&mut self.room, bytes);
                // A reader that is gone is seen by `is_closed` once the thread has met it; here the piece is lost
                // as it would be without us.
                return match write_all(&self.out, shown) {
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
        if let State::Threaded(writer) = &mut self.state
            && let Some(pieces) = &writer.pieces
        {
            let mut piece = writer.empties.try_recv().unwrap_or_default();
            piece.clear();
            piece.extend_from_slice(bytes);
            // The thread ends only when this sender is dropped.
            let _ = pieces.send(piece);
        }
        Ok(Taken::Later)
    }

    fn spawn(&mut self) -> Result<(), Errno> {
        let State::Inline(capture) = std::mem::replace(&mut self.state, State::Done) else { return Ok(()) };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            written: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            out: AtomicBool::new(false),
            wake,
            capture: Mutex::new(Some(capture)),
        });
        let (pieces, inbox) = channel();
        let (outbox, empties) = channel();
        let (out, told, room) = (self.out.clone(), shared.clone(), self.room);
        let thread = std::thread::Builder::new()
            .name("output".into())
            .stack_size(64 << 10)
            .spawn(move || drain(&out, room, &told, &inbox, &outbox))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        self.state = State::Threaded(Writer { pieces: Some(pieces), empties, shared, thread });
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

    /// Nothing more will come.
    pub(crate) fn end(&mut self) {
        if let State::Threaded(writer) = &mut self.state {
            writer.pieces = None;
        }
    }

    /// What there is of it so far, if there is anything new.
    pub(crate) fn seen(&mut self) -> Option<Seen> {
        match &mut self.state {
            State::Inline(capture) => capture.seen(),
            State::Threaded(writer) => writer.shared.capture().as_mut().and_then(|capture| capture.seen()),
            State::Done => None,
        }
    }

    /// After `end`: whether `finish` would not wait.
    pub(crate) fn is_out(&self) -> bool {
        !matches!(&self.state, State::Threaded(writer) if !writer.shared.out.load(Ordering::Acquire))
    }

    /// Waits until everything is written.
    pub(crate) fn finish(&mut self) -> Captured {
        self.end();
        match std::mem::replace(&mut self.state, State::Done) {
            State::Inline(capture) => capture.finish(),
            State::Threaded(writer) => {
                let _ = writer.thread.join();
                writer.shared.take()
            }
            State::Done => Capture::new().finish(),
        }
    }

    /// Waits for nobody: what the reader has not taken by now goes nowhere, and is not told of either.
    pub(crate) fn abandon(&mut self) -> Captured {
        self.close();
        match std::mem::replace(&mut self.state, State::Done) {
            State::Threaded(writer) => writer.shared.take(),
            other => {
                self.state = other;
                self.finish()
            }
        }
    }
}

fn drain(
    out: &OwnedFd,
    mut room: Option<u64>,
    told: &Shared,
    inbox: &Receiver<Vec<u8>>,
    outbox: &Sender<Vec<u8>>,
) {
    while let Ok(piece) = inbox.recv() {
        if let Some(capture) = told.capture().as_mut() {
            capture.add(&piece);
        }
        let shown = within(&mut room, &piece);
        if !told.closed.load(Ordering::Acquire) && write_all(out, shown).is_err() {
            told.closed.store(true, Ordering::Release);
        }
        told.written.fetch_add(piece.len() as u64, Ordering::AcqRel);
        let _ = rustix::io::write(&told.wake, &1u64.to_ne_bytes());
        let _ = outbox.send(piece);
    }
    told.out.store(true, Ordering::Release);
    let _ = rustix::io::write(&told.wake, &1u64.to_ne_bytes());
}

/// What of a piece is still within the bound.
fn within<'b>(room: &mut Option<u64>, bytes: &'b [u8]) -> &'b [u8] {
    let Some(left) = room else { return bytes };
    let shown = bytes.get(..usize::try_from(*left).unwrap_or(usize::MAX)).unwrap_or(bytes);
    *left -= shown.len() as u64;
    shown
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
            let mut sink = Sink::new(writer.into(), None);
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
        let mut sink = Sink::new(writer.into(), None);
        drop(reader);
        sink.take(b"first").unwrap();
        assert!(sink.is_closed());
        sink.take(&[7; 10_000]).unwrap();
        assert_eq!(sink.finish().bytes, 10_005);
    }

    #[test]
    fn a_bound_holds_for_what_is_passed_on_and_not_for_what_is_counted() {
        for size in [100usize, 3 << 20] {
            let (mut reader, writer) = std::io::pipe().unwrap();
            let mut sink = Sink::new(writer.into(), Some(50));
            sink.take(&vec![7; size]).unwrap();
            assert_eq!(sink.finish().bytes, size as u64);
            drop(sink);
            let mut seen = Vec::new();
            reader.read_to_end(&mut seen).unwrap();
            assert_eq!(seen, [7; 50]);
        }
    }

    #[test]
    fn a_reader_that_does_not_read_can_be_left_alone() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut sink = Sink::new(writer.into(), None);
        sink.take(&vec![7; 3 << 20]).unwrap();
        sink.end();
        assert!(!sink.is_out());
        assert!(sink.abandon().bytes <= 3 << 20);
        assert!(sink.is_out());
        drop(reader);
    }
}
