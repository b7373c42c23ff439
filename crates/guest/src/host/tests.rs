use super::*;
use crate::wire::{
    Account, CONTROL_MAX, Hello, Outcome, Request, Started, Stdin, Step, Stopped, Tty, Usage, VERSION,
    WINDOW, Window, put, put_empty,
};
use alloc::string::String;
use alloc::vec;
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::Serialize;
use std::format;

fn request(tty: bool) -> Exec<'static> {
    Exec {
        argv: vec![b"true"],
        env: vec![],
        cwd: b"/",
        user: None,
        tty: tty.then_some(Tty { size: Size { rows: 24, columns: 80 }, stops: false }),
        stdin: Stdin::Piped,
    }
}

/// A client and a guest that says what the test tells it to.
struct Stage {
    client: Client,
    guest: OwnedFd,
    exec: ExecId,
}

impl Stage {
    /// Before anything was said; one exec was asked for.
    fn silent(tty: bool) -> Self {
        let (ours, guest) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let mut client = Client::new(ours).unwrap();
        let exec = client.exec(&request(tty)).unwrap();
        Self { client, guest, exec }
    }

    fn greeted(tty: bool) -> Self {
        let mut stage = Self::silent(tty);
        stage.say(Kind::Hello, 0, None, &Hello { pid: 1 });
        assert_eq!(stage.hear(), Ok(vec!["Ready { pid: 1 }".into()]));
        stage
    }

    fn started(tty: bool) -> Self {
        let mut stage = Self::greeted(tty);
        stage.say(Kind::Started, 1, None, &Started { pid: 2 });
        stage.hear().unwrap();
        stage
    }

    fn raw(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = rustix::io::write(&self.guest, rest).unwrap();
            rest = &rest[count..];
        }
    }

    fn say(&self, kind: Kind, id: u32, stream: Option<Stream>, body: &impl Serialize) {
        let mut bytes = Vec::new();
        put(&mut bytes, kind, id, stream, body).unwrap();
        self.raw(&bytes);
    }

    fn eof(&self, id: u32, stream: Stream) {
        let mut bytes = Vec::new();
        put_empty(&mut bytes, Kind::Eof, id, stream);
        self.raw(&bytes);
    }

    fn data(&self, id: u32, stream: Stream, bytes: &[u8]) {
        let header = Header { kind: Kind::Data, stream: Some(stream), id, length: bytes.len() as u32 };
        self.raw(&header.encode());
        self.raw(bytes);
    }

    fn exit(&self, outcome: Outcome) {
        self.say(Kind::Exited, 1, None, &Exited { outcome, usage: Usage::default() });
    }

    /// All events, but for output's bytes only how many; or the error that ends them.
    fn hear(&mut self) -> Result<Vec<String>, HostError> {
        let mut events = Vec::new();
        while self.client.receive()? == Received::Bytes {
            while let Some(event) = self.client.next_event()? {
                events.push(match event {
                    Event::Output { stream, bytes, .. } => format!("{stream:?} {}", bytes.len()),
                    event => format!("{event:?}"),
                });
            }
        }
        Ok(events)
    }

    #[track_caller]
    fn refused(&mut self, expected: Violation) {
        assert_eq!(self.hear(), Err(HostError::Protocol(expected)));
        // And for good, whatever comes after.
        self.raw(&Header { kind: Kind::Eof, stream: Some(Stream::Stdout), id: 1, length: 0 }.encode());
        assert_eq!(self.client.next_event(), Err(HostError::Protocol(expected)));
    }
}

