//! `sudo` for a sandbox in which nothing gains rights: no bit of this file does anything. It asks the first process
//! inside, that asks the host, and what the host grants is started there, with the descriptors of this process.
//!
//! It is a plain program of the caller's and decides nothing: who would write another one could ask for no more.

mod options;
mod terminal;

use crate::tasks::{accounts, decimal};
use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::{Account, Answer, Outcome, REQUEST_MAX, Request, SOCKET};
use cofferdam_sys::descriptor::{is_free, standard};
use cofferdam_sys::signal::Signals;
use options::{Asked, Keep, Shell, Wish, Wrong};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, send, sendmsg, socket_with,
};
use rustix::process::Signal;
use terminal::Own;

const STDIN: BorrowedFd<'static> = standard()[0];
const STDOUT: BorrowedFd<'static> = standard()[1];
const STDERR: BorrowedFd<'static> = standard()[2];
/// What programs are looked for in, whatever the caller's says.
const PATH: &[u8] = b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Names that pass with any environment, and those that begin so.
const HARMLESS: [&[u8]; 5] = [b"TERM", b"COLORTERM", b"LANG", b"LANGUAGE", b"TZ"];
const LOCALE: &[u8] = b"LC_";
/// Names that are never the caller's.
const OURS: [&[u8]; 8] =
    [b"PATH", b"USER", b"LOGNAME", b"SHELL", b"SUDO_USER", b"SUDO_UID", b"SUDO_GID", b"SUDO_COMMAND"];
/// Passed on to the command.
const FORWARDED: [Signal; 8] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::WINCH,
];
/// What is said of what did not come to be, as people know it of sudo.
const FAILED: i32 = 1;
const USAGE: &[u8] =
    b"usage: sudo [-nEHiS] [-u user] [VAR=value] [-s | -i | command [arg ...]]\n       sudo -v | -l | -V\n";

/// What to exit with, if this program was called by that name. The first process never is.
pub(crate) fn run() -> Option<i32> {
    if rustix::process::getpid().is_init() {
        return None;
    }
    let line = content(c"/proc/self/cmdline").ok()?;
    let mut words = strings(&line);
    let name = words.next()?.rsplit(|byte| *byte == b'/').next()?;
    (name == b"sudo").then(|| main(&words.collect::<Vec<_>>()))
}

fn content(path: &core::ffi::CStr) -> Result<Vec<u8>, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut all, mut part) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        match rustix::io::read(&file, &mut part[..])? {
            0 => return Ok(all),
            count => all.extend_from_slice(part.get(..count).unwrap_or_default()),
        }
    }
}

/// Each ends with a NUL, also the last.
fn strings(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.strip_suffix(b"\0").into_iter().flat_map(|bytes| bytes.split(|byte| *byte == 0))
}

fn say(parts: &[&[u8]]) -> i32 {
    let text = [b"sudo: ", parts.concat().as_slice(), b"\n"].concat();
    let _ = rustix::io::write(STDERR, &text);
    FAILED
}

fn print(parts: &[&[u8]]) -> i32 {
    let _ = rustix::io::write(STDOUT, &parts.concat());
    0
}

/// What is not open would be taken by the first thing that is opened here.
fn open_standard() {
    for number in 0..3 {
        if is_free(number) {
            let null = rustix::fs::open(c"/dev/null", OFlags::RDWR, Mode::empty());
            // The lowest number that is free is this one, and nobody closes it.
            let _ = null.map(IntoRawFd::into_raw_fd);
        }
    }
}

