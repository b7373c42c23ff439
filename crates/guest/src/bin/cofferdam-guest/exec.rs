//! One command, from the request to the last of its bytes.

use crate::keeper;
use crate::line::Line;
use crate::outbox::Outbox;
use crate::pleas::Attendant;
use crate::streams::{Fate, Input, Output};
use crate::tasks;
use crate::terminal::{self, Terminal};
use alloc::ffi::CString;
use alloc::vec::Vec;
use cofferdam_guest::wire::{
    self, Exited, Fault, Kind, Outcome, SECONDS_TO_BEGIN, Started, Stdin, Step, Stopped, Stream, Target,
    ToGuest,
};
use cofferdam_sys::reap::{Ended, Status};
use cofferdam_sys::spawn::{self, Beginning, Command, Failure, Place, User};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::termios::tcgetpgrp;

/// The one asker that a line is about.
const HERE: u32 = 1;
/// What no exec is called that a host asks for.
const NOBODY: u32 = 0;

pub(crate) struct Exec {
    pub(crate) id: u32,
    /// Until it is reaped: after that the number may be another's.
    leader: Option<Pid>,
    exited: Option<Exited>,
    pub(crate) input: Option<Input>,
    pub(crate) outputs: Vec<Output>,
    terminal: Option<OwnedFd>,
    /// Its leader is its keeper, and the host hears when it is stopped.
    stops: bool,
    /// It was, and the host has not heard of it yet.
    untold_stop: bool,
    /// Who stays with the one inside who asked for it and waits for its end.
    asker: Option<Line>,
    /// Until it has become its program, …
    beginning: Option<Beginning>,
    /// … for which it has so long, …
    seconds_left: u8,
    /// … and the host has to hear that it runs, before anything else of it.
    unannounced: Option<Pid>,
    /// The host knows that it has ended.
    pub(crate) over: bool,
}

/// Our ends and the command's.
struct Ends {
    input: Option<Input>,
    outputs: Vec<Output>,
    theirs: Theirs,
}

enum Theirs {
    Pipes([OwnedFd; 3]),
    Terminal(OwnedFd),
}

fn c_strings(strings: &[&[u8]]) -> Result<Vec<CString>, Fault> {
    strings.iter().map(|text| CString::new(*text).map_err(|_| Fault::Request)).collect()
}

