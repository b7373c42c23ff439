//! Sessions that stay when their commands have ended, and the supervisor that holds them: one process a user,
//! started by whoever needs it first, gone by itself when it holds nothing.
//!
//! ```text
//! create ─▶ running ─(pause)──▶ paused ─(resume)──▶ running
//!              │ └─(no exec for `idle`)─▶ idle-paused ─(exec)─▶ running
//!              └─(kill, time over, or the last exec of an ephemeral one)─▶ ended: changes decided, trace sealed
//! any state ─(the supervisor is killed)─▶ lost: the kernel ends the sandbox, the trace stays sound and incomplete
//! ```
//!
//! A session is one thread, the one that launched its sandbox: the kernel ends the sandbox with that thread. All
//! others only write to it. Nothing here hands a caller's descriptor inside: bytes are relayed, as for `run`.

mod announce;
mod archive;
mod clock;
mod commands;
mod copy;
mod errand;
mod exec;
mod find;
mod furnish;
mod hands;
mod holder;
mod hours;
mod house;
pub mod inside;
mod limits;
mod mail;
mod meter;
mod operator;
mod plead;
mod pool;
mod promise;
mod register;
mod rescue;
mod shelf;
mod snapshot;
mod start;
mod supervisor;
mod transact;

pub use exec::{Attendance, Leaver, LiveExec, LiveOutcome, Watched};
pub use house::House;
pub(crate) use mail::Mailbox;
pub(crate) use operator::conflicts_kept;
pub use supervisor::Log;