fn main(args: &[&[u8]]) -> i32 {
    open_standard();
    let asked = match options::read(args) {
        Ok(asked) => asked,
        Err(Wrong::Unknown(option)) => {
            return say(&[b"`", option, b"` is not an option here; -n, -E, -H, -i, -s, -S, -u, -v, -l are"]);
        }
        Err(Wrong::NeedsValue(option)) => return say(&[b"`", option, b"` needs a value"]),
        Err(Wrong::NoCommand) => {
            let _ = rustix::io::write(STDERR, USAGE);
            return FAILED;
        }
    };
    match asked {
        Asked::Help => print(&[USAGE]),
        Asked::Version => print(&[b"sudo of cofferdam: a command as somebody else of this sandbox\n"]),
        Asked::Validate | Asked::List => {
            // Whether there is anybody to ask.
            if let Err(code) = door() {
                return code;
            }
            let list = matches!(asked, Asked::List);
            let text: &[u8] =
                b"Here everybody may run any command as anybody of this sandbox:\n    (ALL) NOPASSWD: ALL\n";
            if list { print(&[text]) } else { 0 }
        }
        Asked::Run(wish) => ask(&wish),
    }
}

fn door() -> Result<OwnedFd, i32> {
    let open = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(SOCKET)?)?;
        Ok(socket)
    };
    open().map_err(|_: Errno| say(&[b"nobody answers: this session has no sudo"]))
}

/// By name or, after `#`, by number.
fn account(user: &[u8]) -> Option<Account> {
    let named = match user.strip_prefix(b"#") {
        Some(number) => accounts::Names::load().user(core::str::from_utf8(number).ok()?.parse().ok()?),
        None => user.to_vec(),
    };
    let root = || Account {
        name: b"root".to_vec(),
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        home: b"/root".to_vec(),
        shell: b"/bin/sh".to_vec(),
    };
    // An image need not have accounts, and has this one all the same.
    accounts::find(&named).ok().or_else(|| (named == b"root" || named == b"0").then(root))
}

