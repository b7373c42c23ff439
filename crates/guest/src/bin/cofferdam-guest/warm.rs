//! An interpreter that has imported what scripts will want, and is copied for each of them. It is one process of the
//! inside as any other: what it answers is checked, and where it cannot be a script's process a new one is started.

use crate::exec::user;
use alloc::ffi::CString;
use alloc::string::ToString;
use alloc::vec::Vec;
use cofferdam_guest::wire;
use cofferdam_sys::spawn::{self, Beginning, Command, Place};
use core::mem::MaybeUninit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// For a copy to be made. Nothing else is done meanwhile.
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// What the interpreter takes at once; a longer request is left to a new one.
const LONGEST: usize = 128 << 10;

pub(crate) struct Warm {
    program: Vec<u8>,
    user: Option<wire::User>,
    /// Until it has ended: its number may be another's then.
    leader: Option<Pid>,
    /// Whether it runs is told on the socket; this is what it began with.
    beginning: Beginning,
    socket: OwnedFd,
    /// It has said that all is imported.
    ready: bool,
}

/// What an interpreter said.
enum Said {
    Ready,
    Copied(Pid),
    /// This one is not for it.
    Cannot,
    /// Nothing yet.
    Nothing,
    /// It is gone, or makes no sense.
    Broken,
}

impl Warm {
    /// Nothing where it cannot be started: scripts are started without it.
    pub(crate) fn start(request: &wire::Warm<'_>) -> Option<Self> {
        let program = request.argv.first()?.to_vec();
        let strings =
            |all: &[&[u8]]| all.iter().map(|text| CString::new(*text).ok()).collect::<Option<Vec<_>>>();
        let (argv, env) = (strings(&request.argv)?, strings(&request.env)?);
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).ok()?;
        let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let command = Command {
            argv,
            env,
            cwd: CString::from(c"/"),
            stdio: [theirs.as_fd(), null.as_fd(), null.as_fd()],
            place: Place::Apart,
            user: request.user.clone().map(user),
        };
        let (leader, beginning) = spawn::begin(command).ok()?;
        let user = request.user.clone();
        Some(Self { program, user, leader: Some(leader), beginning, socket, ready: false })
    }

    /// Takes note of its end.
    pub(crate) fn reaped(&mut self, pid: Pid) {
        if self.leader.take_if(|leader| *leader == pid).is_some() {
            self.beginning.hear();
        }
    }

    fn is_for(&self, request: &wire::Exec<'_>) -> bool {
        let script = request.argv.get(1).is_some_and(|script| script.ends_with(b".py"));
        // One that can be stopped has somebody else with it.
        let stops = request.tty.is_some_and(|tty| tty.stops);
        script
            && !stops
            && request.argv.first() == Some(&self.program.as_slice())
            && request.user == self.user
    }

    fn said(&self, wait: &Timespec) -> Said {
        let mut set = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        match poll(&mut set, Some(wait)) {
            Ok(0) => return Said::Nothing,
            Ok(_) => {}
            Err(_) => return Said::Broken,
        }
        let mut text = [0; 1024];
        let Ok((length, _)) = recv(&self.socket, text.as_mut_slice(), RecvFlags::DONTWAIT) else {
            return Said::Broken;
        };
        match text.get(..length).and_then(<[u8]>::split_first) {
            Some((b'r', [])) => Said::Ready,
            Some((b'x', _)) if self.ready => Said::Cannot,
            Some((b'p', number)) => number_of(number).map_or(Said::Broken, Said::Copied),
            _ => Said::Broken,
        }
    }

    /// The copy does nothing before it is told to by `go`, and ends where that is closed without a word.
    fn ask(
        &self,
        request: &wire::Exec<'_>,
        [input, output, errors]: [BorrowedFd<'_>; 3],
        go: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let count = request.argv.len().to_string();
        let tty: &[u8] = if request.tty.is_some() { b"1" } else { b"0" };
        let head = [tty, request.cwd, count.as_bytes()];
        let fields: Vec<&[u8]> = head.iter().chain(&request.argv).chain(&request.env).copied().collect();
        let text = fields.join(&0);
        if text.len() > LONGEST {
            return Err(Errno::TOOBIG);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let given = [input, output, errors, go];
        if !control.push(SendAncillaryMessage::ScmRights(&given)) {
            return Err(Errno::NOBUFS);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.socket, &[IoSlice::new(&text)], &mut control, flags).map(drop)
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        // Reaped with whatever else is left behind.
        let _ = self.leader.map(|leader| kill_process(leader, Signal::KILL));
    }
}

fn number_of(text: &[u8]) -> Option<Pid> {
    core::str::from_utf8(text).ok()?.parse().ok().and_then(Pid::from_raw)
}

/// The process of a copy, which is our child; nothing where the script is to be started anew. `taken` knows the
/// processes that are somebody else's.
pub(crate) fn copy(
    kept: &mut Option<Warm>,
    request: &wire::Exec<'_>,
    stdio: [BorrowedFd<'_>; 3],
    taken: impl Fn(Pid) -> bool,
) -> Option<Pid> {
    let warm = kept.as_mut().filter(|warm| warm.is_for(request))?;
    if !warm.ready {
        match warm.said(&Timespec { tv_sec: 0, tv_nsec: 0 }) {
            Said::Ready => {
                warm.ready = true;
                warm.beginning.hear();
            }
            Said::Nothing => return None,
            _ => {
                *kept = None;
                return None;
            }
        }
    }
    let (wait, go) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    let said = warm.ask(request, stdio, wait.as_fd()).map(|()| warm.said(&PATIENCE));
    drop(wait);
    match said {
        Ok(Said::Copied(pid)) if !taken(pid) && Some(pid) != warm.leader && is_ours(pid) => {
            // One that cannot be told has ended, and is reaped as any other.
            let _ = rustix::io::write(&go, b"g");
            return Some(pid);
        }
        Ok(Said::Cannot) | Err(Errno::TOOBIG) => {}
        _ => *kept = None,
    }
    None
}

/// Whether we will be told of its end.
fn is_ours(pid: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), look).is_ok()
}
