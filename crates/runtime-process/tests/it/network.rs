//! What a sandbox with doors can reach: its own loopback and the doors, whatever address it names. Each refusal
//! stands beside the same attempt where it succeeds.

use crate::inside::Inside;
use crate::place::{Place, children};
use cofferdam_model::{LayerPlace, Profile, State, UserMode};
use cofferdam_runtime::{Backend, Callers, Doors, Network, RuntimeError, SandboxSpec};
use cofferdam_runtime_process::ProcessBackend;
use cofferdam_testkit::{Mode, finish, for_each_mode, needs_root, program};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Tells the inner run of a test that it is one, and which users to ask for.
const INNER: &str = "COFFERDAM_TEST_NETWORK_USERS";

/// Runs `test` as each kind of user, in a process of that user's.
fn in_each_mode(name: &str, test: impl Fn(UserMode)) {
    let users = match std::env::var(INNER).as_deref() {
        Ok("range") => UserMode::Range,
        Ok("single") => UserMode::Single,
        Ok(_) => UserMode::Auto,
        Err(_) => {
            let _alone = Place::new();
            let program = std::env::current_exe().unwrap();
            return for_each_mode(program.to_str().unwrap(), |site| {
                let users = match site.mode {
                    Mode::Root => "auto",
                    Mode::Range => "range",
                    Mode::Single => "single",
                };
                let mut inner = site.command(site.binary());
                inner.env(INNER, users).args(["--exact", name, "--nocapture"]);
                let done = finish(&mut inner).exits(0);
                assert!(done.out().contains("1 passed"), "{}", done.out());
            });
        }
    };
    test(users);
}

fn asked(place: &Place, users: UserMode) -> SandboxSpec {
    SandboxSpec { network: Network::Doors, users, ..place.spec(LayerPlace::Memory) }
}

fn made(place: &Place, users: UserMode) -> (Inside, Doors) {
    let mut sandbox = ProcessBackend::default().create(asked(place, users)).unwrap();
    let doors = sandbox.take_doors().expect("doors");
    assert!(sandbox.take_doors().is_none(), "handed out once");
    (Inside::new(sandbox), doors)
}

/// Greets everyone who comes with the address that they meant to reach.
fn greet(listener: TcpListener) {
    listener.set_nonblocking(false).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let meant = stream.local_addr().unwrap();
            let _ = stream.write_all(format!("door for {meant}\n").as_bytes());
        }
    });
}

/// Tells where datagrams were meant to go.
fn collect(socket: UdpSocket, tell: Sender<(usize, SocketAddr)>) {
    thread::spawn(move || {
        loop {
            match cofferdam_sys::door::receive(socket.as_fd()) {
                Ok(found) => tell.send(found).unwrap_or_default(),
                Err(cofferdam_sys::Errno::AGAIN) => thread::sleep(Duration::from_millis(2)),
                Err(_) => return,
            }
        }
    });
}

/// Answers every question for an address with 198.18.0.2, and every other with nothing.
fn answer(query: &[u8]) -> Vec<u8> {
    let labels_end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap();
    let question = &query[12..labels_end + 5];
    let is_a = question[question.len() - 3] == 1;
    let mut answer = [&query[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0], question].concat();
    if is_a {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 198, 18, 0, 2]);
    }
    answer
}

fn serve_dns(udp: UdpSocket, tcp: TcpListener) {
    udp.set_nonblocking(false).unwrap();
    tcp.set_nonblocking(false).unwrap();
    thread::spawn(move || {
        let mut buffer = [0u8; 1500];
        while let Ok((length, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(&answer(&buffer[..length]), from);
        }
    });
    thread::spawn(move || {
        while let Ok((mut stream, _)) = tcp.accept() {
            let mut length = [0u8; 2];
            stream.read_exact(&mut length).unwrap();
            let mut query = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut query).unwrap();
            let answer = answer(&query);
            stream.write_all(&[&(answer.len() as u16).to_be_bytes()[..], &answer].concat()).unwrap();
        }
    });
}

/// A sandbox with all of its doors served.
fn served(place: &Place, users: UserMode) -> (Inside, Receiver<(usize, SocketAddr)>) {
    let (inside, doors) = made(place, users);
    let (tell, strays) = channel();
    doors.transparent.into_iter().chain([doors.proxy]).for_each(greet);
    doors.stray_udp.into_iter().for_each(|socket| collect(socket, tell.clone()));
    serve_dns(doors.dns_udp, doors.dns_tcp);
    (inside, strays)
}

