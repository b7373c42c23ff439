//! QEMU, machine type `microvm`: which one is here, and how it is started. Everything it opens is handed to it by
//! descriptor.

use crate::kernel::refused;
use crate::machine::KERNEL;
use crate::stamp;
use cofferdam_inside::{GUEST, HOUSE, NET, NOTES, PROGRAMS, SESSION, SYSTEM};
use cofferdam_runtime::RuntimeError;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names a QEMU to use instead of the one in the search path.
pub(crate) const QEMU: &str = "COFFERDAM_VM_QEMU";
/// What the device is called among what is handed over.
pub(crate) const KVM: &str = "kvm";
const NAME: &str = "qemu-system-x86_64";
const FIX: &str = "sudo apt-get install qemu-system-x86";

/// Who executes a machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// A program: safe, and slow.
    Tcg,
}

impl Accelerator {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// How large a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub memory: u64,
    pub processors: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Qemu {
    pub(crate) path: PathBuf,
    pub(crate) version: String,
    /// Of the file, so that another one is noticed.
    stamp: (u64, i64, i64),
}

/// What a machine is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// To be the one that others are copied from.
    Template,
    /// To be a copy.
    Copy,
    /// To take over what another is, and write it down.
    Taking,
}

impl Qemu {
    /// Finds it. Which version it is was asked before, unless it is another file by now.
    pub(crate) fn find(env: impl Fn(&str) -> Option<PathBuf>, kept: &Path) -> Result<Self, RuntimeError> {
        let path = match env(QEMU) {
            Some(named) => named,
            None => {
                let places = ["/usr/bin", "/usr/local/bin", "/bin"].map(|dir| Path::new(dir).join(NAME));
                let found = places.into_iter().find(|path| path.is_file());
                found.ok_or_else(|| refused(format!("{NAME} is not installed"), FIX))?
            }
        };
        let stamp = stamp(&path).ok_or_else(|| refused(format!("there is no {}", path.display()), FIX))?;
        let known = fs::read(kept).ok().and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        if let Some(known) = known.filter(|known| known.path == path && known.stamp == stamp) {
            return Ok(known);
        }
        let qemu = Self { version: version(&path)?, path, stamp };
        let _ = serde_json::to_vec(&qemu).map(|text| fs::write(kept, text));
        Ok(qemu)
    }

    /// Of the version, the two that count.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let mut parts =
            self.version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    #[cfg(test)]
    pub(crate) fn of_version(version: &str) -> Self {
        Self { path: PathBuf::from("/qemu"), version: version.to_owned(), stamp: (0, 0, 0) }
    }

    /// Newer ones can map memory that they may not write to, and keep what they change to themselves.
    pub(crate) fn argv(
        &self,
        role: Role,
        size: Size,
        accelerator: Accelerator,
        command_line: &str,
    ) -> Vec<String> {
        let share = if role == Role::Copy { "off" } else { "on" };
        let memory = format!(
            "memory-backend-file,id=ram,size={},mem-path=/proc/self/fd/{{ram}},share={share}",
            size.memory
        );
        let (accelerator, processor) = match accelerator {
            Accelerator::Kvm => ("kvm,device=/dev/fdset/1", "host"),
            Accelerator::Tcg => ("tcg,thread=multi", "max"),
        };
        let disk = |name: &str| {
            format!("driver=nbd,node-name={name},read-only=on,server.type=fd,server.str={{{name}}}")
        };
        let socket = |name: &str| format!("socket,id={name},fd={{{name}}}");
        let port = |name: &str| format!("virtserialport,chardev={name},name={name}");
        let mut argv = vec![self.path.to_string_lossy().into_owned()];
        let mut put = |option: &str, value: &str| {
            argv.push(option.to_owned());
            if !value.is_empty() {
                argv.push(value.to_owned());
            }
        };
        put("-nodefaults", "");
        put("-no-user-config", "");
        put("-no-reboot", "");
        put("-display", "none");
        put("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
        put("-object", &memory);
        put("-machine", "microvm,memory-backend=ram,x-option-roms=off,isa-serial=on,auto-kernel-cmdline=off");
        if accelerator.starts_with("kvm") {
            put("-add-fd", &format!("fd={{{KVM}}},set=1"));
        }
        put("-accel", accelerator);
        put("-cpu", processor);
        put("-smp", &size.processors.to_string());
        put("-m", &format!("{}B", size.memory));
        // Others have their kernel in their memory.
        if role == Role::Template {
            put("-kernel", &format!("{KERNEL}/vmlinux"));
            put("-initrd", &format!("{KERNEL}/initrd"));
            put("-append", command_line);
        }
        put("-chardev", "stdio,id=console,signal=off");
        put("-serial", "chardev:console");
        put("-chardev", &socket("monitor"));
        put("-mon", "chardev=monitor,mode=control");
        for name in [SYSTEM, PROGRAMS, SESSION] {
            put("-blockdev", &disk(name));
            put("-device", &format!("virtio-blk-device,drive={name},serial={name}"));
        }
        put("-device", "virtio-serial-device");
        for name in [GUEST, HOUSE, NET, NOTES] {
            put("-chardev", &socket(name));
            put("-device", &port(name));
        }
        if role != Role::Template {
            put("-incoming", "defer");
            put("-S", "");
        }
        argv
    }
}

fn version(path: &Path) -> Result<String, RuntimeError> {
    let failed = |what: String| refused(format!("{} cannot be used: {what}", path.display()), FIX);
    let said = Command::new(path).arg("--version").output().map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let first = text.lines().next().unwrap_or_default();
    let version = first.strip_prefix("QEMU emulator version ").map(str::trim);
    let version = version.ok_or_else(|| failed(format!("it says `{first}`")))?;
    let said = Command::new(path).args(["-machine", "help"]).output();
    let machines = said.map_err(|error| failed(error.to_string()))?.stdout;
    match String::from_utf8_lossy(&machines).lines().any(|line| line.starts_with("microvm ")) {
        true => Ok(version.to_owned()),
        false => Err(failed("it has no machine `microvm`, so it is built for another processor".into())),
    }
}

/// What the kernel is told. Most of it saves time; without what is said of clocks a kernel on a busy host may wait
/// for ever for one that it measures itself.
pub(crate) fn command_line(accelerator: Accelerator) -> String {
    let mut line = String::from(
        "console=ttyS0 quiet loglevel=1 panic=-1 reboot=t nokaslr mitigations=off init_on_alloc=0 apparmor=0 \
         selinux=0 audit=0 random.trust_cpu=on cryptomgr.notests rcupdate.rcu_expedited=1 8250.nr_uarts=1 \
         noreplace-smp i8042.noaux i8042.nomux i8042.nopnp i8042.dumbkbd",
    );
    if accelerator == Accelerator::Tcg {
        #[cfg(target_arch = "x86_64")]
        {
            let khz = cofferdam_sys::machine::ticks_per_ms();
            // Loops a jiffy, for the 250 a second that distributions choose.
            line.push_str(&format!(" tsc_early_khz={khz} lpj={} tsc=reliable no_timer_check", khz * 4));
        }
    }
    line
}
