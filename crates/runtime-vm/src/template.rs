//! The machine that others are copied from: booted once for each kernel, system, VMM and size, stopped, and kept. A
//! session's machine is a copy of it that shares its memory until it changes it.

use crate::house::House;
use crate::image::Kept;
use crate::kernel::{Kernel, inside_program, refused};
use crate::listing::{self, Listed};
use crate::machine::{Machine, Start, readable};
use crate::memory::{self, Lock};
use crate::nbd::{Disk, Disks};
use crate::pending::Pending;
use crate::stamp;
use crate::vmm::{Accelerator, Kind, Program, Role, Size, Vmm};
use cofferdam_inside::wire::{Ask, FROM_INSIDE, Frame, Tell, VERSION, receive};
use cofferdam_model::{Digest, RawPath};
use cofferdam_runtime::{RuntimeError, SandboxSpec, guest_program};
use cofferdam_runtime_process::Look;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a machine may take to boot before it is given up; tried twice.
pub(crate) const DEADLINE: &str = "COFFERDAM_VM_BOOT_SECONDS";
const BOOT: u64 = 120;
/// For the last words of a VMM.
const LAST: Duration = Duration::from_secs(2);
/// So many are kept; the oldest go.
const KEPT: usize = 6;

/// What a machine is made from.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// Controls to leave out of the inside.
    pub(crate) without: Vec<String>,
    pub(crate) dir: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) vmm: Program,
    pub(crate) kernel: Kernel,
    pub(crate) accelerator: Accelerator,
    /// Why that one.
    pub(crate) why: String,
    pub(crate) size: Size,
}

/// What is written beside a template: nothing of it may be another when it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) vmm: Program,
    pub(crate) accelerator: Accelerator,
    pub(crate) size: Size,
    /// As the VMM knows it.
    #[serde(default)]
    pub(crate) processor: String,
    pub(crate) kernel: String,
    /// Of the kernel's file.
    pub(crate) image: String,
    pub(crate) command_line: String,
    pub(crate) system: String,
    /// Of the state, which is small; the memory is known by its length and time at first.
    pub(crate) state: String,
    pub(crate) memory: (u64, i64, i64),
    /// Of the memory, by which decay is seen.
    pub(crate) sum: u32,
    pub(crate) boot_ms: u64,
}

/// What a template is made for.
struct Making<'a> {
    spec: &'a SandboxSpec,
    git: Option<&'a [u8]>,
    system: &'a Path,
    digest: &'a str,
    kernel: &'a Path,
}

/// A template that is there.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) dir: PathBuf,
    pub(crate) manifest: Manifest,
    /// The list of the system's files.
    pub(crate) system: PathBuf,
}

fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> RuntimeError {
    RuntimeError::io(doing)
}

pub(crate) fn make_dir(path: &Path) -> Result<(), RuntimeError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io(format!("make {}", path.display())))
}

impl Parts {
    fn vmm(&self, role: Role, command_line: &str) -> Result<Box<dyn Vmm>, RuntimeError> {
        let processor = self.vmm.processor(self.accelerator);
        let vmm = self.vmm.vmm(role, self.size, self.accelerator, processor, command_line);
        vmm.map_err(io("prepare the VMM"))
    }

    /// Where disks are kept that had to be written out.
    pub(crate) fn images(&self) -> PathBuf {
        self.dir.join("disks")
    }

    /// A list that could not be written out may be of files that are others by now: it is made again by the next who needs
    /// it. One that belongs to a snapshot is not ours to remove.
    pub(crate) fn forget(&self, system: &Path) {
        if self.vmm.kind == Kind::Firecracker && system.starts_with(self.dir.join("system")) {
            let _ = fs::remove_file(system);
        }
    }

