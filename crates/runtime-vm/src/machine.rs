//! One VMM at work: the sandbox around it, the monitor, the ports. Dropping it ends it.

use crate::accelerator::DEVICE;
use crate::ask::{self, Want};
use crate::launch::{self, Order};
use crate::lines::Lines;
use crate::memory::Shared;
use crate::nbd::{self, Disks};
use crate::qemu::KVM;
use crate::vmm::{Vmm, Wiring};
use crate::watch::{Tail, watch};
use crate::written;
use cofferdam_guest::host::Client;
use cofferdam_inside::{DISKS, GUEST, HOUSE, NET, NOTES, PROGRAMS, SESSION, SYSTEM};
use cofferdam_model::{EnforcementReport, LayerPlace, Limits, Mount, Profile, UserMode};
use cofferdam_runtime::{Backend, Base, Callers, Doors, Network, RuntimeError, Sandbox, SandboxSpec};
use cofferdam_runtime_process::ProcessBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where the sandbox around a VMM has our own program, and the socket on which it is told what to start.
pub(crate) const PROGRAM: &str = "/vm/cofferdam";
pub(crate) const MEETING: &str = "/vm/meeting";
/// And the kernel, where one is booted; disks that are files; a VMM that is not the system's.
pub(crate) const KERNEL: &str = "/vm/kernel";
pub(crate) const FILES: &str = "/vm/disks";
pub(crate) const SHOWN: &str = "/vm/vmm";
/// Where a VMM makes its own sockets, in memory of its sandbox.
pub(crate) const PLACE: &str = "/tmp/vm";
/// What the memory is called among what is handed over.
const RAM: &str = "ram";
/// Until the program in the sandbox has called.
const CALL: Duration = Duration::from_secs(30);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(10);

/// Who is behind a connection is the machine's own knowledge, and what it says of that proves nothing: rules that name
/// a program do not hold for it.
#[derive(Debug)]
struct Nobody;

impl Callers for Nobody {
    fn program(&self, _: SocketAddr, _: SocketAddr) -> Option<PathBuf> {
        None
    }
}

/// What a VMM is started with.
pub(crate) struct Start<'a> {
    /// As whom, and held to what.
    pub(crate) spec: &'a SandboxSpec,
    /// A directory of our own, for as long as it runs.
    pub(crate) dir: &'a Path,
    /// This program.
    pub(crate) program: &'a Path,
    /// Where disks are kept that had to be written out.
    pub(crate) images: &'a Path,
    pub(crate) doors: bool,
    pub(crate) vmm: &'a dyn Vmm,
    /// Its memory, which it opens again by descriptor: no file, since it may write to none.
    pub(crate) memory: BorrowedFd<'a>,
    /// That is a file after all, which it cannot write to, and is lent.
    pub(crate) is_lent: bool,
    /// What it boots, where it boots: the directory of a kernel.
    pub(crate) kernel: Option<&'a Path>,
    pub(crate) disks: Disks,
}

pub(crate) struct Machine {
    around: Box<dyn Sandbox>,
    pub(crate) monitor: UnixStream,
    pub(crate) house: UnixStream,
    /// The guest's, whichever there is.
    pub(crate) channel: UnixStream,
    /// Where system calls are told.
    pub(crate) notes: UnixStream,
    pub(crate) doors: Option<Doors>,
    pub(crate) tail: Tail,
    /// The memory that it has in common with others of its template, for as long as it runs.
    pub(crate) shares: Option<Arc<Shared>>,
    /// Closed by the thread that watches, when the VMM has ended.
    ended: OwnedFd,
    /// That thread, which leaves the way into the sandbox behind.
    watching: Option<JoinHandle<Option<Client>>>,
    /// Where the program in the sandbox calls.
    meeting: UnixListener,
    /// That program, where it is asked for more than to start the VMM; it ends with this.
    starter: Option<UnixStream>,
    /// The machine's streams, where they are called for.
    lines: Option<Lines>,
    dir: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.around.finish();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn io(doing: &'static str) -> impl FnOnce(io::Error) -> RuntimeError {
    RuntimeError::io(doing)
}

impl Machine {
    pub(crate) fn start(start: Start<'_>) -> Result<Self, RuntimeError> {
        fs::create_dir_all(start.dir).map_err(io("make the machine's directory"))?;
        let meeting = meeting(start.dir).map_err(io("make the place where the VMM is started"))?;
        // What is refused there is refused at once: nobody is told of each call of a VMM.
        let without = vec!["seccomp.record".into()];
        let kvm = match start.vmm.wiring() {
            Wiring::Handed => None,
            Wiring::Asked => {
                fs::create_dir_all(start.dir.join("disks")).map_err(io("make the machine's directory"))?;
                Some(node(start.dir).map_err(io("show /dev/kvm to the VMM"))?)
            }
        };
        let backend = ProcessBackend { without, kvm, ..ProcessBackend::default() };
        let mut around = backend.create(around(&start))?;
        let channel = around.take_channel().ok_or_else(|| RuntimeError::Step {
            step: "vmm",
            what: "the sandbox around the VMM has no channel".into(),
            fix: "report this".into(),
        })?;
        let doors = around.take_doors();
        let client = Client::new(channel).map_err(io::Error::other).map_err(io("watch the VMM"))?;
        let tail = Tail::default();
        let (ended, watching) = watch(client, &tail).map_err(io("watch the VMM"))?;
        let (ends, theirs) = Ends::pair().map_err(io("make the machine's sockets"))?;
        let mut machine = Self {
            around,
            monitor: ends.monitor,
            house: ends.house,
            channel: ends.channel,
            notes: ends.notes,
            doors: doors.map(|doors| Doors { callers: Arc::new(Nobody), ..doors }),
            tail,
            shares: None,
            ended,
            watching: Some(watching),
            meeting,
            starter: None,
            lines: None,
            dir: start.dir.to_owned(),
        };
        machine.connect(start, theirs)?;
        Ok(machine)
    }

