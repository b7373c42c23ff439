use super::*;
use rustix::fd::AsFd;
use rustix::process::{WaitOptions, waitpid};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

const PATH: &CStr = c"PATH=/usr/bin:/bin";

/// Runs it with its output in a pipe; the exit code and what it printed, or why it did not start.
fn run(argv: &[&CStr], env: &[&CStr], cwd: &CStr) -> Result<(i32, String), Failure> {
    let argv: Vec<CString> = argv.iter().map(|s| CString::from(*s)).collect();
    let env: Vec<CString> = env.iter().map(|s| CString::from(*s)).collect();
    let null = File::open("/dev/null").unwrap();
    let (out, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let stdio = [null.as_fd(), into.as_fd(), into.as_fd()];
    let pid = spawn(Command { argv, env, cwd: CString::from(cwd), stdio, place: Place::Apart, user: None })?;
    drop(into);
    let mut text = String::new();
    File::from(out).read_to_string(&mut text).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    Ok((status.exit_status().unwrap_or(-1), text))
}

/// A directory of the test's own with one file in it.
fn file(name: &str, mode: u32, content: &[u8]) -> (CString, std::path::PathBuf) {
    let dir = std::env::temp_dir().join(format!("cofferdam-spawn-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    (CString::new(dir.to_str().unwrap()).unwrap(), dir)
}

#[test]
fn a_program_runs_with_its_own_environment_and_directory() {
    let (code, text) = run(&[c"sh", c"-c", c"pwd; echo $A; exit 7"], &[PATH, c"A=b"], c"/usr").unwrap();
    assert_eq!((code, text.as_str()), (7, "/usr\nb\n"));
}

#[test]
fn it_has_three_descriptors_a_session_and_no_signal_left_blocked_or_ignored() {
    let script = c"ls /proc/self/fd; grep -E 'SigBlk|SigIgn' /proc/self/status; \
        read -r _ _ _ _ group session _ < /proc/$$/stat; [ $group = $$ ] && [ $session = $$ ] && echo own";
    // The test program itself ignores SIGPIPE.
    let (code, text) = run(&[c"sh", c"-c", script], &[PATH], c"/").unwrap();
    // 3 is the directory that `ls` itself has open.
    let expected = "0\n1\n2\n3\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nown\n";
    assert_eq!((code, text.as_str()), (0, expected));
}

#[track_caller]
fn check_failure(argv: &[&CStr], env: &[&CStr], cwd: &CStr, step: Step, errno: Errno) {
    assert_eq!(run(argv, env, cwd), Err(Failure { step, errno }));
}

#[test]
fn what_cannot_run_says_why() {
    let (dir, remove) = file("plain", 0o644, b"echo no");
    let path = CString::new(format!("PATH=/usr:{}", dir.to_str().unwrap())).unwrap();
    check_failure(&[c"no-such-program"], &[PATH], c"/", Step::Program, Errno::NOENT);
    check_failure(&[c"/no/such"], &[PATH], c"/", Step::Program, Errno::NOENT);
    check_failure(&[c""], &[PATH], c"/", Step::Program, Errno::NOENT);
    check_failure(&[], &[PATH], c"/", Step::Program, Errno::NOENT);
    check_failure(&[c"plain"], &[&path], c"/", Step::Program, Errno::ACCESS);
    check_failure(&[c"./plain"], &[], &dir, Step::Program, Errno::ACCESS);
    // A directory in PATH is no program, as a path it is one that cannot be executed.
    check_failure(&[c"lib"], &[c"PATH=/usr"], c"/", Step::Program, Errno::NOENT);
    check_failure(&[c"/usr/lib"], &[], c"/", Step::Program, Errno::ACCESS);
    check_failure(&[c"true"], &[PATH], c"/no/such", Step::Directory, Errno::NOENT);
    std::fs::remove_dir_all(remove).unwrap();
}

#[test]
fn a_file_that_is_not_executable_does_not_hide_a_later_one() {
    let (dir, remove) = file("true", 0o644, b"exit 1");
    let path = CString::new(format!("PATH={}:/usr/bin:/bin", dir.to_str().unwrap())).unwrap();
    assert_eq!(run(&[c"true"], &[&path], c"/"), Ok((0, String::new())));
    std::fs::remove_dir_all(remove).unwrap();
}

#[test]
fn a_script_without_an_interpreter_line_is_the_shells() {
    let (dir, remove) = file("script", 0o755, b"echo \"$0 $1 $2\"");
    let expected = format!("{}/script a b\n", dir.to_str().unwrap());
    let path = CString::new(format!("PATH={}", dir.to_str().unwrap())).unwrap();
    assert_eq!(run(&[c"script", c"a", c"b"], &[&path], c"/"), Ok((0, expected)));
    assert_eq!(run(&[c"./script", c"a", c"b"], &[], &dir), Ok((0, "./script a b\n".to_owned())));
    std::fs::remove_dir_all(remove).unwrap();
    let (dir, remove) = file("alien", 0o755, b"\x7fELF\0\0\0");
    check_failure(&[c"./alien"], &[], &dir, Step::Program, Errno::NOEXEC);
    std::fs::remove_dir_all(remove).unwrap();
}
