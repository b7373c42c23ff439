//! The loop of a running command: bytes, signals, terminal, refused calls, limits, until it ends.
//!
//! It never trusts the guest to end, to read or to keep to the protocol: every wait is on a set of
//! descriptors that includes the sandbox's own process and the clock.

mod capture;
mod sink;

pub(crate) use capture::Captured;

use crate::error::EngineError;
use crate::record::Recorder;
use cofferdam_guest::host::{Client, Event, ExecId, HostError, Received};
use cofferdam_guest::wire::{self, Exited, Outcome, Target};
use cofferdam_model::{Body, Exit, LimitHit, Stream, Usage};
use cofferdam_runtime::Sandbox;
use cofferdam_sys::signal::Signals;
use cofferdam_sys::terminal;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;
use sink::{Sink, Taken};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The caller's side of a command.
pub struct Stdio {
    /// Nothing: the command's input is empty.
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// How a command ended, and what it wrote.
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) usage: Usage,
    pub(crate) outputs: Vec<(Stream, Captured)>,
}

/// What the loop watches for, besides the command itself.
pub(crate) struct Bounds {
    pub(crate) deadline: Option<Instant>,
    pub(crate) timeout: Duration,
    pub(crate) output: Option<u64>,
}

/// What the loop works on, of its session's.
pub(crate) struct Around<'a> {
    pub(crate) sandbox: &'a mut dyn Sandbox,
    pub(crate) recorder: &'a Recorder,
    pub(crate) signals: &'a Signals,
    pub(crate) bounds: Bounds,
    /// The event that the command's own events belong to.
    pub(crate) parent: u64,
}

pub(crate) struct Relay<'a> {
    client: Client,
    id: ExecId,
    sandbox: &'a mut dyn Sandbox,
    recorder: &'a Recorder,
    signals: &'a Signals,
    bounds: Bounds,
    parent: u64,
    told_of_closing: bool,
    stdin: Option<OwnedFd>,
    sinks: Vec<(wire::Stream, Sink)>,
    buffer: Vec<u8>,
    shown: u64,
    began: Instant,
    tty: bool,
}

/// How much input is read at once.
const INPUT: usize = 64 << 10;

/// Signals that are the command's, if they reach us.
pub(crate) const FORWARDED: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Why the loop is over before the command said so.
enum Stop {
    Exited(Exited),
    Limit(LimitHit, Exit),
    Gone,
}

impl<'a> Relay<'a> {
    /// Starts `exec` on a guest that may still be coming up.
    pub(crate) fn start(
        channel: OwnedFd,
        exec: &wire::Exec<'_>,
        around: Around<'a>,
        stdio: Stdio,
    ) -> Result<Self, EngineError> {
        let mut client = Client::new(channel)?;
        let id = client.exec(exec)?;
        client.flush()?;
        let tty = exec.tty.is_some();
        let out = |stream, fd| (stream, Sink::new(fd));
        let sinks = match tty {
            true => vec![out(wire::Stream::Tty, stdio.stdout)],
            false => vec![out(wire::Stream::Stdout, stdio.stdout), out(wire::Stream::Stderr, stdio.stderr)],
        };
        if stdio.stdin.is_none() {
            client.end_input(id);
        }
        Ok(Self {
            client,
            id,
            sandbox: around.sandbox,
            recorder: around.recorder,
            signals: around.signals,
            bounds: around.bounds,
            parent: around.parent,
            told_of_closing: false,
            stdin: stdio.stdin,
            sinks,
            buffer: Vec::new(),
            shown: 0,
            began: Instant::now(),
            tty,
        })
    }

    pub(crate) fn run(mut self) -> Result<Ended, EngineError> {
        let stop = loop {
            if let Some(stop) = self.turn()? {
                break stop;
            }
        };
        let (exit, usage) = match stop {
            Stop::Exited(exited) => (outcome(exited.outcome)?, usage(&exited)),
            Stop::Limit(hit, exit) => {
                self.recorder.append(Some(self.parent), &Body::Limit(hit))?;
                (exit, Usage::default())
            }
            Stop::Gone => (Exit::Signal(9), Usage::default()),
        };
        let usage = Usage { wall_us: self.began.elapsed().as_micros() as u64, ..usage };
        let outputs = self.sinks.iter_mut().map(|(stream, sink)| (named(*stream), sink.finish())).collect();
        Ok(Ended { exit, usage, outputs })
    }

    /// Waits for something, and does all there is to do.
    fn turn(&mut self) -> Result<Option<Stop>, EngineError> {
        let ready = self.wait()?;
        if ready.signals {
            self.forward_signals()?;
        }
        if ready.alarm {
            for attempt in self.sandbox.attempts()? {
                self.recorder.append(Some(self.parent), &Body::Blocked(attempt))?;
            }
        }
        if ready.stdin {
            self.read_input()?;
        }
        self.give_credit()?;
        let mut closed = false;
        if ready.client {
            closed = self.client.receive()? == Received::Closed;
            if let Some(stop) = self.events()? {
                return Ok(Some(stop));
            }
        }
        self.client.flush()?;
        if closed || (ready.ended && !ready.client) {
            return Ok(Some(Stop::Gone));
        }
        self.recorder.checkpoint_if_due()?;
        Ok(self.over_limit())
    }

