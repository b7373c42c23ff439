//! A machine as it is at a moment, with all that runs in it: written down in the form of a template, so that sessions
//! that begin with it share its memory as they would share a template's.
//!
//! The machine itself stands still meanwhile. How its memory, which is its own, comes to be a file is its VMM's to know.

use crate::house::House;
use crate::identity;
use crate::image::{self, Kept};
use crate::kernel::refused;
use crate::machine::Machine;
use crate::memory::{self, Known};
use crate::nbd::Disks;
use crate::standing::Standing;
use crate::template::{Manifest, Parts, Template};
use crate::vmm::{Vmm, WANTED};
use cofferdam_inside::wire::{Ask, Made, Tell, VERSION};
use cofferdam_inside::{PROGRAMS, SESSION};
use cofferdam_model::SessionId;
use cofferdam_runtime::RuntimeError;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const NAME: &str = "machine.json";
const PATIENCE: Duration = Duration::from_secs(120);

/// What is written beside a machine that was kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) manifest: Manifest,
    /// Of its memory, page by page.
    pub(crate) memory: String,
    /// What its inside said of itself when it was made.
    pub(crate) made: Made,
    /// Transactions that were open.
    pub(crate) depth: usize,
    /// How the programs in it speak.
    #[serde(default)]
    wire: u32,
}

fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> RuntimeError {
    RuntimeError::io(doing)
}

/// What is to be kept.
pub(crate) struct Taken<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) made: &'a Made,
    pub(crate) depth: usize,
    pub(crate) disks: &'a Disks,
    /// The list of the system's files.
    pub(crate) system: &'a Path,
    pub(crate) machine: &'a Machine,
}

impl Taken<'_> {
    /// Writes the machine down in the directory `to`, which is not there. It stands still from the first line to the
    /// last; whatever goes wrong, nothing is left of it and the machine is as it was.
    pub(crate) fn keep(&self, vmm: &mut dyn Vmm, to: &Path) -> Result<(), RuntimeError> {
        let making = to.with_extension("making");
        let _ = fs::remove_dir_all(&making);
        let kept = self.write(vmm, &making).and_then(|()| {
            fs::rename(&making, to).map_err(io(format!("keep the machine as {}", to.display())))
        });
        match &kept {
            Ok(()) => found_whole(&to.join("ram")),
            Err(_) => _ = fs::remove_dir_all(&making),
        }
        kept
    }

    fn write(&self, vmm: &mut dyn Vmm, dir: &Path) -> Result<(), RuntimeError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(io(format!("make {}", dir.display())))?;
        let state = File::create_new(dir.join("state")).map_err(io("keep the machine's state"))?;
        let kept = vmm.keep(&state).and_then(|ram| self.memory(ram, &dir.join("ram")));
        let kept = kept.map_err(|error| RuntimeError::Step {
            step: "snapshot",
            what: format!("the machine could not be kept: {error}; {}", self.machine.tail.said()),
            fix: "try again, or run `cofferdam doctor`".into(),
        })?;
        for (name, disk) in [(SESSION, &self.disks.session), (PROGRAMS, &self.disks.programs)] {
            disk.keep(&dir.join(name)).map_err(io(format!("keep the list of the {name}")))?;
        }
        fs::copy(self.system, dir.join("system")).map_err(io("keep the list of the system's files"))?;
        let bytes = fs::read(dir.join("state")).map_err(io("keep the machine's state"))?;
        let manifest = Manifest {
            state: cofferdam_seal::digest(&bytes).to_string(),
            memory: crate::stamp(&dir.join("ram")).unwrap_or_default(),
            sum: kept.sum,
            ..self.manifest.clone()
        };
        let (made, depth) = (self.made.clone(), self.depth);
        let snapshot = Snapshot { manifest, memory: kept.digest, made, depth, wire: VERSION };
        let text = serde_json::to_vec_pretty(&snapshot)
            .map_err(|error| io("keep the machine's description")(error.into()))?;
        fs::write(dir.join(NAME), text).map_err(io("keep the machine's description"))
    }

    /// Writes its memory down: what its VMM has made of it, or where the machine has it.
    fn memory(&self, ram: Option<File>, to: &Path) -> io::Result<Known> {
        let size = self.manifest.size.memory;
        if let Some(ram) = ram {
            let kept = memory::keep(&ram, to, size)?;
            // Its room is given back, also where the VMM still has it open.
            return ram.set_len(0).map(|()| kept);
        }
        memory::keep(&Standing::of(self.machine, size)?, to, size)
    }
}

