//! The driver against the double: the whole way of a machine, from its command line to a copy of it, with commands that
//! run in a real guest.

use super::double::{self, Double, TOLD};
use super::*;
use crate::ask;
use crate::launch::{self, Order};
use crate::lines::Lines;
use cofferdam_guest::host::{Client, Event, ExecId, Received};
use cofferdam_guest::wire::{Exec, Stdin};
use cofferdam_inside::wire::{FROM_INSIDE, Frame, Tell, receive};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;

const ARGUMENTS: &str = "COFFERDAM_TEST_DOUBLE_ARGUMENTS";
const ROOT: &str = "COFFERDAM_TEST_DOUBLE_ROOT";

/// Not a test by itself: what the program `firecracker` of these tests is.
#[test]
fn the_double_as_a_program() {
    if let (Ok(arguments), Ok(root)) = (std::env::var(ARGUMENTS), std::env::var(ROOT)) {
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        double::run(&arguments, Path::new(&root)).unwrap();
    }
}

/// A root in which a machine's files are, and a program that is the double in it.
fn site() -> (tempfile::TempDir, Program) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for name in ["vm/kernel/vmlinux", "vm/kernel/initrd"] {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), "x").unwrap();
    }
    fs::create_dir_all(root.join("vm/disks")).unwrap();
    DISKS.iter().for_each(|name| fs::write(root.join("vm/disks").join(name), "").unwrap());
    let program = root.join("firecracker");
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'Firecracker v{TOLD}'\n{ROOT}='{}' {ARGUMENTS}=\"$*\" exec '{}' --exact \
         firecracker::tests::the_double_as_a_program --nocapture -q 2>/dev/null\n",
        root.display(),
        own.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (dir, Program::of_version(Kind::Firecracker, TOLD))
}

const SIZE: Size = Size { memory: 128 << 20, processors: 2 };

fn driver(program: &Program, role: Role) -> Firecracker {
    Firecracker::new(program, role, SIZE, "console=ttyS0").unwrap()
}

/// One that was started as it is in its sandbox, by the program that stays beside it.
struct Started {
    starter: Option<UnixStream>,
    launched: Option<JoinHandle<io::Result<i32>>>,
    ended: OwnedFd,
    _alive: io::PipeWriter,
}

impl Started {
    fn new(root: &Path, vmm: &Firecracker, ram: &File) -> Self {
        let place = root.join(PLACE.trim_start_matches('/'));
        let meeting = root.join("meeting");
        let _ = fs::remove_file(&meeting);
        let listener = UnixListener::bind(&meeting).unwrap();
        let launched = std::thread::spawn(move || launch::launch(&meeting));
        let mut caller = listener.accept().unwrap().0;
        let mut named = vec![(RAM, ram.as_fd())];
        named.extend(vmm.given());
        let mut argv = vmm.argv();
        argv[0] = root.join("firecracker").to_str().unwrap().to_owned();
        let given = named.iter().map(|(name, _)| (*name).to_owned()).collect();
        let order = Order { argv, given, network: None, lent: None, place: Some(place) };
        let descriptors: Vec<BorrowedFd<'_>> = named.iter().map(|(_, descriptor)| *descriptor).collect();
        launch::hand_over(&mut caller, &order, &descriptors).unwrap();
        let (ended, alive) = io::pipe().unwrap();
        Self { starter: Some(caller), launched: Some(launched), ended: ended.into(), _alive: alive }
    }

    /// As a machine asks.
    fn ask(&self, want: Want) -> io::Result<Option<UnixStream>> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match ask::ask(self.starter.as_ref().unwrap(), want) {
                Err(error) if error.kind() == io::ErrorKind::Other && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    fn greet(&self, vmm: &mut Firecracker) -> io::Result<()> {
        vmm.begin(Api::new(self.ask(Want::Api)?.unwrap(), PATIENCE)?)
    }

    fn lines(&self) -> (Lines, [UnixStream; 3]) {
        Lines::new(self.ended.as_fd()).unwrap()
    }

    /// Nobody asks any more, so the VMM ends.
    fn end(mut self) -> i32 {
        drop(self.starter.take());
        self.launched.take().unwrap().join().unwrap().unwrap()
    }
}

/// Runs commands over a stream to a guest.
struct Commands(Client);

impl Commands {
    fn exec(&mut self, script: &str, stdin: Stdin) -> ExecId {
        let exec = Exec {
            argv: vec![b"sh", b"-c", script.as_bytes()],
            env: vec![b"PATH=/usr/bin:/bin"],
            cwd: b"/",
            user: None,
            tty: None,
            stdin,
        };
        self.0.exec(&exec).unwrap()
    }

