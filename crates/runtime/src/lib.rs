//! What a sandbox *is*, whatever it is made of: what it is asked to be, what it can be asked, the steps by
//! which it comes to be and is undone, and the guest program that every tier starts.
//!
//! A tier is a crate of its own that implements `Backend`. Nothing here touches the host.

mod backend;
mod change_list;
mod fake;
mod recipe;

pub use backend::{
    Agrees, Backend, Base, Begun, Callers, Committed, Doors, Finished, Heard, Identity, Network, Probe,
    Refuses, Root, RuntimeError, Sandbox, SandboxSpec, ShownFile, Waits, Witness,
};
pub use change_list::{ChangeList, Gathering};
pub use fake::FakeBackend;
pub use recipe::{Fault, Injected, Recipe, Standing, Step};

/// The first process inside every sandbox, ready to be written to a file or a memory file.
pub fn guest_program() -> &'static [u8] {
    // Once in the program, wherever it is used: a constant would be there several times.
    static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cofferdam-guest"));
    PROGRAM
}