#[test]
fn a_stop_is_heard_only_where_it_was_asked_for() {
    for asked in [true, false] {
        let mut stage = Stage::started(true);
        if asked {
            let exec = request(true);
            let exec = Exec { tty: exec.tty.map(|tty| Tty { stops: true, ..tty }), ..exec };
            stage.exec = stage.client.exec(&exec).unwrap();
            stage.say(Kind::Stopped, 2, None, &Stopped { pid: 3 });
            let early = Err(HostError::from(Violation::NotStarted { kind: Kind::Stopped, id: 2 }));
            assert_eq!(stage.hear(), early.clone());
            stage = Stage::started(true);
            stage.exec = stage.client.exec(&exec).unwrap();
            stage.say(Kind::Started, 2, None, &Started { pid: 3 });
            stage.say(Kind::Stopped, 2, None, &Stopped { pid: 3 });
            assert_eq!(stage.hear().unwrap().len(), 2);
        } else {
            stage.say(Kind::Stopped, 1, None, &Stopped { pid: 2 });
            assert_eq!(stage.hear(), Err(Violation::NoStop { id: 1 }.into()));
        }
    }
}

#[test]
fn an_exec_from_hello_to_exit() {
    let mut stage = Stage::started(false);
    stage.data(1, Stream::Stdout, b"abc");
    stage.eof(1, Stream::Stdin);
    stage.eof(1, Stream::Stderr);
    stage.eof(1, Stream::Stdout);
    stage.exit(Outcome::Code(3));
    let events = stage.hear().unwrap().join("\n");
    assert_eq!(
        events,
        "Stdout 3\nInputClosed { id: ExecId(1) }\nOutputEnd { id: ExecId(1), stream: Stderr }\n\
         OutputEnd { id: ExecId(1), stream: Stdout }\n\
         Exited { id: ExecId(1), exited: Exited { outcome: Code(3), usage: Usage { user_us: 0, system_us: 0, \
         max_rss: 0 } } }"
    );
    assert_eq!(stage.client.input(stage.exec, b"late"), 0);
}

#[test]
fn an_exec_that_never_ran_just_exits() {
    let mut stage = Stage::greeted(false);
    stage.exit(Outcome::Failed { step: Step::Directory, errno: 2 });
    assert_eq!(stage.hear().unwrap().len(), 1);
}

#[test]
fn hello_comes_first_and_once() {
    let mut stage = Stage::silent(false);
    stage.say(Kind::Started, 1, None, &Started { pid: 2 });
    stage.refused(Violation::BeforeHello(Kind::Started));
    let mut stage = Stage::silent(false);
    stage.data(1, Stream::Stdout, b"x");
    stage.refused(Violation::BeforeHello(Kind::Data));
    let mut stage = Stage::greeted(false);
    stage.say(Kind::Hello, 0, None, &Hello { pid: 1 });
    stage.refused(Violation::HelloTwice);
}

/// What somebody inside would ask for.
fn plea() -> Plea<'static> {
    let who = Account {
        name: b"root".to_vec(),
        uid: 0,
        gid: 0,
        groups: vec![],
        home: b"/root".to_vec(),
        shell: b"/bin/sh".to_vec(),
    };
    let request = Request { argv: vec![b"id"], env: vec![b"A=1"], cwd: b"/", tty: false, who };
    Plea { request, uid: 1000, session: 7 }
}

#[test]
fn a_plea_from_its_question_to_the_end() {
    let mut stage = Stage::greeted(false);
    stage.client.invite(2).unwrap();
    stage.say(Kind::Plea, 5, None, &plea());
    assert_eq!(stage.client.receive(), Ok(Received::Bytes));
    let asked = match stage.client.next_event().unwrap() {
        Some(Event::Asked { plea: number, asked }) => {
            assert_eq!(asked, plea());
            number
        }
        other => panic!("{other:?}"),
    };
    let id = stage.client.grant(asked, &request(false)).unwrap();
    assert_eq!(stage.client.grant(asked, &request(false)), Err(HostError::Request("plea")), "once");
    assert_eq!(stage.client.input_room(id), 0, "its descriptors are not ours");
    stage.say(Kind::Started, id.number(), None, &Started { pid: 9 });
    let ended = Exited { outcome: Outcome::Code(3), usage: Usage::default() };
    stage.say(Kind::Exited, id.number(), None, &ended);
    assert_eq!(stage.hear().unwrap().len(), 2);
}

