//! A guest's process, and a host that collects what it says.

use cofferdam_guest::host::{Client, Event, ExecId, HostError, Received};
use cofferdam_guest::wire::{Exec, Exited, Outcome, Stdin, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};

/// What a test waits for at most. Nothing here takes long; a guest that hangs shall fail its test.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A guest's process, which is not left behind.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

/// A guest without a namespace of its own leaves what it ran behind when it is killed, so that goes first. It is
/// a subreaper: whatever its commands left running is its child.
impl Drop for Process {
    fn drop(&mut self) {
        for _ in 0..100 {
            let below = descendants(self.0.id());
            if below.is_empty() {
                break;
            }
            for pid in below.into_iter().filter_map(|pid| rustix::process::Pid::from_raw(pid as i32)) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// All living processes below this one.
fn descendants(of: u32) -> Vec<u32> {
    let parent_of = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?.parse::<u32>().ok()?);
        (state != "Z").then_some(parent)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(u32, u32)> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(all.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// Starts a guest on the other end. A shell puts the socket where the guest looks for it.
pub(crate) fn start(channel: UnixStream) -> Process {
    let guest = std::env::var_os("COFFERDAM_TEST_GUEST")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_cofferdam-guest").into());
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" 3<&0 </dev/null"]).arg(guest);
    Process(command.stdin(Stdio::from(OwnedFd::from(channel))).spawn().unwrap())
}

/// What is known of one exec.
#[derive(Default, Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) tty: Vec<u8>,
    pub(crate) pid: Option<u32>,
    pub(crate) ended: Vec<Stream>,
    pub(crate) input_closed: bool,
    pub(crate) stops: u32,
    pub(crate) exited: Option<Exited>,
}

impl Seen {
    pub(crate) fn outcome(&self) -> Outcome {
        self.exited.unwrap().outcome
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tty).into_owned()
    }
}

pub(crate) struct Guest {
    // Dropped first: once the channel closes, what the guest ran is nobody's.
    pub(crate) process: Process,
    pub(crate) client: Client,
    pub(crate) seen: BTreeMap<ExecId, Seen>,
    pub(crate) ready: bool,
}

/// `sh -c SCRIPT` with nothing on its input.
pub(crate) fn shell(script: &str) -> Exec<'_> {
    Exec {
        argv: vec![b"sh", b"-c", script.as_bytes()],
        env: vec![b"PATH=/usr/bin:/bin"],
        cwd: b"/",
        user: None,
        tty: None,
        stdin: Stdin::Null,
    }
}

impl Guest {
    pub(crate) fn start() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = start(theirs);
        let client = Client::new(ours.into()).unwrap();
        Self { client, process, seen: BTreeMap::new(), ready: false }
    }

    pub(crate) fn exec(&mut self, exec: &Exec<'_>) -> ExecId {
        let id = self.client.exec(exec).unwrap();
        self.seen.insert(id, Seen::default());
        id
    }

    /// Waits until there is something to read or to write, and does it.
    pub(crate) fn turn(&mut self) -> Received {
        self.client.flush().unwrap();
        let wanted = if self.client.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let ready = poll(&mut [PollFd::new(&self.client, wanted)], Some(&PATIENCE)).unwrap();
        assert!(ready > 0, "the guest says nothing: {:?}", self.seen.keys());
        let received = self.client.receive().unwrap();
        self.hear().unwrap();
        received
    }

    fn hear(&mut self) -> Result<(), HostError> {
        let mut consumed = Vec::new();
        while let Some(event) = self.client.next_event()? {
            let seen = &mut self.seen;
            match event {
                Event::Ready { pid } => self.ready = pid > 1,
                Event::Started { id, pid } => seen.entry(id).or_default().pid = Some(pid),
                Event::Output { id, stream, bytes } => {
                    let seen = seen.entry(id).or_default();
                    let to = match stream {
                        Stream::Stdout => &mut seen.stdout,
                        Stream::Stderr => &mut seen.stderr,
                        Stream::Tty => &mut seen.tty,
                        Stream::Stdin => panic!("output on stdin"),
                    };
                    to.extend_from_slice(bytes);
                    consumed.push((id, stream, bytes.len()));
                }
                Event::OutputEnd { id, stream } => seen.entry(id).or_default().ended.push(stream),
                Event::InputReady { .. } => (),
                Event::InputClosed { id } => seen.entry(id).or_default().input_closed = true,
                Event::Stopped { id } => seen.entry(id).or_default().stops += 1,
                Event::Asked { plea, .. } => panic!("{plea:?}, and nobody was invited to ask"),
                Event::Exited { id, exited } => seen.entry(id).or_default().exited = Some(exited),
            }
        }
        for (id, stream, bytes) in consumed {
            self.client.consumed(id, stream, bytes)?;
        }
        Ok(())
    }

    pub(crate) fn until(&mut self, id: ExecId, done: impl Fn(&Seen) -> bool) -> Seen {
        while !done(&self.seen[&id]) {
            assert_ne!(self.turn(), Received::Closed, "the guest is gone");
        }
        self.seen[&id].clone()
    }

    pub(crate) fn finish(&mut self, id: ExecId) -> Seen {
        self.until(id, |seen| seen.exited.is_some())
    }

    pub(crate) fn run(&mut self, exec: &Exec<'_>) -> Seen {
        let id = self.exec(exec);
        self.finish(id)
    }

    /// Sends all of it while reading what comes back, then ends the input.
    pub(crate) fn feed(&mut self, id: ExecId, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.seen[&id].input_closed && self.seen[&id].exited.is_none() {
            let taken = self.client.input(id, bytes);
            bytes = &bytes[taken..];
            if taken == 0 {
                self.turn();
            }
        }
        self.client.end_input(id);
    }

    /// Closes the channel and waits for the guest's own end.
    pub(crate) fn close(self) -> ExitStatus {
        let Self { client, mut process, .. } = self;
        drop(client);
        process.wait()
    }
}
