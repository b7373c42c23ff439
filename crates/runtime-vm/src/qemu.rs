//! QEMU, machine type `microvm`: which one is here, how it is started, and what it is told. Everything it opens is
//! handed to it by descriptor.

use crate::kernel::refused;
use crate::machine::{KERNEL, Machine};
use crate::qmp::Qmp;
use crate::vmm::{Accelerator, Kind, Program, Role, Size, Told, Vmm, Wiring};
use cofferdam_inside::{DISKS, GUEST, HOUSE, NET, NOTES};
use cofferdam_runtime::RuntimeError;
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Names a QEMU to use instead of the one in the search path.
pub(crate) const NAMED: &str = "COFFERDAM_VM_QEMU";
/// What the device is called among what is handed over.
pub(crate) const KVM: &str = "kvm";
const NAME: &str = "qemu-system-x86_64";
pub(crate) const FIX: &str = "sudo apt-get install qemu-system-x86";
/// The processor that is emulated: all that QEMU has, but nothing by which a kernel moves memory byte by byte (each byte is
/// a turn of a loop here, and eight are one by any other way), and no fifth level of page tables to walk.
const EMULATED: &str = "max,-erms,-fsrm,-la57";
const PATIENCE: Duration = Duration::from_secs(60);
/// What is written down of a machine is its devices and nothing else: neither its memory, which others have for themselves,
/// nor what describes all that to people.
const MACHINE: &str =
    "microvm,memory-backend=ram,x-option-roms=off,isa-serial=on,auto-kernel-cmdline=off,suppress-vmdesc=on";

pub(crate) fn place(env: &dyn Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, RuntimeError> {
    if let Some(named) = env(NAMED) {
        return Ok(named);
    }
    let places = ["/usr/bin", "/usr/local/bin", "/bin"].map(|dir| Path::new(dir).join(NAME));
    let found = places.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| refused(format!("{NAME} is not installed"), FIX))
}

/// One, from its command line to its end.
#[derive(Debug)]
pub(crate) struct Qemu {
    program: Program,
    role: Role,
    size: Size,
    accelerator: Accelerator,
    processor: String,
    command_line: String,
    monitor: Option<Qmp>,
    /// What a copy has said of itself before it ran.
    known: Option<[Value; 3]>,
    /// What it was handed to be written down to, until it runs on.
    written_to: Option<u64>,
}

/// Of these the answers do not change: accelerator, memory, processors.
const FIXED: [&str; 3] = ["query-kvm", "query-memory-size-summary", "query-cpus-fast"];

impl Qemu {
    pub(crate) fn new(
        program: &Program,
        role: Role,
        size: Size,
        (accelerator, processor): (Accelerator, &str),
        command_line: &str,
    ) -> Self {
        let (processor, command_line) = (processor.to_owned(), command_line.to_owned());
        Self {
            program: program.clone(),
            role,
            size,
            accelerator,
            processor,
            command_line,
            monitor: None,
            known: None,
            written_to: None,
        }
    }

    fn monitor(&mut self) -> io::Result<&mut Qmp> {
        self.monitor.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn ask(&mut self, command: &str) -> io::Result<Value> {
        self.monitor()?.ask(command, Value::Null)
    }
}

impl Vmm for Qemu {
    fn wiring(&self) -> Wiring {
        Wiring::Handed
    }