/// Connects and prints what it is greeted with, or the name of the error.
const CONNECT: &str = r#"
import errno, socket
def connect(host, port):
    try:
        with socket.create_connection((host, port), timeout=20) as s:
            return s.makefile().readline().strip()
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))
"#;

#[test]
fn every_connection_comes_to_a_door() {
    in_each_mode("network::every_connection_comes_to_a_door", |users| {
        let place = Place::new();
        let (mut inside, _) = served(&place, users);
        for (host, port, meant) in [
            ("93.184.216.34", 80, "93.184.216.34:80"),
            ("2606:2800::1", 443, "[2606:2800::1]:443"),
            ("10.0.0.1", 22, "10.0.0.1:22"),
            ("169.254.169.254", 80, "169.254.169.254:80"),
            ("fd00:ec2::254", 80, "[fd00:ec2::254]:80"),
            ("255.1.2.3", 65_535, "255.1.2.3:65535"),
            ("::ffff:8.8.8.8", 853, "8.8.8.8:853"),
            ("example.com", 443, "198.18.0.2:443"),
            ("127.0.0.1", 3128, "127.0.0.1:3128"),
        ] {
            let said = inside.python(&format!("{CONNECT}\nprint(connect({host:?}, {port}))"));
            assert_eq!(said, format!("door for {meant}"), "{host}");
        }
        let said = inside.run(&["bash", "-c", "exec 3<>/dev/tcp/93.184.216.34/8080; cat <&3"]);
        assert_eq!(said.text.trim(), "door for 93.184.216.34:8080");
        // Where nobody inside listens nobody answers: loopback is the sandbox's own.
        assert_eq!(inside.python(&format!("{CONNECT}\nprint(connect('127.0.0.1', 4444))")), "ECONNREFUSED");
    });
}

#[test]
fn names_are_asked_of_our_dns() {
    in_each_mode("network::names_are_asked_of_our_dns", |users| {
        let place = Place::new();
        let (mut inside, _) = served(&place, users);
        let said = inside.run(&["getent", "ahostsv4", "example.com"]);
        assert!(said.success && said.text.starts_with("198.18.0.2 "), "{}", said.text);
        // As browsers and many libraries ask: only for families that this machine has an address of.
        let source = "import socket as s\nfor family in (0, s.AF_INET):\n found = s.getaddrinfo('api.example.com', 443, family, s.SOCK_STREAM, 0, s.AI_ADDRCONFIG)\n print([a[4][0] for a in found])";
        assert_eq!(inside.python(source), "['198.18.0.2']\n['198.18.0.2']");
        let tcp = "import socket, struct\nq = bytes.fromhex('0001010000010000000000000161076578616d706c650000010001')\ns = socket.create_connection(('127.0.0.1', 53))\ns.sendall(struct.pack('>H', len(q)) + q)\nprint(s.recv(512)[-4:])";
        assert_eq!(inside.python(tcp), r"b'\xc6\x12\x00\x02'");
        let said = inside.run(&["cat", "/etc/resolv.conf"]);
        assert!(said.text.starts_with("nameserver 127.0.0.1\n"), "{}", said.text);
        let own = "import socket\nprint(socket.gethostbyname('localhost'), socket.gethostbyname(socket.gethostname()))";
        assert_eq!(inside.python(own), "127.0.0.1 198.18.0.1");
    });
}

#[test]
fn datagrams_to_anywhere_are_strays() {
    in_each_mode("network::datagrams_to_anywhere_are_strays", |users| {
        let place = Place::new();
        let (mut inside, strays) = served(&place, users);
        for (host, port) in [("8.8.8.8", 53), ("142.250.1.1", 443), ("2001:4860::1", 443)] {
            let family = if host.contains(':') { "AF_INET6" } else { "AF_INET" };
            inside.python(&format!(
                "import socket as s\ns.socket(s.{family}, s.SOCK_DGRAM).sendto(b'x' * 1200, ({host:?}, {port}))"
            ));
            let (length, meant) = strays.recv_timeout(Duration::from_secs(60)).expect(host);
            assert_eq!((length, meant), (1200, SocketAddr::new(host.parse().unwrap(), port)));
        }
        // Those to the DNS are answered and do not stray.
        inside.run(&["getent", "ahostsv4", "example.com"]);
        assert!(strays.recv_timeout(Duration::from_millis(100)).is_err());
    });
}

