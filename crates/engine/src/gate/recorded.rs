//! Where the recorded traces of a suite lie: in its directory, in another, or in a commit of its repository, from which
//! they are taken without touching anything that is checked out.

use super::GateError;
use super::version::{command, git};
use crate::suite::Suite;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

/// A trace is no larger than this.
const LARGEST: u64 = 1 << 30;

pub(crate) enum Recorded {
    Dir(PathBuf),
    Commit {
        /// In full.
        commit: String,
        files: TempDir,
    },
}

impl Recorded {
    /// A directory if there is one of that name, else a commit.
    pub(super) fn find(suite: &Suite, asked: Option<&Path>) -> Result<Self, GateError> {
        let Some(asked) = asked else { return Ok(Self::Dir(suite.baseline.dir.clone())) };
        if asked.is_dir() {
            return Ok(Self::Dir(std::path::absolute(asked).unwrap_or_else(|_| asked.to_owned())));
        }
        let unknown = || GateError::NoBaselineDir(asked.to_owned());
        let at = asked.to_str().filter(|at| !at.starts_with('-')).ok_or_else(unknown)?;
        let verify = format!("{at}^{{commit}}");
        let commit = git(suite.dir(), &["rev-parse", "--verify", "--quiet", "--end-of-options", &verify]);
        let commit = commit.filter(|commit| !commit.is_empty()).ok_or_else(unknown)?;
        let files = checkout(suite, at, &commit)?;
        Ok(Self::Commit { commit, files })
    }

    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Dir(dir) => dir,
            Self::Commit { files, .. } => files.path(),
        }
    }

    /// How a file is called in results: from the suite's directory, or by its commit.
    pub(super) fn name(&self, suite: &Suite, path: &Path) -> String {
        match self {
            Self::Dir(_) => path.strip_prefix(suite.dir()).unwrap_or(path).to_string_lossy().into_owned(),
            Self::Commit { commit, .. } => {
                let short = commit.get(..12).unwrap_or(commit);
                format!("{short}:baseline/{}", path.file_name().unwrap_or_default().to_string_lossy())
            }
        }
    }

    /// And back.
    pub(super) fn file(&self, suite: &Suite, name: &str) -> PathBuf {
        match self {
            Self::Dir(_) => suite.dir().join(name),
            Self::Commit { files, .. } => files.path().join(name.rsplit('/').next().unwrap_or(name)),
        }
    }
}

/// The traces of a commit, into a directory of their own. One program is asked for all of them.
fn checkout(suite: &Suite, at: &str, commit: &str) -> Result<TempDir, GateError> {
    let failed = |why: String| GateError::Git { at: at.to_owned(), why };
    let dir = suite.baseline.dir.strip_prefix(suite.dir()).unwrap_or(&suite.baseline.dir);
    let tree = format!("{commit}:./{}", dir.display());
    let none = || GateError::NotInCommit { at: at.to_owned(), dir: dir.display().to_string() };
    let listed = git(suite.dir(), &["ls-tree", "-z", "--end-of-options", &tree]).ok_or_else(none)?;
    // `MODE blob ID<tab>NAME`, each ended by a zero byte.
    let wanted: Vec<(&str, &str)> = listed
        .split('\0')
        .filter_map(|entry| {
            let (about, name) = entry.split_once('\t')?;
            let id = about.split(' ').nth(2)?;
            let plain = !name.contains('/') && name.ends_with(super::EXTENSION) && about.contains(" blob ");
            plain.then_some((id, name))
        })
        .collect();
    if wanted.is_empty() {
        return Err(none());
    }
    let files = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    copy(suite.dir(), &wanted, files.path()).map_err(|error| failed(error.to_string()))?;
    Ok(files)
}

fn copy(repository: &Path, wanted: &[(&str, &str)], to: &Path) -> std::io::Result<()> {
    let broken = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
    let mut git = command(repository, &["cat-file", "--batch"]);
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (mut ask, answer) = stdin.zip(stdout).ok_or_else(|| broken("git has no pipes"))?;
    let mut answer = BufReader::new(answer);
    for (id, name) in wanted {
        writeln!(ask, "{id}")?;
        ask.flush()?;
        let mut head = String::new();
        answer.read_line(&mut head)?;
        let size = head.trim_end().rsplit(' ').next().and_then(|size| size.parse::<u64>().ok());
        let size = size.filter(|size| *size <= LARGEST).ok_or_else(|| broken("an object is missing"))?;
        let mut file = std::fs::File::create(to.join(name))?;
        let copied = std::io::copy(&mut (&mut answer).take(size), &mut file)?;
        answer.read_exact(&mut [0])?;
        if copied != size {
            return Err(broken("an object is cut off"));
        }
    }
    drop(ask);
    child.wait()?;
    Ok(())
}