    /// The template for these, which is made if it is not there. Unless one has to be `sure` of it, whether the host is still
    /// as it is shown by it is left to be looked at.
    pub(crate) fn template(
        &self,
        spec: &SandboxSpec,
        look: &Look,
        sure: bool,
    ) -> Result<(Template, Pending), RuntimeError> {
        make_dir(&self.dir)?;
        let (kernel, listed) = beside(|| self.unpacked(), || listing::system(&self.dir, look, sure));
        let (kernel, mut listed) = (kernel?, listed?);
        if !listed.is_sure() {
            let dir = self.place_of(spec, look, &kernel, &listed.digest)?;
            if let Some(found) = self.found(&dir, &listed.path) {
                let mut pending = Pending::default();
                pending.add(listed.look(false));
                return Ok((found, pending));
            }
            listed = listing::system(&self.dir, look, true)?;
        }
        let Listed { path: system, digest, .. } = listed;
        let dir = self.place_of(spec, look, &kernel, &digest)?;
        if let Some(found) = self.found(&dir, &system) {
            return Ok((found, Pending::default()));
        }
        let _lock = Lock::take(&self.dir).map_err(io("wait for our turn"))?;
        if let Some(found) = self.found(&dir, &system) {
            return Ok((found, Pending::default()));
        }
        let git = look.git_identity();
        let making = Making { spec, git, system: &system, digest: &digest, kernel: &kernel };
        // Whoever waits for the first machine needs the list of programs next.
        let list = || listing::programs(&self.dir, look, true).map(drop);
        let (made, _) = beside(|| self.make(&making, &dir), list);
        Ok((made?, Pending::default()))
    }

    /// Where a template of these is kept.
    fn place_of(
        &self,
        spec: &SandboxSpec,
        look: &Look,
        kernel: &Path,
        digest: &str,
    ) -> Result<PathBuf, RuntimeError> {
        let told = self.vmm.command_line(self.accelerator);
        let command = self.vmm(Role::Template, &told)?.argv();
        let mut key = cofferdam_seal::Hasher::new();
        for part in [
            self.vmm.kind.word(),
            &*self.vmm.version,
            &*format!("{:?}", self.size),
            &*kernel.to_string_lossy(),
            digest,
            &*command.join("\n"),
            // Not every VMM has it among its arguments.
            &*told,
            &*format!("{VERSION}"),
            &*spec.home.to_string_lossy(),
        ] {
            key.update(part.as_bytes());
            key.update(&[0]);
        }
        key.update(look.git_identity().unwrap_or_default());
        Ok(self.dir.join("templates").join(short(key.finish())))
    }

    /// Whether a machine of this VMM and kernel came up here before, and is kept.
    pub(crate) fn has_booted(&self) -> bool {
        let kept = fs::read_dir(self.dir.join("templates")).into_iter().flatten().flatten();
        kept.filter_map(|entry| fs::read(entry.path().join("manifest.json")).ok())
            .filter_map(|text| serde_json::from_slice::<Manifest>(&text).ok())
            .any(|manifest| manifest.vmm == self.vmm && manifest.kernel == self.kernel.release)
    }

    fn found(&self, dir: &Path, system: &Path) -> Option<Template> {
        let manifest: Manifest = serde_json::from_slice(&fs::read(dir.join("manifest.json")).ok()?).ok()?;
        let state = fs::read(dir.join("state")).ok()?;
        let memory = stamp(&dir.join("ram"))?;
        let whole = manifest.vmm == self.vmm
            && manifest.memory == memory
            && manifest.state == cofferdam_seal::digest(&state).to_string();
        if !whole {
            // Damaged, or another VMM's: it is of no use to anyone.
            let _ = fs::remove_dir_all(dir);
            return None;
        }
        Some(Template { dir: dir.to_owned(), manifest, system: system.to_owned() })
    }

    /// The kernel without its wrapping, and what it starts with.
    fn unpacked(&self) -> Result<PathBuf, RuntimeError> {
        let mut key = cofferdam_seal::Hasher::new();
        key.update(self.kernel.image.to_string_lossy().as_bytes());
        key.update(format!("{:?} {:?}", stamp(&self.kernel.image), self.kernel.modules).as_bytes());
        // Every run asks this, and it only tells our own builds apart: what is unpacked is checked by digest when it is booted.
        for program in [guest_program(), inside_program()] {
            key.update(format!("{} {:08x}\n", program.len(), crc32fast::hash(program)).as_bytes());
        }
        let dir = self.dir.join("kernels").join(short(key.finish()));
        let there = || dir.join("initrd").is_file() && dir.join("vmlinux").is_file();
        if there() {
            return Ok(dir);
        }
        // Also other threads of this process make it: a pool beside the session that has to wait.
        let _lock = Lock::take(&self.dir).map_err(io("wait for our turn"))?;
        if there() {
            return Ok(dir);
        }
        let making = self.dir.join(format!("kernels/making-{}", std::process::id()));
        let _ = fs::remove_dir_all(&making);
        make_dir(&making)?;
        self.kernel.unpack(&making.join("vmlinux"), &making.join("initrd"))?;
        fs::write(making.join("sums"), sums(&making)?).map_err(io("keep the kernel"))?;
        place(&making, &dir)?;
        Ok(dir)
    }

