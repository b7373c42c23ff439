//! The loop of a running sandbox: bytes, terminals, refused calls and limits of any number of commands over the
//! one channel to the guest, until they end.
//!
//! It never trusts the guest to end, to read or to keep to the protocol: every wait is on a set of
//! descriptors that includes the sandbox's own process and the clock.

mod asked;
mod capture;
mod ends;
mod exec;
mod heed;
mod hub;
mod signals;
mod sink;

pub(crate) use asked::{Asked, Asking};
pub(crate) use capture::{Captured, Seen};
pub(crate) use cofferdam_guest::host::ExecId;
pub(crate) use ends::Feed;
pub(crate) use exec::{Ended, Task};
pub(crate) use heed::Unheeded;
pub(crate) use hub::Hub;
pub use hub::{End, Heard, OutputStream, Piece};

use crate::error::EngineError;
use crate::record::Recorder;
use crate::syscalls::Calls;
pub(crate) use cofferdam_guest::host::PleaId;
use cofferdam_guest::host::{Client, Event, HostError, Received};
use cofferdam_guest::wire;
use cofferdam_model::Body;
use cofferdam_runtime::Sandbox;
use cofferdam_sys::terminal;
use exec::Running;
use heed::Debts;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For the guest to read what it is sent.
const SAYING: Duration = Duration::from_secs(5);

/// The caller's side of a command.
pub struct Stdio {
    /// Nothing: the command's input is empty.
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Who is at the other end of a command.
pub(crate) enum Io {
    Descriptors(Stdio),
    /// Anyone in this process; `wake` is what the relay is woken by when they have read.
    People {
        hub: Arc<Hub>,
        stdin: bool,
        wake: Arc<OwnedFd>,
    },
    /// Somebody inside, who has given it descriptors of their own: no byte of it comes here.
    Asker {
        plea: PleaId,
        asker: u32,
    },
}

impl Io {
    /// Whether it has an input at all.
    pub(crate) fn has_input(&self) -> bool {
        match self {
            Self::Descriptors(stdio) => stdio.stdin.is_some(),
            Self::People { stdin, .. } => *stdin,
            Self::Asker { .. } => false,
        }
    }
}

/// What is watched for, besides the command itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounds {
    pub(crate) deadline: Option<Instant>,
    pub(crate) timeout: Duration,
    pub(crate) output: Option<u64>,
    /// So much of each stream is passed on; the rest is counted and hashed only.
    pub(crate) kept: Option<u64>,
}

/// What the loop works on, of its session's.
pub(crate) struct Around<'a> {
    pub(crate) sandbox: &'a mut dyn Sandbox,
    pub(crate) recorder: &'a Recorder,
    pub(crate) calls: &'a Arc<Calls>,
    /// Ends the wait when it is readable.
    pub(crate) wake: BorrowedFd<'a>,
    /// Ends the wait too.
    pub(crate) deadline: Option<Instant>,
}

/// What a turn has brought.
#[derive(Default)]
pub(crate) struct Turn {
    /// `wake` is readable.
    pub(crate) woken: bool,
    pub(crate) ended: Vec<(ExecId, u64, Ended)>,
    /// Who sits at their terminals is to be stopped with them.
    pub(crate) stopped: Vec<ExecId>,
    /// What those inside ask for.
    pub(crate) asked: Vec<Asking>,
    /// The sandbox is no more.
    pub(crate) gone: bool,
    /// It does not do what it is told: whoever holds it has to end it.
    pub(crate) unheeded: Option<Unheeded>,
}

pub(crate) struct Relay {
    client: Client,
    execs: Vec<Running>,
    asked: Vec<Asking>,
    stopped: Vec<ExecId>,
    buffer: Vec<u8>,
    debts: Debts,
    /// Nothing in the sandbox runs, so no time passes for it.
    still: bool,
}

impl Relay {
    /// On a guest that may still be coming up.
    pub(crate) fn new(channel: OwnedFd) -> Result<Self, EngineError> {
        Ok(Self {
            client: Client::new(channel)?,
            execs: Vec::new(),
            asked: Vec::new(),
            stopped: Vec::new(),
            buffer: Vec::new(),
            debts: Debts::default(),
            still: false,
        })
    }