#[test]
fn the_hosts_own_services_are_not_there() {
    in_each_mode("network::the_hosts_own_services_are_not_there", |users| {
        let place = Place::new();
        let (mut inside, _) = served(&place, users);
        let service = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = service.local_addr().unwrap().port();
        let name = format!("cofferdam-test-{}", std::process::id());
        let at = UnixAddr::from_abstract_name(&name).unwrap();
        let abstract_service = UnixListener::bind_addr(&at).unwrap();
        let unix = format!("import socket as s\ns.socket(s.AF_UNIX).connect('\\0{name}')");

        assert_eq!(inside.python(&format!("{CONNECT}\nprint(connect('127.0.0.1', {port}))")), "ECONNREFUSED");
        assert_eq!(inside.python(&format!("{CONNECT}\nprint(connect('::1', {port}))")), "ECONNREFUSED");
        let refused = inside.run(&["python3", "-c", &unix]);
        assert!(!refused.success, "{}", refused.text);
        service.set_nonblocking(true).unwrap();
        assert_eq!(service.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        abstract_service.set_nonblocking(true).unwrap();
        assert_eq!(abstract_service.accept().unwrap_err().kind(), ErrorKind::WouldBlock);

        // The same from outside.
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        UnixStream::connect_addr(&at).unwrap();
    });
}

#[test]
fn the_sandbox_has_services_of_its_own() {
    in_each_mode("network::the_sandbox_has_services_of_its_own", |users| {
        let place = Place::new();
        let (mut inside, _) = served(&place, users);
        let server = "import socket, os\ns = socket.create_server(('0.0.0.0', 8080))\nif os.fork() == 0:\n os.close(1); os.close(2)\n while True:\n  c, _ = s.accept(); c.sendall(b'mine\\n'); c.close()";
        inside.python(server);
        for host in ["127.0.0.1", "localhost", "127.9.9.9", "198.18.0.1"] {
            assert_eq!(
                inside.python(&format!("{CONNECT}\nprint(connect({host:?}, 8080))")),
                "mine",
                "{host}"
            );
        }
        // Bound to any address, it still gets nothing that was meant for the world.
        assert_eq!(
            inside.python(&format!("{CONNECT}\nprint(connect('8.8.8.8', 8080))")),
            "door for 8.8.8.8:8080"
        );
    });
}

/// Each line is an attempt and the error that it must end with; those that seccomp refuses are recorded too.
const POWER: &[(&str, &str)] = &[
    ("s.socket(s.AF_INET, s.SOCK_STREAM).setsockopt(s.SOL_IP, 19, 1)", "EPERM"),
    ("s.socket(s.AF_INET, s.SOCK_DGRAM).setsockopt(s.SOL_SOCKET, 36, 1)", "EPERM"),
    ("fcntl.ioctl(s.socket(), 0x8914, struct.pack('16sH22x', b'lo', 0))", "EPERM"),
    ("route(24)", "EPERM"),
    ("route(25)", "EPERM"),
    ("s.socket(s.AF_INET, s.SOCK_STREAM).bind(('127.0.0.1', 80))", "EACCES"),
    ("s.socket(s.AF_INET, s.SOCK_STREAM).bind(('127.0.0.1', 3128))", "EADDRINUSE"),
];
const SURFACE: &[&str] = &[
    "s.socket(s.AF_INET, s.SOCK_RAW, s.IPPROTO_ICMP)",
    "s.socket(s.AF_INET, s.SOCK_DGRAM, s.IPPROTO_ICMP)",
    "s.socket(s.AF_INET, s.SOCK_STREAM, 132)",
    "s.socket(s.AF_NETLINK, s.SOCK_RAW, 12)",
    "s.socket(17, s.SOCK_RAW, 0)",
    "s.socket(40, s.SOCK_STREAM, 0)",
];
/// `route` asks for (24) or removes (25) the route of all addresses.
const TOOLS: &str = r#"
import errno, fcntl, os, socket as s, struct
def route(kind):
    n = s.socket(s.AF_NETLINK, s.SOCK_RAW, 0)
    body = struct.pack("BBBBBBBBI", 2, 0, 0, 0, 255, 3, 254, 2, 0) + struct.pack("HHI", 8, 4, 1)
    n.send(struct.pack("IHHII", 16 + len(body), kind, 0x5 | (0x600 if kind == 24 else 0), 1, 0) + body)
    code = struct.unpack_from("i", n.recv(4096), 16)[0]
    if code: raise OSError(-code, os.strerror(-code))
def attempt(what):
    try:
        what()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
"#;

#[test]
fn nobody_inside_has_power_over_the_network() {
    in_each_mode("network::nobody_inside_has_power_over_the_network", |users| {
        let place = Place::new();
        let (mut inside, _) = served(&place, users);
        // Root of a box has capabilities, and none of them over the network. A single user has no box.
        if users != UserMode::Single {
            let spec = SandboxSpec { profile: Profile::Box, ..asked(&place, users) };
            let mut root = Inside::new(ProcessBackend::default().create(spec).unwrap());
            for (attempt, error) in POWER {
                let said = root.python(&format!("{TOOLS}\nprint(os.getuid(), attempt(lambda: {attempt}))"));
                assert_eq!(said, format!("0 {error}"), "{attempt}");
            }
        }
        for (attempt, error) in POWER {
            let said = inside.python(&format!("{TOOLS}\nprint(attempt(lambda: {attempt}))"));
            assert_eq!(said, *error, "{attempt}");
        }
        for attempt in SURFACE {
            inside.heard.take();
            let said = inside.python(&format!("{TOOLS}\nprint(attempt(lambda: {attempt}))"));
            // The first time it is told why, too, before or after.
            let error = said.lines().find(|line| !line.starts_with("cofferdam: ")).unwrap_or_default();
            assert_eq!(
                (error, &inside.heard.refused()[..]),
                ("EPERM", &["socket".to_owned()][..]),
                "{attempt}"
            );
        }
        assert_eq!(inside.python(&format!("{CONNECT}\nprint(connect('1.2.3.4', 5))")), "door for 1.2.3.4:5");
    });
}

/// Root of a nested user namespace owns a network that it makes, not the one around it.
#[test]
fn a_nested_root_has_no_power_over_the_network() {
    in_each_mode("network::a_nested_root_has_no_power_over_the_network", |users| {
        let place = Place::new();
        let mut sandbox =
            ProcessBackend::default().create(SandboxSpec { nested: true, ..asked(&place, users) }).unwrap();
        let _doors = sandbox.take_doors().expect("doors");
        let mut inside = Inside::new(sandbox);
        let source = format!(
            "{TOOLS}\nprint(attempt(lambda: route(25)), attempt(lambda: fcntl.ioctl(s.socket(), 0x8914, struct.pack('16sH22x', b'lo', 1))))"
        );
        let mut nested = |flags: &[&str]| {
            let argv: Vec<&str> = ["unshare", "--user", "--map-root-user"]
                .iter()
                .chain(flags)
                .copied()
                .chain(["python3", "-c", &source])
                .collect();
            let said = inside.run(&argv);
            assert!(said.success, "{}", said.text);
            said.text.trim().to_owned()
        };
        assert_eq!(nested(&[]), "EPERM EPERM");
        assert_eq!(nested(&["--net"]), "ESRCH done", "in a network of its own the same is allowed");
    });
}

/// Answers a line with the program that has sent it.
fn name_callers(listener: TcpListener, callers: Arc<dyn Callers>) {
    listener.set_nonblocking(false).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.read_exact(&mut [0; 3]).unwrap();
            let program = callers.program(stream.peer_addr().unwrap(), stream.local_addr().unwrap());
            let said = program.map_or("nobody".into(), |path| path.display().to_string());
            stream.write_all(format!("{said}\n").as_bytes()).unwrap();
        }
    });
}

