//! Which limits hold for a session: what was asked for, and defaults so that none is ever without.

use crate::cgroup::{Told, Wanted};
use crate::layer::Layer;
use cofferdam_model::{Bytes, LayerPlace, LimitHit, Limits};

const PIDS: u32 = 4_096;
const FILES: u32 = 65_536;
const SCRATCH_MOST: u64 = 8 << 30;
/// More than any sandbox has in its scratch space before anything runs in it; then the limit is set.
const SKELETON: u64 = 65_536;

/// Resolved limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolved {
    pub(crate) cgroup: Wanted,
    pub(crate) files: u32,
    /// Size of the memory file system for everything writable.
    pub(crate) scratch: u64,
    /// How many files fit in it, at first.
    pub(crate) inodes: u64,
    /// How many the inside may make in it, where that was asked for.
    pub(crate) allowed_inodes: Option<u64>,
    /// Whether the work dir's layer lives in that file system, where its limit holds.
    pub(crate) layer_in_scratch: bool,
    /// That file system lies in a file on disk, and not in memory.
    pub(crate) in_file: bool,
}

pub(crate) fn resolve(asked: &Limits, place: LayerPlace, pausable: bool) -> Resolved {
    let total = total_memory();
    let memory = asked.memory.unwrap_or(Bytes(total / 4 * 3));
    let scratch = asked.disk.map_or((total / 4).min(SCRATCH_MOST), |disk| disk.0);
    let in_file = place == LayerPlace::Disk && asked.bound_files();
    Resolved {
        cgroup: Wanted {
            memory: Some(memory),
            pids: Some(asked.pids.unwrap_or(PIDS)),
            cpu: asked.cpu,
            share: asked.share,
            pausable,
        },
        files: asked.files.unwrap_or(FILES),
        scratch,
        inodes: asked.inodes.map_or(inodes(scratch), |asked| asked + SKELETON),
        allowed_inodes: asked.inodes,
        layer_in_scratch: place == LayerPlace::Memory || in_file,
        in_file,
    }
}

fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// As many files as a small disk of that size would have.
fn inodes(bytes: u64) -> u64 {
    (bytes / 4096).clamp(1_024, 4_000_000)
}

impl Resolved {
    /// How many inodes a file system in a file needs, besides so many that the sandbox itself has there.
    pub(crate) fn inodes_in_file(&self, own: u64) -> u64 {
        self.allowed_inodes.unwrap_or_else(|| inodes(self.scratch)).saturating_add(own)
    }

    /// How many files and directories there may be.
    pub(crate) fn files_told(&self) -> u64 {
        self.allowed_inodes.unwrap_or(self.inodes)
    }

    /// Bytes that are held in the file system of this limit.
    pub(crate) fn written(&self, layer: Option<&Layer>) -> Option<u64> {
        let held = layer.filter(|_| self.layer_in_scratch)?;
        let now = rustix::fs::fstatvfs(&held.upper).ok()?;
        // Of one in a file, what is free beyond the limit was taken before anything ran.
        let most = if self.in_file { self.scratch.div_ceil(now.f_frsize.max(1)) } else { now.f_blocks };
        Some(most.saturating_sub(now.f_bavail).saturating_mul(now.f_frsize))
    }

    /// The limits on files, where they are reached and that was not told yet. What is not to be seen from outside is not
    /// told.
    pub(crate) fn full(&self, layer: Option<&Layer>, told: &mut Told) -> Vec<LimitHit> {
        let held = layer.filter(|_| self.layer_in_scratch);
        let Some(Ok(now)) = held.map(|layer| rustix::fs::fstatvfs(&layer.upper)) else { return Vec::new() };
        let limits = [
            ("disk", self.scratch, format!("full: disk limit {}", Bytes(self.scratch))),
            (
                "inodes",
                self.files_told(),
                format!("full: limit of {} files and directories", self.files_told()),
            ),
        ];
        // Not what is free: some of that a file system on disk keeps for itself.
        let full = [now.f_bavail == 0, now.f_ffree == 0];
        let before = std::mem::replace(&mut told.full, full);
        let fresh = limits.into_iter().zip(full.into_iter().zip(before)).filter(|(_, (is, was))| *is && !was);
        fresh
            .map(|((limit, allowed, detail), _)| LimitHit {
                limit: limit.into(),
                allowed,
                seen: allowed,
                detail,
            })
            .collect()
    }
}
