//! The loop: wait for anything to happen, do what can be done without waiting, send what there is to say.

use crate::exec::{self, Exec};
use crate::line::Line;
use crate::outbox::{COPY_MAX, Outbox, is_port};
use crate::pleas::Pleas;
use crate::warm::{self, Warm};
use alloc::vec::Vec;
use cofferdam_guest::exit;
use cofferdam_guest::wire::{
    Attach, EXECS_MAX, Fault, FrameError, Header, Hello, Kind, Outcome, Part, Reader, Side, Step, Stream,
    Target, ToGuest,
};
use cofferdam_sys::reap::{Change, reap};
use cofferdam_sys::schedule;
use cofferdam_sys::signal::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::time::{ClockId, clock_gettime};

/// What is read from the host at once.
const READ: usize = 64 * 1024;
/// How many of the dead are buried before anyone else gets a turn: a fork bomb leaves them faster than that.
const REAP_BATCH: usize = 512;
/// How many frames of one command are sent before another gets a turn.
const TURN: usize = 4;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const SECOND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Why the guest ends.
enum End {
    Closed,
    Fault(Fault),
    System,
}

/// Something that is waited for.
#[derive(Clone, Copy)]
enum Place {
    Channel,
    Signals,
    Input {
        exec: usize,
        unread: bool,
    },
    Output {
        exec: usize,
        output: usize,
    },
    /// Somebody inside asks for a command, …
    Door,
    /// … says which, …
    Asker(usize),
    /// … and has something to say to it, …
    AskerOf(usize),
    /// … which has begun, or not, as any.
    Beginning(usize),
}

impl Place {
    /// An input that nobody reads is an error to the kernel.
    const fn with(self, flags: PollFlags) -> Self {
        match self {
            Self::Input { exec, .. } => Self::Input { exec, unread: flags.contains(PollFlags::ERR) },
            other => other,
        }
    }
}

pub(crate) struct Guest {
    channel: OwnedFd,
    inbox: Reader,
    outbox: Outbox,
    signals: Signals,
    execs: Vec<Exec>,
    pleas: Pleas,
    /// Copied for scripts.
    warm: Option<Warm>,
    pid: Pid,
    /// The last batch was a full one.
    more_to_reap: bool,
    /// The channel is a machine's port, and no command has written much yet.
    may_give_way: bool,
    /// When those that have not begun were last told that a second has passed. One in which nothing could run here counts
    /// for no more than that, however long it was.
    hurried: Timespec,
}

impl Guest {
    pub(crate) fn new(channel: OwnedFd, signals: Signals, pid: Pid) -> Self {
        let inbox = Reader::new(Side::Host, READ);
        let (outbox, execs, pleas) = (Outbox::to(channel.as_fd()), Vec::new(), Pleas::default());
        let (warm, more_to_reap, hurried) = (None, false, NOW);
        let may_give_way = is_port(channel.as_fd());
        Self { channel, inbox, outbox, signals, execs, pleas, warm, pid, more_to_reap, may_give_way, hurried }
    }

    /// Until the host is gone; what the process shall exit with.
    pub(crate) fn serve(&mut self) -> i32 {
        self.outbox.put(Kind::Hello, 0, None, &self.hello());
        let end = self.run();
        if let End::Fault(fault) = end {
            self.outbox.put(Kind::Fault, 0, None, &fault);
            // As much as the host still takes: it may be the one that does not listen.
            let _ = self.outbox.flush(self.channel.as_fd());
        }
        // Elsewhere the kernel does this, for everything inside, as soon as the first process ends.
        if !self.pid.is_init() {
            self.execs.iter().for_each(|exec| exec.signal(Signal::KILL, Target::Group));
        }
        match end {
            End::Closed => exit::CLOSED,
            End::Fault(_) => exit::PROTOCOL,
            End::System => exit::SYSTEM,
        }
    }

    fn hello(&self) -> Hello {
        Hello { pid: self.pid.as_raw_nonzero().get() as u32 }
    }

