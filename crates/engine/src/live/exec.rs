//! The caller's side of a command in a session that stays: hands over its descriptors, passes on signals and the
//! size of its terminal, and waits for the end.

use crate::Engine;
use crate::control::{ExecAsked, Lines, Question, Reply, asking, tell, unexpected};
use crate::error::EngineError;
use crate::heard::listen;
use crate::relay::{Stdio, current_size};
use cofferdam_model::{BoxUser, Bytes, ExecTx, Exit, SessionId, Settled, Span, Usage};
use cofferdam_sys::signal::{Signals, stop_here, suspend_here};
use cofferdam_sys::terminal::RawMode;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A command for a session that stays.
#[derive(Debug, Clone, Default)]
pub struct LiveExec {
    pub argv: Vec<String>,
    /// On top of the session's own.
    pub env: BTreeMap<String, String>,
    /// Absent: the work dir.
    pub cwd: Option<PathBuf>,
    pub user: Option<BoxUser>,
    pub tty: bool,
    pub timeout: Option<Span>,
    pub output: Option<Bytes>,
    /// Make it a transaction of its own.
    pub tx: Option<ExecTx>,
}

/// How it ended.
#[derive(Debug, Clone)]
pub struct LiveOutcome {
    pub exec: u32,
    pub exit: Exit,
    pub usage: Usage,
    /// What ended it, if it was not its own doing.
    pub reason: Option<String>,
    /// What became of its changes, where it was a transaction of its own.
    pub settled: Option<Settled>,
}

/// A command that runs, and ends when nobody watches it.
pub struct Watched {
    session: SessionId,
    lines: Lines,
    number: u32,
    /// At a terminal whose people can be stopped with it.
    stopped: bool,
}

impl Watched {
    fn new(session: &SessionId, lines: Lines) -> Self {
        Self { session: session.clone(), lines, number: 0, stopped: false }
    }

    /// What can be known without waiting.
    fn ready(&mut self) -> Result<Option<LiveOutcome>, EngineError> {
        while let Some(reply) = self.lines.ready().map_err(asking)? {
            match reply {
                Reply::Started { exec } => self.number = exec,
                Reply::Stopped => self.stopped = true,
                Reply::Exited { exit, usage, reason, settled } => {
                    let settled = settled.map(|settled| *settled);
                    return Ok(Some(LiveOutcome { exec: self.number, exit, usage, reason, settled }));
                }
                other => return Err(unexpected(other)),
            }
        }
        Ok(None)
    }