    /// Starts a command; `parent` is the event that its own events belong to.
    pub(crate) fn start(
        &mut self,
        exec: &wire::Exec<'_>,
        parent: u64,
        bounds: Bounds,
        io: Io,
    ) -> Result<ExecId, EngineError> {
        let id = match io {
            Io::Asker { plea, .. } => self.client.grant(plea, exec)?,
            _ => self.client.exec(exec)?,
        };
        // A terminal of people's is open for as long as they may type.
        let typed = exec.tty.is_some() && matches!(io, Io::People { .. });
        if !io.has_input() && !typed {
            self.client.end_input(id);
        }
        self.client.flush()?;
        self.debts.asked(id, Instant::now());
        self.execs.push(Running::new(id, parent, exec.tty.is_some(), bounds, io));
        Ok(id)
    }

    /// Lets those inside ask for commands, so many at once.
    pub(crate) fn invite(&mut self, most: u16) -> Result<(), EngineError> {
        self.client.invite(most)?;
        Ok(self.client.flush()?)
    }

    pub(crate) fn deny(&mut self, plea: PleaId, why: &str) -> Result<(), EngineError> {
        self.client.deny(plea, why)?;
        Ok(self.client.flush()?)
    }

    /// Has the guest end the interpreter that it keeps.
    pub(crate) fn let_cool(&mut self) -> Result<(), EngineError> {
        self.keep_warm(&wire::Warm { argv: Vec::new(), env: Vec::new(), user: None })
    }

    /// Has the guest keep an interpreter for scripts.
    pub(crate) fn keep_warm(&mut self, warm: &wire::Warm<'_>) -> Result<(), EngineError> {
        self.client.warm(warm)?;
        Ok(self.client.flush()?)
    }

    /// Has the guest do something itself.
    pub(crate) fn task(
        &mut self,
        work: &wire::Task,
        task: Task,
        hub: Arc<Hub>,
        wake: &Arc<OwnedFd>,
    ) -> Result<ExecId, EngineError> {
        let id = self.client.task(work)?;
        self.client.flush()?;
        self.debts.asked(id, Instant::now());
        self.execs.push(Running::task(id, task, hub, wake));
        Ok(id)
    }

