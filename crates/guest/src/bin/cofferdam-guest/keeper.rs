//! Who stays with a command on a terminal at which somebody can be stopped with it, as a shell stays with what it starts.
//!
//! The kernel lets nothing that is typed stop a process group with nobody left to wake it: none of whose parents is in its
//! session and outside of the group. So there is somebody: a copy of this process, which leads the terminal's session and has
//! the command for its child, in the foreground. What happens to the command happens to the keeper: it is stopped when the
//! command is, wakes it when it is woken, and ends as it ends. What is sent to it is the command's. The first process sees a
//! leader as of any other exec.
//!
//! It is who the command is, and is worth no more than that: whoever ends it ends the command.

use alloc::ffi::CString;
use alloc::vec::Vec;
use cofferdam_sys::descriptor::standard;
use cofferdam_sys::reap::{Change, Status, look_at};
use cofferdam_sys::signal::{Mask, Signals, stop_here};
use cofferdam_sys::spawn::{self, Beginning, Command, Failure, Place, Step};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

/// The command's, where they come here; and the news of it.
const HEARD: [Signal; 7] =
    [Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// What cannot be told in any other way.
const LOST: u8 = 127;

/// The command's own, once its keeper has become who it is.
struct Task {
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
}

/// As `spawn::begin`, on the terminal that is the command's input.
pub(crate) fn begin(command: Command<'_>) -> Result<(Pid, Beginning), Failure> {
    let Command { argv, env, cwd, stdio: [terminal, ..], user, .. } = command;
    let no_pipe = |errno| Failure { step: Step::Stdio, errno };
    let (status, theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(no_pipe)?;
    let task = Task { argv, env, cwd };
    // It has three descriptors and no other: the last is for word of the beginning until the command has begun.
    let given = [terminal, terminal, theirs.as_fd()];
    let keeper = spawn::fork(given, user.as_ref(), |ready| keep(ready, task))?;
    Ok((keeper, Beginning::of(status)))
}

fn keep(ready: Result<(), Failure>, task: Task) -> u8 {
    let [terminal, _, status] = standard();
    match ready.and_then(|()| start(terminal, task)) {
        Ok((command, signals)) => {
            // Nobody has the pipe any more now: that is the word.
            let begun = rustix::stdio::dup2_stderr(terminal);
            begun.and_then(|()| watch(command, &signals)).unwrap_or(LOST)
        }
        Err(failure) => {
            failure.tell(status);
            LOST
        }
    }
}

fn start(terminal: BorrowedFd<'_>, task: Task) -> Result<(Pid, Signals), Failure> {
    let at = |step| move |errno| Failure { step, errno };
    rustix::process::ioctl_tiocsctty(terminal).map_err(at(Step::Terminal))?;
    // Before there is anything to hear of.
    let signals = Signals::listen(&HEARD).map_err(at(Step::Session))?;
    let Task { argv, env, cwd } = task;
    let (stdio, place) = ([terminal; 3], Place::Foreground);
    let command = spawn::spawn(Command { argv, env, cwd, stdio, place, user: None })?;
    Ok((command, signals))
}

/// Until it has ended; how this process is to end.
fn watch(command: Pid, signals: &Signals) -> Result<u8, Errno> {
    loop {
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
        for arrived in signals.take()? {
            match Signal::from_named_raw(arrived.signal) {
                None | Some(Signal::CHILD) => (),
                // It may have ended meanwhile.
                Some(signal) => drop(kill_process(command, signal)),
            }
        }
        while let Some(change) = look_at(command)? {
            match change {
                Change::Stopped(_) => {
                    stop_here();
                    let _ = kill_process_group(command, Signal::CONT);
                }
                Change::Ended(ended) => return Ok(end_as(ended.status)),
            }
        }
    }
}

/// A signal that ended it ends this process too, in which nothing is left to be done.
fn end_as(status: Status) -> u8 {
    match status {
        Status::Code(code) => code,
        Status::Signal { signal, .. } => {
            let _ = Mask::NONE.set();
            if let Some(name) = Signal::from_named_raw(i32::from(signal)) {
                let _ = kill_process(getpid(), name);
            }
            // One without a name, as of those for real time.
            128_u8.wrapping_add(signal)
        }
    }
}
