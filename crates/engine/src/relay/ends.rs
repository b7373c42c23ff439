//! Where a command's bytes come from and go to: descriptors of a caller's, or people in this process.

use super::capture::{Capture, Captured, Seen};
use super::hub::{Credit, Hub};
use super::sink::{Sink, Taken};
use super::{Io, Stdio};
use bytes::{Buf, Bytes};
use cofferdam_guest::host::{Client, ExecId};
use cofferdam_guest::wire;
use cofferdam_seal::Hasher;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tokio::sync::oneshot;

/// How much input is read at once.
const INPUT: usize = 64 << 10;

pub(super) enum Out {
    Descriptor(Sink),
    Readers(Readers),
}

pub(super) struct Readers {
    /// Nothing for what is no command's.
    capture: Option<Box<Capture>>,
    hub: Arc<Hub>,
    stream: wire::Stream,
    credit: Arc<Credit>,
}

impl Out {
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Taken, Errno> {
        match self {
            Self::Descriptor(sink) => sink.take(bytes),
            Self::Readers(readers) => {
                readers.capture.iter_mut().for_each(|capture| capture.add(bytes));
                readers.hub.output(readers.stream.into(), bytes, &readers.credit);
                Ok(Taken::Later)
            }
        }
    }

    pub(super) fn wake(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Descriptor(sink) => sink.wake(),
            Self::Readers(_) => None,
        }
    }

    pub(super) fn progress(&self) -> usize {
        match self {
            Self::Descriptor(sink) => sink.progress(),
            Self::Readers(readers) => readers.credit.take(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Descriptor(sink) if sink.is_closed())
    }

    pub(super) fn end(&mut self) {
        if let Self::Descriptor(sink) = self {
            sink.end();
        }
    }

    /// What there is of it so far, if there is anything new.
    pub(super) fn seen(&mut self) -> Option<Seen> {
        match self {
            Self::Descriptor(sink) => sink.seen(),
            Self::Readers(readers) => readers.capture.as_mut().and_then(|capture| capture.seen()),
        }
    }

    pub(super) fn is_out(&self) -> bool {
        match self {
            Self::Descriptor(sink) => sink.is_out(),
            Self::Readers(_) => true,
        }
    }

    pub(super) fn finish(&mut self, abandoned: bool) -> Captured {
        match self {
            Self::Descriptor(sink) if abandoned => sink.abandon(),
            Self::Descriptor(sink) => sink.finish(),
            Self::Readers(readers) => {
                readers.capture.take().map_or_else(|| Capture::new().finish(), |capture| capture.finish())
            }
        }
    }
}

/// Some input, and who is to know when it has gone.
pub(crate) struct Feed {
    pub(crate) bytes: Bytes,
    pub(crate) done: oneshot::Sender<()>,
}

/// What of a command's input is on record: how much it was and its digest, no byte of it. A key that somebody pipes
/// in is in no trace. Of a terminal, where people type what few can think of, not even that.
#[derive(Default)]
pub(super) struct Given(Option<Box<(Hasher, u64)>>);

impl Given {
    pub(super) fn new(kept: bool) -> Self {
        Self(kept.then(|| Box::new((Hasher::new(), 0))))
    }

    fn add(&mut self, bytes: &[u8]) {
        if let Some((hasher, count)) = self.0.as_deref_mut() {
            hasher.update(bytes);
            *count += bytes.len() as u64;
        }
    }

    pub(super) fn finish(&mut self) -> Option<Captured> {
        let (hasher, bytes) = *self.0.take()?;
        let captured = Captured { digest: hasher.finish(), bytes, head: Vec::new(), tail: Vec::new() };
        (bytes > 0).then_some(captured)
    }
}

pub(super) enum In {
    None,
    Descriptor(OwnedFd),
    /// What people gave, the first of it in part perhaps.
    Fed {
        waiting: VecDeque<Feed>,
        ended: bool,
    },
}

impl In {
    pub(super) const fn fed() -> Self {
        Self::Fed { waiting: VecDeque::new(), ended: false }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Descriptor(fd) => Some(fd.as_fd()),
            _ => None,
        }
    }

    pub(super) fn read(&mut self, id: ExecId, client: &mut Client, buffer: &mut Vec<u8>, given: &mut Given) {
        let Self::Descriptor(stdin) = self else { return };
        let room = client.input_room(id).min(INPUT);
        // Made when it is first needed, and never filled before it is read into: most commands are given no input.
        buffer.reserve_exact(INPUT);
        match rustix::io::read(stdin, &mut buffer.spare_capacity_mut()[..room]) {
            Ok((read, _)) if !read.is_empty() => {
                let taken = client.input(id, read);
                given.add(&read[..taken]);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Its end, a terminal that is gone, or a descriptor that cannot be read: there is no more input.
            _ => {
                client.end_input(id);
                *self = Self::None;
            }
        }
    }

    /// Where input is not taken, whoever gave it hears so by its `done` going away.
    pub(super) fn feed(&mut self, feed: Feed) {
        if let Self::Fed { waiting, ended: false } = self {
            waiting.push_back(feed);
        }
    }

    pub(super) fn end_feed(&mut self) {
        if let Self::Fed { ended, .. } = self {
            *ended = true;
        }
    }

    /// Hands on what the guest would take now.
    pub(super) fn pump(&mut self, id: ExecId, client: &mut Client, given: &mut Given) {
        let Self::Fed { waiting, ended } = self else { return };
        while let Some(first) = waiting.front_mut() {
            let taken = client.input(id, &first.bytes);
            given.add(first.bytes.get(..taken).unwrap_or_default());
            first.bytes.advance(taken);
            if !first.bytes.is_empty() {
                return;
            }
            if let Some(feed) = waiting.pop_front() {
                let _ = feed.done.send(());
            }
        }
        if *ended {
            client.end_input(id);
            *self = Self::None;
        }
    }
}

/// Both ends of a command, on a terminal or not. `kept` is how much of each output is passed on.
pub(super) fn open(io: Io, tty: bool, kept: Option<u64>) -> (In, Vec<(wire::Stream, Out)>, Option<Arc<Hub>>) {
    let streams: &[wire::Stream] = match tty {
        true => &[wire::Stream::Tty],
        false => &[wire::Stream::Stdout, wire::Stream::Stderr],
    };
    match io {
        Io::Descriptors(Stdio { stdin, stdout, stderr }) => {
            let given = [stdout, stderr].into_iter().map(|fd| Out::Descriptor(Sink::new(fd, kept)));
            let outs = streams.iter().copied().zip(given).collect();
            (stdin.map_or(In::None, In::Descriptor), outs, None)
        }
        Io::People { hub, stdin, wake } => {
            let out = |stream: &wire::Stream| (*stream, readers(&hub, *stream, &wake, true));
            let outs = streams.iter().map(out).collect();
            (if stdin || tty { In::fed() } else { In::None }, outs, Some(hub))
        }
        Io::Asker { .. } => (In::None, Vec::new(), None),
    }
}

pub(super) fn readers(hub: &Arc<Hub>, stream: wire::Stream, wake: &Arc<OwnedFd>, captured: bool) -> Out {
    let capture = captured.then(|| Box::new(Capture::new()));
    Out::Readers(Readers { capture, hub: hub.clone(), stream, credit: Credit::new(wake.clone()) })
}
