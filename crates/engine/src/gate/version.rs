//! Which version of the agent is judged: the commit its files are of, and a fingerprint of the files as they are,
//! by which a run that was interrupted knows whether it may go on.

use crate::suite::Suite;
use cofferdam_gate::Agent;
use cofferdam_model::Digest;
use cofferdam_seal::Hasher;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

pub(super) fn agent(suite: &Suite) -> Agent {
    let dir = &suite.agent.workdir;
    let commit = git(dir, &["rev-parse", "--verify", "HEAD"]).filter(|text| !text.is_empty());
    // What the gate itself writes beside the agent is not a change of the agent.
    let status = git(dir, &["status", "--porcelain", "--untracked-files=normal", "--", "."]);
    let modified =
        commit.is_some() && status.is_none_or(|status| status.lines().any(|line| is_change(line, suite)));
    Agent { command: suite.agent.command.clone(), commit, modified }
}

fn is_change(line: &str, suite: &Suite) -> bool {
    let baseline =
        suite.baseline.dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let path = line.get(3..).unwrap_or_default();
    let untracked = line.starts_with("??");
    !(untracked
        && (path.ends_with(super::plan::OUT_SUFFIX) || path.trim_end_matches('/').ends_with(&baseline)))
}

/// Nothing where there is no git, or no repository. Repositories can name programs to run: none is.
pub(super) fn git(dir: &Path, args: &[&str]) -> Option<String> {
    let output = command(dir, args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

pub(super) fn command(dir: &Path, args: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C"]).arg(dir).args(args);
    git
}

/// More files than this are not looked at: then nothing is taken up again.
const MOST: usize = 50_000;

/// Changes when a file of the agent's does. By name, size and time: it is asked often, and only for going on.
pub(super) fn fingerprint(dir: &Path, without: &[&Path]) -> Option<Digest> {
    let (mut hasher, mut left) = (Hasher::new(), MOST);
    walk(dir, without, &mut hasher, &mut left).then(|| hasher.finish())
}

fn walk(dir: &Path, without: &[&Path], hasher: &mut Hasher, left: &mut usize) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return true };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let skipped = without.contains(&path.as_path())
            || entry.file_name() == ".git"
            || entry.file_name() == "__pycache__";
        let Ok(meta) = entry.metadata() else { continue };
        if skipped {
            continue;
        }
        if *left == 0 {
            return false;
        }
        *left -= 1;
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(
            format!("\0{} {} {} {}\0", meta.mode(), meta.size(), meta.mtime(), meta.mtime_nsec()).as_bytes(),
        );
        if meta.is_dir() && !walk(&path, without, hasher, left) {
            return false;
        }
    }
    true
}