    /// Ends this VMM, and starts another in its place: in the same sandbox, whose network and doors stay.
    pub(crate) fn start_again(&mut self, start: Start<'_>) -> Result<(), RuntimeError> {
        let gone = || RuntimeError::Step {
            step: "vmm",
            what: format!("the sandbox around the VMM is gone: {}", self.tail.said()),
            fix: "start another session".into(),
        };
        // Who has started it ends it; or it is told in its own words.
        self.lines = None;
        if self.starter.take().is_none() {
            let _ = (&self.monitor).write_all(b"{\"execute\":\"quit\"}\n");
        }
        let left = readable(&[self.ended.as_fd()], Instant::now() + CALL).map_err(io("end the VMM"))?;
        let client = match (left, self.watching.take()) {
            (Some(_), Some(watching)) => watching.join().ok().flatten().ok_or_else(gone)?,
            _ => return Err(gone()),
        };
        let (ended, watching) = watch(client, &self.tail).map_err(io("watch the VMM"))?;
        let (ends, theirs) = Ends::pair().map_err(io("make the machine's sockets"))?;
        (self.ended, self.watching) = (ended, Some(watching));
        (self.monitor, self.house) = (ends.monitor, ends.house);
        (self.channel, self.notes) = (ends.channel, ends.notes);
        self.connect(start, theirs)
    }

    fn connect(&mut self, start: Start<'_>, theirs: Theirs) -> Result<(), RuntimeError> {
        match start.vmm.wiring() {
            Wiring::Handed => self.connect_handed(start, theirs),
            Wiring::Asked => self.connect_asked(start),
        }
    }

    fn connect_handed(&mut self, start: Start<'_>, theirs: Theirs) -> Result<(), RuntimeError> {
        let pair = || UnixStream::pair().map_err(io("make the machine's sockets"));
        let (carrier, of_net) = pair()?;
        let (system, of_system) = pair()?;
        let (programs, of_programs) = pair()?;
        let (session, of_session) = pair()?;
        let Disks { system: of_the_system, programs: of_the_home, session: of_the_session } = start.disks;
        for (disk, socket) in [(of_the_system, system), (of_the_home, programs), (of_the_session, session)] {
            nbd::serve(disk, socket).map_err(io("serve the machine's disks"))?;
        }
        let argv = start.vmm.argv();
        let wants_kvm = argv.iter().any(|word| word.contains(&format!("{{{KVM}}}")));
        let kvm = wants_kvm.then(|| File::options().read(true).write(true).open(DEVICE)).transpose();
        let kvm = kvm.map_err(io("open /dev/kvm"))?;
        let mut named: Vec<(&str, BorrowedFd<'_>)> = vec![
            ("monitor", theirs.monitor.as_fd()),
            (HOUSE, theirs.house.as_fd()),
            (GUEST, theirs.channel.as_fd()),
            (NOTES, theirs.notes.as_fd()),
            (NET, of_net.as_fd()),
            ("carrier", carrier.as_fd()),
            (SYSTEM, of_system.as_fd()),
            (PROGRAMS, of_programs.as_fd()),
            (SESSION, of_session.as_fd()),
            (RAM, start.memory),
        ];
        named.extend(kvm.as_ref().map(|device| (KVM, device.as_fd())));
        let network = Some("carrier".to_owned());
        let lent = start.is_lent.then(|| RAM.to_owned());
        self.hand_over(&named, |given| Order { argv, given, network, lent, place: None }).map(drop)
    }