    /// Newer ones can map memory that they may not write to, and keep what they change to themselves.
    fn argv(&self) -> Vec<String> {
        let Self { role, size, accelerator, processor, command_line, .. } = self;
        let (role, size, accelerator) = (*role, *size, *accelerator);
        let share = if role == Role::Copy { "off" } else { "on" };
        let memory = format!(
            "memory-backend-file,id=ram,size={},mem-path=/proc/self/fd/{{ram}},share={share}",
            size.memory
        );
        // One that was written down before it was said which it has, had this.
        let (accelerator, former) = match accelerator {
            Accelerator::Kvm => ("kvm,device=/dev/fdset/1", "host"),
            Accelerator::Tcg => ("tcg,thread=multi", "max"),
        };
        let processor = if processor.is_empty() { former } else { processor };
        let disk = |name: &str| {
            format!("driver=nbd,node-name={name},read-only=on,server.type=fd,server.str={{{name}}}")
        };
        let socket = |name: &str| format!("socket,id={name},fd={{{name}}}");
        let port = |name: &str| format!("virtserialport,chardev={name},name={name}");
        let mut argv = vec![self.program.path.to_string_lossy().into_owned()];
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
        put("-machine", MACHINE);
        put("-global", "migration.send-configuration=off");
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
        for name in DISKS {
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

    /// A copy is asked all that it can be while its memory is on its way: once the machine runs, QEMU has little time.
    fn greet(&mut self, machine: &mut Machine) -> io::Result<()> {
        let stream = machine.monitor.try_clone()?;
        if self.role != Role::Copy {
            let (monitor, []) = Qmp::new(stream, PATIENCE, [])?;
            self.monitor = Some(monitor);
            return Ok(());
        }
        let fixed = FIXED.map(|question| (question, Value::Null));
        let (monitor, fixed) = Qmp::new(stream, PATIENCE, fixed)?;
        (self.monitor, self.known) = (Some(monitor), Some(fixed));
        Ok(())
    }

    /// It boots what is on its command line.
    fn boot(&mut self, _: &mut Machine, _: Instant) -> io::Result<()> {
        Ok(())
    }

    fn save(&mut self, state: &File) -> io::Result<()> {
        let monitor = self.monitor()?;
        monitor.ask("stop", Value::Null)?;
        let number = monitor.add(state.as_fd())?;
        monitor.put_down(number)
    }

    fn load(&mut self, _: &mut Machine, state: &File) -> io::Result<()> {
        let monitor = self.monitor()?;
        let then = [("migrate-incoming", json!({ "uri": "fd:state" })), ("query-migrate", Value::Null)];
        let [_, now] = monitor.give_and_ask("state", state.as_fd(), then)?;
        monitor.migrated_from(now, Instant::now() + PATIENCE)?;
        monitor.ask("cont", Value::Null).map(drop)
    }

    /// What it has changed of its memory is its own, and stays where it is.
    fn keep(&mut self, state: &File) -> io::Result<Option<File>> {
        let number = self.monitor()?.add(state.as_fd())?;
        self.written_to = Some(number);
        self.monitor()?.put_down(number).map(|()| None)
    }

    fn go_on(&mut self, _: &mut Machine) -> io::Result<()> {
        self.resume()?;
        let written_to = self.written_to.take();
        written_to.map_or(Ok(()), |number| self.monitor()?.remove(number))
    }

    fn pause(&mut self) -> io::Result<()> {
        self.ask("stop").map(drop)
    }

    fn resume(&mut self) -> io::Result<()> {
        self.ask("cont").map(drop)
    }

    /// It asks for every block anew.
    fn exchanged(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn told(&mut self) -> io::Result<Told> {
        let known = self.known.clone();
        let monitor = self.monitor()?;
        let fixed = match known {
            Some(known) => known,
            None => {
                let [kvm, memory, processors] = FIXED.map(|question| monitor.ask(question, Value::Null));
                [kvm?, memory?, processors?]
            }
        };
        let (version, is_running) = (monitor.version.clone(), monitor.runs()?);
        let [kvm, memory, processors] = fixed;
        let accelerated = kvm.get("enabled").and_then(Value::as_bool) == Some(true);
        Ok(Told {
            kind: Kind::Qemu,
            version,
            accelerator: if accelerated { Accelerator::Kvm } else { Accelerator::Tcg },
            memory: memory.get("base-memory").and_then(Value::as_u64).unwrap_or(0),
            processors: processors.as_array().map_or(0, Vec::len),
            is_running,
        })
    }
}

pub(crate) const fn processor(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "host",
        Accelerator::Tcg => EMULATED,
    }
}

pub(crate) fn version(path: &Path) -> Result<String, RuntimeError> {
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

/// What the kernel is told, but for what is measured. Most of it saves time. Of its security modules it has those that hold
/// something here: others have no rules, and would be asked at every file.
pub(crate) fn command_line(accelerator: Accelerator, version: (u32, u32)) -> String {
    let mut line = String::from(
        "console=ttyS0 quiet loglevel=1 panic=-1 reboot=t nokaslr mitigations=off init_on_alloc=0 apparmor=0 \
         selinux=0 audit=0 random.trust_cpu=on cryptomgr.notests rcupdate.rcu_expedited=1 8250.nr_uarts=1 \
         noreplace-smp nowatchdog lsm=landlock,yama i8042.noaux i8042.nomux i8042.nopnp i8042.dumbkbd",
    );
    if accelerator == Accelerator::Tcg {
        // What is counted at every change of process, pages of two megabytes that are filled with zeros at once, and turns
        // that are dealt out by session of the terminal cost an emulator more than they are worth.
        line.push_str(" psi=0 transparent_hugepage=never noautogroup");
        if is_at_an_address(accelerator, version) {
            line.push_str(" norandmaps");
        }
    }
    line
}

/// Whether code that was translated is found again at its address alone: then a program that lies elsewhere every time is
/// translated every time, which takes longer than to run it.
pub(crate) const fn is_at_an_address(accelerator: Accelerator, (major, _): (u32, u32)) -> bool {
    matches!(accelerator, Accelerator::Tcg) && major < 8
}

/// What the kernel is told of this host's clock: on a busy host it may wait for ever for one that it measures itself.
pub(crate) fn clocks(accelerator: Accelerator) -> String {
    #[cfg(target_arch = "x86_64")]
    if accelerator == Accelerator::Tcg {
        let khz = cofferdam_sys::machine::ticks_per_ms();
        // Loops a jiffy, for the 250 a second that distributions choose.
        return format!(" tsc_early_khz={khz} lpj={} tsc=reliable no_timer_check", khz * 4);
    }
    let _ = accelerator;
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_told_the_same_every_time_but_for_clocks() {
        let check = |accelerator, version, randomizes: bool, is_told_clocks: bool| {
            let line = command_line(accelerator, version);
            assert_eq!(line, command_line(accelerator, version));
            assert_eq!(!line.contains("norandmaps"), randomizes, "{line}");
            assert_eq!(clocks(accelerator).contains("tsc_early_khz="), is_told_clocks);
            assert!(!line.contains("khz"), "what is measured is not part of what a template is known by");
        };
        let measures = cfg!(target_arch = "x86_64");
        check(Accelerator::Tcg, (7, 2), false, measures);
        check(Accelerator::Tcg, (8, 0), true, measures);
        check(Accelerator::Kvm, (7, 2), true, false);
    }
}
