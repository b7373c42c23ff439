//! Firecracker: which one is here, how it is started, and what it is told over its socket. It opens by name what others
//! are handed: so its memory and state are files in memory that it finds under names in its sandbox, its disks are files,
//! and its machine is spoken to over vsock.
//!
//! It runs in the sandbox that stands around every VMM, without its own jailer: that closes whatever it is handed, and
//! asks for capabilities that nobody here has.

mod api;
#[cfg(test)]
mod double;
#[cfg(test)]
mod tests;

use crate::ask::{API, VSOCK, Want};
use crate::kernel::refused;
use crate::machine::{FILES, KERNEL, Machine, PLACE, SHOWN};
use crate::memory;
use crate::vmm::{Accelerator, Kind, Program, Role, Size, Told, Vmm, Wiring};
use api::Api;
use cofferdam_inside::{DISKS, NUMBERED};
use cofferdam_runtime::RuntimeError;
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Names a Firecracker to use instead of the one in the search path.
pub(crate) const NAMED: &str = "COFFERDAM_VM_FIRECRACKER";
const NAME: &str = "firecracker";
pub(crate) const FIX: &str =
    "put a release of Firecracker in the search path, or use QEMU (COFFERDAM_VM_VMM=qemu)";
/// For every answer; to write a machine's memory down takes the longest.
const PATIENCE: Duration = Duration::from_secs(120);
/// Until its socket is there, and until a copy takes calls.
const SOON: Duration = Duration::from_secs(30);
/// The machine's own number on its vsock: the first that is nobody else's.
const CID: u32 = 3;
/// The first that has everything that is asked of it here.
const OLDEST: (u32, u32) = (1, 5);
/// Of a machine's state.
const STATE: u64 = 64 << 20;

/// Files in memory, by the names under which they are handed over.
const RAM: &str = "ram";
const LOADED: &str = "state";
const KEPT_RAM: &str = "kept-ram";
const KEPT: &str = "kept-state";

pub(crate) fn place(env: &dyn Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, RuntimeError> {
    if let Some(named) = env(NAMED) {
        return Ok(named);
    }
    let path = env("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(NAME)).find(|path| path.is_file());
    found.ok_or_else(|| refused(format!("{NAME} is not installed"), FIX))
}

pub(crate) fn version(path: &Path) -> Result<String, RuntimeError> {
    let failed = |what: String| refused(format!("{} cannot be used: {what}", path.display()), FIX);
    let said = Command::new(path).arg("--version").output().map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let first = text.lines().next().unwrap_or_default();
    let version = first.strip_prefix("Firecracker v").map(str::trim);
    let version = version.ok_or_else(|| failed(format!("it says `{first}`")))?;
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let numbers = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match numbers >= OLDEST {
        true => Ok(version.to_owned()),
        false => Err(failed(format!("it is {version}, and {}.{} is needed", OLDEST.0, OLDEST.1))),
    }
}

/// What the kernel is told: as under QEMU, but for how it ends, and that nothing here has a name.
pub(crate) fn command_line() -> String {
    let line = crate::qemu::command_line(Accelerator::Kvm, (0, 0)).replace("reboot=t", "reboot=k");
    format!("{line} {NUMBERED}")
}

fn named(name: &str) -> String {
    format!("{PLACE}/{name}")
}

/// One, from its command line to its end.
#[derive(Debug)]
pub(crate) struct Firecracker {
    program: Program,
    role: Role,
    size: Size,
    command_line: String,
    api: Option<Api>,
    /// What it begins with, or writes down once.
    state: File,
    /// What it writes down when it is to be kept.
    kept: [File; 2],
}

impl Firecracker {
    pub(crate) fn new(program: &Program, role: Role, size: Size, command_line: &str) -> io::Result<Self> {
        let (program, command_line) = (program.clone(), command_line.to_owned());
        let (state, kept) = (memory::own(0)?, [memory::own(0)?, memory::own(0)?]);
        Ok(Self { program, role, size, command_line, api: None, state, kept })
    }

    fn api(&mut self) -> io::Result<&mut Api> {
        self.api.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn begin(&mut self, api: Api) -> io::Result<()> {
        let api = self.api.insert(api);
        let told = api.get("/version")?;
        let version = told.get("firecracker_version").and_then(Value::as_str).unwrap_or_default();
        match version == self.program.version {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "Firecracker says that it is {version}, and was {} when it was found",
                self.program.version
            ))),
        }
    }

    /// Everything that a machine has, before it begins.
    fn configure(&mut self) -> io::Result<()> {
        let Size { memory, processors } = self.size;
        let boot_args = self.command_line.clone();
        let api = self.api()?;
        api.put(
            "/machine-config",
            &json!({ "vcpu_count": processors, "mem_size_mib": memory >> 20, "smt": false }),
        )?;
        api.put(
            "/boot-source",
            &json!({
                "kernel_image_path": format!("{KERNEL}/vmlinux"),
                "initrd_path": format!("{KERNEL}/initrd"),
                "boot_args": boot_args,
            }),
        )?;
        // In this order they are found inside.
        for name in DISKS {
            api.put(
                &format!("/drives/{name}"),
                &json!({
                    "drive_id": name,
                    "is_root_device": false,
                    "is_read_only": true,
                    "path_on_host": format!("{FILES}/{name}"),
                }),
            )?;
        }
        api.put("/vsock", &json!({ "guest_cid": CID, "uds_path": named(VSOCK) }))?;
        api.put("/entropy", &json!({}))
    }

    fn start(&mut self) -> io::Result<()> {
        self.configure()?;
        self.api()?.put("/actions", &json!({ "action_type": "InstanceStart" }))
    }

    fn write_down(&mut self, state: &str, memory: &str) -> io::Result<()> {
        let body = json!({
            "snapshot_type": "Full",
            "snapshot_path": named(state),
            "mem_file_path": named(memory),
        });
        self.api()?.put("/snapshot/create", &body)
    }

    fn read_back(&mut self, state: &File) -> io::Result<()> {
        copy(state, &self.state)?;
        let body = json!({
            "snapshot_path": named(LOADED),
            "mem_backend": { "backend_type": "File", "backend_path": named(RAM) },
            "resume_vm": true,
        });
        self.api()?.put("/snapshot/load", &body)
    }
}

