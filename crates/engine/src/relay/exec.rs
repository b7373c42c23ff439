//! One command on its way: its input, its output, its bounds, until it has ended and all of its output is out.

use super::capture::{Captured, Seen};
use super::ends::{self, Given, In, Out};
use super::hub::{End, Hub};
use super::sink::Taken;
use super::{Bounds, Feed, Io, writing};
use crate::error::EngineError;
use cofferdam_guest::host::{Client, ExecId};
use cofferdam_guest::wire::{self, Exited, Outcome, Target};
use cofferdam_model::{Bytes, Exit, LimitHit, Span, Stream, Usage};
use rustix::io::Errno;
use rustix::process::Signal;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long output waits to be told of on its way: in the first seconds, and after hours.
const TELL_FIRST: Duration = Duration::from_secs(1);
const TELL_LAST: Duration = Duration::from_secs(600);

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
    stdin: In,
    given: Given,
    sinks: Vec<(wire::Stream, Out)>,
    /// Who reads it, where they are in this process.
    hub: Option<Arc<Hub>>,
    /// It is the guest's own work, and no command: nobody but its reader is told of its end.
    task: Option<Task>,
    /// Who asked for it, if that was somebody inside.
    pub(super) asker: Option<u32>,
    /// Inside, once it runs.
    pub(super) pid: Option<u32>,
    pub(super) shown: u64,
    /// So much of it was told of, and when more is to be.
    told: u64,
    tell_at: Instant,
    began: Instant,
    tty: bool,
    /// Somebody at its terminal can have meant it to stop.
    may_stop: bool,
    /// They are stopped with it, and what is typed meanwhile is not for it.
    stopped: bool,
    /// Why it is over, while some of its output may still be on its way out.
    over: Option<Over>,
}

/// What has to be known of work that the guest does itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    /// It waits for something to happen: a session that does nothing else is idle.
    pub(crate) idle: bool,
}

enum Over {
    Exited(Exited),
    Limit(LimitHit, Exit),
    /// Its output could not be passed on.
    Failed(EngineError),
}

impl Running {
    pub(super) fn new(id: ExecId, parent: u64, tty: bool, bounds: Bounds, io: Io) -> Self {
        let asker = if let Io::Asker { asker, .. } = io { Some(asker) } else { None };
        let (stdin, sinks, hub) = ends::open(io, tty, bounds.kept);
        let began = Instant::now();
        Self {
            id,
            parent,
            bounds,
            told_of_closing: false,
            given: Given::new(!tty && !matches!(stdin, In::None)),
            stdin,
            sinks,
            hub,
            task: None,
            asker,
            pid: None,
            shown: 0,
            told: 0,
            tell_at: began + TELL_FIRST,
            began,
            tty,
            may_stop: false,
            stopped: false,
            over: None,
        }
    }

    pub(super) fn task(id: ExecId, task: Task, hub: Arc<Hub>, wake: &Arc<OwnedFd>) -> Self {
        let out = ends::readers(&hub, wire::Stream::Stdout, wake, false);
        let io = Io::People { hub, stdin: true, wake: wake.clone() };
        let mut this = Self::new(id, 0, false, Bounds::default(), io);
        this.sinks = vec![(wire::Stream::Stdout, out)];
        Self { task: Some(task), given: Given::default(), ..this }
    }

    /// A task of the guest's own.
    pub(super) fn is_task(&self) -> bool {
        self.task.is_some()
    }

    /// Whether the session is at work because of it. What those inside began themselves is like any other process that they
    /// leave behind.
    pub(super) fn is_busy(&self) -> bool {
        self.asker.is_none() && self.task.is_none_or(|task| !task.idle)
    }

    /// Whether the process itself gets what its group is sent: on a terminal others may be in the foreground.
    pub(super) fn dies_of_signals(&self) -> bool {
        !self.tty && !self.is_task()
    }

    pub(super) fn started(&mut self, pid: u32) {
        self.pid = Some(pid);
        self.hub.iter().for_each(|hub| hub.started(pid));
    }

    pub(super) fn feed(&mut self, feed: Feed) {
        self.stdin.feed(feed);
    }

    pub(super) fn end_feed(&mut self) {
        self.stdin.end_feed();
    }

    pub(super) fn pump(&mut self, client: &mut Client) {
        self.stdin.pump(self.id, client, &mut self.given);
    }

    /// Worth waiting for only while the guest would take what is read.
    pub(super) fn input(&self, client: &Client) -> Option<BorrowedFd<'_>> {
        self.stdin.descriptor().filter(|_| client.input_room(self.id) > 0 && !self.stopped)
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

    /// Whether whoever sits there is to be stopped with it, now that it has stopped: once for whatever was typed or sent to
    /// it. It is not for the command to stop who holds it to its limits. Nothing where they are, however often it says so.
    pub(super) fn stops(&mut self) -> Option<bool> {
        if self.stopped {
            return None;
        }
        self.stopped = std::mem::take(&mut self.may_stop);
        Some(self.stopped)
    }

