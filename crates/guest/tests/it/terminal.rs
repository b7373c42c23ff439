//! Commands on a terminal of their own.

use crate::harness::{Guest, shell};
use cofferdam_guest::wire::{Exec, Outcome, Size, Step, Target, Tty};

fn on_terminal(script: &str) -> Exec<'_> {
    Exec {
        tty: Some(Tty { size: Size { rows: 33, columns: 111 }, stops: false }),
        env: vec![b"PATH=/usr/bin:/bin", b"TERM=xterm"],
        ..shell(script)
    }
}

#[test]
fn size_and_session() {
    let mut guest = Guest::start();
    let seen = guest
        .run(&on_terminal("stty size; tty >/dev/null && ls /proc/self/fd | tr '\\n' ' '; echo x >/dev/tty"));
    // The directory that `ls` has open is 3, and there is nothing above it.
    assert_eq!(seen.screen(), "33 111\r\n0 1 2 3 x\r\n");
    assert_eq!(seen.outcome(), Outcome::Code(0));
    assert_eq!(seen.ended.len(), 1);
}

#[test]
fn resize() {
    let mut guest = Guest::start();
    let id =
        guest.exec(&on_terminal("trap 'stty size; exit 4' WINCH; echo up; while :; do sleep 0.01; done"));
    guest.until(id, |seen| seen.screen().contains("up"));
    guest.client.resize(id, Size { rows: 50, columns: 60 }).unwrap();
    let seen = guest.finish(id);
    assert!(seen.screen().contains("50 60"), "{}", seen.screen());
    assert_eq!(seen.outcome(), Outcome::Code(4));
}

#[test]
fn keys_are_echoed_and_interrupt() {
    let mut guest = Guest::start();
    let id = guest.exec(&on_terminal("read -r line; echo got $line; exec sleep 1000"));
    guest.client.input(id, b"hello\n");
    let seen = guest.until(id, |seen| seen.screen().contains("got hello"));
    assert!(seen.screen().starts_with("hello\r\n"), "{}", seen.screen());
    guest.client.input(id, b"\x03");
    assert_eq!(guest.finish(id).outcome(), Outcome::Signal { number: 2, core: false });
}

#[test]
fn the_end_of_input_is_the_end_of_file_character() {
    let mut guest = Guest::start();
    let id = guest.exec(&on_terminal("cat; echo after"));
    guest.client.input(id, b"line\n");
    guest.client.end_input(id);
    let seen = guest.finish(id);
    assert_eq!(seen.outcome(), Outcome::Code(0));
    assert!(seen.screen().ends_with("after\r\n"), "{}", seen.screen());
}

#[test]
fn a_signal_goes_to_the_foreground() {
    let mut guest = Guest::start();
    // With job control the child is in a group of its own, which is the terminal's foreground.
    let id = guest.exec(&on_terminal(
        "set -m; sh -c 'trap \"echo inner; exit 6\" USR1; echo up; while :; do sleep 0.01; done'; echo was $?",
    ));
    guest.until(id, |seen| seen.screen().contains("up"));
    guest.client.signal(id, 10, Target::Foreground).unwrap();
    let seen = guest.finish(id);
    assert!(seen.screen().contains("inner") && seen.screen().contains("was 6"), "{}", seen.screen());
}

#[test]
fn a_closed_terminal_is_no_exit() {
    let mut guest = Guest::start();
    let seen =
        guest.run(&on_terminal("exec 3>/dev/tty <&- >&- 2>&- 3>&-; sleep 0.1; echo back >/dev/tty; exit 8"));
    assert_eq!((seen.screen().as_str(), seen.outcome()), ("back\r\n", Outcome::Code(8)));
}

#[test]
fn much_output_comes_whole_and_its_end_is_not_lost() {
    let mut guest = Guest::start();
    for _ in 0..5 {
        let seen = guest.run(&on_terminal("seq 1 20000"));
        let expected: String = (1..=20_000).map(|i| format!("{i}\r\n")).collect();
        assert!(seen.screen() == expected, "{} bytes", seen.tty.len());
    }
}

#[test]
fn a_daemon_on_the_terminal_holds_nothing_up() {
    let mut guest = Guest::start();
    let seen = guest.run(&on_terminal("trap '' HUP; sleep 3 & echo bye"));
    assert_eq!((seen.screen().as_str(), seen.outcome()), ("bye\r\n", Outcome::Code(0)));
}

