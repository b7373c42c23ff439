//! Attempts to get out. Each is one small program, run outside first, where it must succeed, and then inside,
//! once for each kind of user, where it must not; what the filter refuses must stand in the trace.

use crate::{BINARY, each};
use cofferdam_testkit::{
    Mode, Site, Verdict, attempt, attempt_outside, is_root, needs_root, processes_with, program,
};
use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Command};

/// Reads the file that is named by the first argument.
const READ: &str = "if not open(sys.argv[1], 'rb').read(): raise OSError(errno.ENODATA, 'empty')";

fn python() -> Command {
    Command::new(program("python3").expect("python3 is missing: apt-get install python3"))
}

/// Root's own Python, where mounts do not reach the host.
fn python_with_own_mounts() -> Command {
    let mut command =
        Command::new(program("unshare").expect("unshare is missing: apt-get install util-linux"));
    command.args(["--mount", "--ipc"]).arg(program("python3").expect("python3 is missing"));
    command
}

#[track_caller]
fn escapes_outside(mut by: Command, body: &str, words: &[&str]) {
    assert_eq!(attempt_outside(&mut by, body, words), Verdict::Escaped, "the control: {body} {words:?}");
}

#[track_caller]
fn is_refused(site: &Site, body: &str, words: &[&str]) -> String {
    match attempt(site, body, words, |call| call) {
        Verdict::Refused(how) => how,
        Verdict::Escaped => panic!("escaped in mode {:?}: {body} {words:?}", site.mode),
    }
}

/// Attempts that only root can make outside, and that the filter refuses and records by name inside.
fn surface(outside: fn() -> Command, tries: &[(&str, &str)]) {
    if !needs_root("showing that these attempts succeed outside") {
        return;
    }
    for (_, body) in tries {
        let control = attempt_outside(&mut outside(), body, &[]);
        match control.is_absent() {
            true => eprintln!("this kernel has no such thing, so there is no control: {body}"),
            false => assert_eq!(control, Verdict::Escaped, "the control: {body}"),
        }
    }
    each(|site| {
        for (call, body) in tries {
            assert_eq!(is_refused(site, body, &[]), "EPERM", "{body}");
            let blocked = site.bodies("blocked");
            let told = blocked.iter().find(|event| event["syscall"] == *call);
            let told = told.unwrap_or_else(|| panic!("no record of {call} in {blocked:?}"));
            assert_eq!((&told["program"], &told["times"]), (&"python3".into(), &1.into()), "{told}");
            assert!(
                told["pid"].as_u64() < Some(1000) && !told["reason"].as_str().unwrap().is_empty(),
                "{told}"
            );
        }
    });
}

#[test]
fn hidden_files_cannot_be_read() {
    each(|site| {
        let home = site.home();
        let planted = [
            site.write(".env", "hidden-word"),
            site.write(".ssh/id_rsa", "hidden-word"),
            site.write(".aws/credentials", "hidden-word"),
            site.write("service/.env.production", "hidden-word"),
            site.write("custom/token.txt", "hidden-word"),
            site.write(home.join(".ssh/id_ed25519"), "hidden-word"),
            site.write(home.join(".netrc"), "hidden-word"),
        ];
        for path in planted.iter().map(|path| path.to_str().unwrap()) {
            assert_eq!(
                attempt_outside(&mut site.command("python3"), READ, &[path]),
                Verdict::Escaped,
                "{path}"
            );
            let inside = attempt(site, READ, &[path], |call| call.with(&["--hide", "custom/token.txt"]));
            assert!(matches!(inside, Verdict::Refused(_)), "{path} in {:?}", site.mode);
        }
        // Nor by listing, moving, linking or reading everything there is.
        let script = "mv .ssh seen; ln .env seen2; ln -s .env seen3; cat seen3 seen2 seen/*; rm -rf service; \
            ls -A service; cat .e* */.e* .ssh/* ../home/.*/*; grep -r hidden-word . /tmp /home /root /var; true";
        let flags = ["--changes", "discard", "--hide", "custom/token.txt"];
        let done = site.sh(script).with(&flags).exits(0);
        assert!(!done.out().contains("hidden-word"), "{}", done.out());
    });
}

