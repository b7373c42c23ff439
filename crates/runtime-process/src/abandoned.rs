//! Removes what was made in a temporary directory by a process that was killed before it could remove it.

use crate::layer::remove_tree;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Longer than anything that is made there is used.
const OLD: Duration = Duration::from_secs(3600);

/// Removes directories of this user's whose names begin so and that nobody has touched for long.
pub fn remove_abandoned(dir: &Path, prefix: &str) {
    remove_older(dir, prefix, OLD);
}

fn remove_older(dir: &Path, prefix: &str, age: Duration) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        // Of a link it is the link's own.
        let Ok(about) = entry.metadata() else { continue };
        let named = entry.file_name().to_string_lossy().starts_with(prefix);
        let old = about.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|past| past >= age);
        if named && old && about.is_dir() && about.uid() == own {
            let _ = remove_tree(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_directories_of_that_name_go() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["ours-1", "other-1"] {
            fs::create_dir_all(at(name).join("inner")).unwrap();
        }
        fs::write(at("ours-file"), "x").unwrap();
        std::os::unix::fs::symlink(at("other-1"), at("ours-link")).unwrap();
        remove_abandoned(dir.path(), "ours-");
        assert!(at("ours-1").exists(), "someone may be at work there");
        remove_older(dir.path(), "ours-", Duration::ZERO);
        assert!(!at("ours-1").exists());
        assert!(at("ours-file").exists() && at("ours-link").exists() && at("other-1/inner").exists());
    }
}
