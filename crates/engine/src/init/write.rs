//! Puts files where none are. What is there already is the user's: it is replaced on demand only.

use super::InitError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    New,
    Replaced,
    /// It was there, and the same.
    Same,
}

/// All of them, or none because of one that differs.
pub(super) fn all(files: &[(PathBuf, String)], force: bool) -> Result<Vec<(PathBuf, Written)>, InitError> {
    let mut states = Vec::new();
    for (path, text) in files {
        let state = state(path, text).map_err(|source| InitError::Write { path: path.clone(), source })?;
        states.push((path.clone(), state));
    }
    let differ: Vec<PathBuf> = states
        .iter()
        .filter(|(_, state)| *state == Written::Replaced)
        .map(|(path, _)| path.clone())
        .collect();
    if !differ.is_empty() && !force {
        return Err(InitError::Differ(differ));
    }
    for ((path, text), (_, state)) in files.iter().zip(&states) {
        put(path, text, *state).map_err(|source| InitError::Write { path: path.clone(), source })?;
    }
    Ok(states)
}

/// What would become of it. A link is never followed: an earlier session may have left one.
fn state(path: &Path, text: &str) -> io::Result<Written> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() && fs::read(path)? == text.as_bytes() => Ok(Written::Same),
        Ok(_) => Ok(Written::Replaced),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Written::New),
        Err(error) => Err(error),
    }
}

fn put(path: &Path, text: &str, state: Written) -> io::Result<()> {
    match state {
        Written::Same => return Ok(()),
        Written::Replaced => fs::remove_file(path)?,
        Written::New => {}
    }
    // Not through a link, and not over what came in between.
    File::options().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replaced_unless_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| (dir.path().join(name), text.to_owned());
        let states = |files: &[(PathBuf, String)], force| {
            all(files, force).map(|done| done.into_iter().map(|(_, state)| state).collect::<Vec<_>>())
        };
        let first = [file("a", "1"), file("b", "2")];
        assert_eq!(states(&first, false).unwrap(), [Written::New, Written::New]);
        assert_eq!(states(&first, false).unwrap(), [Written::Same, Written::Same]);
        let other = [file("c", "3"), file("b", "other")];
        let error = states(&other, false).unwrap_err().to_string();
        assert!(error.contains("/b is there already") && error.contains("--force"), "{error}");
        assert!(!dir.path().join("c").exists());
        assert_eq!(states(&other, true).unwrap(), [Written::New, Written::Replaced]);
        assert_eq!(fs::read_to_string(dir.path().join("b")).unwrap(), "other");
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        fs::write(&target, "x").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(states(&[file("link", "x")], false).is_err());
        assert_eq!(states(&[file("link", "y")], true).unwrap(), [Written::Replaced]);
        assert_eq!([link, target].map(|path| fs::read_to_string(path).unwrap()), ["y", "x"]);
    }
}