#[test]
fn the_hosts_passwords_cannot_be_read() {
    if !needs_root("reading /etc/shadow") {
        return;
    }
    for path in ["/etc/shadow", "/etc/gshadow"] {
        escapes_outside(python(), READ, &[path]);
        each(|site| drop(is_refused(site, READ, &[path])));
    }
}

#[test]
fn nothing_is_written_outside_the_work_dir() {
    const CREATE: &str =
        "os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_EXCL)); os.unlink(sys.argv[1])";
    if !needs_root("writing to the host's system directories") {
        return;
    }
    let mark = format!("cofferdam-test-{}", std::process::id());
    for dir in ["/usr", "/usr/bin", "/etc", "/opt", "/"] {
        let path = format!("{dir}/{mark}");
        escapes_outside(python(), CREATE, &[&path]);
        each(|site| {
            let how = is_refused(site, CREATE, &[&path]);
            assert!(["EROFS", "EACCES", "EPERM", "ENOENT"].contains(&how.as_str()), "{path}: {how}");
        });
    }
    // What can be made inside, such as a home, must not be the host's.
    const WRITE: &str =
        "os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True); open(sys.argv[1], 'w').write('x')";
    each(|site| {
        let sibling = site.write(site.root().join("sibling/file"), "before");
        let home = site.write(site.home().join(".profile"), "before");
        for path in [&sibling, &home] {
            let words = [path.to_str().unwrap()];
            let _ = attempt(site, WRITE, &words, |call| call);
            assert_eq!(fs::read_to_string(path).unwrap(), "before", "{}", path.display());
            assert_eq!(attempt_outside(&mut site.command("python3"), WRITE, &words), Verdict::Escaped);
            assert_eq!(fs::read_to_string(path).unwrap(), "x");
        }
        let made = site.home().join("made/inside");
        let _ = attempt(site, WRITE, &[made.to_str().unwrap()], |call| call);
        assert!(!made.exists());
    });
}

#[test]
fn a_file_that_is_open_for_reading_cannot_be_opened_again_for_writing() {
    const REOPEN: &str =
        "fd = os.open(sys.argv[1], os.O_RDONLY)\nos.open(f'/proc/self/fd/{fd}', os.O_WRONLY)";
    if !needs_root("opening the host's files for writing") {
        return;
    }
    escapes_outside(python(), REOPEN, &["/etc/hostname"]);
    each(|site| drop(is_refused(site, REOPEN, &["/etc/hostname"])));
}

#[test]
fn no_way_out_by_dotdot_or_an_open_descriptor() {
    const UP: &str = "os.close(os.open('../' * 60 + sys.argv[1].lstrip('/'), os.O_RDONLY))";
    // A root inside a root, with a directory of the outer one held open.
    const CHROOT: &str = "os.makedirs('cell', exist_ok=True)\nfd = os.open('/', os.O_RDONLY)\nos.chroot('cell')\n\
        os.fchdir(fd)\nfor _ in range(60): os.chdir('..')\nos.chroot('.')\nos.close(os.open(sys.argv[1], os.O_RDONLY))";
    const BY_ROOT: &str = "os.close(os.open(f'/proc/{sys.argv[2]}/root' + sys.argv[1], os.O_RDONLY))";
    const BY_CWD: &str =
        "os.close(os.open(f'/proc/{sys.argv[2]}/cwd/' + '../' * 60 + sys.argv[1], os.O_RDONLY))";
    each(|site| {
        let planted = site.write(site.root().join("planted"), "x");
        let planted = planted.to_str().unwrap();
        for (body, by_root) in [(UP, false), (CHROOT, true), (BY_ROOT, false), (BY_CWD, false)] {
            if is_root() || !by_root {
                let mut outside = if by_root { python() } else { site.command("python3") };
                outside.current_dir(site.root());
                assert_eq!(
                    attempt_outside(&mut outside, body, &[planted, "self"]),
                    Verdict::Escaped,
                    "{body}"
                );
            }
            for pid in ["self", "1"] {
                is_refused(site, body, &[planted, pid]);
            }
            if body == CHROOT {
                assert_eq!(site.bodies("blocked")[0]["syscall"], "chroot");
            }
        }
    });
}

