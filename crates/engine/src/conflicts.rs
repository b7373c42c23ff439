//! What commits left out because it was changed outside as well: the inside's versions, as people name them and take
//! them. They go when someone says so, or when they are old.

use crate::Engine;
use crate::error::EngineError;
use cofferdam_model::{AsidePath, Conflict, FileDifference, RawPath};
use cofferdam_model::{ChangeOp, FileChange};
use cofferdam_runtime_process::layer::conflict::{self, Taken};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was asked to be taken, and where it could not be put.
#[derive(Debug, Default)]
pub struct Took {
    pub taken: Vec<RawPath>,
    /// Something stands there.
    pub occupied: Vec<RawPath>,
}

impl Engine {
    /// All that are kept, the oldest first.
    pub fn conflicts(&self) -> Vec<Conflict> {
        conflict::list(&self.home.conflicts_dir())
    }

    /// One by its name, the beginning of that, or `latest`.
    pub fn conflict(&self, name: &str) -> Result<Conflict, EngineError> {
        let mut all = self.conflicts();
        if name == "latest" {
            return all.pop().ok_or_else(|| none(name));
        }
        if let Some(at) = all.iter().position(|one| one.name == name) {
            return Ok(all.swap_remove(at));
        }
        all.retain(|one| one.name.starts_with(name));
        match all.len() {
            0 => Err(none(name)),
            1 => Ok(all.remove(0)),
            count => Err(EngineError::Declined(format!(
                "`{name}` is the beginning of {count} names: write more of it (`cofferdam conflict ls`)"
            ))),
        }
    }

    /// The inside's version of a file.
    pub fn conflict_file(&self, conflict: &Conflict, path: &Path) -> Result<File, EngineError> {
        let [entry] = chosen(conflict, std::slice::from_ref(&path.to_owned()))?[..] else {
            return Err(absent(conflict, path));
        };
        Ok(conflict::open(conflict, &entry.path)?)
    }

    /// From what is in the work dir now to the inside's versions.
    pub fn conflict_difference(
        &self,
        conflict: &Conflict,
        paths: &[PathBuf],
    ) -> Result<Vec<FileDifference>, EngineError> {
        chosen(conflict, paths)?.into_iter().map(|entry| Ok(told(conflict, entry))).collect()
    }

    /// Puts the inside's versions into the work dir, or into another directory; over what stands there only where
    /// that is said.
    pub fn take_conflict(
        &self,
        conflict: &Conflict,
        paths: &[PathBuf],
        into: Option<&Path>,
        over: bool,
    ) -> Result<Took, EngineError> {
        let into = into.unwrap_or_else(|| conflict.workdir.as_path());
        let mut took = Took::default();
        for entry in chosen(conflict, paths)? {
            match conflict::take(conflict, entry, into, over)? {
                Taken::Done => took.taken.push(entry.path.clone()),
                Taken::Occupied => took.occupied.push(entry.path.clone()),
            }
        }
        Ok(took)
    }

    pub fn forget_conflict(&self, conflict: &Conflict) -> Result<(), EngineError> {
        Ok(conflict::forget(&self.home.conflicts_dir(), &conflict.name)?)
    }

    /// Removes those that are older than the operator has them kept.
    pub(crate) fn prune_conflicts(&self, age: impl FnOnce() -> Option<Duration>) {
        let dir = self.home.conflicts_dir();
        if dir.is_dir()
            && let Some(age) = age()
        {
            conflict::prune(&dir, age);
        }
    }
}

fn none(name: &str) -> EngineError {
    EngineError::Declined(format!("nothing is kept as `{name}`: see `cofferdam conflict ls`"))
}

fn absent(conflict: &Conflict, path: &Path) -> EngineError {
    let (path, name) = (RawPath::from(path), &conflict.name);
    EngineError::Declined(format!("no version of {path} is kept: see `cofferdam conflict show {name}`"))
}

/// The entries of these paths, with all that is in them; without any, all. A path may begin with the work dir.
fn chosen<'a>(conflict: &'a Conflict, paths: &[PathBuf]) -> Result<Vec<&'a AsidePath>, EngineError> {
    let within = |path: &PathBuf| {
        let workdir = conflict.workdir.as_path();
        path.strip_prefix(workdir).or_else(|_| path.strip_prefix(".")).unwrap_or(path).to_owned()
    };
    let wanted: Vec<PathBuf> = paths.iter().map(within).collect();
    let holds = |wanted: &Path, entry: &AsidePath| entry.path.as_path().starts_with(wanted);
    if let Some(path) = wanted.iter().find(|path| !conflict.paths.iter().any(|entry| holds(path, entry))) {
        return Err(absent(conflict, path));
    }
    let is_chosen = |entry: &&AsidePath| wanted.is_empty() || wanted.iter().any(|path| holds(path, entry));
    Ok(conflict.paths.iter().filter(is_chosen).collect())
}

fn told(conflict: &Conflict, entry: &AsidePath) -> FileDifference {
    use cofferdam_runtime_process::layer::FileDiff;
    let there = conflict.workdir.as_path().join(entry.path.as_path()).symlink_metadata().is_ok();
    let change = FileChange {
        op: if there { ChangeOp::Modified } else { ChangeOp::Created },
        kind: entry.kind,
        path: entry.path.clone(),
        from: None,
        changed: Vec::new(),
        mode: Some(entry.mode),
        size: entry.size,
        digest: None,
    };
    let (diff, omitted) = match conflict::difference(conflict, &entry.path) {
        Ok(FileDiff::Text(text)) => (Some(text), None),
        Ok(FileDiff::Large(size)) => (None, Some(format!("{} large", cofferdam_model::Bytes(size)))),
        Ok(FileDiff::Binary) => (None, Some("binary".into())),
        Ok(FileDiff::Nothing) => (None, None),
        Err(_) => (None, Some("unreadable".into())),
    };
    FileDifference { change, diff, omitted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::FileKind;

    #[test]
    fn paths_are_chosen_as_people_write_them() {
        let entry = |path: &str| AsidePath {
            path: RawPath::from(path),
            kind: FileKind::File,
            mode: 0o644,
            size: None,
            reason: String::new(),
        };
        let conflict = Conflict {
            name: "n".into(),
            session: "s".into(),
            workdir: RawPath::from("/work"),
            kept_us: 0,
            files: RawPath::from("/files"),
            paths: ["a", "dir/b", "dir/c", "dirt"].map(entry).into(),
        };
        let check = |asked: &[&str], expected: Option<&[&str]>| {
            let asked: Vec<PathBuf> = asked.iter().map(PathBuf::from).collect();
            let found = chosen(&conflict, &asked)
                .ok()
                .map(|all| all.iter().map(|entry| entry.path.to_string()).collect::<Vec<_>>());
            let expected = expected.map(|all| all.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>());
            assert_eq!(found, expected, "{asked:?}");
        };
        check(&[], Some(&["a", "dir/b", "dir/c", "dirt"]));
        check(&["a"], Some(&["a"]));
        check(&["./a", "/work/dir/c"], Some(&["a", "dir/c"]));
        check(&["dir"], Some(&["dir/b", "dir/c"]));
        check(&["nonesuch"], None);
        check(&["/elsewhere/a"], None);
        check(&["a", "../a"], None);
    }
}
