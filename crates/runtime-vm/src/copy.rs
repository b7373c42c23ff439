//! Copies of a template, or of a machine that was kept: their VMM is started first, and they run on from where the other was
//! stopped when all is there.

use crate::image::Kept;
use crate::kernel::refused;
use crate::machine::{Machine, Start};
use crate::memory::{self, Shared, Sharing};
use crate::nbd::Disks;
use crate::pending::{Found, Pending};
use crate::sound;
use crate::template::{Manifest, Parts, Template};
use crate::vmm::{Program, Role, Vmm};
use cofferdam_runtime::{RuntimeError, SandboxSpec};
use std::fs::{self, File};
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

fn io(doing: &'static str) -> impl FnOnce(io::Error) -> RuntimeError {
    RuntimeError::io(doing)
}

/// Nothing begins with it any more. A template is made again by the next who needs one; of a snapshot there is no other.
fn damaged(dir: &Path, system: &Path, error: &io::Error) -> RuntimeError {
    let is_snapshot = crate::snapshot::is_there(dir);
    if !is_snapshot {
        let _ = fs::remove_dir_all(dir);
        let _ = fs::remove_file(system);
    }
    let (kind, fix) = match is_snapshot {
        true => ("snapshot", "remove it with `cofferdam session snapshots --rm`, and take another"),
        false => ("template", "it was removed: run this again, which boots another"),
    };
    refused(format!("the {kind} at {} is damaged: {error}", dir.display()), fix)
}

/// A copy whose VMM has been started, and waits for what it is a copy of.
pub(crate) struct Copied {
    pub(crate) machine: Machine,
    vmm: Box<dyn Vmm>,
    sharing: Sharing,
    state: File,
}

impl Template {
    /// Starts a copy. It runs when it is restored. What is `pending` is looked at meanwhile: its VMM comes to be on one
    /// processor, and another has nothing to do for it once the memory is there.
    pub(crate) fn copy(
        &self,
        parts: &Parts,
        spec: &SandboxSpec,
        (dir, doors): (&Path, bool),
        disks: &Disks,
        pending: &mut Pending,
    ) -> Result<Copied, RuntimeError> {
        let (state, mut sharing) = self.open(&parts.vmm)?;
        pending.start_after(sharing.filled()).map_err(io("look at what the machine is copied from"))?;
        let vmm = self.vmm(parts)?;
        let start = Start {
            spec,
            dir,
            program: &parts.program,
            images: &parts.images(),
            doors,
            vmm: vmm.as_ref(),
            memory: sharing.memory.as_fd(),
            is_lent: sharing.memory.is_lent(),
            kernel: None,
            disks: self.put(disks)?,
        };
        let machine = Machine::start(start).inspect_err(|_| parts.forget(&self.system))?;
        Ok(Copied { machine, vmm, sharing, state })
    }

    /// With the system's disk among them.
    fn put(&self, disks: &Disks) -> Result<Disks, RuntimeError> {
        disks.system.put(Kept::open(&self.system).map_err(io("open the system's image"))?);
        Ok(disks.clone())
    }

    fn open(&self, vmm: &Program) -> Result<(File, Sharing), RuntimeError> {
        let state = File::open(self.dir.join("state")).map_err(io("open the template's state"))?;
        // Root's sandboxes have other users, who can open no file of root's for writing. Where a VMM has its caller's rights
        // it could: it is given memory that is sealed.
        let lends = rustix::process::geteuid().is_root() && vmm.takes_lent();
        let sharing = memory::share(&self.dir.join("ram"), self.manifest.size.memory, lends);
        Ok((state, sharing.map_err(io("share the template's memory"))?))
    }

    fn vmm(&self, parts: &Parts) -> Result<Box<dyn Vmm>, RuntimeError> {
        let Manifest { size, accelerator, processor, command_line, .. } = &self.manifest;
        let vmm = parts.vmm.vmm(Role::Copy, *size, *accelerator, processor, command_line);
        vmm.map_err(io("prepare the VMM"))
    }

    /// Lets a copy run on from where the template was stopped. Whether that is what was written is looked at from then on, with
    /// all else that is `pending`.
    pub(crate) fn restore(
        &self,
        copied: Copied,
        pending: &mut Pending,
    ) -> Result<(Machine, Box<dyn Vmm>), RuntimeError> {
        let Copied { mut machine, mut vmm, sharing, state } = copied;
        let (look, house) = (self.look(sharing.memory.clone()), machine.house.try_clone());
        let look = move || {
            let found = look();
            if let (Found::Bad(_), Ok(house)) = (&found, house) {
                // Nobody waits for what a machine with another memory has to say.
                let _ = house.shutdown(Shutdown::Both);
            }
            found
        };
        self.go_on(&mut machine, vmm.as_mut(), sharing, &state, || pending.add(look))?;
        pending.start().map_err(io("look at what the machine is copied from"))?;
        Ok((machine, vmm))
    }

    /// Whether its memory, and the list of files that belongs to it, are what was written.
    fn look(&self, memory: Arc<Shared>) -> impl FnOnce() -> Found + Send + use<> {
        let (dir, system, sum) = (self.dir.clone(), self.system.clone(), self.manifest.sum);
        move || {
            // Of a snapshot there is no other, and its memory is looked at every time.
            let looked = match crate::snapshot::is_there(&dir) {
                true => memory.check(sum),
                false => sound::once(&dir.join("ram"), || memory.check(sum)),
            };
            match looked.and_then(|()| crate::image::check_once(&system)) {
                Ok(()) => Found::Good,
                Err(error) => Found::Bad(damaged(&dir, &system, &error)),
            }
        }
    }

    /// Ends a machine, and has a copy of this in its place, with the network around it.
    pub(crate) fn restore_in(
        &self,
        machine: &mut Machine,
        parts: &Parts,
        spec: &SandboxSpec,
        disks: &Disks,
    ) -> Result<Box<dyn Vmm>, RuntimeError> {
        let (state, sharing) = self.open(&parts.vmm)?;
        let mut vmm = self.vmm(parts)?;
        let dir = machine.dir().to_owned();
        machine.start_again(Start {
            spec,
            dir: &dir,
            program: &parts.program,
            images: &parts.images(),
            doors: false,
            vmm: vmm.as_ref(),
            memory: sharing.memory.as_fd(),
            is_lent: sharing.memory.is_lent(),
            kernel: None,
            disks: self.put(disks)?,
        })?;
        let look = self.look(sharing.memory.clone());
        self.go_on(machine, vmm.as_mut(), sharing, &state, || ())?;
        match look() {
            Found::Bad(error) => Err(error),
            Found::Good | Found::Stale => Ok(vmm),
        }
    }

    fn go_on(
        &self,
        machine: &mut Machine,
        vmm: &mut dyn Vmm,
        mut sharing: Sharing,
        state: &File,
        filled: impl FnOnce(),
    ) -> Result<(), RuntimeError> {
        let restored = || -> io::Result<()> {
            vmm.greet(machine)?;
            sharing.finish()?;
            filled();
            vmm.load(machine, state)
        };
        restored().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(&self.dir, &self.system, &error),
            _ => RuntimeError::Step {
                step: "restore",
                what: format!("the machine could not be copied: {error}; {}", machine.tail.said()),
                fix: format!("remove {} and try again", self.dir.display()),
            },
        })?;
        machine.shares = Some(sharing.memory);
        Ok(())
    }
}
