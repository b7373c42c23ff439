//! The machine that others are copied from: booted once for each kernel, system, VMM and size, stopped, and kept. A
//! session's machine is a copy of it that shares its memory until it changes it.

use crate::image::{Image, Kept, Taken, Tree, holds, witness};
use crate::kernel::{Kernel, refused};
use crate::machine::{Machine, Start, readable};
use crate::nbd::Disk;
use crate::qemu::{self, Accelerator, Qemu, Role, Size};
use crate::qmp::Qmp;
use crate::wire::{FROM_INSIDE, Frame, Tell, VERSION, receive};
use cofferdam_model::Digest;
use cofferdam_runtime::{RuntimeError, SandboxSpec, guest_program};
use cofferdam_runtime_process::Look;
use rustix::fs::{FlockOperation, MemfdFlags, SealFlags, SeekFrom};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a machine may take to boot before it is given up; tried twice.
pub(crate) const DEADLINE: &str = "COFFERDAM_VM_BOOT_SECONDS";
const BOOT: u64 = 120;
/// So many are kept; the oldest go.
const KEPT: usize = 6;

/// What a machine is made from.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// Controls to leave out of the inside.
    pub(crate) without: Vec<String>,
    pub(crate) dir: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) qemu: Qemu,
    pub(crate) kernel: Kernel,
    pub(crate) accelerator: Accelerator,
    pub(crate) size: Size,
}

/// What is written beside a template: nothing of it may be another when it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) vmm: Qemu,
    pub(crate) accelerator: Accelerator,
    pub(crate) size: Size,
    pub(crate) kernel: String,
    pub(crate) command_line: String,
    pub(crate) system: String,
    /// Of the state, which is small; the memory is known by its length and time.
    pub(crate) state: String,
    pub(crate) memory: (u64, i64, i64),
    pub(crate) boot_ms: u64,
}

/// A template that is there.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) dir: PathBuf,
    pub(crate) manifest: Manifest,
    system: PathBuf,
}

fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> RuntimeError {
    RuntimeError::io(doing)
}

fn make_dir(path: &Path) -> Result<(), RuntimeError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io(format!("make {}", path.display())))
}

