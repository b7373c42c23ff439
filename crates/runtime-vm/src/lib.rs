//! The microVM tier: a kernel of its own for every session. A machine is a copy of one that was booted before and
//! stopped; in it the inside is made as the process tier makes one, and around its VMM stands a sandbox of the
//! process tier, so that who breaks out of the machine is in one.
//!
//! A machine shares no file and no network with the host: it sees read-only disks that are made of the host's files
//! as they are asked for, its connections are opened again where the host's doors are, and what it changed is told
//! when it ends, and judged like everything else that comes from inside.

mod carry;
mod house;
mod image;
mod import;
mod inside;
mod kernel;
mod launch;
mod machine;
mod nbd;
mod qemu;
mod qmp;
mod report;
mod sandbox;
mod session;
mod template;
mod wire;

pub use inside::serve;
pub use launch::launch;
pub use qemu::{Accelerator, Size};

use cofferdam_model::{Limits, Tier};
use cofferdam_runtime::{Backend, Begun, Probe, RuntimeError, SandboxSpec};
use std::path::PathBuf;
use template::Parts;

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
    /// This program, which goes on inside.
    pub program: PathBuf,
    /// Controls to leave out of the inside, for the escape checks.
    pub without: Vec<String>,
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

impl VmBackend {
    fn parts(&self, limits: &Limits) -> Result<Parts, RuntimeError> {
        let _ = std::fs::create_dir_all(&self.dir);
        let qemu = qemu::Qemu::find(env, &self.dir.join("qemu.json"))?;
        let kernel = kernel::Kernel::find(env)?;
        let accelerator = Accelerator::Tcg;
        let size = size(limits, accelerator);
        let without = self.without.clone();
        Ok(Parts {
            without,
            dir: self.dir.clone(),
            program: self.program.clone(),
            qemu,
            kernel,
            accelerator,
            size,
        })
    }
}

impl VmBackend {
    /// Whether machines run at their normal speed here: tried before, in this boot of the host, and found so.
    pub fn is_quick(&self) -> bool {
        false
    }
}

/// What this tier does not do is refused by name, before anything is started.
fn supported(spec: &SandboxSpec) -> Result<(), RuntimeError> {
    let refused = [
        (spec.shown_at.is_some(), "a work dir that is shown elsewhere"),
        (spec.programs.is_some(), "a choice of programs"),
        (spec.tracing, "tracing of processes inside"),
        (spec.syscalls != Default::default(), "a record of system calls"),
    ];
    match refused.into_iter().find(|(asked, _)| *asked) {
        Some((_, name)) => {
            Err(kernel::refused(format!("the microvm tier has no {name}"), "use `--isolation process`"))
        }
        None => Ok(()),
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
                let (qemu, kernel) = (&parts.qemu.version, &parts.kernel.release);
                let here = format!("QEMU {qemu} and Linux {kernel} are here");
                // To boot one takes many seconds: whoever asks what there is does not wait for that.
                match parts.has_booted() {
                    true => {
                        let slow = "it is emulated, so it is used where it is asked for";
                        Probe {
                            tier,
                            works: true,
                            detail: format!("booted before; {here}; {slow}"),
                            fix: None,
                        }
                    }
                    false => {
                        let fix = "try it once with `cofferdam run --isolation microvm -- true`".to_owned();
                        let detail = format!("{here}, and nothing was booted with them yet");
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
        supported(&spec)?;
        let parts = self.parts(&spec.limits)?;
        let look = cofferdam_runtime_process::look(&spec)?;
        Ok(Box::new(sandbox::begin(parts, spec, &look)?))
    }
}