fn name_of(variable: &[u8]) -> &[u8] {
    variable.split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// What the command has on top of what every command has.
fn environment(wish: &Wish<'_>, who: &Account, caller: &[u8], command: &[u8]) -> Vec<Vec<u8>> {
    let kept = |variable: &[u8]| {
        let name = name_of(variable);
        if OURS.contains(&name) || !variable.contains(&b'=') || (wish.set_home && name == b"HOME") {
            return false;
        }
        let harmless = HARMLESS.contains(&name) || name.starts_with(LOCALE);
        harmless
            || match &wish.keep {
                Keep::Nothing => false,
                Keep::All => true,
                Keep::Named(names) => names.contains(&name),
            }
    };
    let mut env: Vec<Vec<u8>> = strings(caller).filter(|text| kept(text)).map(<[u8]>::to_vec).collect();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    env.push(PATH.to_vec());
    env.push([b"SHELL=", who.shell.as_slice()].concat());
    env.push([b"SUDO_USER=".to_vec(), accounts::Names::load().user(uid)].concat());
    env.push([b"SUDO_UID=".to_vec(), decimal(uid)].concat());
    env.push([b"SUDO_GID=".to_vec(), decimal(gid)].concat());
    env.push([b"SUDO_COMMAND=", command].concat());
    // The last of a name is the one that counts.
    env.extend(wish.env.iter().map(|text| text.to_vec()));
    env
}

fn ask(wish: &Wish<'_>) -> i32 {
    let Some(who) = account(wish.user) else { return say(&[b"unknown user ", wish.user]) };
    let caller = content(c"/proc/self/environ").unwrap_or_default();
    let own = strings(&caller).find_map(|text| text.strip_prefix(b"SHELL="));
    let line = options::quoted(&wish.command);
    let shell = match wish.shell {
        Some(Shell::Login) => who.shell.as_slice(),
        _ => own.filter(|shell| !shell.is_empty()).unwrap_or(&who.shell),
    };
    let argv: Vec<&[u8]> = match wish.shell {
        None => wish.command.clone(),
        Some(kind) => {
            let login: &[&[u8]] = if kind == Shell::Login { &[b"-l"] } else { &[] };
            let given: &[&[u8]] = if line.is_empty() { &[] } else { &[b"-c", &line] };
            [&[shell], login, given].concat()
        }
    };
    let env = environment(wish, &who, &caller, &argv.join(&b' '));
    let cwd = match wish.shell {
        Some(Shell::Login) => who.home.clone(),
        _ => rustix::process::getcwd(Vec::new()).map_or_else(|_| b"/".to_vec(), |cwd| cwd.into_bytes()),
    };
    let mut own = Own::open();
    let request = Request {
        argv,
        env: env.iter().map(Vec::as_slice).collect(),
        cwd: &cwd,
        tty: own.is_some(),
        who: who.clone(),
    };
    let Some(bytes) = request.encode().filter(|bytes| bytes.len() <= REQUEST_MAX) else {
        return say(&[b"the command and its environment are too long"]);
    };
    let program = wish.command.first().copied().unwrap_or(shell);
    // From here on, signals are the command's.
    let (Ok(signals), socket) = (Signals::listen(&FORWARDED), door()) else {
        return say(&[b"signals cannot be listened to"]);
    };
    let socket = match socket {
        Ok(socket) => socket,
        Err(code) => return code,
    };
    if hand_over(&socket, &bytes, own.as_mut()).is_err() {
        return say(&[b"the question could not be asked"]);
    }
    let told = wait(&socket, &signals, own.as_mut());
    // The terminal is the caller's again before anything is said on it.
    drop(own);
    end(told, program)
}

/// The question, with the descriptors that the command is to have. Afterwards they are its alone.
fn hand_over(socket: &OwnedFd, bytes: &[u8], own: Option<&mut Own>) -> Result<(), Errno> {
    let slave = own.and_then(Own::take_slave);
    let given = match &slave {
        Some(slave) => [slave.as_fd(); 3],
        None => standard(),
    };
    let mut space = vec![core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    along.push(SendAncillaryMessage::ScmRights(&given));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut along, SendFlags::NOSIGNAL).map(drop)
}

/// What it came to; nothing where the other side left without a word, as when the session ends.
fn wait(socket: &OwnedFd, signals: &Signals, mut own: Option<&mut Own>) -> Option<Vec<u8>> {
    loop {
        let mut set = vec![
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        if let Some(own) = own.as_deref() {
            set.extend(own.interests());
        }
        match poll(&mut set, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        let ready: Vec<bool> = set.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(set);
        if let Some(own) = own.as_deref_mut() {
            own.pass_on();
        }
        if ready.get(1) == Some(&true) {
            forward(socket.as_fd(), signals, own.as_deref());
        }
        if ready.first() == Some(&true) {
            let mut answer = vec![0; 2048];
            let count = recv(socket, &mut answer[..], RecvFlags::empty()).map_or(0, |(count, _)| count);
            answer.truncate(count);
            if let Some(own) = own.as_deref_mut() {
                own.drain();
            }
            return (count > 0).then_some(answer);
        }
    }
}

fn forward(socket: BorrowedFd<'_>, signals: &Signals, own: Option<&Own>) {
    let Ok(all) = signals.take() else { return };
    for arrived in all {
        match (own, u8::try_from(arrived.signal)) {
            (Some(own), _) if arrived.is(Signal::WINCH) => own.resize(),
            (_, Ok(number)) => _ = send(socket, &[number], SendFlags::NOSIGNAL | SendFlags::DONTWAIT),
            _ => {}
        }
    }
}

fn end(told: Option<Vec<u8>>, program: &[u8]) -> i32 {
    let answer = told.as_deref().and_then(Answer::decode);
    match answer {
        Some(Answer::Ended(Outcome::Code(code))) => i32::from(code),
        // As a shell tells it.
        Some(Answer::Ended(Outcome::Signal { number, .. })) => 128 + i32::from(number),
        Some(Answer::Ended(Outcome::NotFound)) => say(&[program, b": command not found"]),
        Some(Answer::Ended(Outcome::NotExecutable { .. })) => say(&[program, b": cannot be executed"]),
        Some(Answer::Ended(Outcome::Failed { .. })) => say(&[program, b": could not be started"]),
        Some(Answer::Denied(why)) => say(&[why]),
        None => say(&[b"nobody answered"]),
    }
}
