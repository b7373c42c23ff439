//! Bytes in, bytes out, and when a stream ends.

use crate::harness::{Guest, shell};
use cofferdam_guest::wire::{Exec, Outcome, Stdin, Stream, Target};

/// Bytes that do not repeat soon, so that a lost or doubled block shows.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

#[test]
fn megabytes_through_cat_and_back() {
    let mut guest = Guest::start();
    let id = guest.exec(&Exec { stdin: Stdin::Piped, ..shell("cat") });
    let sent = noise(6 << 20);
    guest.feed(id, &sent);
    let seen = guest.finish(id);
    assert!(seen.stdout == sent, "{} bytes came back", seen.stdout.len());
    assert_eq!(seen.outcome(), Outcome::Code(0));
}

#[test]
fn much_output_with_a_slow_reader_comes_whole() {
    const LINES: usize = 6_600_000;
    let mut guest = Guest::start();
    let id = guest.exec(&shell(&format!("seq 1 {LINES}; echo end >&2")));
    for turn in 0_u32.. {
        guest.turn();
        if guest.seen[&id].exited.is_some() {
            break;
        }
        // Slower than the command, so that everything between is full.
        if turn.is_multiple_of(16) {
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
    }
    let seen = guest.seen.remove(&id).unwrap();
    assert!(seen.stdout.len() > 50_000_000, "{}", seen.stdout.len());
    let mut expected = 1_usize;
    for line in seen.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let number: usize = std::str::from_utf8(line).unwrap().parse().unwrap();
        assert_eq!(number, expected);
        expected += 1;
    }
    assert_eq!(expected, LINES + 1);
    assert_eq!(seen.stderr, b"end\n");
}

#[test]
fn without_credit_nothing_more_comes() {
    use cofferdam_guest::host::Event;
    use cofferdam_guest::wire::WINDOW;
    let mut guest = Guest::start();
    let id = guest.exec(&shell("yes"));
    guest.client.flush().unwrap();
    let mut total = 0;
    while total < WINDOW as usize {
        let _ = guest.client.receive().unwrap();
        while let Some(event) = guest.client.next_event().unwrap() {
            if let Event::Output { bytes, .. } = event {
                total += bytes.len();
            }
        }
    }
    // The guest still listens, and has sent not one byte more.
    let other = guest.exec(&shell("echo still here"));
    assert_eq!(guest.finish(other).text(), "still here\n");
    assert_eq!(guest.seen[&id].stdout.len(), 0);
    assert_eq!(total, WINDOW as usize);
    // What it took is enough for it to go on.
    guest.client.consumed(id, Stream::Stdout, total).unwrap();
    guest.until(id, |seen| seen.stdout.len() > 1000);
    guest.client.signal(id, 9, Target::Group).unwrap();
    guest.finish(id);
}

#[test]
fn what_is_left_at_the_exit_comes_before_it() {
    let mut guest = Guest::start();
    for _ in 0..20 {
        let seen = guest.run(&shell("head -c 60000 /dev/zero; head -c 50000 /dev/zero >&2"));
        assert_eq!((seen.stdout.len(), seen.stderr.len()), (60_000, 50_000));
    }
}

#[test]
fn a_daemon_left_behind_holds_nothing_up() {
    let mut guest = Guest::start();
    let seen = guest.run(&shell("setsid sleep 1000 & echo $!"));
    assert_eq!(seen.outcome(), Outcome::Code(0));
    let daemon: i32 = seen.text().trim().parse().unwrap();
    // Nor does one that never stops writing.
    let seen = guest.run(&shell("setsid yes & echo $! >&2; sleep 0.05"));
    assert_eq!(seen.outcome(), Outcome::Code(0));
    assert!(!seen.stdout.is_empty());
    let noisy: i32 = String::from_utf8(seen.stderr).unwrap().trim().parse().unwrap();
    for pid in [daemon, noisy] {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

#[test]
fn closed_stdio_is_no_exit() {
    let mut guest = Guest::start();
    let script = "trap 'exit 5' TERM; exec <&- >&- 2>&-; while :; do sleep 0.01; done";
    let id = guest.exec(&Exec { stdin: Stdin::Piped, ..shell(script) });
    let seen = guest.until(id, |seen| seen.ended.len() == 2 && seen.input_closed);
    assert_eq!(seen.exited, None);
    assert_eq!(guest.client.input(id, b"nobody"), 0);
    // A loop that spins on what is closed never sleeps.
    let sleeps = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    };
    assert!((0..10_000).any(|_| sleeps(guest.process.id().as_raw_nonzero().get())));
    guest.client.signal(id, 15, Target::Leader).unwrap();
    assert_eq!(guest.finish(id).outcome(), Outcome::Code(5));
}

#[test]
fn input_that_nobody_reads() {
    let mut guest = Guest::start();
    let id = guest.exec(&Exec { stdin: Stdin::Piped, ..shell("exec <&-; sleep 0.1; echo done") });
    guest.feed(id, &noise(4 << 20));
    let seen = guest.finish(id);
    assert!(seen.input_closed);
    assert_eq!(seen.text(), "done\n");
    let id = guest.exec(&Exec { stdin: Stdin::Piped, ..shell("head -c 10 >/dev/null") });
    guest.feed(id, &noise(4 << 20));
    assert_eq!(guest.finish(id).outcome(), Outcome::Code(0));
}

#[test]
fn input_waits_for_a_slow_command() {
    let mut guest = Guest::start();
    let id = guest.exec(&Exec { stdin: Stdin::Piped, ..shell("sleep 0.1; wc -c") });
    guest.feed(id, &vec![b'x'; 1_000_000]);
    assert_eq!(guest.finish(id).text().trim(), "1000000");
}

#[test]
fn a_command_that_takes_back_its_output() {
    // Reads from its own pipe what the guest is about to send: bytes may be lost, the conversation may not.
    let script = "(while :; do head -c 100000 /dev/zero; done) & w=$!; \
        timeout 0.3 cat /proc/self/fd/1 >/dev/null; kill $w; echo done >&2";
    let mut guest = Guest::start();
    let seen = guest.run(&shell(script));
    assert_eq!(seen.stderr, b"done\n");
    assert_eq!(guest.run(&shell("echo on")).text(), "on\n");
}