    fn over_limit(&self) -> Option<Stop> {
        if self.bounds.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let allowed = self.bounds.timeout.as_millis() as u64;
            let seen = self.began.elapsed().as_millis() as u64;
            let detail = format!("killed: time limit {}", cofferdam_model::Span(self.bounds.timeout));
            return Some(Stop::Limit(
                LimitHit { limit: "timeout".into(), allowed, seen, detail },
                Exit::TimedOut,
            ));
        }
        let allowed = self.bounds.output.filter(|&most| self.shown > most)?;
        let detail = format!("killed: output limit {}", cofferdam_model::Bytes(allowed));
        let hit = LimitHit { limit: "output".into(), allowed, seen: self.shown, detail };
        Some(Stop::Limit(hit, Exit::LimitReached))
    }

    fn forward_signals(&mut self) -> Result<(), EngineError> {
        for arrived in self.signals.take().map_err(waiting)? {
            if arrived.is(Signal::WINCH) {
                if let Some(size) = self.sinks.first().and_then(|_| current_size(rustix::stdio::stdin())) {
                    self.client.resize(self.id, size)?;
                }
            } else if let Ok(number) = u8::try_from(arrived.signal) {
                let to = if self.tty { Target::Foreground } else { Target::Group };
                self.client.signal(self.id, number, to)?;
            }
        }
        Ok(())
    }

    fn read_input(&mut self) -> Result<(), EngineError> {
        let Some(stdin) = &self.stdin else { return Ok(()) };
        // Made when it is first needed: most commands are given no input.
        self.buffer.resize(INPUT, 0);
        let room = self.client.input_room(self.id).min(INPUT);
        match rustix::io::read(stdin, &mut self.buffer[..room]) {
            Ok(0) => {
                self.client.end_input(self.id);
                self.stdin = None;
            }
            Ok(count) => {
                self.client.input(self.id, &self.buffer[..count]);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // A terminal that is gone, or a descriptor that cannot be read: there is no more input.
            Err(_) => {
                self.client.end_input(self.id);
                self.stdin = None;
            }
        }
        Ok(())
    }

    /// Hands on what the writers have got rid of, and the news that nobody reads.
    fn give_credit(&mut self) -> Result<(), EngineError> {
        let mut closed = false;
        for (stream, sink) in &self.sinks {
            let written = sink.progress();
            if written > 0 {
                self.client.consumed(self.id, *stream, written)?;
            }
            closed |= sink.is_closed();
        }
        // What the kernel would have told a writer whose reader left. Once: it may be ignored on purpose.
        if closed && !self.told_of_closing {
            self.told_of_closing = true;
            self.client.signal(self.id, Signal::PIPE.as_raw() as u8, Target::Group)?;
        }
        Ok(())
    }

    fn events(&mut self) -> Result<Option<Stop>, EngineError> {
        loop {
            let mut credit = None;
            match self.client.next_event()? {
                None => return Ok(None),
                Some(Event::Output { id, stream, bytes }) if id == self.id => {
                    self.shown += bytes.len() as u64;
                    let sink = self.sinks.iter_mut().find(|(s, _)| *s == stream);
                    if let Some((_, sink)) = sink
                        && let Taken::Now(count) = sink.take(bytes).map_err(writing)?
                    {
                        credit = Some((stream, count));
                    }
                }
                Some(Event::InputClosed { .. }) => self.stdin = None,
                Some(Event::Exited { id, exited }) if id == self.id => return Ok(Some(Stop::Exited(exited))),
                Some(_) => {}
            }
            if let Some((stream, count)) = credit {
                self.client.consumed(self.id, stream, count)?;
            }
        }
    }

    fn wait(&self) -> Result<Ready, EngineError> {
        let client_events =
            if self.client.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut set = vec![
            PollFd::from_borrowed_fd(self.client.as_fd(), client_events),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
        ];
        let ended = add(&mut set, self.sandbox.ended());
        let alarm = add(&mut set, self.sandbox.alarm());
        let has_room = self.client.input_room(self.id) > 0;
        let stdin = add(&mut set, self.stdin.as_ref().filter(|_| has_room).map(AsFd::as_fd));
        for (_, sink) in &self.sinks {
            add(&mut set, sink.wake());
        }
        let timeout = self.timeout();
        match rustix::event::poll(&mut set, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(waiting(errno)),
        }
        let is_ready = |at: Option<usize>| at.is_some_and(|at| !set[at].revents().is_empty());
        Ok(Ready {
            client: is_ready(Some(0)),
            signals: is_ready(Some(1)),
            ended: is_ready(ended),
            alarm: is_ready(alarm),
            stdin: is_ready(stdin),
        })
    }

    /// Until the deadline, or until the trace wants its next signature.
    fn timeout(&self) -> Option<Timespec> {
        let deadline =
            self.bounds.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = [deadline, self.recorder.next_checkpoint()].into_iter().flatten().min()?;
        Timespec::try_from(wait).ok()
    }
}

fn add<'f>(set: &mut Vec<PollFd<'f>>, fd: Option<BorrowedFd<'f>>) -> Option<usize> {
    set.push(PollFd::from_borrowed_fd(fd?, PollFlags::IN));
    Some(set.len() - 1)
}

struct Ready {
    client: bool,
    signals: bool,
    ended: bool,
    alarm: bool,
    stdin: bool,
}

pub(crate) fn current_size(terminal: BorrowedFd<'_>) -> Option<wire::Size> {
    terminal::size(terminal).ok().map(|size| wire::Size { rows: size.rows, columns: size.columns })
}

fn waiting(errno: Errno) -> EngineError {
    EngineError::Io { doing: "wait for the command", source: errno.into() }
}

fn writing(errno: Errno) -> EngineError {
    EngineError::Io { doing: "pass on the command's output", source: errno.into() }
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

impl From<HostError> for EngineError {
    fn from(error: HostError) -> Self {
        Self::Guest(error)
    }
}
