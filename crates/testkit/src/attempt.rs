//! An attempt to get out, as a small Python program that tells whether it succeeded. The same program is run
//! outside, where it must succeed, and inside, where it must not: so a refusal is never a mistake in the attempt.

use crate::{Call, Done, Site};
use std::process::Command;

const PRELUDE: &str = r#"
import ctypes, errno, os, platform, socket, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() == "aarch64"
def checked(result):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
def syscall(x86, arm, *args):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return checked(libc.syscall(ctypes.c_long(arm if ARM else x86), *words))
"#;

const VERDICT: &str = r#"
try:
    attempt()
    print("verdict: escaped")
except OSError as error:
    print("verdict: refused", errno.errorcode.get(error.errno, "timed out"))
"#;

/// What an attempt said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Escaped,
    /// The name of the error.
    Refused(String),
}

impl Verdict {
    #[track_caller]
    fn read(done: &Done) -> Self {
        let out = done.out();
        match out.lines().find_map(|line| line.strip_prefix("verdict: ")) {
            Some("escaped") => Self::Escaped,
            Some(refused) => Self::Refused(refused.trim_start_matches("refused ").into()),
            None => panic!("the attempt said nothing; stdout: {out}\nstderr: {}", done.err()),
        }
    }

    /// Whether the host's own kernel has no such thing, so that nothing can be shown outside.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused(name) if name == "ENOSYS" || name == "EAFNOSUPPORT")
    }
}

/// A program that defines `attempt`, with `words` as its arguments.
fn source(body: &str) -> String {
    let indented: String = body.trim_matches('\n').lines().map(|line| format!("    {line}\n")).collect();
    format!("{PRELUDE}\ndef attempt():\n{indented}\n{VERDICT}")
}

/// Inside: the call may be completed before it is made.
#[track_caller]
pub fn attempt<'s>(
    site: &'s Site,
    body: &str,
    words: &[&str],
    complete: impl FnOnce(Call<'s>) -> Call<'s>,
) -> Verdict {
    let source = source(body);
    let command: Vec<&str> = ["python3", "-c", &source].into_iter().chain(words.iter().copied()).collect();
    Verdict::read(&complete(site.run(&command)).done())
}

/// Outside, by `command`, which runs Python with the arguments that it is given.
#[track_caller]
pub fn attempt_outside(command: &mut Command, body: &str, words: &[&str]) -> Verdict {
    Verdict::read(&crate::finish(command.args(["-c", &source(body)]).args(words)))
}