#[test]
fn no_descriptor_of_the_caller_is_inside() {
    const BY_DESCRIPTOR: &str = "os.close(os.open('planted', os.O_RDONLY, dir_fd=9))";
    const ANY: &str = "for name in os.listdir('/proc/self/fd'):\n\
        \x20   if int(name) > 2 and os.path.exists(f'/proc/self/fd/{name}'): return\nraise OSError(errno.ENOENT, 'none')";
    each(|site| {
        site.write(site.root().join("planted"), "x");
        // A shell opens the directory and passes it on, to Python itself or to a sandbox around it.
        let pass_on = |words: &[String]| {
            let mut shell = site.command("sh");
            let script = format!("exec 9<{}; exec \"$@\"", site.root().display());
            shell.args(["-c", &script, "sh"]).args(words);
            shell
        };
        for body in [BY_DESCRIPTOR, ANY] {
            assert_eq!(attempt_outside(&mut pass_on(&["python3".into()]), body, &[]), Verdict::Escaped);
            let call = site.run(&["python3"]).words();
            let words: Vec<String> = call.into_iter().map(|word| word.into_string().unwrap()).collect();
            let inside = attempt_outside(&mut pass_on(&words), body, &[]);
            assert!(matches!(inside, Verdict::Refused(_)), "{body}");
        }
        // The three that there are lead to no file of the host.
        let done = site.sh("ls -l /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2").exits(0);
        assert!(
            done.out().lines().all(|line| line.contains("pipe:") || line.contains("/dev/null")),
            "{}",
            done.out()
        );
    });
}