impl Exec {
    /// `Ok(None)`: it could not be started, and the host was told why. `copy` may give it a process that is there.
    pub(crate) fn start(
        id: u32,
        request: &wire::Exec<'_>,
        outbox: &mut Outbox,
        copy: impl FnOnce([BorrowedFd<'_>; 3]) -> Option<Pid>,
    ) -> Result<Option<Self>, Fault> {
        let (argv, env) = (c_strings(&request.argv)?, c_strings(&request.env)?);
        let cwd = CString::new(request.cwd).map_err(|_| Fault::Request)?;
        if argv.is_empty() {
            return Err(Fault::Request);
        }
        let stops = request.tty.is_some_and(|tty| tty.stops);
        let started = Ends::open(request).and_then(|ends| {
            let (leader, beginning) = match copy(ends.stdio()) {
                Some(leader) => (leader, None),
                None => {
                    let user = request.user.clone().map(user);
                    let place = if request.tty.is_some() { Place::Terminal } else { Place::Apart };
                    let command = Command { argv, env, cwd, stdio: ends.stdio(), place, user };
                    let begun = if stops { keeper::begin(command) } else { spawn::begin(command) };
                    begun.map(|(leader, beginning)| (leader, Some(beginning)))?
                }
            };
            Ok(Self { beginning, stops, ..Self::running(id, leader, ends) })
        });
        Ok(started.map_err(|failure| refuse(id, outcome_of(failure), outbox)).ok())
    }

    /// For one inside who asked: who attends to it has its descriptors, and turns into the command.
    pub(crate) fn grant(id: u32, grant: &wire::Grant<'_>, attendant: Attendant) -> Self {
        let Attendant { pid, mut line, beginning } = attendant;
        line.say(Kind::Grant, id, grant);
        Self { asker: Some(line), beginning: Some(beginning), ..Self::led_by(pid, id) }
    }

    /// What has been heard of its beginning. One that did not come to be has ended with why.
    pub(crate) fn hear_beginning(&mut self) {
        let Some(began) = self.beginning.as_mut().and_then(Beginning::hear) else { return };
        self.beginning = None;
        match began {
            Err(failure) => self.never_began(outcome_of(failure)),
            // It was killed for that, and its end of the pipe is closed before its death is told.
            Ok(()) if self.seconds_left == 0 => self.never_began(Outcome::Failed {
                step: Step::Late,
                errno: Errno::TIMEDOUT.raw_os_error() as u16,
            }),
            Ok(()) => (),
        }
    }

    fn never_began(&mut self, outcome: Outcome) {
        (self.leader, self.unannounced, self.input) = (None, None, None);
        self.outputs.clear();
        self.exited = Some(Exited { outcome, usage: wire::Usage::default() });
    }

    /// A second has passed.
    pub(crate) fn hurry(&mut self) {
        if self.beginning.is_some() && self.seconds_left > 0 {
            self.seconds_left -= 1;
            if self.seconds_left == 0 {
                self.signal(Signal::KILL, Target::Leader);
            }
        }
    }

    fn announce(&mut self, outbox: &mut Outbox) {
        let Some(pid) = self.unannounced.take_if(|_| self.beginning.is_none()) else { return };
        if self.id != NOBODY {
            outbox.put(Kind::Started, self.id, None, &Started { pid: pid.as_raw_nonzero().get() as u32 });
        }
        // What came for it meanwhile.
        self.write_input(outbox);
    }

    pub(crate) fn beginning(&self) -> Option<BorrowedFd<'_>> {
        self.beginning.as_ref().map(AsFd::as_fd)
    }

    /// The host knows that it runs.
    pub(crate) const fn is_announced(&self) -> bool {
        self.unannounced.is_none()
    }

    /// As `start`, for what the guest does itself, in a child of its own.
    pub(crate) fn task(id: u32, task: &wire::Task, outbox: &mut Outbox) -> Option<Self> {
        let user = task.user.clone().map(user);
        let started = Ends::task().map_err(|errno| Failure { step: spawn::Step::Stdio, errno });
        let started = started.and_then(|ends| {
            let work = |ready| tasks::perform(task, ready);
            spawn::fork(ends.stdio(), user.as_ref(), work).map(|leader| Self::running(id, leader, ends))
        });
        started.map_err(|failure| refuse(id, outcome_of(failure), outbox)).ok()
    }

    /// Pipes are the command's alone from now on; its terminal stays open here too.
    fn running(id: u32, leader: Pid, ends: Ends) -> Self {
        let Ends { input, outputs, theirs } = ends;
        let terminal = match theirs {
            Theirs::Pipes(_) => None,
            Theirs::Terminal(slave) => Some(slave),
        };
        Self { input, outputs, terminal, ..Self::led_by(leader, id) }
    }

    const fn led_by(leader: Pid, id: u32) -> Self {
        Self {
            id,
            leader: Some(leader),
            exited: None,
            input: None,
            outputs: Vec::new(),
            terminal: None,
            stops: false,
            untold_stop: false,
            asker: None,
            beginning: None,
            seconds_left: SECONDS_TO_BEGIN,
            unannounced: Some(leader),
            over: false,
        }
    }

    /// Whether this process is its own.
    pub(crate) fn is_led_by(&self, pid: Pid) -> bool {
        self.leader == Some(pid)
    }

    /// Takes note of its end if it is the one that ended.
    pub(crate) fn reaped(&mut self, ended: &Ended) -> bool {
        if self.leader != Some(ended.pid) {
            return false;
        }
        // Before it ended it has said so, if it did not become its program.
        self.hear_beginning();
        self.beginning = None;
        if self.exited.is_some() {
            return true;
        }
        let outcome = match ended.status {
            Status::Code(code) => Outcome::Code(code),
            Status::Signal { signal, core } => Outcome::Signal { number: signal, core },
        };
        let usage = wire::Usage {
            user_us: ended.usage.user_us,
            system_us: ended.usage.system_us,
            max_rss: ended.usage.max_rss,
        };
        self.exited = Some(Exited { outcome, usage });
        self.leader = None;
        self.input = None;
        self.outputs.iter_mut().for_each(Output::leave);
        true
    }

    /// Takes note that it was stopped, if it is the one.
    pub(crate) fn stopped(&mut self, pid: Pid) {
        self.untold_stop |= self.stops && self.leader == Some(pid);
    }

    fn tell_of_stop(&mut self, outbox: &mut Outbox) {
        let Some(leader) = self.leader.filter(|_| self.untold_stop && self.is_announced()) else { return };
        self.untold_stop = false;
        if self.id != NOBODY {
            let pid = leader.as_raw_nonzero().get() as u32;
            outbox.put(Kind::Stopped, self.id, None, &Stopped { pid });
        }
    }

    /// Once it has ended: sends what is left of its output, then the news.
    pub(crate) fn settle(&mut self, outbox: &mut Outbox) {
        self.announce(outbox);
        self.tell_of_stop(outbox);
        let Some(exited) = self.exited.filter(|_| !self.over) else { return };
        for output in &mut self.outputs {
            while output.pump(self.id, outbox).is_some() {}
        }
        if !self.outputs.iter().any(Output::is_open) {
            if self.id != NOBODY {
                outbox.put(Kind::Exited, self.id, None, &exited);
            }
            if let Some(mut asker) = self.asker.take() {
                asker.say(Kind::Exited, HERE, &exited);
            }
            self.over = true;
        }
    }

    /// The host that asked for it is another machine's now.
    pub(crate) fn forget(&mut self) {
        self.id = NOBODY;
        self.input = None;
        self.outputs.iter_mut().for_each(Output::forget);
    }

    /// Output of a command that runs is waited for; what one has left is fetched without waiting.
    pub(crate) const fn is_running(&self) -> bool {
        self.exited.is_none()
    }

    /// It has ended, and some of what it left can be sent now.
    pub(crate) fn is_unsettled(&self, outbox: &Outbox) -> bool {
        !self.is_running() && outbox.takes_output() && self.outputs.iter().any(Output::may_send)
    }

    /// Nobody reads its input any more.
    pub(crate) fn close_input(&mut self, outbox: &mut Outbox) {
        if let Some(input) = self.input.take()
            && input.stream() == Stream::Stdin
        {
            outbox.put_eof(self.id, Stream::Stdin);
        }
    }

    pub(crate) fn write_input(&mut self, outbox: &mut Outbox) {
        if !self.is_announced() {
            return;
        }
        match self.input.as_mut().map(|input| input.write(self.id, outbox)) {
            None | Some(Fate::Open) => (),
            Some(Fate::Done) => self.input = None,
            Some(Fate::Unread) => self.close_input(outbox),
        }
    }

    pub(crate) fn resize(&self, size: wire::Size) {
        if let Some(output) = self.terminal.as_ref().and(self.outputs.first()) {
            // A terminal that is being hung up has no size to set.
            let _ = terminal::resize(output.fd(), size);
        }
    }

    pub(crate) fn asker(&self) -> Option<&Line> {
        self.asker.as_ref()
    }

    /// Passes on what its asker says. When that has left, which is how a process that is killed says so, the command
    /// ends as one of its process group would have.
    pub(crate) fn hear_asker(&mut self) {
        let Some(asker) = &mut self.asker else { return };
        asker.flush();
        let (mut signals, mut left) = (Vec::new(), asker.read().is_err());
        loop {
            match asker.frame() {
                Ok(Some((header, body))) => match ToGuest::decode(header.kind, &body) {
                    Ok(ToGuest::Signal(signal)) => signals.push(signal.number),
                    _ => left = true,
                },
                Ok(None) => break,
                Err(_) => {
                    left = true;
                    break;
                }
            }
        }
        for signal in signals.into_iter().filter_map(|number| Signal::from_named_raw(i32::from(number))) {
            self.signal(signal, Target::Group);
        }
        if left {
            self.asker = None;
            self.signal(Signal::KILL, Target::Group);
        }
    }

    /// Whoever it was meant for may be gone already: that is no error.
    pub(crate) fn signal(&self, signal: Signal, to: Target) {
        let Some(leader) = self.leader else { return };
        let foreground = || {
            let output = self.terminal.as_ref().and(self.outputs.first())?;
            tcgetpgrp(output.fd()).ok()
        };
        // Who keeps it has been stopped too.
        if self.stops && signal == Signal::CONT {
            let _ = kill_process(leader, signal);
        }
        let _ = match to {
            Target::Leader => kill_process(leader, signal),
            // One that has only just begun may not lead its group yet.
            Target::Group => kill_process_group(leader, signal).or_else(|_| kill_process(leader, signal)),
            Target::Foreground => kill_process_group(foreground().unwrap_or(leader), signal),
        };
    }
}

pub(crate) fn user(user: wire::User) -> User {
    User { uid: user.uid, gid: user.gid, groups: user.groups }
}

/// Tells the host that an exec did not come to be.
pub(crate) fn refuse(id: u32, outcome: Outcome, outbox: &mut Outbox) {
    outbox.put(Kind::Exited, id, None, &Exited { outcome, usage: wire::Usage::default() });
}

/// As shells tell "not found" from "not executable".
fn outcome_of(failure: Failure) -> Outcome {
    let errno = failure.errno.raw_os_error() as u16;
    let step = match failure.step {
        spawn::Step::Program => {
            return match failure.errno {
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG => Outcome::NotFound,
                _ => Outcome::NotExecutable { errno },
            };
        }
        spawn::Step::Fork => Step::Fork,
        spawn::Step::Session => Step::Session,
        spawn::Step::Terminal => Step::Terminal,
        spawn::Step::Stdio => Step::Stdio,
        spawn::Step::User => Step::User,
        spawn::Step::Directory => Step::Directory,
    };
    Outcome::Failed { step, errno }
}

impl Ends {
    fn open(request: &wire::Exec<'_>) -> Result<Self, Failure> {
        match request.tty {
            Some(tty) => Self::terminal(tty.size, request.user.as_ref())
                .map_err(|errno| Failure { step: spawn::Step::Terminal, errno }),
            None => Self::pipes(request.stdin).map_err(|errno| Failure { step: spawn::Step::Stdio, errno }),
        }
    }