    /// What it is handed are files in memory; the rest it finds in its sandbox, or makes there.
    fn connect_asked(&mut self, start: Start<'_>) -> Result<(), RuntimeError> {
        for name in DISKS {
            let written = self.write_disk(name, &start.disks, start.images);
            written.map_err(io("write the machine's disks"))?;
        }
        let mut named = vec![(RAM, start.memory)];
        named.extend(start.vmm.given());
        let (argv, place) = (start.vmm.argv(), Some(PLACE.into()));
        let starter =
            self.hand_over(&named, |given| Order { argv, given, network: None, lent: None, place })?;
        starter.set_read_timeout(Some(CALL)).map_err(io("speak to who starts the VMM"))?;
        self.starter = Some(starter);
        Ok(())
    }

    fn hand_over(
        &self,
        named: &[(&str, BorrowedFd<'_>)],
        order: impl FnOnce(Vec<String>) -> Order,
    ) -> Result<UnixStream, RuntimeError> {
        let order = order(named.iter().map(|(name, _)| (*name).to_owned()).collect());
        let given: Vec<BorrowedFd<'_>> = named.iter().map(|(_, descriptor)| *descriptor).collect();
        let mut caller = self.called()?;
        launch::hand_over(&mut caller, &order, &given).map_err(io("hand over what the VMM works with"))?;
        Ok(caller)
    }

    /// Writes out what is on a disk by now, for a VMM that has files; others are served.
    pub(crate) fn write_disk(&self, name: &str, disks: &Disks, images: &Path) -> io::Result<()> {
        let at = self.dir.join("disks");
        if !at.is_dir() {
            return Ok(());
        }
        let (disk, kept) = match name {
            SYSTEM => (&disks.system, Some(images)),
            PROGRAMS => (&disks.programs, Some(images)),
            _ => (&disks.session, None),
        };
        written::place(disk, &at.join(name), kept)
    }

    /// A stream to the VMM's own socket.
    pub(crate) fn ask(&self, want: Want) -> io::Result<Option<UnixStream>> {
        let starter = self.starter.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        ask::ask(starter, want)
    }

    /// The same, until somebody answers there.
    pub(crate) fn ask_until(&self, want: Want, until: Instant) -> io::Result<Option<UnixStream>> {
        loop {
            match self.ask(want) {
                Err(error) if error.kind() != io::ErrorKind::Other || Instant::now() > until => {
                    return Err(error);
                }
                Err(_) => {}
                done => return done,
            }
            if readable(&[self.ended()], Instant::now() + AGAIN)?.is_some() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Calls the machine: its streams are connected from then on, or again.
    pub(crate) fn call(&mut self, until: Instant) -> io::Result<()> {
        if self.lines.is_none() {
            let (lines, [house, channel, notes]) = Lines::new(self.ended())?;
            (self.house, self.channel, self.notes) = (house, channel, notes);
            self.lines = Some(lines);
        }
        self.lines.as_ref().map_or(Ok(()), |lines| lines.call(|want| self.ask_until(want, until)))
    }

    /// Whether all that was said to the guest is in the machine.
    pub(crate) fn is_all_got(&self) -> bool {
        self.lines.as_ref().is_none_or(Lines::is_all_got)
    }

    fn called(&self) -> Result<UnixStream, RuntimeError> {
        let until = Instant::now() + CALL;
        let first =
            readable(&[self.meeting.as_fd(), self.ended.as_fd()], until).map_err(io("wait for the VMM"))?;
        if first == Some(0) {
            return self.meeting.accept().map(|(stream, _)| stream).map_err(io("wait for the VMM"));
        }
        Err(RuntimeError::Step {
            step: "vmm",
            what: format!("the program that starts the VMM did not call: {}", self.tail.said()),
            fix: "run `cofferdam doctor`".into(),
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// The first process of the sandbox around its VMM.
    pub(crate) fn first(&self) -> Option<BorrowedFd<'_>> {
        self.around.ended()
    }

    /// What holds for the VMM itself.
    pub(crate) fn report(&self) -> &EnforcementReport {
        self.around.report()
    }

    pub(crate) fn around(&self) -> &dyn Sandbox {
        self.around.as_ref()
    }

    /// Ends it, however it is.
    pub(crate) fn end(&mut self) -> Result<cofferdam_runtime::Finished, RuntimeError> {
        self.around.finish()
    }
}

/// The machine's sockets, at one of their ends.
struct Ends {
    monitor: UnixStream,
    house: UnixStream,
    channel: UnixStream,
    notes: UnixStream,
}

/// Those of the VMM.
type Theirs = Ends;

impl Ends {
    fn pair() -> io::Result<(Self, Theirs)> {
        let (monitor, of_monitor) = UnixStream::pair()?;
        let (house, of_house) = UnixStream::pair()?;
        let (channel, of_channel) = UnixStream::pair()?;
        let (notes, of_notes) = UnixStream::pair()?;
        let ours = Self { monitor, house, channel, notes };
        Ok((ours, Self { monitor: of_monitor, house: of_house, channel: of_channel, notes: of_notes }))
    }
}

/// Which of these can be read first, until then.
pub(crate) fn readable(fds: &[BorrowedFd<'_>], until: Instant) -> io::Result<Option<usize>> {
    loop {
        let mut set: Vec<PollFd<'_>> =
            fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut set, Some(&left)) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(set.iter().position(|fd| !fd.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The socket lies in a directory that nobody else can enter; in the sandbox it is another user's.
fn meeting(dir: &Path) -> io::Result<UnixListener> {
    let open = File::open(dir)?;
    // By descriptor, since a path may be longer than a socket's name can be.
    let path = PathBuf::from(format!("/proc/self/fd/{}/meeting", std::os::fd::AsRawFd::as_raw_fd(&open)));
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// The device, for a VMM that opens it by itself. Root's sandboxes have other users, for whom the host's own is closed:
/// they are shown another name of it, in a directory that nobody else can enter.
fn node(dir: &Path) -> io::Result<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return Ok(DEVICE.into());
    }
    let of = fs::metadata(DEVICE)?.rdev();
    let at = dir.join("kvm");
    let _ = fs::remove_file(&at);
    let (mode, kind) = (Mode::from_raw_mode(0o666), FileType::CharacterDevice);
    rustix::fs::mknodat(CWD, &at, kind, mode, of)?;
    rustix::fs::chmod(&at, mode)?;
    Ok(at)
}

/// The sandbox around a VMM: nothing of the host but its system, nothing that can be written to, no network but one
/// in which everything leads to the doors.
fn around(start: &Start<'_>) -> SandboxSpec {
    let spec = start.spec;
    let mount = |source: &Path, target: &str, writable| Mount {
        source: source.to_owned(),
        target: target.into(),
        writable,
    };
    let mut mounts =
        vec![mount(start.program, PROGRAM, false), mount(&start.dir.join("meeting"), MEETING, true)];
    mounts.extend(start.kernel.map(|kernel| mount(kernel, KERNEL, false)));
    mounts.extend(start.vmm.shown().map(|program| mount(program, SHOWN, false)));
    let opens_kvm = start.vmm.wiring() == Wiring::Asked;
    if opens_kvm {
        mounts.push(mount(&start.dir.join("disks"), FILES, false));
    }
    // Who may open it is the caller, and nobody that the caller is not; root makes one that its user may open.
    let as_caller = opens_kvm && !rustix::process::geteuid().is_root();
    SandboxSpec {
        id: spec.id.clone(),
        workdir: start.dir.to_owned(),
        shown_at: None,
        home: PathBuf::from("/home/user"),
        path: Vec::new(),
        mounts,
        hide: Vec::new(),
        profile: Profile::Run,
        users: if as_caller { UserMode::Single } else { UserMode::Auto },
        limits: Limits { cpu: spec.limits.cpu, share: spec.limits.share, ..Limits::default() },
        layer_place: LayerPlace::Memory,
        nested: false,
        sudo: false,
        tracing: false,
        syscalls: Default::default(),
        programs: None,
        root: None,
        ahead: false,
        pausable: spec.pausable,
        network: if start.doors { Network::Doors } else { Network::None },
        files: Vec::new(),
        require: Vec::new(),
        accept: spec.accept.clone(),
        layer: spec.layer.with_extension("vmm"),
        conflicts: spec.conflicts.clone(),
        base: Base::default(),
        staging: spec.staging.clone(),
        ranges: spec.ranges.clone(),
    }
}
