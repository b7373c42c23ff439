//! A host that says what it should not, and a machine that has no more to give.

use crate::harness::{Guest, shell, start};
use cofferdam_guest::exit;
use cofferdam_guest::host::HostError;
use cofferdam_guest::wire::{
    EXECS_MAX, Exec, Header, Kind, Outcome, Resize, Signal, Size, Stdin, Step, Stream, Target, User, VERSION,
    WINDOW, Window, put, put_empty,
};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, prlimit};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// How the guest ends after these bytes, the channel being left open.
fn after(bytes: &[u8]) -> Option<i32> {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut guest = start(theirs);
    // It may end before it has read all of it.
    let _ = ours.write_all(bytes);
    let mut rest = Vec::new();
    let _ = ours.read_to_end(&mut rest);
    guest.wait().code()
}

fn frame(kind: Kind, id: u32, stream: Option<Stream>, length: u32, body: &[u8]) -> Vec<u8> {
    [Header { kind, stream, id, length }.encode().as_slice(), body].concat()
}

#[test]
fn malformed_frames_end_the_guest_with_a_status() {
    let exec = |argv: Vec<&[u8]>, id| {
        let mut bytes = Vec::new();
        put(&mut bytes, Kind::Exec, id, None, &Exec { argv, ..shell("exec sleep 1000") }).unwrap();
        bytes
    };
    let sleep: Vec<&[u8]> = vec![b"sleep", b"1000"];
    let too_much = || {
        let mut bytes = Vec::new();
        let request = Exec { stdin: Stdin::Piped, ..shell("exec sleep 1000") };
        put(&mut bytes, Kind::Exec, 1, None, &request).unwrap();
        let chunk = vec![0; 65536];
        // More than the window and the pipe together can take.
        for _ in 0..=(WINDOW + (1 << 20)) / 65536 {
            bytes.extend(frame(Kind::Data, 1, Some(Stream::Stdin), 65536, &chunk));
        }
        bytes
    };
    let cases: Vec<Vec<u8>> = vec![
        vec![0xff; 100],
        vec![0; 12],
        frame(Kind::Hello, 0, None, 1, &[1]),
        frame(Kind::Exec, 1, None, u32::MAX, &[]),
        frame(Kind::Exec, 1, None, 3, &[0xff, 0xff, 0xff]),
        frame(Kind::Exec, 0, None, 3, &[0; 3]),
        frame(Kind::Data, 1, Some(Stream::Stdout), 1, &[0]),
        frame(Kind::Data, 1, Some(Stream::Stdin), 0, &[]),
        [exec(sleep.clone(), 1), exec(sleep.clone(), 1)].concat(),
        exec(vec![], 1),
        exec(vec![b"a\0b"], 1),
        too_much(),
    ];
    for (at, bytes) in cases.iter().enumerate() {
        assert_eq!(after(bytes), Some(exit::PROTOCOL), "case {at}");
    }
}

#[test]
fn random_bytes_never_do_more_than_end_it() {
    let mut state = 7_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    for round in 0..60 {
        let mut bytes: Vec<u8> = Vec::new();
        for _ in 0..20 {
            let body: Vec<u8> = (0..random() % 24).map(|_| random() % 9).collect();
            bytes.extend((body.len() as u32).to_le_bytes());
            bytes.extend([1 + random() % 3, 0, 0, 0, random() % 11, random() % 5, VERSION, 0]);
            bytes.extend(body);
        }
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut guest = start(theirs);
        let _ = ours.write_all(&bytes);
        drop(ours);
        let code = guest.wait().code();
        assert!([Some(exit::CLOSED), Some(exit::PROTOCOL)].contains(&code), "round {round}: {code:?}");
    }
}

