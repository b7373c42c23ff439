//! Which limits hold for a session: what was asked for, and defaults so that none is ever without.

use crate::cgroup::Wanted;
use cofferdam_model::{Bytes, LayerPlace, Limits};

const PIDS: u32 = 4_096;
const FILES: u32 = 65_536;
const SCRATCH_MOST: u64 = 8 << 30;

/// Resolved limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolved {
    pub(crate) cgroup: Wanted,
    pub(crate) files: u32,
    /// Size of the memory file system for everything writable.
    pub(crate) scratch: u64,
    /// Whether the work dir's layer lives in that file system, where its limit holds.
    pub(crate) layer_in_scratch: bool,
}

pub(crate) fn resolve(asked: &Limits, place: LayerPlace, pausable: bool) -> Resolved {
    let total = total_memory();
    let memory = asked.memory.unwrap_or(Bytes(total / 4 * 3));
    Resolved {
        cgroup: Wanted {
            memory: Some(memory),
            pids: Some(asked.pids.unwrap_or(PIDS)),
            cpu: asked.cpu,
            pausable,
        },
        files: asked.files.unwrap_or(FILES),
        scratch: asked.disk.map_or((total / 4).min(SCRATCH_MOST), |disk| disk.0),
        layer_in_scratch: place == LayerPlace::Memory,
    }
}

fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// As many files as a small disk of that size would have.
pub(crate) fn inodes(bytes: u64) -> u64 {
    (bytes / 4096).clamp(1_024, 4_000_000)
}
