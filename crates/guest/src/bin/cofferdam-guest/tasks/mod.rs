//! What the guest does itself, each time in a child that ends with it: it may block, it may be killed, and it is
//! whoever it was asked to be. Paths are the inside's, and the kernel resolves them inside: there is nothing to
//! check, because there is nowhere else to get to.

pub(crate) mod accounts;
mod entry;
mod files;
mod ports;
mod transfer;
mod tree;
mod watch;

use alloc::ffi::CString;
use alloc::vec::Vec;
use cofferdam_guest::wire::{Said, Task, Why, Work};
use cofferdam_sys::spawn;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Why a task came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    why: Why,
    errno: Errno,
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        Self { why: Why::Kernel, errno }
    }
}

impl Failed {
    const fn because(why: Why, errno: Errno) -> Self {
        Self { why, errno }
    }
}

type Done = Result<(), Failed>;

fn input() -> BorrowedFd<'static> {
    let [input, _] = spawn::standard();
    input
}

fn output() -> BorrowedFd<'static> {
    let [_, output] = spawn::standard();
    output
}

/// All of it, or the host is gone and this child may go too.
fn write_all(mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(output(), bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn say(said: &Said) -> Done {
    Ok(write_all(&said.record())?)
}

fn path(bytes: &[u8]) -> Result<CString, Failed> {
    CString::new(bytes).map_err(|_| Errno::INVAL.into())
}

/// In decimal. What the library has for this brings along what unwinds, and here nothing does.
pub(crate) fn decimal(mut number: u32) -> Vec<u8> {
    let mut digits = Vec::new();
    loop {
        digits.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            digits.reverse();
            return digits;
        }
    }
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// In the child: does it, and says how it went. The exit code is for people who trace processes.
pub(crate) fn perform(task: &Task, ready: Result<(), spawn::Failure>) -> u8 {
    let done = match ready {
        Ok(()) => carry_out(task),
        Err(failure) => Err(Failed::because(Why::User, failure.errno)),
    };
    match done {
        Ok(()) => 0,
        Err(Failed { why, errno }) => {
            let _ = say(&Said::Failed { why, errno: errno.raw_os_error() as u16 });
            1
        }
    }
}

fn carry_out(task: &Task) -> Done {
    let owner = task.owner;
    match &task.work {
        Work::Stat { path: at } => say(&Said::Entry(entry::of(&path(at)?, Vec::new())?)),
        Work::List { path: at, depth } => files::list(at, *depth),
        Work::Read { path: at, from, most } => transfer::read(&path(at)?, *from, *most),
        Work::Write { path: at, mode, notes } => transfer::write(at, *mode, notes.as_deref(), owner),
        Work::MakeDir { path: at } => files::make_dir(at, owner),
        Work::Move { from, to } => files::rename(from, to, owner),
        Work::Remove { path: at } => {
            tree::remove(&path(at)?)?;
            say(&Said::Done)
        }
        Work::Watch { path: at, recursive, entries } => watch::watch(at, *recursive, *entries),
        Work::Connect { port } => ports::connect(*port),
        Work::Ports => ports::list(),
        Work::Account { name } => say(&Said::Account(accounts::find(name)?)),
        Work::Space { path: at } => {
            let found = rustix::fs::statvfs(path(at)?)?;
            let (total, free) = (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize);
            say(&Said::Space { total, free })
        }
    }
}
