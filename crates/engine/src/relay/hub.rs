//! One command's output for any number of readers in this process, who come and go as they like. What nobody reads
//! is gone; what somebody has not read yet is held, within the credit that the guest has for it, and no more comes
//! until the slowest has taken it.

use bytes::Bytes;
use cofferdam_guest::wire;
use cofferdam_model::{Exit, Usage};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Which of a command's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
    Tty,
}

/// What a reader hears.
#[derive(Debug, Clone)]
pub enum Heard {
    /// It runs; the number is the inside's.
    Started {
        pid: u32,
    },
    Output {
        stream: OutputStream,
        piece: Arc<Piece>,
    },
    /// The last of it.
    Ended(Arc<End>),
}

/// How a command ended.
#[derive(Debug, Clone)]
pub struct End {
    /// Why it did not even start, in words.
    pub exit: Result<Exit, String>,
    pub usage: Usage,
    /// What ended it, if it was not its own doing.
    pub reason: Option<String>,
    /// It went with its sandbox, which is no more.
    pub lost: bool,
}

impl End {
    /// It went with its sandbox, for this reason.
    pub(crate) fn lost(reason: &str) -> Self {
        let (usage, reason) = (Usage::default(), Some(reason.to_owned()));
        Self { exit: Ok(Exit::Signal(9)), usage, reason, lost: true }
    }
}

/// Some bytes of output. When the last reader lets go of it, the guest may send as many more.
#[derive(Debug)]
pub struct Piece {
    bytes: Bytes,
    credit: Arc<Credit>,
}

impl Piece {
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.credit.give(self.bytes.len());
    }
}

/// What of a stream was read, and who is to be told.
#[derive(Debug)]
pub(crate) struct Credit {
    returned: AtomicUsize,
    wake: Arc<OwnedFd>,
}

impl Credit {
    pub(crate) fn new(wake: Arc<OwnedFd>) -> Arc<Self> {
        Arc::new(Self { returned: AtomicUsize::new(0), wake })
    }

    fn give(&self, bytes: usize) {
        // The relay asks before it waits, so only the first of several has to wake it.
        if self.returned.fetch_add(bytes, Ordering::AcqRel) == 0 {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn take(&self) -> usize {
        self.returned.swap(0, Ordering::AcqRel)
    }
}

#[derive(Default)]
struct State {
    readers: Vec<UnboundedSender<Heard>>,
    pid: Option<u32>,
    end: Option<(Arc<End>, Instant)>,
}

/// Where a command's output comes in.
#[derive(Default)]
pub(crate) struct Hub(Mutex<State>);

impl Hub {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on; whoever comes late still hears that it runs, or how it ended.
    pub(crate) fn attach(&self) -> UnboundedReceiver<Heard> {
        let (to, from) = unbounded_channel();
        let mut state = self.state();
        if let Some(pid) = state.pid {
            let _ = to.send(Heard::Started { pid });
        }
        match &state.end {
            Some((end, _)) => _ = to.send(Heard::Ended(end.clone())),
            None => state.readers.push(to),
        }
        from
    }

    fn tell(&self, heard: &Heard) {
        self.state().readers.retain(|reader| reader.send(heard.clone()).is_ok());
    }

    pub(crate) fn started(&self, pid: u32) {
        self.state().pid = Some(pid);
        self.tell(&Heard::Started { pid });
    }

    pub(crate) fn output(&self, stream: OutputStream, bytes: &[u8], credit: &Arc<Credit>) {
        let piece = Arc::new(Piece { bytes: Bytes::copy_from_slice(bytes), credit: credit.clone() });
        self.tell(&Heard::Output { stream, piece });
    }

    pub(crate) fn end(&self, end: End) {
        let end = Arc::new(end);
        self.tell(&Heard::Ended(end.clone()));
        let mut state = self.state();
        state.readers.clear();
        state.end.get_or_insert((end, Instant::now()));
    }

    /// Since when it is over.
    pub(crate) fn ended_at(&self) -> Option<Instant> {
        self.state().end.as_ref().map(|(_, at)| *at)
    }
}

impl From<wire::Stream> for OutputStream {
    fn from(stream: wire::Stream) -> Self {
        match stream {
            wire::Stream::Stderr => Self::Stderr,
            wire::Stream::Tty => Self::Tty,
            wire::Stream::Stdin | wire::Stream::Stdout => Self::Stdout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::EventfdFlags;

    fn hub() -> (Hub, Arc<Credit>) {
        let wake = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        (Hub::default(), Credit::new(Arc::new(wake)))
    }

    #[test]
    fn credit_comes_back_when_the_slowest_has_read() {
        let (hub, credit) = hub();
        hub.output(OutputStream::Stdout, b"nobody", &credit);
        assert_eq!(credit.take(), 6);
        let (mut one, two) = (hub.attach(), hub.attach());
        hub.output(OutputStream::Stdout, b"abc", &credit);
        drop(one.try_recv().unwrap());
        assert_eq!(credit.take(), 0);
        // One that leaves has read it all.
        drop(two);
        assert_eq!(credit.take(), 3);
    }

    #[test]
    fn who_comes_late_hears_the_end() {
        let (hub, credit) = hub();
        hub.started(7);
        let mut late = hub.attach();
        assert!(matches!(late.try_recv(), Ok(Heard::Started { pid: 7 })));
        hub.output(OutputStream::Stderr, b"x", &credit);
        let end = || End { exit: Ok(Exit::Code(3)), usage: Usage::default(), reason: None, lost: false };
        hub.end(end());
        assert!(matches!(late.try_recv(), Ok(Heard::Output { stream: OutputStream::Stderr, .. })));
        assert!(matches!(late.try_recv(), Ok(Heard::Ended(end)) if end.exit == Ok(Exit::Code(3))));
        let mut later = hub.attach();
        assert!(matches!(later.try_recv(), Ok(Heard::Started { pid: 7 })));
        assert!(matches!(later.try_recv(), Ok(Heard::Ended(_))));
        assert!(later.try_recv().is_err());
    }
}