#[test]
fn the_program_behind_a_connection_is_known() {
    in_each_mode("network::the_program_behind_a_connection_is_known", |users| {
        let place = Place::new();
        let (mut inside, doors) = made(&place, users);
        for listener in doors.transparent.into_iter().chain([doors.proxy]) {
            name_callers(listener, doors.callers.clone());
        }
        let python = fs::canonicalize(program("python3").unwrap()).unwrap();
        for (family, host, port) in [
            ("AF_INET", "1.2.3.4", 80),
            ("AF_INET6", "2606::1", 443),
            ("AF_INET6", "::ffff:1.2.3.4", 5),
            ("AF_INET", "127.0.0.1", 3128),
        ] {
            let source = format!(
                "import socket as s\nc = s.socket(s.{family}); c.connect(({host:?}, {port})); c.sendall(b'go\\n')\nprint(c.makefile().readline())"
            );
            assert_eq!(inside.python(&source), python.display().to_string(), "{host}");
        }
        let bash = fs::canonicalize(program("bash").unwrap()).unwrap();
        let open = "exec 3<>/dev/tcp/1.2.3.4/80; echo go >&3; read -r line <&3; echo $line";
        assert_eq!(inside.run(&["bash", "-c", open]).text.trim(), bash.display().to_string());
        // Lent to another program, it is nobody's.
        let lent = "exec 3<>/dev/tcp/1.2.3.4/80; sleep 60 & until readlink /proc/$!/exe | grep -q sleep; do :; done; echo go >&3; read -r line <&3; kill $!; echo $line";
        assert_eq!(inside.run(&["bash", "-c", lent]).text.trim(), "nobody");
    });
}