/// Who a machine is that lives for a moment, beside the one it is about.
pub(crate) fn stand_in() -> Result<SessionId, RuntimeError> {
    let mark = identity::mark()?;
    let random = mark.0.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Ok(SessionId::new(identity::clock().seconds.unsigned_abs() * 1000, random))
}

/// Machines that were written or found whole by this process, by their memory and its time.
static WHOLE: LazyLock<Mutex<Vec<Whole>>> = LazyLock::new(Mutex::default);

type Whole = (PathBuf, (u64, i64, i64));

fn whole() -> MutexGuard<'static, Vec<Whole>> {
    WHOLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// That this memory was written, or read to its end, by this process.
fn found_whole(ram: &Path) {
    let mut whole = whole();
    whole.retain(|(path, _)| path.is_file() && path != ram);
    whole.extend(crate::stamp(ram).map(|stamp| (ram.to_owned(), stamp)));
}

/// Whether a layer is a machine that was kept.
pub fn is_there(layer: &Path) -> bool {
    layer.join(NAME).is_file()
}

/// Opens a machine that was kept. One of another VMM, or that is damaged, is refused by name.
pub(crate) fn open(dir: &Path, parts: &Parts) -> Result<(Template, Snapshot), RuntimeError> {
    let here = &parts.vmm;
    let damaged = |what: &str| {
        let what = format!("the snapshot at {} is damaged: {what}", dir.display());
        refused(what, "remove it with `cofferdam session snapshots --rm`, and take another")
    };
    let text = fs::read(dir.join(NAME)).map_err(|_| damaged("its description cannot be read"))?;
    let snapshot: Snapshot = serde_json::from_slice(&text).map_err(|_| damaged("its description is none"))?;
    let of = &snapshot.manifest.vmm;
    if of != here {
        let what = format!(
            "the snapshot at {} is of {} {}, and here is {} {}",
            dir.display(),
            of.kind.name(),
            of.version,
            here.kind.name(),
            here.version
        );
        let fix = match of.kind == here.kind {
            true => format!("use that {} ({}), or take another snapshot", of.kind.name(), of.kind.setting()),
            false => format!("set {WANTED} to {}, or take another snapshot", of.kind.word()),
        };
        return Err(refused(what, fix));
    }
    if snapshot.wire != VERSION {
        let what = format!("the snapshot at {} was taken by another version of cofferdam", dir.display());
        return Err(refused(what, "use that version, or take another snapshot"));
    }
    if snapshot.manifest.image != parts.kernel.digest()? {
        let (of, here) = (&snapshot.manifest.kernel, &parts.kernel.release);
        let what = format!("the snapshot at {} is of another kernel ({of}, here {here})", dir.display());
        return Err(refused(what, "use that kernel (COFFERDAM_VM_KERNEL), or take another snapshot"));
    }
    let state = fs::read(dir.join("state")).map_err(|_| damaged("its state cannot be read"))?;
    if cofferdam_seal::digest(&state).to_string() != snapshot.manifest.state {
        return Err(damaged("its state is not what was written"));
    }
    let ram = dir.join("ram");
    let stamp = crate::stamp(&ram).ok_or_else(|| damaged("its memory is gone"))?;
    if !whole().contains(&(ram.clone(), stamp)) {
        if memory::digest(&ram).ok().as_deref() != Some(&*snapshot.memory) {
            return Err(damaged("its memory is not what was written"));
        }
        found_whole(&ram);
    }
    for list in [SESSION, PROGRAMS] {
        image::check(&dir.join(list))
            .map_err(|error| damaged(&format!("its list of the {list}: {error}")))?;
    }
    let manifest = snapshot.manifest.clone();
    Ok((Template { dir: dir.to_owned(), manifest, system: dir.join("system") }, snapshot))
}

