//! Modules written by hand, most of them hostile. What compilers make is run by the tests of the command line.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

const LIMITS: Limits = Limits { timeout: Duration::from_secs(20), memory: 4 << 20, output: 1 << 16 };

fn program(text: &str) -> Result<Program, WasmError> {
    Program::compile(&wat::parse_str(text).unwrap())
}

fn run_with(text: &str, input: &[u8], limits: Limits) -> Ended {
    program(text).unwrap().run(Call { args: &["module"], input, limits }, &|| false)
}

fn run(text: &str) -> Ended {
    run_with(text, b"", LIMITS)
}

fn refused(text: &str) -> String {
    program(text).err().unwrap().to_string()
}

/// Copies its input to its output, a byte at a time.
const ECHO: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
        (i32.store (i32.const 0) (i32.const 16))
        (i32.store (i32.const 4) (i32.const 1))
        (loop $next
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
            (if (i32.load (i32.const 8)) (then
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
                (br $next))))))"#;

/// Calls one function of WASI and ends with what it answers.
fn answer_of(name: &str, params: &str, args: &str) -> Ended {
    run(&format!(
        r#"(module
            (import "wasi_snapshot_preview1" "{name}" (func $asked (param {params}) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (memory (export "memory") 1)
            (func (export "_start") (call $exit (call $asked {args}))))"#
    ))
}

#[test]
fn what_is_read_can_be_written() {
    let ended = run_with(ECHO, b"a question", LIMITS);
    assert_eq!((ended.how, ended.output.as_slice()), (How::Exited(0), &b"a question"[..]));
    assert_eq!((ended.errors.as_slice(), ended.short_of_memory), (&b""[..], false));
}

#[test]
fn a_module_that_never_ends_is_ended_by_its_work_and_by_its_time() {
    let forever = "(module (func (export \"_start\") (loop $on (br $on))))";
    let second = Limits { timeout: Duration::from_secs(1), ..LIMITS };
    let ended = run_with(forever, b"", second);
    // which of the two is sooner depends on the machine
    assert!(matches!(ended.how, How::Late | How::OutOfWork(100_000_000)), "{:?}", ended.how);
    let at_once = Limits { timeout: Duration::ZERO, ..LIMITS };
    let how = run_with(forever, b"", at_once).how;
    assert!(matches!(how, How::Late | How::OutOfWork(_)), "{how:?}");
    // what would run before it is asked to does not
    let opening = "(module (func $f (loop $on (br $on))) (start $f) (func (export \"_start\")))";
    assert!(refused(opening).contains("start function"), "{}", refused(opening));
}

#[test]
fn what_is_done_for_it_is_its_work_too() {
    let asks = r#"(module
        (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
        (memory (export "memory") 64)
        (func (export "_start")
            (loop $on (drop (call $random (i32.const 0) (i32.const 4194304))) (br $on))))"#;
    let second = Limits { timeout: Duration::from_secs(1), ..LIMITS };
    let ended = run_with(asks, b"", second);
    assert!(matches!(ended.how, How::Late | How::OutOfWork(_)), "{:?}", ended.how);
}

#[test]
fn a_person_can_stop_it_and_no_other_run_of_it() {
    let program = program(ECHO).unwrap();
    let input = vec![b'x'; 60_000];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let ended = program.run(Call { args: &[], input: &input, limits: LIMITS }, &|| false);
                assert_eq!((ended.how, ended.output.len()), (How::Exited(0), input.len()));
            });
        }
        let forever = super::Program::compile(
            &wat::parse_str("(module (func (export \"_start\") (loop $on (br $on))))").unwrap(),
        )
        .unwrap();
        let long = Limits { timeout: Duration::from_secs(600), ..LIMITS };
        let ended = forever.run(Call { args: &[], input: b"", limits: long }, &|| true);
        assert_eq!(ended.how, How::Stopped);
    });
}