/// The guest has its channel and no other socket: the doors were given away, not lent.
#[test]
fn no_door_is_open_inside() {
    if !needs_root("the guest's open files") {
        return;
    }
    let place = Place::new();
    let (inside, doors) = made(&place, UserMode::Auto);
    let namespace = cofferdam_sys::door::namespace(doors.proxy.as_fd()).unwrap();
    let is_there = |pid: &String| {
        fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|found| found.ino() == namespace)
    };
    let guest = children().into_iter().find(is_there).expect("the guest is our child");
    let files: Vec<String> = fs::read_dir(format!("/proc/{guest}/fd"))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files.iter().filter(|file| file.starts_with("socket:")).count(), 1, "{files:?}");
    drop((inside, doors));
}

#[test]
fn the_report_says_what_was_tried() {
    in_each_mode("network::the_report_says_what_was_tried", |users| {
        let place = Place::new();
        let whole = ProcessBackend::default().create(asked(&place, users)).unwrap();
        let line = whole.report().control("network.capture").unwrap();
        assert_eq!(line.state, State::Enforced, "{line:?}");
        for part in
            ["TCP 192.0.2.1:9", "UDP 192.0.2.1:9", "TCP [2001:db8::1]:9", "127.0.0.1:3128", "127.0.0.1:53"]
        {
            assert!(line.detail.contains(part), "{part}: {}", line.detail);
        }
        assert!(whole.report().control("network").unwrap().detail.contains("through the doors"));
        drop(whole);
        let plain =
            ProcessBackend::default().create(SandboxSpec { network: Network::None, ..asked(&place, users) });
        let mut plain = plain.unwrap();
        assert!(plain.report().control("network.capture").is_none() && plain.take_doors().is_none());
    });
}

/// Without the routes and rules nothing comes to the doors, and the line says so; unasked, that is refused.
#[test]
fn a_capture_that_is_left_out_changes_its_line() {
    in_each_mode("network::a_capture_that_is_left_out_changes_its_line", |users| {
        let place = Place::new();
        let backend = ProcessBackend { without: vec!["network.capture".into()], ..ProcessBackend::default() };
        let mut sandbox = backend.create(asked(&place, users)).unwrap();
        assert_eq!(sandbox.report().control("network.capture").unwrap().state, State::Off);
        let doors = sandbox.take_doors().unwrap();
        let mut inside = Inside::new(sandbox);
        assert_eq!(inside.python(&format!("{CONNECT}\nprint(connect('93.184.216.34', 80))")), "ENETUNREACH");
        for listener in &doors.transparent {
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        drop(inside);
        match backend.create(SandboxSpec { require: vec!["network.capture".into()], ..asked(&place, users) })
        {
            Err(RuntimeError::Refused { what, .. }) => assert!(what.contains("network.capture"), "{what}"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it is required, left out, and the sandbox stands"),
        }
    });
}
