//! A double of Firecracker for tests, made from the description of its API that is published with it (version 1.17): a
//! server on a unix socket that takes what the description allows, when it allows it, and refuses everything else with a
//! `fault_message`. Its guest is real: who calls at the guest's number speaks to our own program, over the streams that
//! it has in a machine.
//!
//! It sees paths below a root, as one in a jail does.

use super::copy;
use cofferdam_inside::relay::{Side, relay};
use cofferdam_inside::wire::{Tell, VERSION, send};
use cofferdam_inside::{GUEST, HOUSE, NET, NOTES, number};
use cofferdam_runtime::guest_program;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) const TOLD: &str = "1.17.0-dev";

/// What a field may be.
enum Is {
    Text,
    Flag,
    Number(u64, u64),
    OneOf(&'static [&'static str]),
    Object(&'static [Field]),
}

/// Its name, whether it has to be there, and what it may be.
type Field = (&'static str, bool, Is);

const MACHINE: &[Field] = &[
    ("vcpu_count", true, Is::Number(1, 32)),
    ("mem_size_mib", true, Is::Number(1, u64::MAX)),
    ("smt", false, Is::Flag),
    ("track_dirty_pages", false, Is::Flag),
    ("cpu_template", false, Is::OneOf(&["C3", "T2", "T2S", "T2CL", "T2A", "V1N1", "None"])),
    ("huge_pages", false, Is::OneOf(&["None", "Transparent", "2M"])),
];
const BOOT: &[Field] = &[
    ("kernel_image_path", true, Is::Text),
    ("initrd_path", false, Is::Text),
    ("boot_args", false, Is::Text),
];
const DRIVE: &[Field] = &[
    ("drive_id", true, Is::Text),
    ("is_root_device", true, Is::Flag),
    ("partuuid", false, Is::Text),
    ("cache_type", false, Is::OneOf(&["Unsafe", "Writeback"])),
    ("is_read_only", false, Is::Flag),
    ("path_on_host", false, Is::Text),
    ("io_engine", false, Is::OneOf(&["Sync", "Async"])),
    ("socket", false, Is::Text),
];
const DRIVE_CHANGE: &[Field] = &[("drive_id", true, Is::Text), ("path_on_host", false, Is::Text)];
const VSOCK: &[Field] = &[
    ("guest_cid", true, Is::Number(3, u32::MAX as u64)),
    ("uds_path", true, Is::Text),
    ("vsock_id", false, Is::Text),
];
const ACTION: &[Field] =
    &[("action_type", true, Is::OneOf(&["FlushMetrics", "InstanceStart", "SendCtrlAltDel"]))];
const VM: &[Field] = &[("state", true, Is::OneOf(&["Paused", "Resumed"]))];
const CREATE: &[Field] = &[
    ("mem_file_path", true, Is::Text),
    ("snapshot_path", true, Is::Text),
    ("snapshot_type", false, Is::OneOf(&["Full", "Diff"])),
];
const BACKEND: &[Field] =
    &[("backend_type", true, Is::OneOf(&["File", "Uffd"])), ("backend_path", true, Is::Text)];
const LOAD: &[Field] = &[
    ("snapshot_path", true, Is::Text),
    ("mem_file_path", false, Is::Text),
    ("mem_backend", false, Is::Object(BACKEND)),
    ("resume_vm", false, Is::Flag),
    ("track_dirty_pages", false, Is::Flag),
    ("enable_diff_snapshots", false, Is::Flag),
    ("clock_realtime", false, Is::Flag),
    ("vsock_override", false, Is::Object(&[("uds_path", true, Is::Text)])),
    ("huge_pages", false, Is::OneOf(&["Snapshot", "None", "Transparent", "2M"])),
];

fn check(body: &Value, fields: &[Field]) -> Result<(), String> {
    let body: &Map<String, Value> = body.as_object().ok_or("invalid type, expected an object")?;
    if let Some(name) = body.keys().find(|name| fields.iter().all(|(known, ..)| known != name)) {
        return Err(format!("unknown field `{name}`"));
    }
    for (name, required, is) in fields {
        let fits = match (body.get(*name), is) {
            (None, _) if *required => return Err(format!("missing field `{name}`")),
            (None, _) => true,
            (Some(value), Is::Text) => value.is_string(),
            (Some(value), Is::Flag) => value.is_boolean(),
            (Some(value), Is::Number(from, to)) => {
                value.as_u64().is_some_and(|value| (*from..=*to).contains(&value))
            }
            (Some(value), Is::OneOf(all)) => value.as_str().is_some_and(|value| all.contains(&value)),
            (Some(value), Is::Object(fields)) => check(value, fields).map(|()| true)?,
        };
        if !fits {
            return Err(format!("invalid value of `{name}`"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotStarted,
    Running,
    Paused,
}

const LATE: &str = "The requested operation is not supported after starting the microVM.";
const EARLY: &str = "The requested operation is not supported before starting the microVM.";

pub(super) struct Double {
    root: PathBuf,
    phase: Phase,
    /// Whether something of a machine was set.
    begun: bool,
    /// What a snapshot has of it.
    machine: Value,
    drives: Vec<Value>,
    vsock: Option<Value>,
    boot: Option<Value>,
    /// Calls that were taken, which end when it is written down.
    calls: Arc<Mutex<Vec<UnixStream>>>,
    runs: Arc<Mutex<bool>>,
}

impl Double {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            phase: Phase::NotStarted,
            begun: false,
            machine: json!({ "vcpu_count": 1, "mem_size_mib": 128, "smt": false, "track_dirty_pages": false }),
            drives: Vec::new(),
            vsock: None,
            boot: None,
            calls: Arc::default(),
            runs: Arc::default(),
        }
    }

    fn path(&self, value: &Value, name: &str) -> Result<PathBuf, String> {
        let text = value.get(name).and_then(Value::as_str).ok_or(format!("missing field `{name}`"))?;
        Ok(self.root.join(text.trim_start_matches('/')))
    }

    /// One question.
    pub(super) fn hear(&mut self, method: &str, path: &str, body: Option<Value>) -> Result<Value, String> {
        let (first, rest) = path.trim_start_matches('/').split_once('/').unwrap_or((&path[1..], ""));
        let before = self.phase == Phase::NotStarted;
        let late = || if before { Ok(()) } else { Err(LATE.to_owned()) };
        let early = || if before { Err(EARLY.to_owned()) } else { Ok(()) };
        let fits = |fields: &[Field]| check(body.as_ref().ok_or("Empty PUT request.")?, fields);
        match (method, first, rest) {
            ("GET", "", "") => Ok(json!({
                "app_name": "Firecracker", "id": "double", "vmm_version": TOLD,
                "state": match self.phase {
                    Phase::NotStarted => "Not started",
                    Phase::Running => "Running",
                    Phase::Paused => "Paused",
                },
            })),
            ("GET", "version", "") => Ok(json!({ "firecracker_version": TOLD })),
            ("GET", "machine-config", "") => Ok(self.machine.clone()),
            ("PUT", "machine-config", "") => fits(MACHINE).and_then(|()| late()).map(|()| {
                (self.begun, self.machine) = (true, body.unwrap_or_default());
                Value::Null
            }),
            ("PUT", "boot-source", "") => fits(BOOT).and_then(|()| late()).and_then(|()| {
                let body = body.unwrap_or_default();
                self.open(&body, "kernel_image_path")?;
                if body.get("initrd_path").is_some() {
                    self.open(&body, "initrd_path")?;
                }
                (self.begun, self.boot) = (true, Some(body));
                Ok(Value::Null)
            }),
            ("PUT", "drives", id) => {
                fits(DRIVE).and_then(|()| late()).and_then(|()| self.drive(id, body.unwrap_or_default()))
            }
            ("PATCH", "drives", id) => fits(DRIVE_CHANGE).and_then(|()| early()).and_then(|()| {
                let body = body.unwrap_or_default();
                self.open(&body, "path_on_host")?;
                let drive = self.drives.iter_mut().find(|drive| drive["drive_id"] == *id);
                let drive = drive.ok_or("Device not found")?;
                drive["path_on_host"] = body["path_on_host"].clone();
                Ok(Value::Null)
            }),
            ("PUT", "vsock", "") => fits(VSOCK).and_then(|()| late()).map(|()| {
                (self.begun, self.vsock) = (true, body);
                Value::Null
            }),
            ("PUT", "entropy", "") => fits(&[]).and_then(|()| late()).map(|()| {
                self.begun = true;
                Value::Null
            }),
            ("PUT", "actions", "") => fits(ACTION).and_then(|()| {
                self.act(body.unwrap_or_default()["action_type"].as_str().unwrap_or_default())
            }),
            ("PATCH", "vm", "") => fits(VM).and_then(|()| early()).map(|()| {
                let paused = body.unwrap_or_default()["state"] == "Paused";
                self.phase = if paused { Phase::Paused } else { Phase::Running };
                *self.runs.lock().unwrap() = !paused;
                Value::Null
            }),
            ("PUT", "snapshot", "create") => {
                fits(CREATE).and_then(|()| early()).and_then(|()| self.create(&body.unwrap_or_default()))
            }
            ("PUT", "snapshot", "load") => {
                fits(LOAD).and_then(|()| late()).and_then(|()| self.load(&body.unwrap_or_default()))
            }
            _ => Err(format!("Invalid request method and/or path: {method} {path}.")),
        }
    }

    fn open(&self, body: &Value, name: &str) -> Result<File, String> {
        let path = self.path(body, name)?;
        File::open(&path).map_err(|error| format!("{name} {}: {error}", path.display()))
    }

    fn drive(&mut self, id: &str, body: Value) -> Result<Value, String> {
        if body["drive_id"] != *id {
            return Err("The id from the path does not match the id from the body!".into());
        }
        if body.get("is_read_only").is_none() {
            return Err("missing `is_read_only`".into());
        }
        self.open(&body, "path_on_host")?;
        self.begun = true;
        self.drives.retain(|drive| drive["drive_id"] != *id);
        self.drives.push(body);
        Ok(Value::Null)
    }

    fn act(&mut self, action: &str) -> Result<Value, String> {
        match action {
            "InstanceStart" if self.phase != Phase::NotStarted => Err(LATE.into()),
            "InstanceStart" if self.boot.is_none() => {
                Err("Cannot start microvm without kernel configuration.".into())
            }
            "InstanceStart" => self.run(Phase::Running),
            _ if self.phase == Phase::NotStarted => Err(EARLY.into()),
            _ => Ok(Value::Null),
        }
    }

    fn bytes(&self) -> u64 {
        self.machine["mem_size_mib"].as_u64().unwrap_or(0) << 20
    }

    fn create(&mut self, body: &Value) -> Result<Value, String> {
        if self.phase != Phase::Paused {
            return Err("save/restore microVM state error: the microVM is not paused".into());
        }
        let failed = |error: io::Error| error.to_string();
        let state = json!({ "machine": self.machine, "drives": self.drives, "vsock": self.vsock });
        let path = self.path(body, "snapshot_path")?;
        let mut to = OpenOptions::new();
        let mut file = to.create(true).write(true).truncate(true).open(path).map_err(failed)?;
        file.write_all(state.to_string().as_bytes()).map_err(failed)?;
        let path = self.path(body, "mem_file_path")?;
        let mut to = OpenOptions::new();
        let mut file = to.create(true).write(true).truncate(false).open(path).map_err(failed)?;
        file.set_len(self.bytes()).map_err(failed)?;
        file.write_all(b"memory of a machine").map_err(failed)?;
        // The vsock is reset: a machine that goes on finds its connections ended.
        self.calls.lock().unwrap().drain(..).for_each(|call| _ = call.shutdown(std::net::Shutdown::Both));
        Ok(Value::Null)
    }

    fn load(&mut self, body: &Value) -> Result<Value, String> {
        if self.begun {
            return Err(
                "Loading a microVM snapshot not allowed after configuring boot-specific resources.".into()
            );
        }
        let (file, backend) = (body.get("mem_file_path"), body.get("mem_backend"));
        if file.is_some() == backend.is_some() {
            return Err("either `mem_backend` or `mem_file_path` is needed".into());
        }
        let mut text = Vec::new();
        self.open(body, "snapshot_path")?.read_to_end(&mut text).map_err(|error| error.to_string())?;
        let state: Value =
            serde_json::from_slice(&text).map_err(|error| format!("not a snapshot: {error}"))?;
        self.machine = state["machine"].clone();
        let memory = match backend {
            Some(backend) => self.open(backend, "backend_path")?,
            None => self.open(body, "mem_file_path")?,
        };
        if memory.metadata().map(|meta| meta.len()).unwrap_or(0) != self.bytes() {
            return Err("the memory file is of another size".into());
        }
        for drive in state["drives"].as_array().into_iter().flatten() {
            self.open(drive, "path_on_host")?;
        }
        self.drives = state["drives"].as_array().cloned().unwrap_or_default();
        self.vsock = Some(state["vsock"].clone()).filter(Value::is_object);
        self.begun = true;
        self.run(if body["resume_vm"] == true { Phase::Running } else { Phase::Paused })
    }

    /// From now on there is a machine, whose vsock takes calls.
    fn run(&mut self, phase: Phase) -> Result<Value, String> {
        if let Some(vsock) = self.vsock.clone() {
            let listener = UnixListener::bind(self.path(&vsock, "uds_path")?);
            let listener = listener.map_err(|error| format!("vsock: {error}"))?;
            let (calls, runs) = (self.calls.clone(), self.runs.clone());
            let guest = guest(&self.root).map_err(|error| error.to_string())?;
            std::thread::spawn(move || {
                for call in listener.incoming().flatten() {
                    let (calls, runs, guest) = (calls.clone(), runs.clone(), guest.clone());
                    std::thread::spawn(move || _ = take(call, &calls, &runs, &guest));
                }
            });
        }
        self.phase = phase;
        *self.runs.lock().unwrap() = phase == Phase::Running;
        Ok(Value::Null)
    }
}

type Listening = HashMap<u32, Sender<OwnedFd>>;

/// Takes a call as the VMM does: a line, and an answer when the machine runs and somebody listens in it.
fn take(
    mut call: UnixStream,
    calls: &Mutex<Vec<UnixStream>>,
    runs: &Mutex<bool>,
    guest: &Listening,
) -> io::Result<()> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() < 32 {
        let mut byte = [0];
        call.read_exact(&mut byte)?;
        line.extend(byte);
    }
    while !*runs.lock().unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    let port = line.strip_prefix("CONNECT ").and_then(|port| port.strip_suffix('\n')?.parse().ok());
    let Some(to) = port.and_then(|port: u32| guest.get(&port)) else { return Ok(()) };
    call.write_all(b"OK 1073741824\n")?;
    calls.lock().unwrap().push(call.try_clone()?);
    to.send(call.into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// What listens in the machine: the streams as they are inside one, and on the guest's the real program.
fn guest(root: &Path) -> io::Result<Listening> {
    let mut listening = Listening::new();
    let mut open = |name: &str| -> io::Result<UnixStream> {
        let (put, taken) = channel();
        listening.insert(number(name), put);
        let next = move || taken.recv().map_err(|_| io::ErrorKind::BrokenPipe.into());
        Ok(relay(Side::Called, next)?.0)
    };
    let mut house = open(HOUSE)?;
    send(&mut house, &Tell::Booted { version: VERSION, kernel: "of a double".into() })?;
    let program = root.join(format!("guest-{}", std::process::id()));
    fs::write(&program, guest_program())?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let channel = OwnedFd::from(open(GUEST)?);
    let mut command = Command::new("sh");
    // The guest is ended with its parent, and by the end of its stream.
    command.args(["-c", "exec \"$0\" 3<&0 </dev/null"]).arg(&program).stdin(Stdio::from(channel));
    let notes = open(NOTES)?;
    let net = open(NET)?;
    std::thread::spawn(move || {
        let _held = (house, notes, net);
        command.spawn().and_then(|mut guest| guest.wait())
    });
    Ok(listening)
}

/// Serves the API on this socket, for one caller after the other.
pub(super) fn serve(listener: &UnixListener, double: &mut Double) -> io::Result<()> {
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream?);
        while let Some((method, path, body)) = question(&mut stream)? {
            let answer = match body {
                Err(error) => Err(error),
                Ok(body) => double.hear(&method, &path, body),
            };
            let text = match answer {
                Ok(Value::Null) => {
                    "HTTP/1.1 204 \r\nServer: Firecracker API\r\nConnection: keep-alive\r\n\r\n".to_owned()
                }
                Ok(body) => full("200", &body),
                Err(fault) => full("400", &json!({ "fault_message": fault })),
            };
            stream.get_mut().write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

fn full(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status} \r\nServer: Firecracker API\r\nConnection: keep-alive\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

type Question = (String, String, Result<Option<Value>, String>);

fn question(stream: &mut BufReader<UnixStream>) -> io::Result<Option<Question>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap_or(0);
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let body = match length {
        0 => Ok(None),
        _ => serde_json::from_slice(&body).map(Some).map_err(|error| error.to_string()),
    };
    Ok(Some((method, path, body)))
}

/// As the program itself, with its arguments.
pub(super) fn run(arguments: &[String], root: &Path) -> io::Result<()> {
    let at = arguments.iter().position(|word| word == "--api-sock").and_then(|at| arguments.get(at + 1));
    let at = at.ok_or(io::ErrorKind::InvalidInput)?;
    let listener = UnixListener::bind(root.join(at.trim_start_matches('/')))?;
    serve(&listener, &mut Double::new(root))
}

/// The state of a machine, as a double writes it down.
pub(super) fn state_of(file: &File) -> Value {
    let own = crate::memory::own(0).unwrap();
    copy(file, &own).unwrap();
    let mut text = Vec::new();
    let mut own = own;
    io::Seek::rewind(&mut own).unwrap();
    own.read_to_end(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}