    /// Sends all there is to send: whoever keeps the guest as it is now must not have it in the middle of a word.
    pub(crate) fn say_all(&mut self) -> Result<(), EngineError> {
        let until = Instant::now() + SAYING;
        loop {
            self.client.flush()?;
            if !self.client.wants_write() {
                return Ok(());
            }
            if Instant::now() > until {
                let text = "the guest does not read what is sent to it: try again";
                return Err(EngineError::Declined(text.into()));
            }
            let mut set = [PollFd::new(&self.client, PollFlags::OUT)];
            let _ = rustix::event::poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }));
        }
    }

    /// What keeps the session at work: its commands, and what the guest does itself.
    pub(crate) fn busy(&self) -> usize {
        self.execs.iter().filter(|exec| exec.is_busy()).count()
    }

    /// Its commands.
    pub(crate) fn running(&self) -> usize {
        self.execs.iter().filter(|exec| !exec.is_task()).count()
    }

    /// Who asked, inside, for each of its commands that somebody there asked for.
    pub(crate) fn askers(&self) -> impl Iterator<Item = u32> {
        self.execs.iter().filter_map(|exec| exec.asker)
    }

    /// Whoever asks from within a command that was asked for is who asked for that.
    fn asker_of(&self, session: u32) -> u32 {
        let outer = self.execs.iter().find(|exec| exec.asker.is_some() && exec.pid == Some(session));
        outer.and_then(|exec| exec.asker).unwrap_or(session)
    }

    fn find(&mut self, id: ExecId) -> Option<&mut Running> {
        self.execs.iter_mut().find(|exec| exec.id == id)
    }

    /// Input that people give.
    pub(crate) fn feed(&mut self, id: ExecId, feed: Feed) {
        if let Some(exec) = self.find(id) {
            exec.feed(feed);
        }
    }

    pub(crate) fn end_feed(&mut self, id: ExecId) {
        if let Some(exec) = self.find(id) {
            exec.end_feed();
        }
    }

    pub(crate) fn shown(&self, id: ExecId) -> u64 {
        self.execs.iter().find(|exec| exec.id == id).map_or(0, |exec| exec.shown)
    }

    pub(crate) fn kill(&mut self, id: ExecId) -> Result<(), EngineError> {
        let Some(exec) = self.execs.iter().find(|exec| exec.id == id) else { return Ok(()) };
        // What the guest does itself may be in the middle of a write that nothing interrupts.
        if !exec.is_task() {
            self.debts.killed(id, Instant::now());
        }
        exec.kill(&mut self.client)
    }

    pub(crate) fn resize(&mut self, id: ExecId, size: wire::Size) -> Result<(), EngineError> {
        Ok(self.client.resize(id, size)?)
    }

    /// From now on nothing can run, until it goes on.
    pub(crate) fn stand_still(&mut self) {
        self.still = true;
    }

    /// So long nothing could run.
    pub(crate) fn go_on(&mut self, after: Duration) {
        self.still = false;
        self.execs.iter_mut().for_each(|exec| exec.postpone(after));
        self.debts.postpone(after);
    }

    /// What is left when the sandbox is no more or shall be. Those who read its output are waited for, unless
    /// they are `abandoned`.
    pub(crate) fn leave(&mut self, abandoned: bool) -> Vec<(ExecId, u64, Ended)> {
        // Readers of what the guest did itself see that nothing more comes.
        let commands = self.execs.drain(..).filter(|exec| !exec.is_task());
        commands.map(|exec| (exec.id, exec.parent, exec.end(abandoned))).collect()
    }

    /// Waits for something, and does all there is to do.
    pub(crate) fn turn(&mut self, around: Around<'_>) -> Result<Turn, EngineError> {
        let Around { sandbox, recorder, calls, wake, deadline } = around;
        // Whose a call is is certain only where there is just one.
        calls.belong_to(match self.execs.as_slice() {
            [one] if !one.is_task() => Some(one.parent),
            _ => None,
        });
        if calls.at_once && sandbox.alarm().is_some() {
            sandbox.listen(calls.clone())?;
        }
        // Before waiting: who read or gave something has said so only once.
        for exec in &mut self.execs {
            exec.give_credit(&mut self.client)?;
            exec.pump(&mut self.client);
        }
        self.client.flush()?;
        // Looking at who has written takes the sign that the last of it is out: nothing else would end the wait.
        let deadline = if self.execs.iter().any(Running::is_over) { Some(Instant::now()) } else { deadline };
        let ready = self.wait(&*sandbox, recorder, wake, deadline)?;
        if ready.alarm {
            sandbox.listen(calls.clone())?;
        }
        calls.check()?;
        for at in &ready.inputs {
            if let Some(exec) = self.execs.get_mut(*at) {
                exec.read_input(&mut self.client, &mut self.buffer);
            }
        }
        for exec in &mut self.execs {
            exec.give_credit(&mut self.client)?;
        }
        let mut turn = Turn { woken: ready.woken, ..Turn::default() };
        let mut closed = false;
        if ready.client {
            closed = self.client.receive()? == Received::Closed;
            self.events()?;
            turn.asked = std::mem::take(&mut self.asked);
            turn.stopped = std::mem::take(&mut self.stopped);
        }
        for exec in &mut self.execs {
            for (stream, seen) in exec.seen() {
                recorder.seen(exec.parent, stream, seen)?;
            }
        }
        self.end_what_is_over(recorder, &mut turn)?;
        self.client.flush()?;
        // What it has said first: a word may be among it.
        if !ready.client && !self.still {
            turn.unheeded = self.debts.overdue(Instant::now());
        }
        turn.gone = closed || (ready.ended && !ready.client);
        recorder.checkpoint_if_due()?;
        Ok(turn)
    }

    fn end_what_is_over(&mut self, recorder: &Recorder, turn: &mut Turn) -> Result<(), EngineError> {
        let mut at = 0;
        while let Some(exec) = self.execs.get_mut(at) {
            if let Some(hit) = exec.hold_to_limits(&mut self.client, self.still)? {
                recorder.append(Some(exec.parent), &Body::Limit(hit))?;
            }
            // It was killed, and the guest has not said that it is gone. Nobody waits for it but this.
            if exec.was_ended() {
                self.debts.killed(exec.id, Instant::now());
            }
            if exec.is_over() {
                let exec = self.execs.remove(at);
                match exec.is_task() {
                    true => exec.end_task(),
                    false => turn.ended.push((exec.id, exec.parent, exec.end(false))),
                }
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    fn events(&mut self) -> Result<(), EngineError> {
        loop {
            let (mut credit, mut stopped) = (None, None);
            match self.client.next_event()? {
                None => return Ok(()),
                Some(Event::Output { id, stream, bytes }) => {
                    // Of one that was ended: let the guest get rid of it.
                    let exec = self.execs.iter_mut().find(|exec| exec.id == id);
                    let count = exec.map_or(bytes.len(), |exec| exec.output(stream, bytes));
                    credit = (count > 0).then_some((id, stream, count));
                }
                Some(Event::Started { id, pid }) => {
                    self.debts.started(id);
                    self.execs.iter_mut().filter(|exec| exec.id == id).for_each(|exec| exec.started(pid));
                }
                Some(Event::InputClosed { id }) => {
                    self.execs.iter_mut().filter(|exec| exec.id == id).for_each(Running::input_closed);
                }
                Some(Event::Exited { id, exited }) => {
                    self.debts.exited(id);
                    self.execs.iter_mut().filter(|exec| exec.id == id).for_each(|exec| exec.exited(exited));
                }
                Some(Event::Asked { plea, asked }) => {
                    let (session, wanted) = (asked.session, Asked::read(&asked));
                    self.asked.push(Asking { plea, asker: self.asker_of(session), wanted });
                }
                Some(Event::Stopped { id }) => stopped = Some(id),
                Some(Event::Ready { .. }) => self.debts.is_up(Instant::now()),
                Some(Event::OutputEnd { .. } | Event::InputReady { .. }) => {}
            }
            if let Some((id, stream, count)) = credit {
                self.client.consumed(id, stream, count)?;
            }
            if let Some(id) = stopped {
                self.hear_stop(id)?;
            }
        }
    }

    fn wait(
        &self,
        sandbox: &dyn Sandbox,
        recorder: &Recorder,
        wake: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Result<Ready, EngineError> {
        let client_events =
            if self.client.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut set = vec![
            PollFd::from_borrowed_fd(self.client.as_fd(), client_events),
            PollFd::from_borrowed_fd(wake, PollFlags::IN),
        ];
        let ended = add(&mut set, sandbox.ended());
        let alarm = add(&mut set, sandbox.alarm());
        let mut inputs = Vec::new();
        for (at, exec) in self.execs.iter().enumerate() {
            inputs.extend(add(&mut set, exec.input(&self.client)).map(|place| (at, place)));
            set.extend(exec.wakes().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let timeout = self.timeout(recorder, deadline);
        match rustix::event::poll(&mut set, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(waiting(errno)),
        }
        let is_ready = |at: usize| !set[at].revents().is_empty();
        Ok(Ready {
            client: is_ready(0),
            woken: is_ready(1),
            ended: ended.is_some_and(is_ready),
            alarm: alarm.is_some_and(is_ready),
            inputs: inputs.into_iter().filter(|(_, place)| is_ready(*place)).map(|(at, _)| at).collect(),
        })
    }

    /// Until the first deadline, or until the trace wants its next signature.
    fn timeout(&self, recorder: &Recorder, deadline: Option<Instant>) -> Option<Timespec> {
        let tells = self.execs.iter().filter_map(Running::tells_at);
        let own = self.execs.iter().filter_map(Running::deadline).chain(self.debts.due());
        let deadlines = own.filter(|_| !self.still).chain(tells).chain(deadline);
        let until = deadlines.min().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = [until, recorder.next_checkpoint()].into_iter().flatten().min()?;
        Timespec::try_from(wait).ok()
    }
}

fn add<'f>(set: &mut Vec<PollFd<'f>>, fd: Option<BorrowedFd<'f>>) -> Option<usize> {
    set.push(PollFd::from_borrowed_fd(fd?, PollFlags::IN));
    Some(set.len() - 1)
}

struct Ready {
    client: bool,
    woken: bool,
    ended: bool,
    alarm: bool,
    /// Execs whose input can be read.
    inputs: Vec<usize>,
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

impl From<HostError> for EngineError {
    fn from(error: HostError) -> Self {
        Self::Guest(error)
    }
}