/// A process of the host, ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start(mark: &str) -> Self {
        Self(Command::new("sleep").arg(mark).spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn host_processes_are_invisible() {
    const SEE: &str = "for pid in filter(str.isdigit, os.listdir('/proc')):\n\
        \x20   try: line = open(f'/proc/{pid}/cmdline').read()\n\
        \x20   except OSError: continue\n\
        \x20   if 'sleep\\0' + sys.argv[1] in line: return\nraise OSError(errno.ESRCH, 'not seen')";
    const SIGNAL: &str = "os.kill(int(sys.argv[1]), 0)";
    const PIDFD: &str = "os.close(os.pidfd_open(int(sys.argv[1])))";
    let mark = format!("9{}.5", std::process::id());
    let sleeper = Sleeper::start(&mark);
    let pid = sleeper.0.id().to_string();
    for (body, word) in [(SEE, &mark), (SIGNAL, &pid), (PIDFD, &pid)] {
        escapes_outside(python(), body, &[word]);
        each(|site| drop(is_refused(site, body, &[word])));
    }
    each(|site| {
        let done = site.sh("ls -d /proc/[0-9]* | wc -l; kill -9 -1; true").done();
        assert!(done.out().trim().parse::<u32>().unwrap() < 10, "{}", done.out());
        assert_eq!(processes_with(&format!("sleep {mark}")).len(), 1, "the host's process lives");
    });
}

#[test]
fn ptrace_is_refused() {
    const CHILD: &str = "pid = os.fork()\nif pid == 0:\n    os.execvp('sleep', ['sleep', '20'])\n\
        try: checked(libc.ptrace(16, pid, None, None))\nfinally: os.kill(pid, 9)";
    const TRACE_ME: &str = "checked(libc.ptrace(0, 0, None, None))";
    const READ_MEMORY: &str = "word = ctypes.create_string_buffer(8)\n\
        class Part(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n\
        here = Part(ctypes.addressof(word), 8)\n\
        checked(libc.process_vm_readv(os.getpid(), ctypes.byref(here), 1, ctypes.byref(here), 1, 0))";
    const COMPARE: &str = "syscall(312, 272, os.getpid(), os.getpid(), 0, 0, 0)";
    surface(
        python,
        &[("ptrace", CHILD), ("ptrace", TRACE_ME), ("process_vm_readv", READ_MEMORY), ("kcmp", COMPARE)],
    );
    each(|site| drop(is_refused(site, "checked(libc.ptrace(16, 1, None, None))", &[])));
}

#[test]
fn the_guest_cannot_be_read_or_changed() {
    const MEMORY: &str = "os.close(os.open(f'/proc/{sys.argv[1]}/mem', os.O_RDWR))";
    const ENVIRONMENT: &str = "os.close(os.open(f'/proc/{sys.argv[1]}/environ', os.O_RDONLY))";
    const DESCRIPTORS: &str = "os.readlink(f'/proc/{sys.argv[1]}/fd/0')";
    let sleeper = Sleeper::start("998.25");
    let pid = sleeper.0.id().to_string();
    for body in [MEMORY, ENVIRONMENT, DESCRIPTORS] {
        escapes_outside(python(), body, &[&pid]);
        each(|site| drop(is_refused(site, body, &["1"])));
    }
    each(|site| drop(is_refused(site, "os.close(os.open('/proc/1/exe', os.O_WRONLY))", &[])));
}

#[test]
fn host_loopback_is_out_of_reach() {
    const CONNECT: &str = "socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5).close()";
    for address in ["127.0.0.1", "::1"] {
        let Ok(listener) = TcpListener::bind((address, 0)) else {
            eprintln!("this host has no {address}");
            continue;
        };
        let port = listener.local_addr().unwrap().port().to_string();
        escapes_outside(python(), CONNECT, &[address, &port]);
        each(|site| drop(is_refused(site, CONNECT, &[address, &port])));
    }
}

#[test]
fn the_network_is_out_of_reach() {
    // A datagram needs a route and no answer.
    const SEND: &str = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect((sys.argv[1], 53))";
    escapes_outside(python(), SEND, &["127.0.0.2"]);
    each(|site| assert_eq!(is_refused(site, SEND, &["192.0.2.1"]), "ENETUNREACH"));
}

#[test]
fn abstract_sockets_are_out_of_reach() {
    const CONNECT: &str = "s = socket.socket(socket.AF_UNIX)\ns.connect('\\0' + sys.argv[1])";
    let name = format!("cofferdam-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    escapes_outside(python(), CONNECT, &[&name]);
    each(|site| drop(is_refused(site, CONNECT, &[&name])));
}

#[test]
fn sockets_in_the_file_system_are_out_of_reach() {
    const CONNECT: &str = "s = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])";
    each(|site| {
        // Beside the work dir, and in it, where a daemon of the user's may have put one.
        for path in [site.root().join("socket"), site.work().join("socket")] {
            let _listener = UnixListener::bind(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            let words = [path.to_str().unwrap()];
            assert_eq!(attempt_outside(&mut site.command("python3"), CONNECT, &words), Verdict::Escaped);
            is_refused(site, CONNECT, &words);
        }
    });
}

#[test]
fn raw_sockets_are_refused() {
    surface(
        python,
        &[
            ("socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"),
            ("socket", "socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)"),
            ("socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)"),
            ("socket", "socket.socket(40, socket.SOCK_STREAM)"),
            ("socket", "socket.socket(38, socket.SOCK_SEQPACKET)"),
        ],
    );
}

#[test]
fn mount_is_refused() {
    surface(
        python_with_own_mounts,
        &[
            ("mount", "checked(libc.mount(b'none', b'/mnt', b'tmpfs', 0, None))"),
            ("mount", "checked(libc.mount(b'/etc', b'/mnt', None, 4096, None))"),
            ("umount2", "libc.mount(b'none', b'/mnt', b'tmpfs', 0, None)\nchecked(libc.umount2(b'/mnt', 2))"),
            ("fsopen", "os.close(syscall(430, 430, ctypes.c_char_p(b'tmpfs'), 0))"),
            ("open_tree", "os.close(syscall(428, 428, -100, ctypes.c_char_p(b'/'), 1))"),
        ],
    );
}

#[test]
fn user_namespaces_are_refused() {
    surface(
        python,
        &[
            ("unshare", "checked(libc.unshare(0x10000000))"),
            ("unshare", "checked(libc.unshare(0x40000000))"),
            ("unshare", "checked(libc.unshare(0x00020000 | 0x10000000))"),
            (
                "clone",
                "pid = syscall(56, 220, 0x10000000 | 17, 0, 0, 0, 0)\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)",
            ),
            ("setns", "checked(libc.setns(os.open('/proc/self/ns/uts', os.O_RDONLY), 0))"),
        ],
    );
    // The newer call hides its flags from a filter, so it is not there at all; the library then takes `clone`.
    each(|site| {
        let body = "args = (ctypes.c_uint64 * 11)()\nargs[0] = 0x10000000\nargs[4] = 17\n\
            pid = syscall(435, 435, ctypes.byref(args), 88)\nif pid == 0: os._exit(0)";
        assert_eq!(is_refused(site, body, &[]), "ENOSYS");
    });
}

#[test]
fn keyctl_is_refused() {
    let add =
        "syscall(248, 217, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'k'), ctypes.c_char_p(b'v'), 1, -3)";
    surface(python, &[("keyctl", "syscall(250, 219, 0, -3, 1)"), ("add_key", add)]);
}

#[test]
fn bpf_is_refused() {
    let create =
        "attr = (ctypes.c_uint32 * 32)(2, 4, 4, 1)\nos.close(syscall(321, 280, 0, ctypes.byref(attr), 128))";
    surface(python, &[("bpf", create)]);
}

#[test]
fn io_uring_is_refused() {
    let setup = "params = (ctypes.c_uint32 * 30)()\nos.close(syscall(425, 425, 4, ctypes.byref(params)))";
    surface(python, &[("io_uring_setup", setup)]);
}

#[test]
fn the_kernels_wider_surface_is_refused() {
    let handle = "class Handle(ctypes.Structure): _fields_ = [('size', ctypes.c_uint), ('kind', ctypes.c_int), ('bytes', ctypes.c_ubyte * 128)]\n\
        handle, mount = Handle(128), ctypes.c_int()\n\
        checked(libc.name_to_handle_at(-100, b'/etc', ctypes.byref(handle), ctypes.byref(mount), 0))\n\
        os.close(checked(libc.open_by_handle_at(-100, ctypes.byref(handle), os.O_RDONLY)))";
    surface(
        python,
        &[
            ("userfaultfd", "os.close(syscall(323, 282, 0))"),
            (
                "perf_event_open",
                "attr = (ctypes.c_uint32 * 32)(1, 128)\nos.close(syscall(298, 241, ctypes.byref(attr), 0, -1, -1, 0))",
            ),
            ("syslog", "checked(libc.klogctl(10, None, 0))"),
        ],
    );
    if !needs_root("opening files by handle") {
        return;
    }
    escapes_outside(python(), handle, &[]);
    each(|site| drop(is_refused(site, handle, &[])));
}

#[test]
fn a_terminal_cannot_be_typed_into() {
    let type_in =
        "import fcntl, termios\nkeyboard, screen = os.openpty()\nfcntl.ioctl(screen, termios.TIOCSTI, b'x')";
    surface(python, &[("ioctl", type_in)]);
}

#[test]
fn core_pattern_cannot_be_written() {
    const OPEN: &str = "os.close(os.open(sys.argv[1], os.O_WRONLY))";
    if !needs_root("opening the kernel's settings for writing") {
        return;
    }
    for path in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
    ] {
        if !Path::new(path).exists() {
            eprintln!("this kernel has no {path}");
            continue;
        }
        escapes_outside(python(), OPEN, &[path]);
        each(|site| drop(is_refused(site, OPEN, &[path])));
    }
}

#[test]
fn the_machines_devices_are_not_there() {
    const OPEN: &str = "os.close(os.open(sys.argv[1], os.O_RDONLY))";
    if !needs_root("opening devices") {
        return;
    }
    for path in ["/proc/kcore", "/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda", "/dev/kvm", "/sys/kernel"] {
        if attempt_outside(&mut python(), OPEN, &[path]) == Verdict::Escaped {
            each(|site| match is_there(site, path) {
                // Masked by the null device: it can be opened, and there is nothing in it.
                true => drop(is_refused(site, READ, &[path])),
                false => drop(is_refused(site, OPEN, &[path])),
            });
        }
    }
}

fn is_there(site: &Site, path: &str) -> bool {
    site.sh(&format!("test -e {path}")).done().code() == 0
}

#[test]
fn no_capability_is_left() {
    const ANY: &str = "for line in open('/proc/self/status'):\n\
        \x20   if line.startswith('Cap') and int(line.split()[1], 16): return\nraise OSError(errno.EPERM, 'none')";
    const BECOME: &str = "os.setresuid(0, 0, 0)";
    const GIVE: &str = "open('mine', 'w').close()\nos.chown('mine', 0, 0)";
    const CLOCK: &str =
        "import time\ntime.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))";
    if !needs_root("having capabilities") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for body in [ANY, BECOME, GIVE, CLOCK] {
        let mut outside = python();
        outside.current_dir(dir.path());
        escapes_outside(outside, body, &[]);
        each(|site| drop(is_refused(site, body, &[])));
    }
    each(|site| {
        let done = site.sh("grep -E '^(NoNewPrivs|Seccomp|Groups|Uid):' /proc/self/status").exits(0);
        let (out, uid) = (done.out(), if site.mode == Mode::Single { site.mode.ids().0 } else { 1000 });
        for line in ["NoNewPrivs:\t1\n", "Seccomp:\t2\n", &format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")] {
            assert!(out.contains(line), "{line} in {out}");
        }
    });
}

/// A set-user-id program of root's gains nothing.
#[test]
fn a_set_user_id_program_gains_nothing() {
    if !needs_root("making a set-user-id program of root's") {
        return;
    }
    each(|site| {
        let planted = site.work().join("id");
        fs::copy(program("id").expect("id is missing: apt-get install coreutils"), &planted).unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o4755)).unwrap();
        let plain = Site::new(Mode::Single, BINARY);
        let outside = cofferdam_testkit::finish(plain.command(&planted).arg("-u")).exits(0);
        assert_eq!(outside.out(), "0\n", "the control");
        assert_ne!(site.run(&["./id", "-u"]).exits(0).out(), "0\n");
    });
}