    /// Until it has said this, or ended where nothing is waited for.
    fn until(&mut self, text: Option<&str>) -> String {
        let mut said = Vec::new();
        loop {
            self.0.flush().unwrap();
            let wanted = if self.0.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&self.0, wanted)], Some(&patience)).unwrap();
            assert!(ready > 0, "the guest says nothing after {:?}", String::from_utf8_lossy(&said));
            assert!(self.0.receive().unwrap() != Received::Closed, "the guest is gone");
            loop {
                let consumed = match self.0.next_event().unwrap() {
                    None => break,
                    Some(Event::Output { id, stream, bytes }) => {
                        said.extend_from_slice(bytes);
                        Some((id, stream, bytes.len()))
                    }
                    Some(Event::Exited { .. }) => return String::from_utf8(said).unwrap(),
                    Some(_) => None,
                };
                if let Some((id, stream, bytes)) = consumed {
                    self.0.consumed(id, stream, bytes).unwrap();
                }
            }
            if text.is_some_and(|text| String::from_utf8_lossy(&said).contains(text)) {
                return String::from_utf8(said).unwrap();
            }
        }
    }
}

fn booted(house: &mut UnixStream) {
    house.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let told = receive::<Tell>(house, FROM_INSIDE).unwrap();
    assert!(matches!(told, Frame::Message(Tell::Booted { .. })));
}

#[test]
fn a_machine_is_booted_kept_and_copied_and_runs_commands() {
    let _alone = launch::tests::alone();
    let (dir, program) = site();
    let root = dir.path();
    assert_eq!(version(&root.join("firecracker")).unwrap(), TOLD);

    // The one that others are copied from.
    let mut template = driver(&program, Role::Template);
    let ram = memory::own(SIZE.memory).unwrap();
    let started = Started::new(root, &template, &ram);
    started.greet(&mut template).unwrap();
    template.start().unwrap();
    let (lines, [mut house, channel, _notes]) = started.lines();
    lines.call(|want| started.ask(want)).unwrap();
    booted(&mut house);
    let mut commands = Commands(Client::new(channel.into()).unwrap());
    commands.exec("echo through; echo the VMM >&2", Stdin::Null);
    assert_eq!(commands.until(None), "through\nthe VMM\n");
    let told = template.told().unwrap();
    let expected = (Kind::Firecracker, TOLD.to_owned(), SIZE.memory, 2, true);
    assert_eq!((told.kind, told.version, told.memory, told.processors, told.is_running), expected);
    let state = tempfile::tempfile().unwrap();
    template.save(&state).unwrap();
    assert!(!template.told().unwrap().is_running);
    let mut start = [0; 6];
    ram.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(&start, b"memory", "it is in the file that was handed over");
    let drives = double::state_of(&state)["drives"].clone();
    let drives: Vec<&str> =
        drives.as_array().unwrap().iter().map(|one| one["drive_id"].as_str().unwrap()).collect();
    assert_eq!(drives, DISKS, "by this order they are known inside");
    drop((commands, lines));
    started.end();

    // A copy, by another process.
    let mut copy = driver(&program, Role::Copy);
    let started = Started::new(root, &copy, &ram);
    started.greet(&mut copy).unwrap();
    copy.read_back(&state).unwrap();
    let (lines, [mut house, channel, _notes]) = started.lines();
    lines.call(|want| started.ask(want)).unwrap();
    booted(&mut house);
    copy.exchanged("session").unwrap();
    let mut commands = Commands(Client::new(channel.into()).unwrap());
    let reading = commands.exec("echo ready; read line; echo \"got $line\"", Stdin::Piped);
    commands.until(Some("ready"));

    // It is written down, by which its connections end, and goes on; what runs in it does not notice.
    let kept = tempfile::tempfile().unwrap();
    let running = copy.keep(&kept).unwrap_err().to_string();
    assert!(running.contains("not paused"), "{running}");
    copy.pause().unwrap();
    let written = copy.keep(&kept).unwrap().unwrap();
    assert_eq!(written.metadata().unwrap().len(), SIZE.memory);
    copy.resume().unwrap();
    lines.call(|want| started.ask(want)).unwrap();
    assert_eq!(commands.0.input(reading, b"a line\n"), 7);
    assert_eq!(commands.until(None), "got a line\n");
    drop((commands, lines));
    started.end();
}

