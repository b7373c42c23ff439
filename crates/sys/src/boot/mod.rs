//! From a list of operations to a process that has performed them: the boot child.
//!
//! The child shares the memory of a process that goes on meanwhile and may have other threads, so until it
//! executes the guest it only makes system calls on data that was prepared before: it neither allocates nor
//! takes locks. It reports over one packet socket, which closes by itself when the guest's image is executed.

mod kernel;
mod launch;
mod op;
mod record;
mod talk;

pub use kernel::{CARRIED_MAX, Kernel};
pub(crate) use kernel::{loopback_up, map_own_ids, unshare};
pub use launch::{Birth, Launched, launch};
pub use op::{Access, Attr, Graft, Kept, Op, Resource};
pub use record::Recorder;
pub use talk::{DOORS_MAX, Given, Message};