    fn run(&mut self) -> End {
        // The first request is there already, more often than not.
        let mut woken = Vec::from([Place::Channel]);
        loop {
            if let Err(end) = woken.iter().try_for_each(|place| self.attend(*place)) {
                return end;
            }
            self.execs.iter_mut().for_each(|exec| exec.settle(&mut self.outbox));
            if self.flush().is_err() {
                return End::Closed;
            }
            // After the flush: closing what it had open is nothing the host should wait for.
            self.execs.retain(|exec| !exec.over);
            self.pleas.settle();
            woken = match self.wait() {
                Ok(woken) => woken,
                Err(_) => return End::System,
            };
            self.hurry();
        }
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.outbox.flush(self.channel.as_fd())
    }

    fn hurry(&mut self) {
        if !self.execs.iter().any(|exec| exec.beginning().is_some()) {
            return;
        }
        let now = clock_gettime(ClockId::Monotonic);
        if now - self.hurried >= SECOND {
            self.hurried = now;
            self.execs.iter_mut().for_each(Exec::hurry);
        }
    }

    fn wait(&self) -> Result<Vec<Place>, Errno> {
        let (mut places, mut fds) = (Vec::new(), Vec::new());
        self.interests(|place, fd, flags| {
            places.push(place);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        });
        let unsettled = self.execs.iter().any(|exec| exec.is_unsettled(&self.outbox));
        let begins = self.execs.iter().any(|exec| exec.beginning().is_some());
        let now = (self.more_to_reap || unsettled).then_some(&NOW);
        match poll(&mut fds, now.or(begins.then_some(&SECOND))) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
        let happened = places.into_iter().zip(&fds).map(|(place, fd)| (place, fd.revents()));
        let happened = happened.filter(|(_, flags)| !flags.is_empty());
        let mut woken: Vec<Place> = happened.map(|(place, flags)| place.with(flags)).collect();
        if self.more_to_reap {
            woken.push(Place::Signals);
        }
        Ok(woken)
    }

    /// Only what could be acted on: a descriptor whose other side is closed is ready for ever.
    fn interests<'a>(&'a self, mut add: impl FnMut(Place, BorrowedFd<'a>, PollFlags)) {
        let mut channel = PollFlags::empty();
        channel.set(PollFlags::IN, !self.outbox.is_full());
        channel.set(PollFlags::OUT, !self.outbox.is_empty());
        add(Place::Channel, self.channel.as_fd(), channel);
        add(Place::Signals, self.signals.as_fd(), PollFlags::IN);
        // A question goes to the host, who may not be taking anything.
        if !self.outbox.is_full() {
            self.pleas.door().into_iter().for_each(|door| add(Place::Door, door, PollFlags::IN));
            for (at, line) in self.pleas.lines() {
                add(Place::Asker(at), line.fd(), both_ways(line));
            }
        }
        for (exec, running) in self.execs.iter().enumerate().filter(|(_, exec)| exec.is_running()) {
            if let Some(line) = running.asker() {
                add(Place::AskerOf(exec), line.fd(), both_ways(line));
            }
            if let Some(beginning) = running.beginning() {
                add(Place::Beginning(exec), beginning, PollFlags::IN);
            }
            if !running.is_announced() {
                continue;
            }
            if let Some(input) = &running.input {
                // With nothing to write it is there to hear that nobody reads any more.
                let flags = if input.is_waiting() { PollFlags::OUT } else { PollFlags::empty() };
                if input.is_waiting() || input.stream() == Stream::Stdin {
                    add(Place::Input { exec, unread: false }, input.fd(), flags);
                }
            }
            for (output, stream) in running.outputs.iter().enumerate() {
                if stream.may_send() && self.outbox.takes_output() {
                    add(Place::Output { exec, output }, stream.fd(), PollFlags::IN);
                }
            }
        }
    }

