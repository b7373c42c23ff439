//! Commands on a terminal of their own.

use crate::harness::{Guest, shell};
use cofferdam_guest::wire::{Exec, Outcome, Size, Target};

fn on_terminal(script: &str) -> Exec<'_> {
    Exec {
        tty: Some(Size { rows: 33, columns: 111 }),
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