#[test]
fn a_granted_plea_has_no_streams() {
    let mut stage = Stage::greeted(false);
    stage.client.invite(2).unwrap();
    stage.say(Kind::Plea, 1, None, &plea());
    stage.hear().unwrap();
    stage.client.grant(PleaId(1), &request(false)).unwrap();
    stage.say(Kind::Started, 2, None, &Started { pid: 9 });
    stage.data(2, Stream::Stdout, b"x");
    stage.refused(Violation::NoStream { kind: Kind::Data, id: 2, stream: Stream::Stdout });
}

#[test]
fn only_who_is_invited_asks_and_only_so_many_at_once() {
    let mut stage = Stage::greeted(false);
    stage.say(Kind::Plea, 1, None, &plea());
    stage.refused(Violation::Uninvited(1));
    let mut stage = Stage::greeted(false);
    stage.client.invite(2).unwrap();
    for number in [1, 2] {
        stage.say(Kind::Plea, number, None, &plea());
        stage.hear().unwrap();
    }
    stage.client.deny(PleaId(1), "no").unwrap();
    stage.say(Kind::Plea, 3, None, &plea());
    assert_eq!(stage.hear().unwrap().len(), 1);
    stage.say(Kind::Plea, 4, None, &plea());
    stage.refused(Violation::Uninvited(4));
}

#[test]
fn no_plea_has_the_number_of_another() {
    let mut stage = Stage::greeted(false);
    stage.client.invite(9).unwrap();
    stage.say(Kind::Plea, 3, None, &plea());
    stage.hear().unwrap();
    stage.client.deny(PleaId(3), "no").unwrap();
    stage.say(Kind::Plea, 3, None, &plea());
    stage.refused(Violation::PleaTwice(3));
}

#[test]
fn frames_that_are_none() {
    let mut stage = Stage::greeted(false);
    stage.raw(&[0xff; 64]);
    stage.refused(Violation::Frame(FrameError::Version(0xff)));
    let mut stage = Stage::greeted(false);
    // Refused by its header alone: the body never comes.
    stage.raw(&Header { kind: Kind::Data, stream: Some(Stream::Stdout), id: 1, length: u32::MAX }.encode());
    stage.refused(Violation::Frame(FrameError::Length { kind: Kind::Data, length: u32::MAX }));
    let mut stage = Stage::greeted(false);
    stage.raw(&Header { kind: Kind::Exited, stream: None, id: 1, length: CONTROL_MAX + 1 }.encode());
    stage.refused(Violation::Frame(FrameError::Length { kind: Kind::Exited, length: CONTROL_MAX + 1 }));
    let mut stage = Stage::greeted(false);
    stage.raw(&Header { kind: Kind::Exited, stream: None, id: 1, length: 1 }.encode());
    stage.raw(&[99]);
    stage.refused(Violation::Frame(FrameError::Body(Kind::Exited)));
    let mut stage = Stage::greeted(false);
    stage.say(Kind::Exec, 1, None, &request(false));
    stage.refused(Violation::Frame(FrameError::Side(Kind::Exec)));
    assert_eq!(VERSION, 1);
}

#[test]
fn frames_for_an_exec_that_is_not() {
    let mut stage = Stage::started(false);
    stage.data(2, Stream::Stdout, b"x");
    stage.refused(Violation::UnknownExec { kind: Kind::Data, id: 2 });
    let mut stage = Stage::greeted(false);
    stage.say(Kind::Started, 7, None, &Started { pid: 1 });
    stage.refused(Violation::UnknownExec { kind: Kind::Started, id: 7 });
}

#[test]
fn an_exec_starts_once_and_before_it_speaks() {
    let mut stage = Stage::greeted(false);
    stage.data(1, Stream::Stdout, b"x");
    stage.refused(Violation::NotStarted { kind: Kind::Data, id: 1 });
    let mut stage = Stage::greeted(false);
    stage.eof(1, Stream::Stdout);
    stage.refused(Violation::NotStarted { kind: Kind::Eof, id: 1 });
    let mut stage = Stage::started(false);
    stage.say(Kind::Started, 1, None, &Started { pid: 2 });
    stage.refused(Violation::StartedTwice { id: 1 });
}