    fn attend(&mut self, place: Place) -> Result<(), End> {
        match place {
            Place::Channel => return self.listen(),
            Place::Signals => return self.take_signals(),
            Place::Input { exec, unread } => match self.execs.get_mut(exec) {
                Some(exec) if unread => exec.close_input(&mut self.outbox),
                Some(exec) => exec.write_input(&mut self.outbox),
                None => (),
            },
            Place::Output { exec, output } => self.pump(exec, output),
            Place::Door => self.pleas.accept(),
            Place::Asker(at) => self.pleas.hear(at, &mut self.outbox),
            Place::AskerOf(exec) => self.execs.get_mut(exec).into_iter().for_each(Exec::hear_asker),
            Place::Beginning(exec) => self.execs.get_mut(exec).into_iter().for_each(Exec::hear_beginning),
        }
        Ok(())
    }

    fn pump(&mut self, exec: usize, output: usize) {
        let mut frames = 0;
        while frames < TURN {
            let Some(exec) = self.execs.get_mut(exec) else { return };
            let Some(output) = exec.outputs.get_mut(output) else { return };
            let moved = output.pump(exec.id, &mut self.outbox).unwrap_or(0);
            if moved < COPY_MAX {
                return;
            }
            frames += moved / COPY_MAX;
            // A failure here is found again, and acted on, at the end of the turn.
            let _ = self.flush();
            self.give_way();
        }
    }

    /// From the first command on that writes much, and not before: what is started then has to be told not to, one by one.
    fn give_way(&mut self) {
        if core::mem::take(&mut self.may_give_way) {
            // It is as good without: what is written is taken in more turns.
            let _ = schedule::give_way();
        }
    }

    fn listen(&mut self) -> Result<(), End> {
        if self.outbox.is_full() {
            return Ok(());
        }
        match rustix::io::read(&self.channel, self.inbox.space()) {
            Ok(0) => return Err(End::Closed),
            Ok(count) => self.inbox.filled(count),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(_) => return Err(End::Closed),
        }
        let hello = self.hello();
        while let Some(part) = self.inbox.next_part().map_err(|_| End::Fault(Fault::Frame))? {
            let inside = Inside { execs: &mut self.execs, pleas: &mut self.pleas, warm: &mut self.warm };
            hear(part, inside, &mut self.outbox, hello).map_err(End::Fault)?;
        }
        Ok(())
    }

    fn take_signals(&mut self) -> Result<(), End> {
        for arrived in self.signals.take().map_err(|_| End::System)? {
            match Signal::from_named_raw(arrived.signal) {
                None | Some(Signal::CHILD | Signal::PIPE) => (),
                Some(signal) => self.execs.iter().for_each(|exec| exec.signal(signal, Target::Group)),
            }
        }
        for _ in 0..REAP_BATCH {
            match reap() {
                Ok(Some(Change::Stopped(pid))) => {
                    self.execs.iter_mut().for_each(|exec| exec.stopped(pid));
                }
                Ok(Some(Change::Ended(ended))) => {
                    self.pleas.reaped(ended.pid);
                    self.warm.iter_mut().for_each(|warm| warm.reaped(ended.pid));
                    _ = self.execs.iter_mut().any(|exec| exec.reaped(&ended));
                }
                Ok(None) => {
                    self.more_to_reap = false;
                    return Ok(());
                }
                Err(_) => return Err(End::System),
            }
        }
        self.more_to_reap = true;
        Ok(())
    }
}

fn both_ways(line: &Line) -> PollFlags {
    if line.is_waiting() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
}

/// What the host speaks of.
struct Inside<'a> {
    execs: &'a mut Vec<Exec>,
    pleas: &'a mut Pleas,
    warm: &'a mut Option<Warm>,
}