#[test]
fn memory_beyond_the_limit_is_refused_and_told() {
    let grows = |pages: u32| {
        format!(
            "(module (memory (export \"memory\") 1) (func (export \"_start\")
                (if (i32.eq (memory.grow (i32.const {pages})) (i32.const -1)) (then unreachable))))"
        )
    };
    let fits = run(&grows(63));
    assert_eq!((fits.how, fits.short_of_memory), (How::Exited(0), false));
    for pages in [64, 65_535] {
        let ended = run(&grows(pages));
        assert!(matches!(ended.how, How::Trapped(_)) && ended.short_of_memory, "{pages}: {ended:?}");
    }
    let born_large = run("(module (memory (export \"memory\") 1000) (func (export \"_start\")))");
    assert!(matches!(born_large.how, How::Trapped(_)) && born_large.short_of_memory, "{born_large:?}");
    let table = run("(module (table 10000000 funcref) (func (export \"_start\")))");
    assert!(matches!(table.how, How::Trapped(_)), "{table:?}");
}

#[test]
fn a_recursion_without_an_end_is_one_of_the_modules_own() {
    let ended = run("(module (func $f (export \"_start\") (call $f)))");
    assert_eq!(ended.how, How::StackOverflow);
    // on a thread with little stack as well
    let small = std::thread::Builder::new().stack_size(2 << 20);
    let thread = small.spawn(|| run("(module (func $f (export \"_start\") (call $f) (call $f)))").how);
    assert_eq!(thread.unwrap().join().unwrap(), How::StackOverflow);
}

#[test]
fn a_trap_says_what_it_was() {
    let check = |body: &str, expected: &str| {
        let How::Trapped(why) = run(&format!("(module (memory 1) (func (export \"_start\") {body}))")).how
        else {
            panic!("{body}")
        };
        assert!(why.contains(expected), "{why}");
    };
    check("unreachable", "unreachable");
    check("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "divide by zero");
    check("(drop (i32.load (i32.const -4)))", "out of bounds");
}

#[test]
fn output_has_an_end() {
    let floods = |fd: u32| {
        format!(
            r#"(module
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (func (export "_start")
                (i32.store (i32.const 4) (i32.const 4096))
                (loop $on
                    (drop (call $write (i32.const {fd}) (i32.const 0) (i32.const 1) (i32.const 8)))
                    (br $on))))"#
        )
    };
    for fd in [1, 2] {
        let ended = run(&floods(fd));
        assert_eq!(ended.how, How::TooLong);
        assert!(ended.output.len() + ended.errors.len() <= LIMITS.output as usize);
    }
}

#[test]
fn addresses_outside_of_its_memory_are_answered_not_followed() {
    let all = "i32 i32 i32 i32";
    // the list, a piece of it, the result, too many pieces
    for args in [
        "(i32.const 1) (i32.const -8) (i32.const 1) (i32.const 0)",
        "(i32.const 1) (i32.const 65532) (i32.const 1) (i32.const 0)",
        "(i32.const 1) (i32.const 0) (i32.const 0) (i32.const -1)",
    ] {
        assert_eq!(answer_of("fd_write", all, args).how, How::Exited(21), "{args}");
        assert_eq!(answer_of("fd_read", all, &args.replacen('1', "0", 1)).how, How::Exited(21), "{args}");
    }
    let many = "(i32.const 1) (i32.const 0) (i32.const -1) (i32.const 0)";
    assert_eq!(answer_of("fd_write", all, many).how, How::Exited(28));
    assert_eq!(answer_of("random_get", "i32 i32", "(i32.const 0) (i32.const -1)").how, How::Exited(21));
    assert_eq!(answer_of("args_get", "i32 i32", "(i32.const -1) (i32.const -1)").how, How::Exited(21));
    let other = "(i32.const 5) (i32.const 0) (i32.const 0) (i32.const 0)";
    assert_eq!(answer_of("fd_write", all, other).how, How::Exited(8));
}