#[test]
fn only_the_streams_there_are_and_only_until_they_end() {
    let none = |kind, stream| Violation::NoStream { kind, id: 1, stream };
    let mut stage = Stage::started(false);
    stage.data(1, Stream::Tty, b"x");
    stage.refused(none(Kind::Data, Stream::Tty));
    let mut stage = Stage::started(true);
    stage.data(1, Stream::Stdout, b"x");
    stage.refused(none(Kind::Data, Stream::Stdout));
    let mut stage = Stage::started(false);
    stage.eof(1, Stream::Stdout);
    stage.data(1, Stream::Stdout, b"x");
    stage.refused(none(Kind::Data, Stream::Stdout));
    let mut stage = Stage::started(false);
    stage.eof(1, Stream::Stdout);
    stage.eof(1, Stream::Stdout);
    stage.refused(none(Kind::Eof, Stream::Stdout));
    let mut stage = Stage::started(false);
    stage.eof(1, Stream::Stdin);
    stage.eof(1, Stream::Stdin);
    stage.refused(none(Kind::Eof, Stream::Stdin));
    let mut stage = Stage::started(true);
    stage.say(Kind::Window, 1, Some(Stream::Stdin), &Window { bytes: 1 });
    stage.refused(none(Kind::Window, Stream::Stdin));
}

#[test]
fn output_stays_within_its_credit() {
    let mut stage = Stage::started(false);
    let chunk = vec![0; DATA_MAX as usize];
    let full = |stage: &mut Stage| {
        for _ in 0..WINDOW / DATA_MAX {
            stage.data(1, Stream::Stdout, &chunk);
            stage.hear().unwrap();
        }
    };
    full(&mut stage);
    // What was not delivered cannot be consumed twice.
    stage.client.consumed(stage.exec, Stream::Stdout, usize::MAX).unwrap();
    full(&mut stage);
    stage.client.consumed(stage.exec, Stream::Stdout, WINDOW as usize / 2 - 1).unwrap();
    stage.data(1, Stream::Stdout, b"x");
    stage.refused(Violation::BeyondCredit { id: 1, stream: Stream::Stdout, bytes: 1, credit: 0 });
}

#[test]
fn credit_for_input_is_only_what_was_sent() {
    let false_credit = |bytes| Violation::FalseCredit { id: 1, bytes };
    let mut stage = Stage::started(false);
    stage.say(Kind::Window, 1, Some(Stream::Stdin), &Window { bytes: 1 });
    stage.refused(false_credit(1));
    let mut stage = Stage::started(false);
    assert_eq!(stage.client.input(stage.exec, &[0; 10]), 10);
    stage.say(Kind::Window, 1, Some(Stream::Stdin), &Window { bytes: 10 });
    stage.hear().unwrap();
    stage.client.flush().unwrap();
    assert_eq!(stage.client.input_room(stage.exec), WINDOW as usize);
    stage.say(Kind::Window, 1, Some(Stream::Stdin), &Window { bytes: u32::MAX });
    stage.refused(false_credit(u32::MAX));
    let mut stage = Stage::started(false);
    stage.say(Kind::Window, 1, Some(Stream::Stdin), &Window { bytes: 0 });
    stage.refused(false_credit(0));
}