/// All of a small file into another, whatever was in that. Of lengths that a VMM has made nothing is believed.
fn copy(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    if length > STATE {
        return Err(io::Error::other("the machine's state is larger than can be"));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    from.read_exact_at(&mut bytes, 0)?;
    to.set_len(0)?;
    to.write_all_at(&bytes, 0)
}

impl Vmm for Firecracker {
    fn wiring(&self) -> Wiring {
        Wiring::Asked
    }

    fn argv(&self) -> Vec<String> {
        [SHOWN, "--api-sock", &named(API), "--id", "cofferdam", "--level", "Error"]
            .map(str::to_owned)
            .to_vec()
    }

    fn given(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let [ram, state] = &self.kept;
        let mut given = vec![(LOADED, self.state.as_fd())];
        if self.role == Role::Copy {
            given.extend([(KEPT_RAM, ram.as_fd()), (KEPT, state.as_fd())]);
        }
        given
    }

    fn shown(&self) -> Option<&Path> {
        Some(&self.program.path)
    }

    fn greet(&mut self, machine: &mut Machine) -> io::Result<()> {
        let stream = machine.ask_until(Want::Api, Instant::now() + SOON)?;
        let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
        self.begin(Api::new(stream, PATIENCE)?)
    }

    fn boot(&mut self, machine: &mut Machine, until: Instant) -> io::Result<()> {
        self.start()?;
        machine.call(until)
    }

    fn save(&mut self, state: &File) -> io::Result<()> {
        self.pause()?;
        self.write_down(LOADED, RAM)?;
        copy(&self.state, state)
    }

    fn load(&mut self, machine: &mut Machine, state: &File) -> io::Result<()> {
        self.read_back(state)?;
        machine.call(Instant::now() + SOON)
    }

    /// It writes its memory down by itself.
    fn keep(&mut self, state: &File) -> io::Result<Option<File>> {
        self.kept.iter().try_for_each(|file| file.set_len(0))?;
        self.write_down(KEPT, KEPT_RAM)?;
        let [ram, written] = &self.kept;
        copy(written, state)?;
        if ram.metadata()?.len() != self.size.memory {
            return Err(io::Error::other("its memory was not written down whole"));
        }
        ram.try_clone().map(Some)
    }

    /// To be written down costs a machine its connections.
    fn go_on(&mut self, machine: &mut Machine) -> io::Result<()> {
        self.resume()?;
        machine.call(Instant::now() + SOON)
    }

    fn pause(&mut self) -> io::Result<()> {
        self.api()?.patch("/vm", &json!({ "state": "Paused" }))
    }

    fn resume(&mut self) -> io::Result<()> {
        self.api()?.patch("/vm", &json!({ "state": "Resumed" }))
    }

    /// It opens the file anew.
    fn exchanged(&mut self, disk: &str) -> io::Result<()> {
        let body = json!({ "drive_id": disk, "path_on_host": format!("{FILES}/{disk}") });
        self.api()?.patch(&format!("/drives/{disk}"), &body)
    }

    fn told(&mut self) -> io::Result<Told> {
        let instance = self.api()?.get("/")?;
        let machine = self.api()?.get("/machine-config")?;
        let text = |name: &str| instance.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| machine.get(name).and_then(Value::as_u64).unwrap_or(0);
        Ok(Told {
            kind: Kind::Firecracker,
            version: text("vmm_version").to_owned(),
            // It has no other.
            accelerator: Accelerator::Kvm,
            memory: number("mem_size_mib") << 20,
            processors: usize::try_from(number("vcpu_count")).unwrap_or(0),
            is_running: text("state") == "Running",
        })
    }
}