/// Puts the lists of files on the disks that it had.
pub(crate) fn put(dir: &Path, disks: &Disks) -> Result<(), RuntimeError> {
    for (name, disk) in [(SESSION, &disks.session), (PROGRAMS, &disks.programs)] {
        disk.put(Kept::open(&dir.join(name)).map_err(io(format!("open the list of the {name}")))?);
    }
    Ok(())
}

/// Why a machine cannot be kept now.
pub(crate) enum Unquiet {
    Busy(RuntimeError),
    Lost(io::Error),
}

/// Waits until nothing is on its way to the guest, so that no copy begins in the middle of a word.
pub(crate) fn quiet(machine: &Machine, house: &mut House) -> Result<(), Unquiet> {
    let until = Instant::now() + Duration::from_secs(5);
    while cofferdam_sys::machine::unread(machine.channel.as_fd()).unwrap_or(0) > 0 || !machine.is_all_got() {
        if Instant::now() > until {
            let what = "the guest does not read what is sent to it";
            return Err(Unquiet::Busy(refused(what, "try again")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    match house.ask(&Ask::Quiet, PATIENCE, machine.ended()) {
        Ok(Tell::Done) => Ok(()),
        Ok(Tell::Refused { what, fix }) => Err(Unquiet::Busy(refused(what, fix))),
        Ok(_) => Err(Unquiet::Lost(io::ErrorKind::InvalidData.into())),
        Err(error) => Err(Unquiet::Lost(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::vmm::{Accelerator, Kind, Program, Size};
    use cofferdam_model::{EnforcementReport, RawPath, Tier};

    #[test]
    fn one_of_another_vmm_or_version_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let size = Size { memory: 1 << 20, processors: 1 };
        let of = |vmm: Program, wire: u32| {
            let manifest = Manifest {
                vmm,
                accelerator: Accelerator::Kvm,
                size,
                kernel: String::new(),
                image: String::new(),
                processor: "max".into(),
                command_line: String::new(),
                system: String::new(),
                state: String::new(),
                memory: (0, 0, 0),
                sum: 0,
                boot_ms: 0,
            };
            let report =
                EnforcementReport { tier: Tier::Microvm, kernel: String::new(), controls: Vec::new() };
            let home = RawPath::from(Path::new("/"));
            let made = Made { report, name: String::new(), uid: 0, gid: 0, home };
            let snapshot = Snapshot { manifest, memory: String::new(), made, depth: 0, wire };
            fs::write(dir.path().join(NAME), serde_json::to_vec(&snapshot).unwrap()).unwrap();
        };
        let here = |vmm: Program| Parts {
            without: Vec::new(),
            dir: dir.path().to_owned(),
            program: PathBuf::new(),
            vmm,
            kernel: Kernel { release: String::new(), image: PathBuf::new(), modules: None },
            accelerator: Accelerator::Kvm,
            why: String::new(),
            size,
        };
        let check = |of_it: (Kind, &str), at: (Kind, &str), expected: &[&str]| {
            of(Program::of_version(of_it.0, of_it.1), VERSION);
            let said = open(dir.path(), &here(Program::of_version(at.0, at.1))).unwrap_err();
            let RuntimeError::Refused { what, fix } = said else { panic!("{said}") };
            assert!(expected.iter().all(|part| what.contains(part) || fix.contains(part)), "{what}; {fix}");
        };
        let (qemu, small) = ((Kind::Qemu, "9.0.0"), (Kind::Firecracker, "1.9.0"));
        check(
            small,
            qemu,
            &["is of Firecracker 1.9.0, and here is QEMU 9.0.0", "COFFERDAM_VM_VMM to firecracker"],
        );
        check(qemu, small, &["is of QEMU 9.0.0, and here is Firecracker 1.9.0", "COFFERDAM_VM_VMM to qemu"]);
        check(
            small,
            (Kind::Firecracker, "1.10.0"),
            &["here is Firecracker 1.10.0", "COFFERDAM_VM_FIRECRACKER"],
        );
        // What speaks in it was another's.
        for wire in [0, VERSION - 1, VERSION + 1] {
            of(Program::of_version(qemu.0, qemu.1), wire);
            let said = open(dir.path(), &here(Program::of_version(qemu.0, qemu.1))).unwrap_err().to_string();
            assert!(said.contains("was taken by another version of cofferdam"), "{said}");
        }
    }
}
