//! Child programs, run so that a failure says what was run and how it ended. No shell is ever involved.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("could not start `{line}`: {source}; check that it is installed and on PATH")]
    Start { line: String, source: io::Error },
    #[error("`{line}` ended with {status}{}", tail(.stderr))]
    Failed { line: String, status: ExitStatus, stderr: String },
}

fn tail(stderr: &str) -> String {
    let last: Vec<_> = stderr.lines().rev().take(5).collect();
    last.iter().rev().map(|line| format!("\n  {line}")).collect()
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

/// Runs with our own stdio; the status is the caller's to judge.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, CommandError> {
    command.status().map_err(|source| CommandError::Start { line: line(command), source })
}

/// What it printed, if it succeeded.
pub(crate) fn stdout(command: &mut Command) -> Result<String, CommandError> {
    let output = command.output().map_err(|source| CommandError::Start { line: line(command), source })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(CommandError::Failed { line: line(command), status: output.status, stderr });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Where a program lies: PATH, then the places that a plain user's PATH leaves out. By a path it is a file, in
/// which one `*` stands for anything within a name.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return find_file(program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(program, &path)
}

/// The first of the files that a path with at most one `*` in it stands for.
fn find_file(pattern: &str) -> Option<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else {
        return Some(PathBuf::from(pattern)).filter(|path| path.exists());
    };
    let (dir, start) = before.rsplit_once('/')?;
    let (end, below) = after.split_once('/').map_or((after, None), |(end, below)| (end, Some(below)));
    let fits = |found: &str| found.starts_with(start) && found.ends_with(end);
    let entries = std::fs::read_dir(dir).ok()?.flatten();
    let found =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(fits)).map(|entry| entry.path());
    found.map(|path| below.map_or(path.clone(), |below| path.join(below))).filter(|path| path.exists()).min()
}

fn find_in(program: &str, path: &OsStr) -> Option<PathBuf> {
    let extra = OsString::from("/usr/local/sbin:/usr/sbin:/sbin");
    std::env::split_paths(path)
        .chain(std::env::split_paths(&extra))
        .map(|dir| dir.join(program))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Whether we act as root here. The owner of our own /proc entry is our effective user.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_typed_again() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3", "", "a=b"]);
        assert_eq!(line(&command), "sh -c 'exit 3' '' a=b");
    }

    #[test]
    fn a_failure_names_the_command_and_its_last_words() {
        let error = stdout(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("\n  why"), "{error}");
        let error = stdout(&mut Command::new("/no/such/program")).unwrap_err().to_string();
        assert!(error.starts_with("could not start `/no/such/program`"), "{error}");
    }

    #[test]
    fn only_executable_files_are_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("no-such-tool"), "").unwrap();
        assert_eq!(find_in("no-such-tool", dir.path().as_os_str()), None);
        assert!(find("sh").is_some());
    }

    #[test]
    fn a_star_stands_for_a_part_of_a_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("15/bin")).unwrap();
        std::fs::write(dir.path().join("15/bin/tool-1-x"), "").unwrap();
        let at = |path: &str| find(&dir.path().join(path).to_string_lossy());
        assert_eq!(at("*/bin/tool-1-x"), Some(dir.path().join("15/bin/tool-1-x")));
        assert_eq!(at("15/bin/tool-*-x"), at("15/bin/tool-1-x"));
        assert_eq!((at("*/bin/other"), at("15/bin/tool-*-y")), (None, None));
    }
}
