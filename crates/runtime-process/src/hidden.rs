//! Finds what of the work dir must not be seen. The search is bounded, and says when it ended early.

use crate::view::{HIDDEN_ANYWHERE, HIDDEN_AT_TOP, NOT_SEARCHED};
use std::fs;
use std::path::{Path, PathBuf};

const DEPTH: usize = 4;
const ENTRIES: usize = 20_000;

/// Paths relative to the work dir.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) paths: Vec<PathBuf>,
    /// Whether everything down to the given depth was looked at.
    pub(crate) complete: bool,
}

/// The names of the tables that exist, and `extra` whether it exists or not.
pub(crate) fn find(workdir: &Path, extra: &[PathBuf]) -> Hidden {
    let mut paths = at_top(workdir);
    paths.extend(extra.iter().filter_map(|path| inside(workdir, path)));
    let mut budget = ENTRIES;
    search(workdir, Path::new(""), DEPTH, &mut budget, &mut paths);
    paths.sort();
    paths.dedup();
    // A path below a hidden one is hidden with it.
    let mut kept: Vec<PathBuf> = Vec::with_capacity(paths.len());
    for path in paths {
        if !kept.iter().any(|above| path.starts_with(above)) {
            kept.push(path);
        }
    }
    Hidden { paths: kept, complete: budget > 0 }
}

/// One listing instead of a look-up for each name; only names with a directory in them are looked up.
fn at_top(workdir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(workdir) else { return Vec::new() };
    let listed: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    let there = |path: &Path| {
        let first = path.iter().next();
        first.is_some_and(|first| listed.iter().any(|name| name == first))
            && (path.iter().count() == 1 || workdir.join(path).symlink_metadata().is_ok())
    };
    HIDDEN_AT_TOP.iter().map(PathBuf::from).filter(|path| there(path)).collect()
}

fn inside(workdir: &Path, path: &Path) -> Option<PathBuf> {
    let relative = if path.is_absolute() { path.strip_prefix(workdir).ok()? } else { path };
    let plain = relative.components().all(|c| matches!(c, std::path::Component::Normal(_)));
    (plain && !relative.as_os_str().is_empty()).then(|| relative.to_owned())
}

fn search(workdir: &Path, below: &Path, depth: usize, budget: &mut usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(workdir.join(below)) else { return };
    for entry in entries.flatten() {
        if *budget == 0 {
            return;
        }
        *budget -= 1;
        let name = entry.file_name();
        let Some(text) = name.to_str() else { continue };
        if HIDDEN_ANYWHERE.contains(&text) {
            found.push(below.join(text));
        } else if depth > 1 && entry.file_type().is_ok_and(|t| t.is_dir()) && !NOT_SEARCHED.contains(&text) {
            search(workdir, &below.join(text), depth - 1, budget, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_at_the_top_and_below() {
        let dir = tempfile::tempdir().unwrap();
        for path in
            [".ssh/id_rsa", "app/.env", "app/main.py", "node_modules/x/.env", ".aws/credentials", "a/.ssh/k"]
        {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let hidden = find(
            dir.path(),
            &["secret.txt".into(), "../up".into(), "/etc/shadow".into(), ".ssh/id_rsa".into()],
        );
        let expected: Vec<PathBuf> = [".aws", ".ssh", "app/.env", "secret.txt"].map(PathBuf::from).into();
        assert_eq!(hidden, Hidden { paths: expected, complete: true });
    }
}
