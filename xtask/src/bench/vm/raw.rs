//! The other side of `bench vm`: QEMU driven by hand, with the kernel and the modules that ours boots, and in place of all
//! of ours a first process of a hundred lines that answers on a port.

use super::VmError;
use crate::command;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const INIT: &str = include_str!("init.c");
const PATIENCE: Duration = Duration::from_secs(120);

/// What ours has written down of the machine that it copies, so that the other is the same.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) accelerator: String,
    pub(super) kernel: String,
    pub(super) vmm: String,
    qemu: PathBuf,
    memory: u64,
    processors: u64,
    command_line: String,
    image: PathBuf,
}

impl Machine {
    pub(super) fn of(state: &Path) -> Result<Self, VmError> {
        let one = |name: &str| -> Result<PathBuf, VmError> {
            let dir = state.join("vm").join(name);
            let first = fs::read_dir(&dir)?.flatten().next();
            first.map(|entry| entry.path()).ok_or_else(|| VmError::Nothing(dir.display().to_string()))
        };
        let manifest: Value = serde_json::from_slice(&fs::read(one("templates")?.join("manifest.json"))?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(Self {
            accelerator: text(&manifest["accelerator"]),
            kernel: text(&manifest["kernel"]),
            vmm: text(&manifest["vmm"]["version"]),
            qemu: text(&manifest["vmm"]["path"]).into(),
            memory: manifest["size"]["memory"].as_u64().unwrap_or(0),
            processors: manifest["size"]["processors"].as_u64().unwrap_or(1),
            command_line: text(&manifest["command_line"]),
            image: one("kernels")?,
        })
    }
}

/// A machine by hand that others are copied from.
pub(super) struct Raw {
    machine: Machine,
    dir: PathBuf,
}

/// One at work.
pub(super) struct Running {
    child: Child,
    port: UnixStream,
    qmp: BufReader<UnixStream>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Our own initial files with another first process, and without ours; and the host's `echo`, with all that it loads.
const PACK: &str = r#"
set -e
cd "$1"
cc -O2 -static -o init.new init.c
mkdir files
cd files
cpio -idm --quiet < "$2/initrd"
rm -f program
mv ../init.new init
echo="$(readlink -f /bin/echo)"
mkdir -p bin
cp "$echo" bin/echo
ldd "$echo" | grep -o '/[^ ]*' | xargs cp -L --parents -t .
find . | cpio -o -H newc --quiet > ../initrd
"#;

impl Raw {
    pub(super) const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Boots one, and keeps it stopped.
    pub(super) fn new(machine: Machine, dir: &Path) -> Result<Self, VmError> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("init.c"), INIT)?;
        let mut pack = Command::new("sh");
        pack.args(["-c", PACK, "pack"]).arg(dir).arg(&machine.image);
        command::stdout(&mut pack)?;
        let raw = Self { machine, dir: dir.to_owned() };
        let (mut booted, _) = raw.boot("ram")?;
        booted.ask("stop", json!({}))?;
        booted.ask("migrate-set-capabilities", ignore_shared())?;
        let state = dir.join("state");
        booted.ask("migrate", json!({ "uri": format!("exec:cat > {}", state.display()) }))?;
        booted.migrated()?;
        Ok(raw)
    }

    fn qemu(&self, name: &str, ram: &Path, is_copy: bool) -> Command {
        let Machine { qemu, memory, processors, accelerator, .. } = &self.machine;
        let share = if is_copy { "off" } else { "on" };
        let mut command = Command::new(qemu);
        let (accelerator, processor) = match accelerator.as_str() {
            "kvm" => ("kvm", "host"),
            _ => ("tcg,thread=multi", "max"),
        };
        let socket = |id: &str| {
            format!(
                "socket,id={id},path={},server=on,wait=off",
                self.dir.join(format!("{name}.{id}")).display()
            )
        };
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        command.arg("-object").arg(format!(
            "memory-backend-file,id=ram,size={memory},mem-path={},share={share}",
            ram.display()
        ));
        command.args([
            "-machine",
            "microvm,memory-backend=ram,x-option-roms=off,isa-serial=on,auto-kernel-cmdline=off",
        ]);
        command.args(["-accel", accelerator, "-cpu", processor, "-smp", &processors.to_string()]);
        command.args(["-m", &format!("{memory}B"), "-serial", "null"]);
        command.args(["-chardev", &socket("qmp"), "-mon", "chardev=qmp,mode=control"]);
        command.args(["-device", "virtio-serial-device", "-chardev", &socket("port")]);
        command.args(["-device", "virtserialport,chardev=port,name=guest"]);
        if is_copy {
            command.args(["-incoming", "defer", "-S"]);
        } else {
            command.arg("-kernel").arg(self.machine.image.join("vmlinux"));
            command.arg("-initrd").arg(self.dir.join("initrd"));
            command.args(["-append", &self.machine.command_line]);
        }
        command
    }