/// Held while anything is made that others would make too.
struct Lock(#[expect(dead_code, reason = "held, not used")] File);

impl Lock {
    fn take(dir: &Path) -> Result<Self, RuntimeError> {
        let path = dir.join("lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(io(format!("open {}", path.display())))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| io("wait for our turn")(errno.into()))?;
        Ok(Self(file))
    }
}

impl Parts {
    /// The template for these, which is made if it is not there.
    pub(crate) fn template(&self, spec: &SandboxSpec, look: &Look) -> Result<Template, RuntimeError> {
        make_dir(&self.dir)?;
        let kernel = self.unpacked()?;
        let (system, digest) = self.system(look)?;
        let command = self.qemu.argv(Role::Template, self.size, self.accelerator, "");
        let mut key = cofferdam_seal::Hasher::new();
        for part in [
            &*self.qemu.version,
            &*kernel.to_string_lossy(),
            &*digest,
            &*command.join("\n"),
            &*format!("{VERSION}"),
        ] {
            key.update(part.as_bytes());
            key.update(&[0]);
        }
        let key = short(key.finish());
        let dir = self.dir.join("templates").join(key);
        if let Some(found) = self.found(&dir, &system) {
            return Ok(found);
        }
        let _lock = Lock::take(&self.dir)?;
        if let Some(found) = self.found(&dir, &system) {
            return Ok(found);
        }
        self.make(spec, &dir, &system, &digest, &kernel)
    }

    /// Whether a machine of this VMM and kernel came up here before, and is kept.
    pub(crate) fn has_booted(&self) -> bool {
        let kept = fs::read_dir(self.dir.join("templates")).into_iter().flatten().flatten();
        kept.filter_map(|entry| fs::read(entry.path().join("manifest.json")).ok())
            .filter_map(|text| serde_json::from_slice::<Manifest>(&text).ok())
            .any(|manifest| manifest.vmm == self.qemu && manifest.kernel == self.kernel.release)
    }

    fn found(&self, dir: &Path, system: &Path) -> Option<Template> {
        let manifest: Manifest = serde_json::from_slice(&fs::read(dir.join("manifest.json")).ok()?).ok()?;
        let state = fs::read(dir.join("state")).ok()?;
        let memory = stamp(&dir.join("ram"))?;
        let whole = manifest.vmm == self.qemu
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
        key.update(cofferdam_seal::digest(guest_program()).as_bytes());
        let dir = self.dir.join("kernels").join(short(key.finish()));
        if dir.join("initrd").is_file() && dir.join("vmlinux").is_file() {
            return Ok(dir);
        }
        let making = self.dir.join(format!("kernels/making-{}", std::process::id()));
        let _ = fs::remove_dir_all(&making);
        make_dir(&making)?;
        self.kernel.unpack(&making.join("vmlinux"), &making.join("initrd"))?;
        place(&making, &dir)?;
        Ok(dir)
    }

    /// The system's image: the one that was made last, where no directory has changed since, or another.
    fn system(&self, look: &Look) -> Result<(PathBuf, String), RuntimeError> {
        let dir = self.dir.join("system");
        let of = format!("{}\n{:?}\n{:?}\n", self.program.display(), stamp(&self.program), look.dirs);
        let kept = fs::read_to_string(dir.join("digest")).ok().filter(|digest| dir.join(digest).is_file());
        let same = fs::read(dir.join("of")).is_ok_and(|kept| kept == of.as_bytes());
        if let Some(digest) =
            kept.filter(|_| same && fs::read(dir.join("seen")).is_ok_and(|seen| holds(&seen)))
        {
            return Ok((dir.join(&digest), digest));
        }
        let tree = system_tree(look, &self.program)?;
        let image = Image::of(&tree)
            .ok_or_else(|| refused("the system has too many files for an image", "use another tier"))?;
        let digest = short(image.digest());
        make_dir(&dir)?;
        let write = |name: &str, bytes: &dyn Fn(&mut File) -> io::Result<()>| -> io::Result<()> {
            let making = dir.join(format!("{name}.{}", std::process::id()));
            bytes(&mut File::create(&making)?)?;
            fs::rename(making, dir.join(name))
        };
        let written = write(&digest, &|file| image.keep(file))
            .and_then(|()| write("seen", &|file| io::Write::write_all(file, &witness(&tree))))
            .and_then(|()| write("of", &|file| io::Write::write_all(file, of.as_bytes())))
            .and_then(|()| write("digest", &|file| io::Write::write_all(file, digest.as_bytes())));
        written.map_err(io("keep the system's image"))?;
        Ok((dir.join(&digest), digest))
    }

    fn make(
        &self,
        spec: &SandboxSpec,
        dir: &Path,
        system: &Path,
        digest: &str,
        kernel: &Path,
    ) -> Result<Template, RuntimeError> {
        let making = self.dir.join(format!("templates/making-{}", std::process::id()));
        let mut last = None;
        for _ in 0..2 {
            let _ = fs::remove_dir_all(&making);
            make_dir(&making)?;
            match self.boot(spec, &making, system, digest, kernel) {
                Ok(()) => {
                    place(&making, dir)?;
                    self.tidy(dir);
                    let kept = self.found(dir, system);
                    return kept
                        .ok_or_else(|| refused("the machine that was just booted is gone", "try again"));
                }
                Err(error) => last = Some(error),
            }
        }
        let _ = fs::remove_dir_all(&making);
        Err(last.unwrap_or_else(|| refused("no machine was booted", "report this")))
    }

    fn boot(
        &self,
        spec: &SandboxSpec,
        dir: &Path,
        system: &Path,
        digest: &str,
        kernel: &Path,
    ) -> Result<(), RuntimeError> {
        let began = Instant::now();
        let command_line = qemu::command_line(self.accelerator);
        let memory = memory(self.size.memory).map_err(io("make the machine's memory"))?;
        let disk = Disk::default();
        disk.put(Kept::open(system).map_err(io("open the system's image"))?);
        let start = Start {
            spec,
            dir: &dir.join("run"),
            program: &self.program,
            doors: false,
            argv: self.qemu.argv(Role::Template, self.size, self.accelerator, &command_line),
            memory: memory.as_fd(),
            kernel: Some(kernel),
            system: disk,
            session: Disk::default(),
        };
        let mut machine = Machine::start(start)?;
        let booted = booted(&mut machine)?;
        self.stop(&mut machine, dir)?;
        let _ = machine.end();
        drop(machine);
        let ram = OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join("ram"));
        ram.and_then(|ram| copy_memory(&memory, &ram, self.size.memory))
            .map_err(io("keep the machine's memory"))?;
        let state = fs::read(dir.join("state")).map_err(io("keep the machine's state"))?;
        let manifest = Manifest {
            vmm: self.qemu.clone(),
            accelerator: self.accelerator,
            size: self.size,
            kernel: booted,
            command_line,
            system: digest.to_owned(),
            state: cofferdam_seal::digest(&state).to_string(),
            memory: stamp(&dir.join("ram")).unwrap_or_default(),
            boot_ms: began.elapsed().as_millis() as u64,
        };
        let text =
            serde_json::to_vec_pretty(&manifest).map_err(|error| io("keep the template")(error.into()))?;
        fs::write(dir.join("manifest.json"), text).map_err(io("keep the template"))
    }

    /// Stops the machine where it is, and writes down all of it but its memory, which is a file already.
    fn stop(&self, machine: &mut Machine, dir: &Path) -> Result<(), RuntimeError> {
        let failed = |error: io::Error| RuntimeError::Step {
            step: "template",
            what: format!("the booted machine could not be kept: {error}; {}", machine.tail.said()),
            fix: "run `cofferdam doctor`".into(),
        };
        let file = File::create(dir.join("state")).map_err(io("keep the machine's state"))?;
        let stopped = || -> io::Result<()> {
            let mut monitor = Qmp::new(machine.monitor.try_clone()?, Duration::from_secs(60))?;
            monitor.ask("stop", json!({}))?;
            monitor.ask("migrate-set-capabilities", json!({ "capabilities": ignore_shared() }))?;
            monitor.give("state", file.as_fd())?;
            monitor.ask("migrate", json!({ "uri": "fd:state" }))?;
            monitor.migrated(Instant::now() + Duration::from_secs(60))
        };
        stopped().map_err(failed)
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

fn ignore_shared() -> serde_json::Value {
    json!([{ "capability": "x-ignore-shared", "state": true }])
}

fn short(digest: Digest) -> String {
    digest.to_string().chars().filter(char::is_ascii_hexdigit).rev().take(24).collect()
}

fn stamp(path: &Path) -> Option<(u64, i64, i64)> {
    fs::metadata(path).ok().map(|meta| (meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// Gives what was made its name. Someone else may have been quicker.
fn place(making: &Path, dir: &Path) -> Result<(), RuntimeError> {
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
fn booted(machine: &mut Machine) -> Result<String, RuntimeError> {
    let until = Instant::now() + patience();
    let failed = |what: String| RuntimeError::Step {
        step: "boot",
        what,
        fix: format!("set {DEADLINE} to more seconds on a busy host, or run `cofferdam doctor`"),
    };
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

/// What every session of this user may see of the system, and the program that goes on inside.
fn system_tree(look: &Look, program: &Path) -> Result<Tree, RuntimeError> {
    let mut tree = Tree::new();
    for name in ["dev", "proc", "sys", "run", "tmp", "home", "root", "mnt", "srv"] {
        tree.dir(Path::new(name));
    }
    let public = |hidden| Taken { hidden, public: true, ..Taken::default() };
    for dir in &look.dirs {
        let below = |path: &PathBuf| path.strip_prefix(dir).ok().map(Path::to_owned);
        let hidden = look.masked.iter().filter_map(below).collect();
        tree.take(dir, dir, &public(hidden)).map_err(io(format!("look at {}", dir.display())))?;
    }
    for (path, to) in &look.links {
        tree.link(path, to);
    }
    let inside = Path::new(".cofferdam/program");
    tree.take(inside, program, &Taken::default()).map_err(io(format!("look at {}", program.display())))?;
    tree.set_mode(inside, 0o755);
    Ok(tree)
}

impl Template {
    /// Starts a copy, and lets it run up to where the template was stopped.
    pub(crate) fn copy(
        &self,
        parts: &Parts,
        spec: &SandboxSpec,
        dir: &Path,
        doors: bool,
        session: Disk,
    ) -> Result<(Machine, Qmp), RuntimeError> {
        let open = |name: &str| {
            let path = self.dir.join(name);
            File::open(&path).map_err(io(format!("open {}", path.display())))
        };
        let (state, ram) = (open("state")?, open("ram")?);
        let ram =
            private_memory(&ram, self.manifest.size.memory).map_err(io("share the template's memory"))?;
        let disk = Disk::default();
        disk.put(Kept::open(&self.system).map_err(io("open the system's image"))?);
        let start = Start {
            spec,
            dir,
            program: &parts.program,
            doors,
            argv: parts.qemu.argv(
                Role::Copy,
                self.manifest.size,
                self.manifest.accelerator,
                &self.manifest.command_line,
            ),
            memory: ram.as_fd(),
            kernel: None,
            system: disk,
            session,
        };
        let machine = Machine::start(start)?;
        let restored = || -> io::Result<Qmp> {
            let mut monitor = Qmp::new(machine.monitor.try_clone()?, Duration::from_secs(60))?;
            monitor.ask("migrate-set-capabilities", json!({ "capabilities": ignore_shared() }))?;
            monitor.give("state", state.as_fd())?;
            monitor.ask("migrate-incoming", json!({ "uri": "fd:state" }))?;
            monitor.migrated(Instant::now() + Duration::from_secs(60))?;
            monitor.ask("cont", json!({}))?;
            Ok(monitor)
        };
        let monitor = restored().map_err(|error| RuntimeError::Step {
            step: "restore",
            what: format!("the machine could not be copied: {error}; {}", machine.tail.said()),
            fix: format!("remove {} and try again", self.dir.display()),
        })?;
        Ok((machine, monitor))
    }
}

fn memory(size: u64) -> io::Result<File> {
    let memory = rustix::fs::memfd_create(c"cofferdam-vm", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, size)?;
    Ok(File::from(memory))
}

/// What has something in it; the rest stays holes.
fn copy_memory(from: &File, to: &File, size: u64) -> io::Result<()> {
    to.set_len(size)?;
    let mut bytes = vec![0u8; 1 << 20];
    let mut at = 0;
    while at < size {
        at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(at) => at,
            Err(rustix::io::Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(at))?.min(size);
        while at < end {
            let most = bytes.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let part = bytes.get_mut(..most).unwrap_or_default();
            from.read_exact_at(part, at)?;
            to.write_all_at(part, at)?;
            at += most as u64;
        }
    }
    Ok(())
}

/// The template's memory as a file that nobody can write to, not even who opens it for writing: a copy maps it for
/// itself, and whoever breaks out of one cannot change what others begin with.
fn private_memory(from: &File, size: u64) -> io::Result<File> {
    let memory = memory(size)?;
    copy_memory(from, &memory, size)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    Ok(memory)
}