#[test]
fn what_it_is_told_at_the_wrong_time_is_refused_with_its_own_words() {
    let _alone = launch::tests::alone();
    let (dir, program) = site();
    let ram = memory::own(SIZE.memory).unwrap();
    let mut vmm = driver(&program, Role::Copy);
    let started = Started::new(dir.path(), &vmm, &ram);
    started.greet(&mut vmm).unwrap();
    let said = |done: io::Result<()>| done.unwrap_err().to_string();
    let pause = said(vmm.pause());
    assert!(pause.contains("`PATCH /vm`") && pause.contains("before starting the microVM"), "{pause}");
    vmm.configure().unwrap();
    let loaded = said(vmm.read_back(&tempfile::tempfile().unwrap()));
    assert!(loaded.contains("not allowed after configuring"), "{loaded}");
    started.end();

    // A state that is none, and memory of another size.
    let mut vmm = driver(&program, Role::Copy);
    let started = Started::new(dir.path(), &vmm, &ram);
    started.greet(&mut vmm).unwrap();
    let loaded = said(vmm.read_back(&tempfile::tempfile().unwrap()));
    assert!(loaded.contains("not a snapshot"), "{loaded}");
    started.end();

    // Another program than the one that was found.
    let mut vmm = driver(&Program::of_version(Kind::Firecracker, "1.9.0"), Role::Copy);
    let started = Started::new(dir.path(), &vmm, &ram);
    let met = said(started.greet(&mut vmm));
    assert!(met.contains("was 1.9.0 when it was found"), "{met}");
    assert!(started.end() != 0, "it was ended");
}

/// That the double is as strict as what it stands for: each of these is refused by Firecracker as well.
#[test]
fn the_double_takes_only_what_is_described() {
    let _alone = launch::tests::alone();
    let (dir, _) = site();
    let root = dir.path();
    let check = |method: &str, path: &str, body: Value, expected: &str| {
        let said = Double::new(root).hear(method, path, Some(body)).unwrap_err();
        assert!(said.contains(expected), "{method} {path}: {said}");
    };
    check("PUT", "/machine-config", json!({ "vcpu_count": 1 }), "missing field `mem_size_mib`");
    check("PUT", "/machine-config", json!({ "vcpu_count": 33, "mem_size_mib": 128 }), "`vcpu_count`");
    check("PUT", "/machine-config", json!({ "vcpu_count": "1", "mem_size_mib": 128 }), "`vcpu_count`");
    check("PUT", "/boot-source", json!({ "kernel_image_path": "/nowhere" }), "kernel_image_path");
    check(
        "PUT",
        "/boot-source",
        json!({ "kernel_image_path": "/vm/kernel/vmlinux", "args": "x" }),
        "unknown",
    );
    let drive = json!({ "drive_id": "a", "is_root_device": false, "is_read_only": true });
    check("PUT", "/drives/b", drive.clone(), "does not match");
    check("PUT", "/drives/a", drive, "path_on_host");
    check("PUT", "/vsock", json!({ "guest_cid": 2, "uds_path": "/v" }), "`guest_cid`");
    check("PUT", "/actions", json!({ "action_type": "Start" }), "`action_type`");
    check("PUT", "/actions", json!({ "action_type": "InstanceStart" }), "without kernel");
    check("PATCH", "/vm", json!({ "state": "Stopped" }), "`state`");
    let load =
        json!({ "snapshot_path": "/s", "mem_backend": { "backend_type": "Disk", "backend_path": "/m" } });
    check("PUT", "/snapshot/load", load, "`backend_type`");
    check("PUT", "/snapshot/load", json!({ "snapshot_path": "/s" }), "is needed");
    check("PUT", "/nothing", json!({}), "Invalid request method and/or path");
}

#[test]
fn only_a_program_that_says_so_is_firecracker() {
    let _alone = launch::tests::alone();
    let dir = tempfile::tempdir().unwrap();
    let check = |says: &str, expected: Result<&str, &str>| {
        let path = dir.path().join("program");
        fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        match (version(&path), expected) {
            (Ok(version), Ok(expected)) => assert_eq!(version, expected),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, _) => panic!("{found:?} and not {expected:?}"),
        }
    };
    check("Firecracker v1.9.1", Ok("1.9.1"));
    check("Firecracker v1.17.0-dev", Ok("1.17.0-dev"));
    check("Firecracker v1.4.0", Err("1.5 is needed"));
    check("QEMU emulator version 9.0", Err("it says `QEMU"));
    let env = |path: PathBuf| move |name: &str| (name == "PATH").then(|| path.clone());
    fs::write(dir.path().join(NAME), "").unwrap();
    assert_eq!(place(&env(dir.path().to_owned())).unwrap(), dir.path().join(NAME));
    assert!(place(&env("/nowhere".into())).unwrap_err().to_string().contains("not installed"));
}

