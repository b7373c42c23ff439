//! The microVM tier: a kernel of its own for every session. A machine is a copy of one that was booted before and
//! stopped; in it the inside is made as the process tier makes one, and around its VMM stands a sandbox of the
//! process tier, so that who breaks out of the machine is in one.
//!
//! A machine shares no file and no network with the host: it sees read-only disks that are made of the host's files
//! as they are asked for, its connections are opened again where the host's doors are, and what it changed is told
//! when it ends, and judged like everything else that comes from inside.

mod accelerator;
mod ask;
mod asked;
mod begin;
mod copy;
mod firecracker;
mod house;
mod identity;
mod image;
mod import;
mod kernel;
mod launch;
mod lines;
mod listing;
mod machine;
mod memory;
mod nbd;
mod notes;
mod pending;
mod qemu;
mod qmp;
mod report;
mod sandbox;
mod session;
mod snapshot;
mod sound;
mod standing;
mod start;
mod template;
mod vigil;
mod vmm;
mod watch;
mod written;

pub use accelerator::count;
pub use launch::launch;
pub use snapshot::is_there as is_machine;
pub use vmm::{Accelerator, Size};

use cofferdam_model::{Limits, Tier};
use cofferdam_runtime::{Backend, Begun, Probe, RuntimeError, SandboxSpec};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use template::Parts;
use vmm::{Kind, Program};

/// What the kernel and our own program take beside the session.
const OVERHEAD: u64 = 192 << 20;
const MEMORY: u64 = 1 << 30;
/// Sizes are in steps, so that not every limit has a template of its own.
const STEP: u64 = 64 << 20;
const PROCESSORS: u32 = 32;

/// The tier.
#[derive(Debug, Clone)]
pub struct VmBackend {
    /// Where templates are kept: a directory of the caller's own.
    pub dir: PathBuf,
    /// This program, which starts the VMM in the sandbox around it.
    pub program: PathBuf,
    /// Controls to leave out of the inside, for the escape checks.
    pub without: Vec<String>,
}

/// What a file is, as far as can be seen without reading it.
fn stamp(path: &Path) -> Option<(u64, i64, i64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.len(), meta.mtime(), meta.mtime_nsec()))
}

fn env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// How large a machine has to be for these.
fn size(limits: &Limits, accelerator: Accelerator) -> Size {
    let memory =
        limits.memory.map_or(MEMORY, |memory| memory.0).saturating_add(OVERHEAD).next_multiple_of(STEP);
    let usual = if accelerator == Accelerator::Kvm { 2 } else { 1 };
    let processors = limits.cpu.map_or(usual, |cpu| cpu.milli.div_ceil(1000).clamp(1, PROCESSORS));
    Size { memory, processors }
}

/// A stand-in for a work dir.
fn nowhere(dir: &Path) -> Result<PathBuf, RuntimeError> {
    let nowhere = dir.join("nowhere");
    std::fs::create_dir_all(&nowhere).map_err(RuntimeError::io("make a stand-in for a work dir"))?;
    Ok(nowhere)
}

impl VmBackend {
    fn parts(&self, limits: &Limits) -> Result<Parts, RuntimeError> {
        if limits.inodes.is_some() {
            let what = "a limit on the number of files does not hold for the disk of a machine";
            return Err(kernel::refused(what, "leave `--inodes` out, or use `--isolation process`"));
        }
        let _ = std::fs::create_dir_all(&self.dir);
        let (vmm, accelerator, why) = vmm::choose(&env, &self.dir, &self.program)?;
        let kernel = kernel::Kernel::find(env)?;
        let size = size(limits, accelerator);
        let without = self.without.clone();
        Ok(Parts {
            without,
            dir: self.dir.clone(),
            program: self.program.clone(),
            vmm,
            kernel,
            accelerator,
            why,
            size,
        })
    }
}

impl VmBackend {
    /// Whether machines run at their normal speed here: tried before, in this boot of the host, and found so.
    pub fn is_quick(&self) -> bool {
        let works = |kind: Kind| {
            let find = || Program::find(kind, &env, &self.dir).ok();
            accelerator::is_known_to_work(&self.dir, kind, find)
        };
        let wanted = env(vmm::WANTED);
        let is_wanted = |kind: Kind| {
            wanted.as_deref().is_none_or(|wanted| [kind.word(), "auto"].iter().any(|word| wanted == *word))
        };
        [Kind::Firecracker, Kind::Qemu].into_iter().any(|kind| is_wanted(kind) && works(kind))
            && env(accelerator::WANTED).is_none_or(|wanted| wanted.as_os_str() != "tcg")
    }
}

impl Backend for VmBackend {
    fn tier(&self) -> Tier {
        Tier::Microvm
    }

    fn probe(&self) -> Probe {
        let tier = Tier::Microvm;
        match self.parts(&Limits::default()) {
            Ok(parts) => {
                let (vmm, kernel) = (&parts.vmm, &parts.kernel.release);
                let here = format!("{} {} and Linux {kernel} are here", vmm.kind.name(), vmm.version);
                let how = match parts.accelerator {
                    Accelerator::Kvm => format!("on KVM: {}", parts.why),
                    Accelerator::Tcg => {
                        format!("emulated, so it is used where it is asked for; no KVM: {}", parts.why)
                    }
                };
                // To boot one takes many seconds: whoever asks what there is does not wait for that.
                match parts.has_booted() {
                    true => {
                        let detail = format!("booted before; {here}; {how}");
                        Probe { tier, works: true, detail, fix: None }
                    }
                    false => {
                        let fix = "try it once with `cofferdam run --isolation microvm -- true`".to_owned();
                        let detail = format!("{here}, and nothing was booted with them yet; {how}");
                        Probe { tier, works: false, detail, fix: Some(fix) }
                    }
                }
            }
            Err(RuntimeError::Refused { what, fix }) => {
                Probe { tier, works: false, detail: what, fix: Some(fix) }
            }
            Err(error) => Probe { tier, works: false, detail: error.to_string(), fix: None },
        }
    }

    fn begin(&self, spec: SandboxSpec) -> Result<Box<dyn Begun>, RuntimeError> {
        let parts = self.parts(&spec.limits)?;
        // What nobody has asked for yet has no work dir; what it sees of the system is the same.
        let look = match spec.ahead {
            false => cofferdam_runtime_process::look(&spec)?,
            true => {
                let workdir = nowhere(&self.dir)?;
                cofferdam_runtime_process::look(&SandboxSpec { workdir, ..spec.clone() })?
            }
        };
        Ok(Box::new(begin::begin(parts, spec, &look, false)?))
    }
}
