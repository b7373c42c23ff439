//! Everything a rule may look at, read once: the text files of the repository and cargo's view of it.

use super::source::{self, Source};
use crate::workspace::{self, Package, WorkspaceError};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("could not walk the repository: {0}; check its permissions")]
    Walk(#[from] walkdir::Error),
    #[error("could not read {path}: {source}; check its permissions")]
    Read { path: PathBuf, source: std::io::Error },
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    /// The workspace's own packages.
    pub(crate) members: Vec<Package>,
    /// Everything that is built into or for them.
    pub(crate) dependencies: Vec<Package>,
}

#[derive(Debug)]
pub(crate) struct File {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    source: OnceCell<Source>,
}

const SKIPPED: &[&str] = &[".git", "target", ".cofferdam", "node_modules"];
const TEXT: &[&str] = &["rs", "toml", "md", "lock", "sh", "py", "yml", "yaml"];

impl Tree {
    pub(crate) fn load(root: &Path) -> Result<Self, TreeError> {
        let mut files = Vec::new();
        let wanted = |e: &walkdir::DirEntry| !SKIPPED.iter().any(|name| e.file_name() == *name);
        for entry in walkdir::WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(wanted) {
            let entry = entry?;
            if entry.file_type().is_file() && is_text(entry.path()) {
                let read = std::fs::read(entry.path());
                let bytes = read.map_err(|source| TreeError::Read { path: entry.path().into(), source })?;
                let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
                files.push(File::new(&path.to_string_lossy(), &String::from_utf8_lossy(&bytes)));
            }
        }
        let metadata = workspace::metadata(root)?;
        let members = metadata.members();
        let ours = |p: &Package| metadata.workspace_members.contains(&p.id);
        let dependencies = metadata.packages.iter().filter(|p| !ours(p)).cloned().collect();
        Ok(Self { files, members, dependencies })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| File::new(path, text)).collect();
        Self { files, ..Self::default() }
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Whether a file or folder of this name exists among what was read.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files
            .iter()
            .any(|f| f.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|f| f.path.ends_with(".rs"))
    }
}

/// Files without an extension count: scripts and licences are text too.
fn is_text(path: &Path) -> bool {
    path.extension().is_none_or(|ext| TEXT.iter().any(|known| ext == *known))
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), source: OnceCell::new() }
    }

    /// The crate this file belongs to, by its folder.
    pub(crate) fn owner(&self) -> &str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next().unwrap_or(""),
            Some(first) => first,
            None => "",
        }
    }

    /// Code that only tests run: integration tests, and unit tests kept in a file of their own.
    pub(crate) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    /// Code that cargo runs beside the crate: build scripts, benches, examples.
    pub(crate) fn is_beside(&self) -> bool {
        let beside = |part: &str| matches!(part, "benches" | "examples" | "build.rs");
        self.path.split('/').any(beside)
    }

    pub(crate) fn source(&self) -> &Source {
        self.source.get_or_init(|| source::lex(&self.text))
    }
}

/// `cofferdam-seal` is `seal`, as its folder is.
pub(crate) fn short(package: &str) -> &str {
    package.strip_prefix("cofferdam-").unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_its_crate_and_its_part() {
        let file = |path| File::new(path, "");
        assert_eq!(file("crates/seal/src/lib.rs").owner(), "seal");
        assert_eq!(file("xtask/src/main.rs").owner(), "xtask");
        assert!(file("crates/seal/tests/it.rs").is_test());
        assert!(file("crates/seal/src/chain/tests.rs").is_test());
        assert!(!file("crates/seal/src/attests.rs").is_test());
        assert!(file("crates/trace/benches/append.rs").is_beside());
        assert!(file("crates/engine/build.rs").is_beside());
    }

    #[test]
    fn a_folder_exists_when_something_is_in_it() {
        let tree = Tree::of(&[("crates/seal/src/lib.rs", "")]);
        assert!(
            tree.exists("crates/seal")
                && tree.exists("crates/seal/")
                && tree.exists("crates/seal/src/lib.rs")
        );
        assert!(!tree.exists("crates/sea") && !tree.exists("crates/seal/src/lib.r"));
    }
}