    fn pipes(stdin: Stdin) -> Result<Self, Errno> {
        let (theirs_in, input) = match stdin {
            Stdin::Null => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                (rustix::fs::open(c"/dev/null", flags, Mode::empty())?, None)
            }
            Stdin::Piped => {
                let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
                fcntl_setfl(&ours, OFlags::NONBLOCK)?;
                (theirs, Some(Input::new(Stream::Stdin, ours)))
            }
        };
        let output = |stream| -> Result<(OwnedFd, Output), Errno> {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            // Only our end: the command's blocks, as programs expect.
            fcntl_setfl(&ours, OFlags::NONBLOCK)?;
            Ok((theirs, Output::new(stream, ours)))
        };
        let (theirs_out, stdout) = output(Stream::Stdout)?;
        let (theirs_err, stderr) = output(Stream::Stderr)?;
        let theirs = Theirs::Pipes([theirs_in, theirs_out, theirs_err]);
        Ok(Self { input, outputs: Vec::from([stdout, stderr]), theirs })
    }

    /// One output: what a task has to say of errors is in its records.
    fn task() -> Result<Self, Errno> {
        let Self { input, mut outputs, theirs } = Self::pipes(Stdin::Piped)?;
        outputs.truncate(1);
        let null = rustix::fs::open(c"/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        let theirs = match theirs {
            Theirs::Pipes([stdin, stdout, _]) => Theirs::Pipes([stdin, stdout, null]),
            terminal @ Theirs::Terminal(_) => terminal,
        };
        Ok(Self { input, outputs, theirs })
    }

    fn terminal(size: wire::Size, user: Option<&wire::User>) -> Result<Self, Errno> {
        let Terminal { master, slave } = Terminal::open(size)?;
        if let Some(user) = user {
            fchown(&slave, Some(Uid::from_raw(user.uid)), None::<Gid>)?;
        }
        let input = Input::new(Stream::Tty, rustix::io::fcntl_dupfd_cloexec(&master, 3)?);
        let outputs = Vec::from([Output::new(Stream::Tty, master)]);
        Ok(Self { input: Some(input), outputs, theirs: Theirs::Terminal(slave) })
    }

    fn stdio(&self) -> [BorrowedFd<'_>; 3] {
        match &self.theirs {
            Theirs::Pipes([stdin, stdout, stderr]) => [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            Theirs::Terminal(slave) => [slave.as_fd(); 3],
        }
    }
}
