//! The first process inside a sandbox: it runs what the host asks for, carries the streams, reaps what is left
//! behind, and ends when the host is gone, which ends everything inside. Of a virtual machine it is the first
//! process as well, before there is an inside: see `first`.
//!
//! One thread and one poll loop. It decides nothing and protects nothing: it is inside, with the code it runs.
//! What it must not do is fail the host that asks, or give the commands more than their three descriptors.
//!
//! Under the name `sudo` it is something else: a command that asks the first process for another one. See `sudo`.

#![cfg_attr(freestanding, no_std, no_main)]

extern crate alloc;

mod attend;
mod exec;
mod first;
mod guest;
mod keeper;
mod line;
mod outbox;
mod pleas;
mod streams;
mod sudo;
mod tasks;
mod terminal;
mod warm;

use cofferdam_guest::{CHANNEL, exit};
use cofferdam_sys::signal::Signals;
use cofferdam_sys::{descriptor, late, spawn};
use core::mem::ManuallyDrop;
use guest::Guest;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal, getpid};

#[cfg(freestanding)]
cofferdam_sys::freestanding_program!(run, exit::PANIC);

#[cfg(not(freestanding))]
fn main() {
    std::process::exit(run())
}

fn run() -> i32 {
    if first::is_due() {
        return first::run();
    }
    if let Some(code) = sudo::run() {
        return code;
    }
    // Nothing is given back at the end: the kernel is faster at it, and a SIGPIPE that waits stays blocked.
    match prepare().map(ManuallyDrop::new) {
        Ok(mut guest) => guest.serve(),
        Err(_) => exit::SYSTEM,
    }
}

/// What ends a process by default is passed on to the commands instead; SIGPIPE is nothing but noise.
const SIGNALS: [Signal; 8] = [
    Signal::CHILD,
    Signal::PIPE,
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

fn prepare() -> Result<Guest, Errno> {
    let channel = descriptor::inherited(CHANNEL)?;
    let waits = late::socket()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Or one command could take hold of this process, and with it of every other command's streams.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::fs::fcntl_setfl(&channel, OFlags::NONBLOCK)?;
    // They come to a descriptor; what this process inherited as ignored is not for commands to inherit.
    spawn::ignore_nothing();
    let signals = Signals::listen(&SIGNALS)?;
    let pid = getpid();
    if !pid.is_init() {
        rustix::process::set_child_subreaper(Some(pid))?;
    }
    // One that was started before there was anybody to be it for. It can die with its supervisor by now.
    if let Some(socket) = waits {
        late::wait(socket)?;
    }
    Ok(Guest::new(channel, signals, pid))
}
