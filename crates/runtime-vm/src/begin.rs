//! How a machine becomes a sandbox: its VMM is started as soon as anything is known, and it is given its session when
//! all is.

use crate::image::{self, Kept};
use crate::listing;
use crate::nbd::Disks;
use crate::sandbox::{Stuff, VmSandbox};
use crate::session;
use crate::snapshot::{self, Snapshot};
use crate::template::{Copied, Parts, Template};
use cofferdam_inside::{PROGRAMS, SESSION};
use cofferdam_runtime::{Begun, Network, RuntimeError, Sandbox, SandboxSpec};
use cofferdam_runtime_process::{Look, look};
use std::path::Path;

/// A machine whose VMM was started, and that is nobody's yet.
pub(crate) struct Beginning {
    spec: SandboxSpec,
    parts: Parts,
    template: Template,
    /// It is a copy of this, and not of a template.
    of: Option<Snapshot>,
    copied: Copied,
    disks: Disks,
}

pub(crate) fn begin(mut parts: Parts, spec: SandboxSpec, look: &Look) -> Result<Beginning, RuntimeError> {
    let disks = Disks::default();
    let kept = spec.base.layers.first().filter(|layer| snapshot::is_there(layer));
    let (template, of) = match kept {
        None => (parts.template(&spec, look)?, None),
        Some(dir) => {
            let (template, snapshot) = snapshot::open(dir, &parts)?;
            parts.size = template.manifest.size;
            snapshot::put(dir, &disks)?;
            (template, Some(snapshot))
        }
    };
    let doors = spec.network == Network::Doors;
    let dir = parts.dir.join("run").join(spec.id.as_str());
    let copied = template.copy(&parts, &spec, &dir, doors, &disks)?;
    Ok(Beginning { spec, parts, template, of, copied, disks })
}

impl Begun for Beginning {
    fn adopt(&mut self, spec: SandboxSpec) -> Result<(), RuntimeError> {
        let kind = |spec: &SandboxSpec| {
            (spec.network, spec.pausable, spec.limits.cpu, spec.limits.share, spec.home.clone())
        };
        let size = crate::size(&spec.limits, self.parts.accelerator);
        let kept = spec.base.layers.first().is_some_and(|layer| snapshot::is_there(layer));
        if kind(&spec) != kind(&self.spec) || size != self.template.manifest.size || kept || self.of.is_some()
        {
            let what = "it was prepared for another kind of session";
            return Err(crate::kernel::refused(what, "make one from nothing"));
        }
        self.spec = spec;
        Ok(())
    }

    fn complete(self: Box<Self>, meanwhile: &mut dyn FnMut()) -> Result<Box<dyn Sandbox>, RuntimeError> {
        let Self { spec, parts, template, of, copied, disks } = *self;
        meanwhile();
        let look = look(&spec)?;
        // The lists are made while the machine comes to itself.
        let listed = || match of {
            None => {
                let programs = listing::programs(&parts.dir, &look)?;
                image::check(&programs.0).map_err(|error| damaged(&programs.0, &error))?;
                Ok(Some((session::disk(&spec, &look)?, programs)))
            }
            Some(_) => Ok(None),
        };
        let (listed, restored) = std::thread::scope(|scope| {
            let listed = scope.spawn(listed);
            let restored = template.restore(copied);
            let gone = || Err(crate::kernel::refused("the lists were not made", "report this"));
            (listed.join().unwrap_or_else(|_| gone()), restored)
        });
        let (machine, vmm) = restored?;
        let listed = listed?;
        let without = parts.without.clone();
        let stuff = Stuff { parts, spec, look, template, disks: disks.clone() };
        let mut sandbox = VmSandbox::new(stuff, machine, vmm)?;
        match (of, listed) {
            (Some(snapshot), _) => sandbox.revive(snapshot)?,
            (None, Some((session, (programs, programs_at)))) => {
                disks.session.put(session.disk);
                let programs = Kept::open(&programs);
                disks.programs.put(programs.map_err(RuntimeError::io("open the list of programs"))?);
                sandbox.exchange([PROGRAMS, SESSION])?;
                sandbox.make(session.show, &programs_at, without)?;
            }
            (None, None) => {}
        }
        Ok(Box::new(sandbox))
    }
}

/// What is damaged is made again by the next who needs it.
fn damaged(path: &Path, error: &std::io::Error) -> RuntimeError {
    let _ = std::fs::remove_file(path);
    let what = format!("what is kept of the programs at {} is damaged: {error}", path.display());
    crate::kernel::refused(what, "it was removed: run this again")
}
