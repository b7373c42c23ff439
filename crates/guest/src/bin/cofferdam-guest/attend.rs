//! Who attends to one asker, in a process of its own: accepts it, takes its question and its descriptors, has the first
//! process pass the question on, and turns into the command that is granted, with those descriptors. A second process,
//! which has none of them, stays behind: it passes on what the asker still says, and tells it the end.
//!
//! What an asker hands over may be anything: a socket that takes minutes to close, a file of a server that does not
//! answer. So the first process never has any of it, nor the socket on which it comes. Who is held up by it is the one
//! that attends to this asker, and nobody else.

use crate::exec::user;
use crate::line::header;
use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::{
    self, Answer, Exited, HEADER_LEN, Hello, Kind, Plea, REQUEST_MAX, Request, Target, ToGuest, ToHost,
};
use cofferdam_sys::descriptor::standard;
use cofferdam_sys::spawn::{self, Command, Failure, Place, Step};
use core::mem::{ManuallyDrop, MaybeUninit};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketFlags, accept_with,
    recv, recvmsg, send,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::getsid;
use serde::Serialize;

/// As the first process has placed them: the line to it, where a failure is told, and the door.
const LINE: BorrowedFd<'static> = standard()[0];
const STATUS: BorrowedFd<'static> = standard()[1];
const DOOR: BorrowedFd<'static> = standard()[2];
/// Frames on the line are about the one asker.
const HERE: u32 = 1;

/// The descriptors that a command is to have.
type Stdio = [OwnedFd; 3];