    fn start(&self, mut command: Command, name: &str) -> Result<Running, VmError> {
        let sockets = ["qmp", "port"].map(|id| self.dir.join(format!("{name}.{id}")));
        sockets.iter().for_each(|path| _ = fs::remove_file(path));
        let mut child = command.stderr(Stdio::inherit()).spawn()?;
        let [qmp, port] = sockets.map(|path| connect(&path, &mut child));
        let (qmp, port) = match (qmp, port) {
            (Ok(qmp), Ok(port)) => (qmp, port),
            (Err(error), _) | (_, Err(error)) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let mut running = Running { child, port, qmp: BufReader::new(qmp) };
        running.line()?;
        running.ask("qmp_capabilities", json!({}))?;
        Ok(running)
    }

    /// From nothing to the first output of a command.
    pub(super) fn boot(&self, ram: &str) -> Result<(Running, Duration), VmError> {
        let ram = self.dir.join(ram);
        File::create(&ram)?.set_len(self.machine.memory)?;
        let began = Instant::now();
        let mut command = self.qemu("boot", &ram, false);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut running = self.start(command, "boot")?;
        running.expect(b"R")?;
        running.command()?;
        Ok((running, began.elapsed()))
    }

    /// A copy whose process waits.
    pub(super) fn prepare(&self, name: &str) -> Result<Running, VmError> {
        let mut command = self.qemu(name, &self.dir.join("ram"), true);
        command.stdin(File::open(self.dir.join("state"))?).stdout(Stdio::null());
        self.start(command, name)
    }

    /// A copy, from its process's start to the first output of a command.
    pub(super) fn restore(&self, name: &str) -> Result<(Running, Duration), VmError> {
        self.restore_to(name, Running::command)
    }

    /// The same with the command that ours runs.
    pub(super) fn restore_to_echo(&self, name: &str) -> Result<Duration, VmError> {
        self.restore_to(name, Running::echo).map(|(_, took)| took)
    }

    fn restore_to(
        &self,
        name: &str,
        command: impl FnOnce(&mut Running) -> Result<(), VmError>,
    ) -> Result<(Running, Duration), VmError> {
        let began = Instant::now();
        let mut running = self.prepare(name)?;
        running.go_on()?;
        command(&mut running)?;
        Ok((running, began.elapsed()))
    }
}

fn connect(path: &Path, child: &mut Child) -> Result<UnixStream, VmError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(_) if Instant::now() < until && child.try_wait()?.is_none() => {
                std::thread::sleep(Duration::from_micros(500));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn ignore_shared() -> Value {
    json!({ "capabilities": [{ "capability": "x-ignore-shared", "state": true }] })
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> Result<Value, VmError> {
        let mut line = String::new();
        match self.qmp.read_line(&mut line)? {
            0 => Err(VmError::Nothing("QEMU's monitor".into())),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }

    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, VmError> {
        let text = json!({ "execute": command, "arguments": arguments }).to_string();
        self.qmp.get_mut().write_all(format!("{text}\n").as_bytes())?;
        loop {
            let answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(VmError::Qemu(format!("`{command}`: {error}")));
            }
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
        }
    }

    fn migrated(&mut self) -> Result<(), VmError> {
        loop {
            let told = self.ask("query-migrate", json!({}))?;
            match told["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed") => return Err(VmError::Qemu(format!("the machine was not moved: {told}"))),
                _ => std::thread::sleep(Duration::from_micros(500)),
            }
        }
    }

    /// Lets a copy run.
    pub(super) fn go_on(&mut self) -> Result<(), VmError> {
        self.ask("migrate-set-capabilities", ignore_shared())?;
        self.ask("migrate-incoming", json!({ "uri": "fd:0" }))?;
        self.migrated()?;
        self.ask("cont", json!({})).map(drop)
    }

    fn expect(&mut self, text: &[u8]) -> Result<(), VmError> {
        let mut said = vec![0; text.len()];
        self.port.read_exact(&mut said)?;
        match said == text {
            true => Ok(()),
            false => Err(VmError::Nothing("the guest by hand".into())),
        }
    }

    /// One command, until its output is here.
    pub(super) fn command(&mut self) -> Result<(), VmError> {
        self.port.write_all(b"x")?;
        self.expect(b"out\n")
    }

    /// The same with a program that loads others before it begins.
    fn echo(&mut self) -> Result<(), VmError> {
        self.port.write_all(b"y")?;
        self.expect(b"out\n")
    }

    /// A byte there and back.
    pub(super) fn round_trip(&mut self) -> Result<Duration, VmError> {
        let began = Instant::now();
        self.port.write_all(b"e")?;
        self.expect(b"e")?;
        Ok(began.elapsed())
    }

    /// So many bytes from the guest, from the first to the last.
    pub(super) fn stream(&mut self, count: usize) -> Result<Duration, VmError> {
        self.port.write_all(b"d")?;
        self.port.write_all(&(count as u32).to_le_bytes())?;
        super::from_first_to_last(&mut self.port, count)
    }
}
