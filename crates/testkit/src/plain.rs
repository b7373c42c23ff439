//! Programs that are never root: some servers refuse to be, others let nobody else in.

use crate::mode::is_root;
use crate::{Mode, SEARCH_PATH};
use std::path::Path;
use std::process::Command;

/// As the plain user that tests have.
pub(crate) fn plain(program: impl AsRef<Path>) -> Command {
    let (uid, gid) = Mode::Range.ids();
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={uid}"), &format!("--regid={gid}"), "--clear-groups", "--"]);
        command.arg(program.as_ref());
        command
    } else {
        Command::new(program.as_ref())
    };
    command.env_clear().env("PATH", SEARCH_PATH).env("LC_ALL", "C.UTF-8").current_dir("/");
    command
}

pub(crate) fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