#[test]
fn frames_for_an_exec_that_is_gone_are_passed_over() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut guest = start(theirs);
    let mut bytes = Vec::new();
    put(&mut bytes, Kind::Resize, 9, None, &Resize { size: Size { rows: 1, columns: 1 } }).unwrap();
    put(&mut bytes, Kind::Signal, 9, None, &Signal { number: 9, to: Target::Group }).unwrap();
    put(&mut bytes, Kind::Window, 9, Some(Stream::Stdout), &Window { bytes: 9 }).unwrap();
    put_empty(&mut bytes, Kind::Eof, 9, Stream::Stdin);
    bytes.extend(frame(Kind::Data, 9, Some(Stream::Stdin), 3, b"abc"));
    // A signal without a name, too.
    put(&mut bytes, Kind::Exec, 1, None, &shell("sleep 0.1; echo alive")).unwrap();
    put(&mut bytes, Kind::Signal, 1, None, &Signal { number: 200, to: Target::Group }).unwrap();
    ours.write_all(&bytes).unwrap();
    ours.shutdown(std::net::Shutdown::Read).unwrap_or_default();
    drop(ours);
    assert_eq!(guest.wait().code(), Some(exit::CLOSED));
    let mut guest = Guest::start();
    let gone = guest.exec(&shell("true"));
    guest.finish(gone);
    guest.client.signal(gone, 9, Target::Group).unwrap();
    guest.client.consumed(gone, Stream::Stdout, 10).unwrap();
    assert_eq!(guest.run(&shell("echo alive")).text(), "alive\n");
}

#[test]
fn as_many_at_once_as_are_allowed() {
    let mut guest = Guest::start();
    let sleepers: Vec<_> = (0..EXECS_MAX).map(|_| guest.exec(&shell("exec sleep 1000"))).collect();
    assert_eq!(guest.client.exec(&shell("true")), Err(HostError::TooMany));
    for id in &sleepers {
        guest.until(*id, |seen| seen.pid.is_some());
        guest.client.signal(*id, 9, Target::Leader).unwrap();
    }
    for id in sleepers {
        assert_eq!(guest.finish(id).outcome(), Outcome::Signal { number: 9, core: false });
    }
    assert_eq!(guest.run(&shell("true")).outcome(), Outcome::Code(0));
}

#[test]
fn no_process_to_be_had_is_told_and_survived() {
    const EAGAIN: u16 = 11;
    let mut guest = Guest::start();
    let pid = guest.process.id();
    assert_eq!(guest.run(&shell("true")).outcome(), Outcome::Code(0));
    // Root is above this limit, so it hits the one whom root becomes, and the kernel tells it one step later.
    let (user, expected) = if geteuid().is_root() {
        let nobody = Some(User { uid: 61_703, gid: 61_703, groups: vec![] });
        let first = guest.exec(&Exec { user: nobody.clone(), ..shell("exec sleep 1000") });
        guest.until(first, |seen| seen.pid.is_some());
        (nobody, Outcome::NotExecutable { errno: EAGAIN })
    } else {
        (None, Outcome::Failed { step: Step::Fork, errno: EAGAIN })
    };
    let usual = getrlimit(Resource::Nproc);
    prlimit(Some(pid), Resource::Nproc, Rlimit { current: Some(0), ..usual }).unwrap();
    let exec = Exec { user, ..shell("true") };
    for _ in 0..100 {
        assert_eq!(guest.run(&exec).outcome(), expected);
    }
    prlimit(Some(pid), Resource::Nproc, usual).unwrap();
    assert_eq!(guest.run(&shell("true")).outcome(), Outcome::Code(0));
}

#[test]
fn a_guest_at_its_limit_of_descriptors_says_so_and_goes_on() {
    let mut guest = Guest::start();
    let pid = guest.process.id();
    guest.run(&shell("true"));
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(8), maximum: Some(8) }).unwrap();
    let outcome = guest.run(&shell("true")).outcome();
    assert!(matches!(outcome, Outcome::Failed { step: Step::Stdio, errno: 24 }), "{outcome:?}");
    assert_eq!(guest.run(&shell("true")).outcome(), outcome);
}
