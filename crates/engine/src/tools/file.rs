//! A registry as it is written, and what it names looked up on this host.

use serde::Deserialize;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Registry {
    /// Of the work dir: what no tool sees.
    #[serde(default)]
    pub(super) hide: Vec<PathBuf>,
    #[serde(default)]
    pub(super) tool: Vec<Manifest>,
}

/// What one tool may do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) name: Spanned<String>,
    pub(super) reason: String,
    /// Names, or absolute paths.
    #[serde(default)]
    pub(super) programs: Vec<String>,
    /// An MCP server: its command.
    #[serde(default)]
    pub(super) server: Vec<String>,
    #[serde(default)]
    pub(super) read: Vec<String>,
    #[serde(default)]
    pub(super) write: Vec<String>,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    #[serde(default)]
    pub(super) methods: Vec<String>,
    /// Which programs may reach them, as paths; any where it says nothing.
    #[serde(default)]
    pub(super) callers: Vec<String>,
    #[serde(default)]
    pub(super) syscalls: Vec<Right>,
}

/// What of the refused system calls a tool needs. It then exists for all that runs inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Right {
    /// Namespaces and mounts of its own, as browsers and nested sandboxes make them.
    Namespaces,
    /// Tracing other processes inside, as debuggers do.
    Tracing,
}

/// Where the host's programs are looked for after the caller's own search path.
const SYSTEM: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

pub(super) fn find(program: &str, search: &[PathBuf]) -> Result<PathBuf, String> {
    let named = Path::new(program);
    if named.is_absolute() {
        return match named.is_file() && !has_parent(named) {
            true => Ok(named.to_owned()),
            false => Err(format!("`{program}` is no file of this host")),
        };
    }
    if program.is_empty() || named.components().count() != 1 || has_parent(named) {
        return Err(format!("`{program}` is neither a name nor an absolute path"));
    }
    let system = SYSTEM.iter().map(PathBuf::from);
    let mut all = system.chain(search.iter().cloned()).map(|dir| dir.join(program));
    all.find(|path| path.is_file()).ok_or_else(|| format!("there is no program `{program}` on this host"))
}

fn has_parent(path: &Path) -> bool {
    path.components().any(|component| component == Component::ParentDir)
}

/// A path that is to be shown, at its own place.
pub(super) fn place(path: &str, home: Option<&Path>) -> Result<PathBuf, String> {
    let place = match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_), None) => return Err(format!("`{path}`: there is no home directory")),
        (None, _) => PathBuf::from(path),
    };
    if !place.is_absolute() || has_parent(&place) {
        return Err(format!("`{path}` is no absolute path without `..`"));
    }
    match place.exists() {
        true => Ok(place),
        false => Err(format!("`{path}` is not there")),
    }
}

/// What a script is run by: of `env NAME` the program that it finds.
pub(super) fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut head = [0u8; 256];
    let count = std::fs::File::open(program).ok()?.read(&mut head).ok()?;
    let line = head.get(..count)?.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = PathBuf::from(words.next()?);
    if first.file_name().is_some_and(|name| name == "env") {
        let named = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return find(named, &[]).ok();
    }
    Some(first)
}

/// Whether both names lead to one file.
pub(super) fn same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}