    fn make(&self, making: &Making<'_>, dir: &Path) -> Result<Template, RuntimeError> {
        if fs::read_to_string(making.kernel.join("sums")).ok() != Some(sums(making.kernel)?) {
            let _ = fs::remove_dir_all(making.kernel);
            let what = format!("the unpacked kernel at {} is damaged", making.kernel.display());
            return Err(refused(what, "it was removed: run this again, which unpacks it anew"));
        }
        let place_of = self.dir.join(format!("templates/making-{}", std::process::id()));
        let mut last = None;
        for _ in 0..2 {
            let _ = fs::remove_dir_all(&place_of);
            make_dir(&place_of)?;
            match self.boot(making, &place_of) {
                Ok(()) => {
                    place(&place_of, dir)?;
                    self.tidy(dir);
                    let kept = self.found(dir, making.system);
                    return kept
                        .ok_or_else(|| refused("the machine that was just booted is gone", "try again"));
                }
                Err(error) => last = Some(error),
            }
        }
        let _ = fs::remove_dir_all(&place_of);
        Err(match last {
            Some(RuntimeError::Step { step, what, fix }) => {
                RuntimeError::Step { step, what: format!("{what} (tried twice)"), fix }
            }
            other => other.unwrap_or_else(|| refused("no machine was booted", "report this")),
        })
    }

    fn boot(&self, making: &Making<'_>, dir: &Path) -> Result<(), RuntimeError> {
        let began = Instant::now();
        let line = self.vmm.command_line(self.accelerator);
        let command_line = line + &self.vmm.clocks(self.accelerator);
        let mut vmm = self.vmm(Role::Template, &command_line)?;
        let memory = memory::own(self.size.memory).map_err(io("make the machine's memory"))?;
        let disk = Disk::default();
        disk.put(Kept::open(making.system).map_err(io("open the system's image"))?);
        let start = Start {
            spec: making.spec,
            dir: &dir.join("run"),
            program: &self.program,
            images: &self.images(),
            doors: false,
            vmm: vmm.as_ref(),
            memory: memory.as_fd(),
            is_lent: false,
            kernel: Some(making.kernel),
            disks: Disks { system: disk, ..Disks::default() },
        };
        let mut machine = Machine::start(start).inspect_err(|_| self.forget(making.system))?;
        let booted = booted(&mut machine, vmm.as_mut())?;
        prepared(&machine, making, self.size)?;
        let file = File::create(dir.join("state")).map_err(io("keep the machine's state"))?;
        vmm.save(&file).map_err(|error| RuntimeError::Step {
            step: "template",
            what: format!("the booted machine could not be kept: {error}; {}", machine.tail.said()),
            fix: "run `cofferdam doctor`".into(),
        })?;
        let _ = machine.end();
        drop(machine);
        let sum = memory::put_down(&memory, &dir.join("ram"), self.size.memory)
            .map_err(io("keep the machine's memory"))?;
        let state = fs::read(dir.join("state")).map_err(io("keep the machine's state"))?;
        let manifest = Manifest {
            vmm: self.vmm.clone(),
            accelerator: self.accelerator,
            size: self.size,
            processor: self.vmm.processor(self.accelerator).to_owned(),
            kernel: booted,
            image: self.kernel.digest()?,
            command_line,
            system: making.digest.to_owned(),
            state: cofferdam_seal::digest(&state).to_string(),
            memory: stamp(&dir.join("ram")).unwrap_or_default(),
            sum,
            boot_ms: began.elapsed().as_millis() as u64,
        };
        let text =
            serde_json::to_vec_pretty(&manifest).map_err(|error| io("keep the template")(error.into()))?;
        fs::write(dir.join("manifest.json"), text).map_err(io("keep the template"))
    }

    /// Keeps the templates that were used last, this one among them.
    fn tidy(&self, own: &Path) {
        let entries = fs::read_dir(self.dir.join("templates")).into_iter().flatten().flatten();
        let mut found: Vec<(i64, PathBuf)> = entries
            .filter(|entry| entry.path() != own)
            .filter_map(|entry| {
                Some((fs::metadata(entry.path().join("manifest.json")).ok()?.mtime(), entry.path()))
            })
            .collect();
        found.sort();
        let over = found.len().saturating_sub(KEPT - 1);
        found.into_iter().take(over).for_each(|(_, path)| _ = fs::remove_dir_all(path));
    }
}

