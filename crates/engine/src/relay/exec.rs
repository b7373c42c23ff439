//! One command on its way: its input, its output, its bounds, until it has ended and all of its output is out.

use super::capture::Captured;
use super::sink::{Sink, Taken};
use super::{Bounds, Stdio, writing};
use crate::error::EngineError;
use cofferdam_guest::host::{Client, ExecId};
use cofferdam_guest::wire::{self, Exited, Outcome, Target};
use cofferdam_model::{Bytes, Exit, LimitHit, Span, Stream, Usage};
use rustix::io::Errno;
use rustix::process::Signal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How much input is read at once.
const INPUT: usize = 64 << 10;

/// How a command ended, and what it wrote.
pub(crate) struct Ended {
    /// Not even started: why.
    pub(crate) exit: Result<Exit, EngineError>,
    pub(crate) usage: Usage,
    pub(crate) outputs: Vec<(Stream, Captured)>,
    /// What ended it, if it was a limit.
    pub(crate) limit: Option<LimitHit>,
}

pub(super) struct Running {
    pub(super) id: ExecId,
    /// The event that its own events belong to.
    pub(super) parent: u64,
    bounds: Bounds,
    told_of_closing: bool,
    stdin: Option<OwnedFd>,
    sinks: Vec<(wire::Stream, Sink)>,
    pub(super) shown: u64,
    began: Instant,
    tty: bool,
    /// Why it is over, while some of its output may still be on its way out.
    over: Option<Over>,
}

enum Over {
    Exited(Exited),
    Limit(LimitHit, Exit),
    /// Its output could not be passed on.
    Failed(EngineError),
}

impl Running {
    pub(super) fn new(id: ExecId, parent: u64, tty: bool, bounds: Bounds, stdio: Stdio) -> Self {
        let out = |stream, fd| (stream, Sink::new(fd, bounds.kept));
        let sinks = match tty {
            true => vec![out(wire::Stream::Tty, stdio.stdout)],
            false => vec![out(wire::Stream::Stdout, stdio.stdout), out(wire::Stream::Stderr, stdio.stderr)],
        };
        let stdin = stdio.stdin;
        Self {
            id,
            parent,
            bounds,
            told_of_closing: false,
            stdin,
            sinks,
            shown: 0,
            began: Instant::now(),
            tty,
            over: None,
        }
    }

