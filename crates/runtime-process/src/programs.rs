//! Where a registry says which programs there are: finds each on the host, with the links that lead to it.

use crate::layout::Found;
use cofferdam_runtime::RuntimeError;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Directories that hold programs and nothing else.
const DIRECTORIES: &[&str] =
    &["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/games", "/bin", "/sbin"];

/// Directories whose content is of the host's choice; with a registry they are there only for a program in them.
pub(crate) const OPTIONAL: &[&str] = &["opt", "nix", "gnu", "snap"];

/// Links that are followed from a name to a program.
const LINKS: usize = 16;

/// For every directory of programs on this host, what of it is to be there.
pub(crate) type Programs = Vec<(PathBuf, Vec<(PathBuf, Found)>)>;

fn refused(what: String, fix: &str) -> RuntimeError {
    RuntimeError::Refused { what, fix: fix.into() }
}

pub(crate) fn find(named: &[PathBuf], shown: impl Fn(&Path) -> bool) -> Result<Programs, RuntimeError> {
    let real = |dir: &&&str| fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir());
    let mut found: BTreeMap<PathBuf, BTreeMap<PathBuf, Found>> =
        DIRECTORIES.iter().filter(real).map(|dir| (PathBuf::from(dir), BTreeMap::new())).collect();
    for program in named {
        let mut path = program.clone();
        for _ in 0..LINKS {
            let named = path.display().to_string();
            let missing = |error: std::io::Error| {
                refused(format!("the program {named}: {error}"), "install it, or leave it out")
            };
            let (Some(above), Some(name)) = (path.parent(), path.file_name().map(PathBuf::from)) else {
                return Err(refused(format!("{named} is no program"), "name a file"));
            };
            let above = above.canonicalize().map_err(missing)?;
            path = above.join(&name);
            let link = fs::symlink_metadata(&path).map_err(missing)?.is_symlink();
            let target = if link { Some(fs::read_link(&path).map_err(missing)?) } else { None };
            if let Some(own) = found.get_mut(&above) {
                own.insert(name, target.clone().map_or(Found::File, Found::Link));
            } else if !shown(&path) {
                let what = format!("the program {} lies where nothing is shown inside", path.display());
                return Err(refused(what, "add its directory to the tool's `read`"));
            }
            match target {
                Some(target) => path = plain(&above.join(target)),
                None => break,
            }
        }
    }
    Ok(found.into_iter().map(|(dir, own)| (dir, own.into_iter().collect())).collect())
}

/// Without `.` and `..`, which the directories on the way make unambiguous: they are canonical.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_comes_with_the_links_that_lead_to_it() {
        let shown = |path: &Path| path.starts_with("/usr/lib") || path.starts_with("/etc");
        let found = find(&["/bin/sh".into()], shown).unwrap();
        let names: Vec<_> = found.iter().flat_map(|(_, own)| own.iter().map(|(name, _)| name)).collect();
        assert!(names.iter().any(|name| **name == Path::new("sh")), "{names:?}");
        let real = fs::canonicalize("/bin/sh").unwrap();
        assert!(names.iter().any(|name| Some(name.as_os_str()) == real.file_name()), "{names:?}");
        let only = find(&[], shown).unwrap();
        assert!(only.iter().any(|(dir, own)| dir == Path::new("/usr/bin") && own.is_empty()));
    }

    #[test]
    fn what_is_not_there_or_not_shown_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tool"), "").unwrap();
        for (path, said) in [
            (PathBuf::from("/usr/bin/no-such-program-here"), "No such file"),
            (dir.path().join("tool"), "lies where nothing is shown"),
        ] {
            let error = find(&[path], |_| false).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
