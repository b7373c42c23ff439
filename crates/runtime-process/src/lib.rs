//! The process tier: namespaces, a root made of read-only binds with an overlay on the work dir, Landlock,
//! seccomp, no capabilities, control groups. Works as root and as a plain user; never maps host id 0.
//!
//! It shares the host's kernel: a bug there is a way out. What is really in force is read back and reported.

mod abandoned;
mod backing;
mod birth;
mod caller;
mod cgroup;
mod create;
mod decide;
mod doctor;
mod elsewhere;
mod explain;
mod filter;
mod hidden;
mod ids;
mod late;
pub mod layer;
mod layout;
mod limits;
mod meanwhile;
mod network;
mod plan;
mod procfs;
mod programs;
mod readback;
mod reap;
mod report;
mod room;
mod rooted;
mod sandbox;
mod shown;
mod supervise;
mod syscalls;
mod users;
mod view;
mod wait;
mod watch;
mod watched;

pub use abandoned::remove_abandoned;
pub use backing::{Salvaged, damaged, is_in_file, salvage};
pub use birth::Early;
pub use doctor::{Fact, facts};
pub use elsewhere::{Look, layer_of, look, owner_of_first};
pub use network::DOOR_PORTS;
pub use reap::{Grounds, reap};

use cofferdam_model::{SessionId, Tier};
use cofferdam_runtime::{Backend, Begun, Fault, Probe, RuntimeError, SandboxSpec};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The tier. The default is the real thing; the fields weaken it for negative controls and fault tests.
#[derive(Debug, Default)]
pub struct ProcessBackend {
    /// Controls to leave out, by their name in the report. Nothing that users reach sets this but the
    /// deliberately weakened profile of the escape checks.
    pub without: Vec<String>,
    /// The step that is to fail.
    pub fault: Fault,
    /// Where its guests' channels come from, where their other end is not ours: in a virtual machine it is the
    /// host's. Taken by the first sandbox.
    pub channel: Mutex<Option<Channels>>,
    /// A child that was born ahead. Taken by the first sandbox, or ended.
    pub early: Mutex<Option<Early>>,
    /// The guest's program, sealed before, for who makes many sandboxes that are to share it.
    pub image: Option<Arc<OwnedFd>>,
    /// A node of the host's `kvm` to be shown under that name, for a VMM that opens it by itself.
    pub kvm: Option<PathBuf>,
}

/// Gives every guest of a sandbox the stream that it is spoken to on. Asked when the guest before it has ended.
pub struct Channels(pub Box<dyn FnMut() -> io::Result<OwnedFd> + Send>);

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channels")
    }
}

/// What `ProcessBackend::without` understands.
pub const CAN_BE_LEFT_OUT: &[&str] = &[
    "namespace.pid",
    "namespace.net",
    "namespace.ipc",
    "namespace.uts",
    "namespace.cgroup",
    "network",
    "network.capture",
    "proc",
    "capabilities",
    "no-new-privileges",
    "landlock",
    "seccomp",
    "seccomp.record",
    "cgroup",
];

impl Backend for ProcessBackend {
    fn tier(&self) -> Tier {
        Tier::Process
    }

    fn probe(&self) -> Probe {
        doctor::probe()
    }

    fn begun_for(&self) -> Option<SessionId> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.session().cloned()
    }

    fn begin(&self, spec: SandboxSpec) -> Result<Box<dyn Begun>, RuntimeError> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner).take();
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(create::begin(spec, self, channel, early)?)
    }
}

/// Removes a layer that nobody uses any more. What resists is left for another try.
pub fn remove_layer(dir: &std::path::Path) {
    let _ = layer::remove_tree(dir);
}

/// The names of the steps by which a sandbox is made, in order.
pub fn step_names() -> Vec<&'static str> {
    create::RECIPE.0.iter().map(|step| step.name).collect()
}