/// At a terminal whose people can be stopped with it.
fn stoppable(script: &str) -> Exec<'_> {
    let on_terminal = on_terminal(script);
    Exec { tty: on_terminal.tty.map(|tty| Tty { stops: true, ..tty }), ..on_terminal }
}

const CONT: u8 = 18;

#[test]
fn what_is_typed_stops_it_and_it_goes_on_when_it_is_told_to() {
    let mut guest = Guest::start();
    let id = guest.exec(&stoppable("echo up; while read -r line; do echo got $line; done; exit 7"));
    guest.until(id, |seen| seen.screen().contains("up"));
    for times in 1..=3 {
        guest.client.input(id, b"\x1a");
        guest.until(id, |seen| seen.stops == times);
        guest.client.input(id, format!("{times}\n").as_bytes());
        guest.client.signal(id, CONT, Target::Leader).unwrap();
        // It runs again: what is typed to one that is only about to would be forgotten with its waking.
        guest.until(id, |seen| seen.screen().contains(&format!("got {times}")));
    }
    guest.client.end_input(id);
    let seen = guest.finish(id);
    assert_eq!((seen.outcome(), seen.stops), (Outcome::Code(7), 3));
}

#[test]
fn nothing_that_is_typed_stops_it_where_nobody_could_wake_it() {
    let mut guest = Guest::start();
    let id = guest.exec(&on_terminal("echo up; read -r line; echo got $line"));
    guest.until(id, |seen| seen.screen().contains("up"));
    guest.client.input(id, b"\x1ahello\n");
    let seen = guest.finish(id);
    assert!(seen.screen().contains("got hello"), "{}", seen.screen());
    assert_eq!((seen.outcome(), seen.stops), (Outcome::Code(0), 0));
}

#[test]
fn with_a_keeper_it_ends_hears_and_begins_as_without() {
    let mut guest = Guest::start();
    let seen =
        guest.run(&stoppable("stty size; ls /proc/self/fd | tr '\\n' ' '; ps -o stat= -p $$ | tr -d '\\n'"));
    // It is in the foreground.
    assert!(
        seen.screen().starts_with("33 111\r\n0 1 2 3 S") && seen.screen().ends_with('+'),
        "{}",
        seen.screen()
    );
    assert_eq!(guest.run(&stoppable("exit 42")).outcome(), Outcome::Code(42));
    assert_eq!(guest.run(&stoppable("kill -TERM $$")).outcome(), Outcome::Signal { number: 15, core: false });
    let missing = Exec { argv: vec![b"/no/such/program"], ..stoppable("") };
    assert_eq!(guest.run(&missing).outcome(), Outcome::NotFound);
    let data = Exec { argv: vec![b"/etc/passwd"], ..stoppable("") };
    assert!(matches!(guest.run(&data).outcome(), Outcome::NotExecutable { .. }));
    let astray = Exec { cwd: b"/no/such/directory", ..stoppable("true") };
    assert!(matches!(guest.run(&astray).outcome(), Outcome::Failed { step: Step::Directory, .. }));
    let id = guest.exec(&stoppable("trap 'echo heard; exit 5' USR1; echo up; while :; do sleep 0.01; done"));
    guest.until(id, |seen| seen.screen().contains("up"));
    guest.client.signal(id, 10, Target::Leader).unwrap();
    let seen = guest.finish(id);
    assert!(seen.screen().contains("heard"), "{}", seen.screen());
    assert_eq!(seen.outcome(), Outcome::Code(5));
}

#[test]
fn whoever_ends_the_keeper_ends_the_command() {
    let mut guest = Guest::start();
    for stopped in [false, true] {
        // It would outlive the end of its terminal.
        let id = guest.exec(&stoppable("trap '' HUP; echo pid $$.; while :; do sleep 0.01; done"));
        let seen = guest.until(id, |seen| seen.screen().contains('.'));
        let pid = seen.screen().split(['.', ' ']).nth(1).unwrap().to_owned();
        if stopped {
            guest.client.input(id, b"\x1a");
            guest.until(id, |seen| seen.stops == 1);
        }
        guest.client.signal(id, 9, Target::Group).unwrap();
        assert_eq!(guest.finish(id).outcome(), Outcome::Signal { number: 9, core: false });
        let began = std::time::Instant::now();
        while std::path::Path::new(&format!("/proc/{pid}")).exists() {
            assert!(began.elapsed().as_secs() < 60, "{pid} runs on");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