#[test]
fn a_device_cannot_be_made() {
    const DEVICE: &str = "os.mknod('device', stat.S_IFCHR | 0o666, os.makedev(1, 1))";
    const WHITEOUT: &str = "os.mknod('whiteout', stat.S_IFCHR | 0o666, 0)";
    if !needs_root("making devices") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for body in [DEVICE, WHITEOUT] {
        let mut outside = python();
        outside.current_dir(dir.path());
        escapes_outside(outside, body, &[]);
        each(|site| drop(is_refused(site, body, &[])));
    }
}

#[test]
fn the_environment_is_not_inherited() {
    const VARIABLE: &str =
        "if os.environ.get('PLANTED_KEY') != 'word-of-the-caller': raise OSError(errno.ENOENT, 'not set')";
    const ANYWHERE: &str = "for pid in filter(str.isdigit, os.listdir('/proc')):\n\
        \x20   try: text = open(f'/proc/{pid}/environ').read()\n\
        \x20   except OSError: continue\n\
        \x20   if 'word-of-the-caller' in text: return\nraise OSError(errno.ENOENT, 'nowhere')";
    each(|site| {
        for body in [VARIABLE, ANYWHERE] {
            let mut outside = site.command("python3");
            outside.env("PLANTED_KEY", "word-of-the-caller");
            assert_eq!(attempt_outside(&mut outside, body, &[]), Verdict::Escaped);
            let inside = attempt(site, body, &[], |call| call.env("PLANTED_KEY", "word-of-the-caller"));
            assert!(matches!(inside, Verdict::Refused(_)));
        }
    });
}

/// What overlayfs keeps in attributes of its own decides what a layer means; the inside must not write them.
#[test]
fn the_layers_own_marks_cannot_be_forged() {
    each(|site| {
        site.write("dir/file", "x");
        for name in ["user.overlay.opaque", "trusted.overlay.opaque", "user.overlay.redirect"] {
            let body = format!("os.setxattr('dir', '{name}', b'y')");
            let verdict = attempt(site, &body, &[], |call| call);
            assert!(site.work().join("dir/file").exists(), "{name}: {verdict:?}");
            let told = site.bodies("file.changed");
            assert!(!told.iter().any(|body| body["op"] == "deleted"), "{name}: {told:?}");
        }
    });
}
