//! The program inside a machine of the microVM tier, and what it and the host say to each other. It is root of its
//! kernel, and of nothing else. It makes the inside as the process tier makes a sandbox, on what the machine's disks
//! show, and does for the host what only it can: carry connections out, tell of system calls, hand over what was
//! changed.
//!
//! It trusts the host, and so it never has to be believed: everything it says is judged outside.

pub mod carry;
mod export;
mod make;
mod mark;
mod port;
mod prepare;
mod rehearse;
pub mod relay;
mod serve;
pub mod wire;

pub use mark::{Mark, Search};
pub use port::{NUMBERED, number};
pub use serve::{BASE, DISKS, GUEST, HOUSE, NET, NOTES, PROGRAMS, SESSION, SYSTEM, serve};