/// All of it. The exit code is for people who trace processes.
pub(crate) fn run(ready: Result<(), Failure>) -> u8 {
    match ready.map_err(|failure| failure.errno).and_then(|()| attend()) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn attend() -> Result<(), Errno> {
    let asker = accept_with(DOOR, SocketFlags::CLOEXEC)?;
    let go = stay_behind(&asker)?;
    // From now on the next one may be let in.
    say(Kind::Hello, 0, &Hello { pid: 0 })?;
    // Never closed, whatever comes: what takes its time to be closed takes none when a process ends.
    let mut given = ManuallyDrop::new(Vec::new());
    let question = receive(asker.as_fd(), &mut given)?;
    let stdio: Stdio = core::mem::take(&mut *given).try_into().map_err(|others| {
        let _: ManuallyDrop<Vec<OwnedFd>> = ManuallyDrop::new(others);
        Errno::INVAL
    })?;
    let stdio = ManuallyDrop::new(stdio);
    let who = socket_peercred(&asker)?;
    let Some(request) = Request::decode(&question) else {
        tell(asker.as_fd(), &Answer::Denied(b"that is no question"));
        return Err(Errno::BADMSG);
    };
    let session = getsid(Some(who.pid)).map_or(0, |session| session.as_raw_nonzero().get() as u32);
    say(Kind::Plea, HERE, &Plea { request, uid: who.uid.as_raw(), session })?;
    drop(question);
    // Whoever speaks again before the answer, or leaves, does not want it any more.
    if ready([LINE, asker.as_fd()])?[1] {
        return Err(Errno::PIPE);
    }
    let (kind, body) = frame()?;
    match ToGuest::decode(kind, &body) {
        Ok(ToGuest::Deny(deny)) => {
            tell(asker.as_fd(), &Answer::Denied(deny.why));
            Ok(())
        }
        Ok(ToGuest::Grant(grant)) => become_command(&grant.exec, &go, &stdio),
        _ => Err(Errno::BADMSG),
    }
}

/// Which of these have something to say.
fn ready(all: [BorrowedFd<'_>; 2]) -> Result<[bool; 2], Errno> {
    let mut set = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    loop {
        match poll(&mut set, None) {
            Ok(_) => return Ok(set.map(|fd| !fd.revents().is_empty())),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
}

/// To the first process.
fn say(kind: Kind, id: u32, body: &impl Serialize) -> Result<(), Errno> {
    let mut bytes = Vec::new();
    wire::put(&mut bytes, kind, id, None, body).map_err(|_| Errno::MSGSIZE)?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        match send(LINE, rest, SendFlags::NOSIGNAL) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// From the first process.
fn frame() -> Result<(Kind, Vec<u8>), Errno> {
    let mut head = [0; HEADER_LEN];
    exactly(&mut head)?;
    let header = header(head).map_err(|_| Errno::BADMSG)?;
    let mut body = vec![0; header.length as usize];
    exactly(&mut body)?;
    Ok((header.kind, body))
}

fn exactly(mut place: &mut [u8]) -> Result<(), Errno> {
    while !place.is_empty() {
        match recv(LINE, &mut *place, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Errno::PIPE),
            Ok((count, _)) => place = place.get_mut(count..).unwrap_or_default(),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// One message, whole, and the descriptors that came with it.
fn receive(asker: BorrowedFd<'_>, given: &mut Vec<OwnedFd>) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; REQUEST_MAX];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut along = ManuallyDrop::new(RecvAncillaryBuffer::new(&mut space));
    let received = recvmsg(asker, &mut [IoSliceMut::new(&mut bytes)], &mut along, RecvFlags::CMSG_CLOEXEC)?;
    for message in along.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            given.extend(descriptors);
        }
    }
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    if received.bytes == 0 || received.flags.intersects(cut) {
        return Err(Errno::PIPE);
    }
    bytes.truncate(received.bytes);
    Ok(bytes)
}

fn tell(asker: BorrowedFd<'_>, answer: &Answer<'_>) {
    if let Some(bytes) = answer.encode() {
        let _ = send(asker, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// Returns only where that fails, of which the first process has heard then.
fn become_command(exec: &wire::Exec<'_>, go: &OwnedFd, stdio: &Stdio) -> Result<(), Errno> {
    // That nobody has it any more is how it is heard that the command has begun.
    let status = rustix::io::fcntl_dupfd_cloexec(STATUS, 3)?;
    let failure = match rustix::io::write(go, b"g") {
        Ok(_) => turn_into(exec, stdio),
        Err(errno) => Failure { step: Step::Stdio, errno },
    };
    failure.tell(status.as_fd());
    Err(failure.errno)
}

fn turn_into(exec: &wire::Exec<'_>, [stdin, stdout, stderr]: &Stdio) -> Failure {
    let strings = |all: &[&[u8]]| all.iter().map(|text| CString::new(*text).ok()).collect::<Option<Vec<_>>>();
    let (Some(argv), Some(env), Ok(cwd)) = (strings(&exec.argv), strings(&exec.env), CString::new(exec.cwd))
    else {
        return Failure { step: Step::Program, errno: Errno::INVAL };
    };
    let terminal = exec.tty.is_some();
    spawn::turn_into(Command {
        argv,
        env,
        cwd,
        stdio: if terminal { [stdin.as_fd(); 3] } else { [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] },
        place: if terminal { Place::Terminal } else { Place::Apart },
        user: exec.user.clone().map(user),
    })
}

/// Leaves a process with the asker, before there is anything that it would have to close. It begins when it is told to by
/// what this returns, and ends where that is closed without a word.
fn stay_behind(asker: &OwnedFd) -> Result<OwnedFd, Errno> {
    let ((wait, go), (apart, set)) = (pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?);
    let mut go = Some(go);
    spawn::split(|| {
        drop(go.take());
        let settled = settle_apart();
        drop(set);
        let told = settled.and_then(|()| read_one(&wait));
        u8::from(told.and_then(|()| pass_on(asker)).is_err())
    })?;
    // What is sent to the command's process group is not for it: from now on it has its own.
    let _ = read_one(&apart);
    go.ok_or(Errno::BADF)
}

fn read_one(pipe: &OwnedFd) -> Result<(), Errno> {
    let mut word = [0];
    loop {
        match rustix::io::read(pipe, &mut word) {
            Ok(1) => return Ok(()),
            Ok(_) => return Err(Errno::PIPE),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
}

/// With the line alone, in a session of its own.
fn settle_apart() -> Result<(), Errno> {
    rustix::process::setsid()?;
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)
}

/// Until the asker leaves, which is how a process that is killed says so, or the command has ended.
fn pass_on(asker: &OwnedFd) -> Result<(), Errno> {
    loop {
        let [line, said] = ready([LINE, asker.as_fd()])?;
        if line {
            let (kind, body) = frame()?;
            if let (Kind::Exited, Ok(ToHost::Exited(Exited { outcome, .. }))) =
                (kind, ToHost::decode(kind, &body))
            {
                tell(asker.as_fd(), &Answer::Ended(outcome));
            }
            return Ok(());
        }
        if said {
            let mut byte = [0u8; 1];
            match recv(asker, &mut byte, RecvFlags::DONTWAIT) {
                Ok((1, _)) => say(Kind::Signal, HERE, &wire::Signal { number: byte[0], to: Target::Group })?,
                Err(Errno::AGAIN | Errno::INTR) => (),
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }
}