    /// Worth waiting for only while the guest would take what is read.
    pub(super) fn input(&self, client: &Client) -> Option<BorrowedFd<'_>> {
        self.stdin.as_ref().filter(|_| client.input_room(self.id) > 0).map(AsFd::as_fd)
    }

    pub(super) fn wakes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sinks.iter().filter_map(|(_, sink)| sink.wake())
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.bounds.deadline.filter(|_| self.over.is_none())
    }

    /// Time in which it could not run does not count.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.bounds.deadline = self.bounds.deadline.map(|deadline| deadline + by);
    }

    pub(super) fn read_input(&mut self, client: &mut Client, buffer: &mut Vec<u8>) {
        let Some(stdin) = &self.stdin else { return };
        // Made when it is first needed: most commands are given no input.
        buffer.resize(INPUT, 0);
        let room = client.input_room(self.id).min(INPUT);
        match rustix::io::read(stdin, &mut buffer[..room]) {
            Ok(count) if count > 0 => {
                client.input(self.id, &buffer[..count]);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Its end, a terminal that is gone, or a descriptor that cannot be read: there is no more input.
            _ => {
                client.end_input(self.id);
                self.stdin = None;
            }
        }
    }

    pub(super) fn input_closed(&mut self) {
        self.stdin = None;
    }

    /// Takes a piece of output; says how much credit can be given back at once.
    pub(super) fn output(&mut self, stream: wire::Stream, bytes: &[u8]) -> usize {
        let sink = self.sinks.iter_mut().find(|(s, _)| *s == stream);
        let Some((_, sink)) = sink.filter(|_| self.over.is_none()) else { return bytes.len() };
        self.shown += bytes.len() as u64;
        match sink.take(bytes) {
            Ok(Taken::Now(count)) => count,
            Ok(Taken::Later) => 0,
            Err(errno) => {
                self.over = Some(Over::Failed(writing(errno)));
                bytes.len()
            }
        }
    }

    /// Hands on what the writers have got rid of, and the news that nobody reads.
    pub(super) fn give_credit(&mut self, client: &mut Client) -> Result<(), EngineError> {
        let mut closed = false;
        for (stream, sink) in &self.sinks {
            let written = sink.progress();
            if written > 0 {
                client.consumed(self.id, *stream, written)?;
            }
            closed |= sink.is_closed();
        }
        // What the kernel would have told a writer whose reader left. Once: it may be ignored on purpose.
        if closed && !self.told_of_closing {
            self.told_of_closing = true;
            client.signal(self.id, Signal::PIPE.as_raw() as u8, Target::Group)?;
        }
        Ok(())
    }

    pub(super) fn signal(&self, client: &mut Client, number: u8) -> Result<(), EngineError> {
        let to = if self.tty { Target::Foreground } else { Target::Group };
        Ok(client.signal(self.id, number, to)?)
    }

    /// Ends its process group and, on a terminal, the one in the foreground. What has left for a session of its
    /// own stays: it is the sandbox's.
    pub(super) fn kill(&self, client: &mut Client) -> Result<(), EngineError> {
        self.signal(client, Signal::KILL.as_raw() as u8)?;
        Ok(client.signal(self.id, Signal::KILL.as_raw() as u8, Target::Group)?)
    }

    fn over_limit(&self) -> Option<(LimitHit, Exit)> {
        if self.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            let timeout = self.bounds.timeout;
            let (allowed, seen) = (timeout.as_millis() as u64, self.began.elapsed().as_millis() as u64);
            let detail = format!("killed: time limit {}", Span(timeout));
            return Some((LimitHit { limit: "timeout".into(), allowed, seen, detail }, Exit::TimedOut));
        }
        let allowed = self.bounds.output.filter(|&most| self.shown > most)?;
        let detail = format!("killed: output limit {}", Bytes(allowed));
        let hit = LimitHit { limit: "output".into(), allowed, seen: self.shown, detail };
        Some((hit, Exit::LimitReached))
    }

    /// Ends it if it is at a limit, and says at which. It is not waited for: who is inside does not decide when.
    pub(super) fn hold_to_limits(&mut self, client: &mut Client) -> Result<Option<LimitHit>, EngineError> {
        match &self.over {
            None => {}
            Some(Over::Failed(_)) => return self.kill(client).map(|()| None),
            Some(_) => return Ok(None),
        }
        let Some((hit, exit)) = self.over_limit() else { return Ok(None) };
        self.kill(client)?;
        self.finish_output(Over::Limit(hit.clone(), exit));
        Ok(Some(hit))
    }

    pub(super) fn exited(&mut self, exited: Exited) {
        if self.over.is_none() {
            self.finish_output(Over::Exited(exited));
        }
    }

    fn finish_output(&mut self, over: Over) {
        self.over = Some(over);
        self.stdin = None;
        self.sinks.iter_mut().for_each(|(_, sink)| sink.end());
    }

    /// Once it has ended and its output is out.
    pub(super) fn is_over(&self) -> bool {
        match &self.over {
            None => false,
            Some(Over::Failed(_)) => true,
            Some(_) => self.sinks.iter().all(|(_, sink)| sink.is_out()),
        }
    }

    /// The end of it. Waits for whoever reads its output, unless that is `abandoned`.
    pub(super) fn end(mut self, abandoned: bool) -> Ended {
        let (exit, usage, limit) = match self.over.take() {
            Some(Over::Exited(exited)) => (outcome(exited.outcome), usage(&exited), None),
            Some(Over::Limit(hit, exit)) => (Ok(exit), Usage::default(), Some(hit)),
            Some(Over::Failed(error)) => (Err(error), Usage::default(), None),
            // It went with the sandbox.
            None => (Ok(Exit::Signal(9)), Usage::default(), None),
        };
        let usage = Usage { wall_us: self.began.elapsed().as_micros() as u64, ..usage };
        let finish = |sink: &mut Sink| if abandoned { sink.abandon() } else { sink.finish() };
        let outputs = self.sinks.iter_mut().map(|(stream, sink)| (named(*stream), finish(sink))).collect();
        Ended { exit, usage, outputs, limit }
    }
}

fn named(stream: wire::Stream) -> Stream {
    match stream {
        wire::Stream::Stdin => Stream::Stdin,
        wire::Stream::Stdout => Stream::Stdout,
        wire::Stream::Stderr => Stream::Stderr,
        wire::Stream::Tty => Stream::Tty,
    }
}

fn usage(exited: &Exited) -> Usage {
    let usage = exited.usage;
    Usage { wall_us: 0, user_us: usage.user_us, system_us: usage.system_us, peak_memory: usage.max_rss }
}

fn outcome(outcome: Outcome) -> Result<Exit, EngineError> {
    match outcome {
        Outcome::Code(code) => Ok(Exit::Code(code.into())),
        Outcome::Signal { number, .. } => Ok(Exit::Signal(number.into())),
        Outcome::NotFound => Ok(Exit::NotFound),
        Outcome::NotExecutable { .. } => Ok(Exit::NotExecutable),
        Outcome::Failed { step, errno } => Err(EngineError::Exec {
            step: format!("{step:?}").to_lowercase(),
            source: Errno::from_raw_os_error(errno.into()).into(),
        }),
    }
}