#[test]
fn there_is_no_file_no_socket_and_no_waiting() {
    let open = "(i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 8)";
    assert_eq!(answer_of("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32", open).how, How::Exited(52));
    let wait = "(i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0)";
    assert_eq!(answer_of("poll_oneoff", "i32 i32 i32 i32", wait).how, How::Exited(52));
    assert_eq!(answer_of("fd_prestat_get", "i32 i32", "(i32.const 3) (i32.const 0)").how, How::Exited(8));
}

#[test]
fn what_cannot_be_run_is_refused_before_it_is() {
    let start = "(func (export \"_start\"))";
    let check = |text: &str, expected: &str| {
        let found = refused(text);
        assert!(found.contains(expected), "{found}");
    };
    check(&format!("(module (import \"env\" \"abort\" (func)) {start})"), "imports `env.abort`");
    check(
        &format!("(module (import \"wasi_snapshot_preview1\" \"fd_exec\" (func)) {start})"),
        "imports `wasi_snapshot_preview1.fd_exec`",
    );
    check(
        &format!("(module (import \"wasi_snapshot_preview1\" \"path_open\" (func)) {start})"),
        "`path_open` of WASI in a form",
    );
    check(
        &format!(
            "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func)) (memory (export \"memory\") 1) {start})"
        ),
        "`fd_write` of WASI in a form",
    );
    check(&format!("(module (import \"env\" \"memory\" (memory 1)) {start})"), "imports `env.memory`");
    check("(module)", "exports no function `_start`");
    check("(module (func (export \"_start\") (param i32)))", "exports no function `_start`");
    check(
        &format!("(module (import \"wasi_snapshot_preview1\" \"sched_yield\" (func (result i32))) {start})"),
        "exports no memory",
    );
    check(&format!("(module (memory i64 1) {start})"), "no valid module");
    check(&format!("(module (memory 1) (memory 1) {start})"), "no valid module");
    let bytes = |bytes: &[u8]| Program::compile(bytes).err().unwrap().to_string();
    assert!(bytes(b"#!/bin/sh\n").contains("no WebAssembly module"));
    assert!(bytes(b"").contains("no WebAssembly module"));
    assert!(bytes(b"\0asm\x0d\0\x01\0").contains("component"));
    assert!(bytes(b"\0asm\x01\0\0\0\xff\xff").contains("no valid module"));
    assert!(bytes(&vec![0; LARGEST as usize + 1]).contains("bytes, and the most is"));
}

/// Writes sixteen bytes of chance and the time, twice.
const DICE: &str = r#"(module
    (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
        (drop (call $random (i32.const 16) (i32.const 16)))
        (drop (call $clock (i32.const 0) (i64.const 0) (i32.const 32)))
        (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 40)))
        (i32.store (i32.const 0) (i32.const 16))
        (i32.store (i32.const 4) (i32.const 32))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

#[test]
fn the_same_input_gives_the_same_output_every_time() {
    let once = run_with(DICE, b"a", LIMITS).output;
    assert_eq!((once.len(), &once), (32, &run_with(DICE, b"a", LIMITS).output));
    assert_ne!(once, run_with(DICE, b"b", LIMITS).output);
    assert!(once[16..24] < once[24..32], "the clock moves on");
}

proptest! {
    #[test]
    fn any_bytes_are_a_program_or_refused(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Program::compile(&tail);
        let _ = Program::compile(&[b"\0asm\x01\0\0\0", tail.as_slice()].concat());
    }

    #[test]
    fn any_call_to_write_and_read_ends(fd in 0u32..4, list in any::<i32>(), count in 0i32..2000, out in any::<i32>()) {
        for name in ["fd_write", "fd_read"] {
            let args = format!("(i32.const {fd}) (i32.const {list}) (i32.const {count}) (i32.const {out})");
            let ended = answer_of(name, "i32 i32 i32 i32", &args);
            prop_assert!(matches!(ended.how, How::Exited(_) | How::TooLong), "{:?}", ended.how);
        }
    }
}