    /// That it is sent this signal.
    pub(super) fn hear_of(&mut self, number: u8) {
        match Signal::from_named_raw(i32::from(number)) {
            Some(Signal::TSTP) => self.may_stop = self.tty,
            Some(Signal::CONT) => self.stopped = false,
            _ => {}
        }
    }

    pub(super) fn read_input(&mut self, client: &mut Client, buffer: &mut Vec<u8>) {
        self.may_stop = self.tty;
        self.stdin.read(self.id, client, buffer, &mut self.given);
    }

    pub(super) fn input_closed(&mut self) {
        self.stdin = In::None;
    }

    /// What of its output was not told of yet, when it is time to: soon at first, and then ever more rarely, so that
    /// a long one does not fill the trace.
    pub(super) fn seen(&mut self) -> Vec<(Stream, Seen)> {
        let now = Instant::now();
        if self.tells_at().is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.told = self.shown;
        let age = now.duration_since(self.began);
        self.tell_at = now + (age / 8).clamp(TELL_FIRST, TELL_LAST);
        self.sinks.iter_mut().filter_map(|(stream, sink)| Some((named(*stream), sink.seen()?))).collect()
    }

    /// When that is, if there is anything to tell.
    pub(super) fn tells_at(&self) -> Option<Instant> {
        (self.over.is_none() && !self.is_task() && self.shown > self.told).then_some(self.tell_at)
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

    fn over_limit(&self, still: bool) -> Option<(LimitHit, Exit)> {
        if self.deadline().filter(|_| !still).is_some_and(|deadline| Instant::now() >= deadline) {
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

    /// Ends it if it is at a limit, and says at which. It is not waited for: who is inside does not decide when. One that
    /// cannot run has all the time that it has left.
    pub(super) fn hold_to_limits(
        &mut self,
        client: &mut Client,
        still: bool,
    ) -> Result<Option<LimitHit>, EngineError> {
        match &self.over {
            None => {}
            Some(Over::Failed(_)) => return self.kill(client).map(|()| None),
            Some(_) => return Ok(None),
        }
        let Some((hit, exit)) = self.over_limit(still) else { return Ok(None) };
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
        self.stdin = In::None;
        self.sinks.iter_mut().for_each(|(_, sink)| sink.end());
    }

    /// From here, and not by itself.
    pub(super) fn was_ended(&self) -> bool {
        matches!(self.over, Some(Over::Limit(..) | Over::Failed(_))) && !self.is_task()
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
        let given = self.given.finish().map(|captured| (Stream::Stdin, captured));
        let written = self.sinks.iter_mut().map(|(stream, sink)| (named(*stream), sink.finish(abandoned)));
        let outputs = given.into_iter().chain(written).collect();
        Ended { exit, usage, outputs, limit }
    }
}

impl Running {
    /// The end of a task, for its reader.
    pub(super) fn end_task(mut self) {
        let exit = match self.over.take() {
            Some(Over::Exited(exited)) => outcome(exited.outcome).map_err(|error| error.to_string()),
            _ => Ok(Exit::Signal(9)),
        };
        let end = End { exit, usage: Usage::default(), reason: None, lost: false };
        self.hub.iter().for_each(|hub| hub.end(end.clone()));
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
            step: match step {
                wire::Step::Late => format!(
                    "it was not its program after {} s; something inside has stopped it or holds back its file",
                    wire::SECONDS_TO_BEGIN
                ),
                step => format!("{step:?}").to_lowercase(),
            },
            source: Errno::from_raw_os_error(errno.into()).into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stdio;
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;

    #[test]
    fn whoever_sits_there_is_stopped_once_for_what_they_did() {
        let (ours, _guest) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).unwrap();
        let exec = wire::Exec {
            argv: vec![b"x"],
            env: vec![],
            cwd: b"/",
            user: None,
            tty: None,
            stdin: wire::Stdin::Null,
        };
        let id = Client::new(ours).unwrap().exec(&exec).unwrap();
        let null = || OwnedFd::from(File::options().write(true).open("/dev/null").unwrap());
        let io = Io::Descriptors(Stdio { stdin: None, stdout: null(), stderr: null() });
        let mut running = Running::new(id, 0, true, Bounds::default(), io);
        let signal = |running: &mut Running, signal: Signal| running.hear_of(signal.as_raw() as u8);
        assert_eq!(running.stops(), Some(false), "nobody has done anything");
        signal(&mut running, Signal::TSTP);
        assert_eq!(running.stops(), Some(true));
        assert_eq!((running.stops(), running.stops()), (None, None), "it says so again and again");
        signal(&mut running, Signal::CONT);
        assert_eq!(running.stops(), Some(false));
    }
}