    fn receive(&mut self) -> Result<(), EngineError> {
        match self.lines.receive() {
            Ok(0) => {
                let text = format!("session {} was lost: whoever held it was ended", self.session);
                Err(EngineError::Declined(text))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(asking(error)),
        }
    }

    /// How it ends.
    pub fn wait(mut self) -> Result<LiveOutcome, EngineError> {
        loop {
            if let Some(outcome) = self.ready()? {
                return Ok(outcome);
            }
            let mut set = [PollFd::from_borrowed_fd(self.lines.stream().as_fd(), PollFlags::IN)];
            match rustix::event::poll(&mut set, None) {
                Ok(_) => self.receive()?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(asking(errno.into())),
            }
        }
    }

    /// What ends it from another thread.
    pub fn leaver(&self) -> Result<Leaver, EngineError> {
        self.lines.stream().try_clone().map(Leaver).map_err(asking)
    }
}

/// Ends a command that somebody else waits for.
pub struct Leaver(UnixStream);

impl Leaver {
    pub fn leave(&self) {
        // One that has ended meanwhile does not mind.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// As long as this is, the session is.
pub struct Attendance {
    _lines: Lines,
}

impl LiveExec {
    /// The terminal is this caller's, whoever made the session.
    fn of_this_terminal(mut self) -> Self {
        for name in ["TERM", "COLORTERM"] {
            if let (false, Ok(value)) = (self.env.contains_key(name), std::env::var(name)) {
                self.env.insert(name.into(), value);
            }
        }
        self
    }

    fn asked(self) -> ExecAsked {
        let Self { argv, env, cwd, user, timeout, output, tx, .. } = self;
        ExecAsked { argv, env, cwd, user, timeout, output, tx, ..ExecAsked::default() }
    }
}

impl Engine {
    /// Runs a command in a session with the caller's own input, output and terminal, to its end.
    pub fn exec_live(
        &self,
        session: &SessionId,
        exec: LiveExec,
        stdio: &Stdio,
    ) -> Result<LiveOutcome, EngineError> {
        let tty = exec.tty;
        let exec = if tty { exec.of_this_terminal() } else { exec };
        let terminal = stdio.stdin.as_ref().filter(|_| tty).map(AsFd::as_fd);
        let size = terminal.and_then(current_size).map_or((24, 80), |size| (size.rows, size.columns));
        let question =
            ExecAsked { tty: tty.then_some(size), stops: tty, stdin: stdio.stdin.is_some(), ..exec.asked() };
        let question = Question::Exec(Box::new(question));
        let signals = listen(tty)?;
        let given = [&stdio.stdout, &stdio.stderr];
        let along: Vec<_> = stdio.stdin.iter().chain(given).map(AsFd::as_fd).collect();
        let mut watched = Watched::new(session, self.ask_session(session, &question, &along)?);
        let mut raw = terminal.and_then(|fd| RawMode::enter(fd).ok());
        loop {
            if let Some(outcome) = watched.ready()? {
                return Ok(outcome);
            }
            if std::mem::take(&mut watched.stopped) {
                // The terminal is somebody else's for as long as we are stopped.
                drop(raw.take());
                suspend_here();
                raw = terminal.and_then(|fd| RawMode::enter(fd).ok());
                resume(&watched.lines)?;
            }
            match wait(&watched.lines, &signals)? {
                true => forward(&signals, &watched.lines, tty)?,
                false => watched.receive()?,
            }
        }
    }

    /// Starts a command whose input and output are this process's to read and write. It ends when it is let go of.
    pub fn start_live(
        &self,
        session: &SessionId,
        exec: LiveExec,
        stdio: &Stdio,
    ) -> Result<Watched, EngineError> {
        let question = ExecAsked { stdin: stdio.stdin.is_some(), ..exec.asked() };
        let given = [&stdio.stdout, &stdio.stderr];
        let along: Vec<_> = stdio.stdin.iter().chain(given).map(AsFd::as_fd).collect();
        let lines = self.ask_session(session, &Question::Exec(Box::new(question)), &along)?;
        Ok(Watched::new(session, lines))
    }

    /// Stays with a session: it ends when this does, by whatever it is that this process ends.
    pub fn attend(&self, session: &SessionId) -> Result<Attendance, EngineError> {
        let mut lines = self.ask_session(session, &Question::Attend, &[])?;
        match lines.next(None).map_err(asking)? {
            Some(Reply::Done { .. }) => Ok(Attendance { _lines: lines }),
            Some(other) => Err(unexpected(other)),
            None => Err(EngineError::NotLive(session.to_string())),
        }
    }

    /// Starts a command that goes on by itself; says which one it is.
    pub fn exec_detached(&self, session: &SessionId, exec: LiveExec) -> Result<u32, EngineError> {
        let question = ExecAsked { tty: exec.tty.then_some((24, 80)), detach: true, ..exec.asked() };
        match self.ask(session, &Question::Exec(Box::new(question)))? {
            Reply::Started { exec } => Ok(exec),
            other => Err(unexpected(other)),
        }
    }
}

/// Whether it was a signal that came.
fn wait(lines: &Lines, signals: &Signals) -> Result<bool, EngineError> {
    let mut set = [
        PollFd::from_borrowed_fd(lines.stream().as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
    ];
    loop {
        match rustix::event::poll(&mut set, None) {
            Ok(_) => return Ok(!set[1].revents().is_empty()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(asking(errno.into())),
        }
    }
}

/// Has the command go on, at a terminal that may have another size by now.
fn resume(lines: &Lines) -> Result<(), EngineError> {
    let mut stream = lines.stream().try_clone().map_err(asking)?;
    let size = current_size(rustix::stdio::stdin());
    let size = size.map(|size| Question::Resize { rows: size.rows, columns: size.columns });
    let go_on = Question::Signal { exec: 0, number: Signal::CONT.as_raw() as u8, alone: true };
    // One that ends just now hears nothing more.
    size.iter().chain([&go_on]).for_each(|note| drop(tell(&mut stream, note, &[])));
    Ok(())
}

/// As `heard::forward` does for a command of its own.
fn forward(signals: &Signals, lines: &Lines, tty: bool) -> Result<(), EngineError> {
    let mut stream = lines.stream().try_clone().map_err(asking)?;
    // One that ends just now hears nothing more.
    let mut tell = |note: &Question| drop(tell(&mut stream, note, &[]));
    let signal = |number: i32, alone: bool| {
        u8::try_from(number).ok().map(|number| Question::Signal { exec: 0, number, alone })
    };
    for arrived in signals.take().map_err(|errno| asking(errno.into()))? {
        if arrived.is(Signal::WINCH) {
            if let Some(size) = current_size(rustix::stdio::stdin()).filter(|_| tty) {
                tell(&Question::Resize { rows: size.rows, columns: size.columns });
            }
        } else if arrived.is(Signal::TSTP) && tty {
            signal(arrived.signal, false).iter().for_each(&mut tell);
        } else if arrived.is(Signal::TSTP) {
            signal(Signal::STOP.as_raw(), false).iter().for_each(&mut tell);
            stop_here();
            signal(Signal::CONT.as_raw(), false).iter().for_each(&mut tell);
        } else {
            signal(arrived.signal, arrived.from != 0).iter().for_each(&mut tell);
        }
    }
    Ok(())
}
