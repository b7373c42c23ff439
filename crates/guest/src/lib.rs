//! The first process inside every sandbox, and the one way to talk to it.
//!
//! `wire` is what both sides say, `host` is the side that trusts nothing of what it hears. The program itself
//! is `src/bin/cofferdam-guest`. All of it does without std and without libc, for the guest is started for
//! every run: it is small, and it is there at once.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod host;
pub mod wire;

/// The number of the descriptor on which the guest finds its channel.
pub const CHANNEL: i32 = 3;

/// How the guest's own process ends, for whoever looks at it from outside.
pub mod exit {
    /// The host closed the channel.
    pub const CLOSED: i32 = 0;
    /// The host sent what the protocol does not allow.
    pub const PROTOCOL: i32 = 2;
    /// The kernel refused something without which there is no guest.
    pub const SYSTEM: i32 = 3;
    /// A defect of the guest.
    pub const PANIC: i32 = 4;
}