/// What comes for an exec that has ended was under way when it did: it is passed over.
fn hear(part: Part<'_>, inside: Inside<'_>, outbox: &mut Outbox, hello: Hello) -> Result<(), Fault> {
    let Inside { execs, pleas, warm } = inside;
    match part {
        Part::Data { id, bytes, .. } => {
            let Some(exec) = execs.iter_mut().find(|exec| exec.id == id) else { return Ok(()) };
            if exec.input.as_mut().is_some_and(|input| !input.accept(bytes)) {
                return Err(Fault::Credit);
            }
            exec.write_input(outbox);
        }
        Part::Message { header, body } => {
            let message = ToGuest::decode(header.kind, body).map_err(|_: FrameError| Fault::Frame)?;
            if let ToGuest::Attach(Attach { mark }) = message {
                execs.iter_mut().for_each(Exec::forget);
                pleas.forget();
                outbox.put_raw(&mark);
                outbox.put(Kind::Hello, 0, None, &hello);
                return Ok(());
            }
            if let ToGuest::Warm(request) = message {
                *warm = Warm::start(&request);
                return Ok(());
            }
            obey(header, message, Inside { execs, pleas, warm }, outbox)?;
        }
    }
    Ok(())
}

fn obey(header: Header, message: ToGuest<'_>, inside: Inside<'_>, outbox: &mut Outbox) -> Result<(), Fault> {
    let Inside { execs, pleas, warm } = inside;
    let (id, known) = (header.id, execs.iter().position(|exec| exec.id == header.id));
    if matches!(message, ToGuest::Exec(_) | ToGuest::Task(_) | ToGuest::Grant(_)) {
        if known.is_some() {
            return Err(Fault::Id);
        }
        if execs.len() >= EXECS_MAX {
            let errno = Errno::AGAIN.raw_os_error() as u16;
            exec::refuse(id, Outcome::Failed { step: Step::Fork, errno }, outbox);
            return Ok(());
        }
    }
    let message = match message {
        ToGuest::Exec(request) => {
            pleas.open();
            let taken = |pid| execs.iter().any(|exec| exec.is_led_by(pid));
            let copied = |stdio: [BorrowedFd<'_>; 3]| warm::copy(warm, &request, stdio, taken);
            let started = Exec::start(id, &request, outbox, copied)?;
            execs.extend(started);
            return Ok(());
        }
        ToGuest::Task(task) => {
            execs.extend(Exec::task(id, &task, outbox));
            return Ok(());
        }
        ToGuest::Invite(invite) => {
            pleas.invite(invite.most);
            return Ok(());
        }
        ToGuest::Grant(grant) => {
            match pleas.take(grant.plea) {
                Some(attendant) => execs.push(Exec::grant(id, &grant, attendant)),
                // It has left meanwhile.
                None => {
                    let errno = Errno::PIPE.raw_os_error() as u16;
                    exec::refuse(id, Outcome::Failed { step: Step::Stdio, errno }, outbox);
                }
            }
            return Ok(());
        }
        ToGuest::Deny(deny) => {
            pleas.deny(id, &deny);
            return Ok(());
        }
        other => other,
    };
    let Some(exec) = known.and_then(|at| execs.get_mut(at)) else { return Ok(()) };
    match message {
        ToGuest::Exec(_) | ToGuest::Task(_) | ToGuest::Attach(_) | ToGuest::Warm(_) => (),
        ToGuest::Invite(_) | ToGuest::Grant(_) | ToGuest::Deny(_) => (),
        ToGuest::Eof => {
            if let Some(input) = &mut exec.input {
                input.end();
            }
            exec.write_input(outbox);
        }
        ToGuest::Window(window) => {
            let output = exec.outputs.iter_mut().find(|output| Some(output.stream()) == header.stream);
            if let Some(output) = output {
                output.grant(window.bytes);
            }
        }
        ToGuest::Resize(resize) => exec.resize(resize.size),
        ToGuest::Signal(signal) => {
            if let Some(name) = Signal::from_named_raw(i32::from(signal.number)) {
                exec.signal(name, signal.to);
            }
        }
    }
    Ok(())
}