/// A caller in the sandbox is believed nothing: what it hands out has to be a stream.
#[test]
fn something_else_than_a_stream_is_not_taken() {
    let _alone = launch::tests::alone();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let file = Arc::new(tempfile::tempfile().unwrap());
    let answer = std::thread::spawn(move || {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
        let mut asked = [0; 16];
        io::Read::read_exact(&mut &theirs, &mut asked).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = [file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&rights));
        let done = [io::IoSlice::new(&[0])];
        rustix::net::sendmsg(&theirs, &done, &mut control, SendFlags::NOSIGNAL).unwrap();
    });
    let error = ask::ask(&ours, Want::Port(1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    answer.join().unwrap();
}

/// Has the real one see a directory as its root.
const JAIL: &str = r#"#!/bin/sh
exec unshare --mount sh -c '
for name in usr lib lib64 proc dev; do
    mkdir -p "$0/$name" && mount --rbind "/$name" "$0/$name" || exit 1
done
exec chroot "$0" /program "$@"' "$(dirname "$0")" "$@"
"#;

/// A root for the real one, with a real kernel; or why there is none.
fn real_site() -> Result<(tempfile::TempDir, Program), String> {
    let env = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    if !rustix::process::geteuid().is_root() {
        return Err("only root can give it a root of its own".into());
    }
    File::options().read(true).write(true).open("/dev/kvm").map_err(|error| format!("/dev/kvm: {error}"))?;
    let said = |error: RuntimeError| error.to_string();
    let program = Program::find(Kind::Firecracker, &env, root).map_err(said)?;
    let kernel = crate::kernel::Kernel::find(env).map_err(said)?;
    fs::create_dir_all(root.join("vm/kernel")).unwrap();
    fs::create_dir_all(root.join("vm/disks")).unwrap();
    kernel.unpack(&root.join("vm/kernel/vmlinux"), &root.join("vm/kernel/initrd")).map_err(said)?;
    for name in DISKS {
        File::create(root.join("vm/disks").join(name)).unwrap().set_len(crate::nbd::SIZE).unwrap();
    }
    fs::copy(&program.path, root.join("program")).unwrap();
    fs::write(root.join("firecracker"), JAIL).unwrap();
    fs::set_permissions(root.join("firecracker"), fs::Permissions::from_mode(0o755)).unwrap();
    Ok((dir, program))
}

/// The real one, as far as it goes without a guest that answers: it takes all that it is told, writes a machine down into
/// what it was handed, and another goes on with that.
#[test]
fn the_real_one_takes_what_it_is_told_where_there_is_one() {
    let _alone = launch::tests::alone();
    let (dir, program) = match real_site() {
        Ok(site) => site,
        Err(why) => return println!("not run: no Firecracker can be driven here: {why}"),
    };
    let root = dir.path();
    let mut template = Firecracker::new(&program, Role::Template, SIZE, &command_line()).unwrap();
    let ram = memory::own(SIZE.memory).unwrap();
    let started = Started::new(root, &template, &ram);
    started.greet(&mut template).unwrap();
    template.start().unwrap();
    let told = template.told().unwrap();
    assert!(told.is_running && told.version == program.version && told.memory == SIZE.memory, "{told:?}");
    let state = tempfile::tempfile().unwrap();
    template.save(&state).unwrap();
    assert!(!template.told().unwrap().is_running);
    assert!(state.metadata().unwrap().len() > 1000 && ram.metadata().unwrap().blocks() > 0);
    started.end();

    let mut copy = Firecracker::new(&program, Role::Copy, SIZE, "").unwrap();
    let started = Started::new(root, &copy, &ram);
    started.greet(&mut copy).unwrap();
    copy.read_back(&state).unwrap();
    let told = copy.told().unwrap();
    assert!(told.is_running && told.memory == SIZE.memory && told.processors == 2, "{told:?}");
    DISKS.iter().for_each(|name| copy.exchanged(name).unwrap());
    copy.pause().unwrap();
    let kept = tempfile::tempfile().unwrap();
    let written = copy.keep(&kept).unwrap().unwrap();
    assert!(written.metadata().unwrap().blocks() > 0 && kept.metadata().unwrap().len() > 1000);
    copy.resume().unwrap();
    assert!(copy.told().unwrap().is_running);
    let again = copy.read_back(&state).unwrap_err().to_string();
    assert!(again.contains("after starting the microVM"), "{again}");
    assert!(started.end() != 0, "it was ended");
}