/// Does both at the same time.
fn beside<A, B: Send>(
    one: impl FnOnce() -> A,
    other: impl FnOnce() -> Result<B, RuntimeError> + Send,
) -> (A, Result<B, RuntimeError>) {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let gone = |_| Err(refused("the host's files were not listed", "report this"));
        (one, other.join().unwrap_or_else(gone))
    })
}

/// What an unpacked kernel is, and what it starts with.
fn sums(dir: &Path) -> Result<String, RuntimeError> {
    let sum = |name: &str| fs::read(dir.join(name)).map(|bytes| cofferdam_seal::digest(&bytes).to_string());
    let both = sum("vmlinux").and_then(|kernel| Ok(format!("{kernel} {}", sum("initrd")?)));
    both.map_err(io("read the unpacked kernel"))
}

pub(crate) fn short(digest: Digest) -> String {
    digest.to_string().chars().filter(char::is_ascii_hexdigit).rev().take(24).collect()
}

/// Gives what was made its name. Someone else may have been quicker.
pub(crate) fn place(making: &Path, dir: &Path) -> Result<(), RuntimeError> {
    match fs::rename(making, dir) {
        Err(_) if dir.is_dir() => {
            let _ = fs::remove_dir_all(making);
            Ok(())
        }
        other => other.map_err(io(format!("keep {}", dir.display()))),
    }
}

fn patience() -> Duration {
    let asked = std::env::var(DEADLINE).ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(BOOT))
}

/// Waits until the program inside has called; says which kernel it runs on.
fn booted(machine: &mut Machine, vmm: &mut dyn Vmm) -> Result<String, RuntimeError> {
    let until = Instant::now() + patience();
    let failed = |what: String| RuntimeError::Step {
        step: "boot",
        what,
        fix: format!("set {DEADLINE} to more seconds on a busy host, or run `cofferdam doctor`"),
    };
    let begun = vmm.greet(machine).and_then(|()| vmm.boot(machine, until));
    begun.map_err(|error| {
        // What it has to say of it may come after it is gone.
        let _ = readable(&[machine.ended()], Instant::now() + LAST);
        let how = if Instant::now() > until { "did not boot in time" } else { "ended while it booted" };
        failed(format!("the machine {how} ({error}): {}", machine.tail.said()))
    })?;
    match readable(&[machine.house.as_fd(), machine.ended()], until).map_err(io("wait for the machine"))? {
        None => {
            let said = machine.tail.said();
            return Err(failed(format!(
                "the machine did not boot within {} s: {said}",
                patience().as_secs()
            )));
        }
        Some(0) => {}
        Some(_) => return Err(failed(format!("the machine ended while it booted: {}", machine.tail.said()))),
    }
    machine.house.set_read_timeout(Some(Duration::from_secs(10))).map_err(io("wait for the machine"))?;
    match receive(&mut machine.house, FROM_INSIDE) {
        Ok(Frame::Message(Tell::Booted { version: VERSION, kernel })) => Ok(kernel),
        Ok(_) => Err(failed("the machine runs another version of the program inside".into())),
        Err(error) => {
            Err(failed(format!("the machine ended while it booted ({error}): {}", machine.tail.said())))
        }
    }
}

/// Has the program inside do all that can be done before anyone comes.
fn prepared(machine: &Machine, making: &Making<'_>, size: Size) -> Result<(), RuntimeError> {
    let failed = |what: String| RuntimeError::Step {
        step: "prepare",
        what,
        fix: format!("set {DEADLINE} to more seconds on a busy host, or run `cofferdam doctor`"),
    };
    let home = RawPath::from(making.spec.home.as_path());
    let ask = Ask::Prepare { home, git: making.git.map(<[u8]>::to_vec), room: size.room() };
    let house = machine.house.try_clone().and_then(House::new);
    let told = house.and_then(|mut house| house.ask(&ask, patience(), machine.ended()));
    match told {
        Ok(Tell::Done) => Ok(()),
        Ok(Tell::Refused { what, .. }) => Err(failed(format!("the machine is not ready: {what}"))),
        Ok(_) => Err(failed("the machine answers something else".into())),
        Err(error) => Err(failed(format!("the machine is not ready ({error}): {}", machine.tail.said()))),
    }
}