#[test]
fn an_exit_comes_once_after_all_streams_and_is_possible() {
    let false_exit = |outcome| Violation::FalseExit { id: 1, outcome };
    let ended = || {
        let stage = Stage::started(false);
        stage.eof(1, Stream::Stdout);
        stage.eof(1, Stream::Stderr);
        stage
    };
    let mut stage = ended();
    stage.exit(Outcome::Code(0));
    stage.exit(Outcome::Code(0));
    stage.refused(Violation::UnknownExec { kind: Kind::Exited, id: 1 });
    let mut stage = Stage::started(false);
    stage.eof(1, Stream::Stdout);
    stage.exit(Outcome::Code(0));
    stage.refused(false_exit(Outcome::Code(0)));
    let mut stage = Stage::greeted(false);
    stage.exit(Outcome::Code(0));
    stage.refused(false_exit(Outcome::Code(0)));
    for outcome in [Outcome::NotFound, Outcome::Signal { number: 0, core: false }] {
        let mut stage = ended();
        stage.exit(outcome);
        stage.refused(false_exit(outcome));
    }
}

#[test]
fn a_guest_that_gives_up_is_heard() {
    let mut stage = Stage::greeted(false);
    stage.say(Kind::Fault, 0, None, &Fault::Id);
    assert_eq!(stage.hear(), Err(HostError::Fault(Fault::Id)));
}

#[test]
fn what_was_said_before_the_end_is_heard_and_then_the_end() {
    let stage = Stage::started(false);
    stage.data(1, Stream::Stdout, b"last words");
    let Stage { mut client, guest, exec } = stage;
    drop(guest);
    client.input(exec, b"nobody reads this");
    client.flush().unwrap();
    assert_eq!(client.receive(), Ok(Received::Bytes));
    let expected = Event::Output { id: exec, stream: Stream::Stdout, bytes: b"last words" };
    assert_eq!(client.next_event(), Ok(Some(expected)));
    assert_eq!(client.receive(), Ok(Received::Closed));
}

#[test]
fn input_is_bounded() {
    let mut stage = Stage::started(false);
    let much = vec![0; 1 << 20];
    let taken = stage.client.input(stage.exec, &much);
    assert!(taken > 0 && taken <= WINDOW as usize, "{taken}");
    assert_eq!(stage.client.input(stage.exec, &much), 0);
    assert!(stage.client.wants_write());
}

#[test]
fn bad_requests_are_not_sent() {
    let mut stage = Stage::silent(false);
    let mut check = |exec: Exec<'_>, expected| assert_eq!(stage.client.exec(&exec), Err(expected));
    check(Exec { argv: vec![], ..request(false) }, HostError::Request("argv"));
    check(Exec { argv: vec![b"a\0"], ..request(false) }, HostError::Request("argv"));
    check(Exec { env: vec![b"A=\0"], ..request(false) }, HostError::Request("env"));
    check(Exec { cwd: b"/\0", ..request(false) }, HostError::Request("cwd"));
    let long = vec![b'x'; 5 << 20];
    let error = stage.client.exec(&Exec { argv: vec![&long], ..request(false) });
    assert!(matches!(error, Err(HostError::TooLong { .. })));
    for _ in 1..EXECS_MAX {
        stage.client.exec(&request(false)).unwrap();
    }
    assert_eq!(stage.client.exec(&request(false)), Err(HostError::TooMany));
}

/// A frame that could be right: the rules are reached more often than with random bytes.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(0_u8..8, 0..12);
    (1_u8..11, 0_u8..5, 0_u32..3, body).prop_map(|(kind, stream, id, body)| {
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&id.to_le_bytes());
        frame.extend_from_slice(&[kind, stream, VERSION, 0]);
        frame.extend_from_slice(&body);
        frame
    })
}

proptest! {
    #[test]
    fn nothing_a_guest_sends_makes_the_host_panic(
        greeted in any::<bool>(),
        frames in prop::collection::vec(
            prop_oneof![4 => plausible(), 1 => prop::collection::vec(any::<u8>(), 0..40)], 0..30),
    ) {
        let mut stage = if greeted { Stage::started(true) } else { Stage::silent(false) };
        for frame in frames {
            stage.raw(&frame);
            if stage.hear().is_err() {
                break;
            }
            let _ = stage.client.consumed(stage.exec, Stream::Tty, 3);
            stage.client.input(stage.exec, b"input");
            stage.client.flush().unwrap();
        }
    }
}
