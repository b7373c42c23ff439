//! Looks at the host once and writes down what the inside will consist of. After this nothing is looked up.

mod kept;
mod own;

use crate::hidden::Hidden;
use crate::meanwhile::{self, Meanwhile};
use crate::programs::{self, OPTIONAL, Programs};
use crate::rooted;
use crate::users::{Users, Way};
use crate::view::{ETC_MASKED, PROC_MASKED, PROC_READ_ONLY, SYSTEM, TOOLCHAINS, VAR};
use cofferdam_model::{Mount, Profile};
use cofferdam_runtime::{Root, RuntimeError, SandboxSpec};
use kept::Kept;
pub(crate) use own::over;
use own::{Own, own};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A top-level name of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum System {
    Dir(String),
    Link(String, PathBuf),
}

/// A directory of the home that is shown, with its owner and what of it is masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) path: PathBuf,
    pub(crate) owner: (u32, u32),
    pub(crate) masked: Vec<(PathBuf, bool)>,
}

/// A mount that was asked for, with what its source is.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) mount: Mount,
    pub(crate) owner: (u32, u32),
    pub(crate) is_dir: bool,
}

/// A name in a directory of programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    File,
    Link(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) system: Vec<System>,
    pub(crate) var: Vec<&'static str>,
    pub(crate) etc_masked: Vec<(&'static str, bool)>,
    pub(crate) proc_read_only: Vec<&'static str>,
    pub(crate) proc_masked: Vec<&'static str>,
    /// Where the caller's home stands inside; nothing if the work dir is the home.
    pub(crate) home: Option<PathBuf>,
    pub(crate) toolchains: Vec<Shown>,
    pub(crate) workdir: PathBuf,
    /// Where the work dir stands inside.
    pub(crate) shown_at: PathBuf,
    /// Whose `/root` is, in a box: that of its root, as the host knows it.
    pub(crate) root_home: Option<Option<(u32, u32)>>,
    pub(crate) workdir_owner: (u32, u32),
    pub(crate) hidden: Hidden,
    /// Directories of the work dir that hold a hidden path, with their modes.
    pub(crate) hidden_parents: Vec<(PathBuf, u32)>,
    pub(crate) mounts: Vec<Asked>,
    /// The only programs of the host's, where that was asked for.
    pub(crate) programs: Option<Programs>,
    pub(crate) passwd: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) gitconfig: Option<Vec<u8>>,
    /// The image that stands in the place of the host's directories.
    pub(crate) root: Option<Root>,
    /// Where the inside's own `sudo` is to be, if it has one.
    pub(crate) sudo: Option<Sudo>,
}

/// A program that the host need not have, in directories of the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sudo {
    /// The directory that it is added to.
    pub(crate) place: PathBuf,
    /// The host's own, which could do nothing inside: each is covered.
    pub(crate) covers: Vec<PathBuf>,
}

pub(crate) fn refused(what: String, fix: &str) -> RuntimeError {
    RuntimeError::Refused { what, fix: fix.into() }
}

/// What of the host is shown to every session alike, as it is now.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    system: Vec<System>,
    var: Vec<&'static str>,
    etc_masked: Vec<(&'static str, bool)>,
    passwd: Option<(Vec<u8>, Vec<u8>)>,
    gitconfig: Option<Vec<u8>>,
}

impl Host {
    pub(crate) fn look(spec: &SandboxSpec, users: &Users) -> Self {
        Self {
            system: system(),
            var: VAR.iter().copied().filter(|p| Path::new("/").join(p).is_dir()).collect(),
            etc_masked: etc_masked(users),
            passwd: (users.way != Way::Single).then(|| accounts(&inside_home(spec))),
            gitconfig: git_identity(&spec.home),
        }
    }
}

pub(crate) fn gather(spec: &SandboxSpec, users: &Users) -> Result<Layout, RuntimeError> {
    gather_over(None, spec, users)
}

/// The same where the host was looked at a moment ago.
pub(crate) fn gather_over(
    host: Option<Host>,
    spec: &SandboxSpec,
    users: &Users,
) -> Result<Layout, RuntimeError> {
    gather_with(own(spec)?, host, spec, users)
}

fn gather_with(
    own: Own<'_>,
    host: Option<Host>,
    spec: &SandboxSpec,
    users: &Users,
) -> Result<Layout, RuntimeError> {
    let Own { workdir, shown_at, owner, mounts, hidden, hidden_parents } = own;
    let home = inside_home(spec);
    let mut toolchains = if shown_at == spec.home || shown_at == home {
        Vec::new()
    } else {
        toolchains(&spec.home, &spec.path, users)
    };
    let Host { mut system, var, etc_masked, passwd, gitconfig } =
        host.unwrap_or_else(|| Host::look(spec, users));
    let programs = match &spec.programs {
        None => None,
        Some(named) => {
            let holds = |path: &Path| named.iter().any(|program| program.starts_with(path));
            toolchains.retain(|shown| holds(&shown.path));
            let optional = |name: &str| OPTIONAL.contains(&name) && !holds(&Path::new("/").join(name));
            system.retain(|entry| !matches!(entry, System::Dir(name) if optional(name)));
            let seen = |path: &Path| {
                let system = system.iter().any(|entry| match entry {
                    System::Dir(name) | System::Link(name, _) => path.starts_with(Path::new("/").join(name)),
                });
                let asked = || mounts.iter().any(|asked| path.starts_with(&asked.mount.target));
                let chain = || toolchains.iter().any(|shown| path.starts_with(&shown.path));
                system || asked() || chain() || path.starts_with(shown_at)
            };
            Some(programs::find(named, seen)?)
        }
    };
    let layout = Layout {
        hidden_parents,
        system,
        programs,
        var,
        etc_masked,
        proc_read_only: existing("/proc", PROC_READ_ONLY),
        proc_masked: existing("/proc", PROC_MASKED),
        home: (home != shown_at).then(|| home.clone()),
        toolchains,
        workdir: workdir.to_owned(),
        shown_at: shown_at.to_owned(),
        root_home: (spec.profile == Profile::Box).then(|| users.root_outside()),
        workdir_owner: owner,
        hidden,
        mounts,
        passwd,
        gitconfig,
        root: None,
        sudo: wants_sudo(spec).then(sudo),
    };
    rooted::furnish(layout, spec, users)
}

/// What does not depend on the session: for a sandbox that is begun before there is one.
pub(crate) fn skeleton(host: Host, spec: &SandboxSpec, users: &Users) -> Layout {
    let home = inside_home(spec);
    let Host { system, var, etc_masked, passwd, gitconfig } = host;
    let layout = Layout {
        system,
        var,
        etc_masked,
        proc_read_only: Vec::new(),
        proc_masked: Vec::new(),
        passwd,
        gitconfig,
        home: Some(home),
        toolchains: Vec::new(),
        workdir: PathBuf::new(),
        shown_at: PathBuf::new(),
        root_home: (spec.profile == Profile::Box).then(|| users.root_outside()),
        workdir_owner: (0, 0),
        hidden: Hidden::default(),
        hidden_parents: Vec::new(),
        mounts: Vec::new(),
        programs: None,
        root: None,
        sudo: None,
    };
    rooted::emptied(layout, spec)
}

/// All that can be known of one that waits for a session: what is shown of the host, but no work dir.
pub(crate) fn unbound(spec: &SandboxSpec, users: &Users) -> Layout {
    let made = skeleton(Host::look(spec, users), spec, users);
    // Where the work dir is to be the home, that has nothing of its own.
    let apart = spec.shown_at.is_none() || spec.shown_at != made.home;
    Layout {
        proc_read_only: existing("/proc", PROC_READ_ONLY),
        proc_masked: existing("/proc", PROC_MASKED),
        toolchains: if apart { toolchains(&spec.home, &spec.path, users) } else { Vec::new() },
        sudo: wants_sudo(spec).then(sudo),
        home: made.home.clone().filter(|_| apart),
        ..made
    }
}

impl Layout {
    /// Begins to look what the host shows now of what this one, which was made over another, was made of.
    pub(crate) fn look_again(&self, spec: &SandboxSpec, users: &Users) -> Meanwhile<Option<Self>> {
        let (spec, users, owner) = (spec.clone(), users.to_look(), self.workdir_owner);
        let (workdir, shown_at) = (self.workdir.clone(), self.shown_at.clone());
        meanwhile::begin(move || {
            let own = Own {
                workdir: &workdir,
                shown_at: &shown_at,
                owner,
                mounts: Vec::new(),
                hidden: Hidden::default(),
                hidden_parents: Vec::new(),
            };
            gather_with(own, None, &spec, &users).ok()
        })
    }

    /// Whether what was made for that one is what this one wants.
    pub(crate) fn has_been_made_as(&self, made: &Self) -> bool {
        let host = |l: &Self| (l.system.clone(), l.var.clone(), l.etc_masked.clone(), l.passwd.clone());
        let own = |l: &Self| {
            (l.home.clone(), l.toolchains.clone(), l.gitconfig.clone(), l.root_home, l.sudo.clone())
        };
        let proc = |l: &Self| (l.proc_read_only.clone(), l.proc_masked.clone());
        // Whose files they are inside is decided by whose the work dir is.
        let theirs = |l: &Self| -> Vec<bool> {
            l.toolchains.iter().map(|shown| shown.owner == l.workdir_owner).collect()
        };
        let plain = self.programs.is_none() && self.root.is_none();
        let mapped = !rustix::process::geteuid().is_root() || theirs(self) == theirs(made);
        plain && mapped && host(self) == host(made) && own(self) == own(made) && proc(self) == proc(made)
    }
}

/// In an image it is where its accounts say, in a box the user has a home of its own; else it is where the caller's is.
pub(crate) fn inside_home(spec: &SandboxSpec) -> PathBuf {
    if let Some(root) = &spec.root {
        return root.home.clone();
    }
    let usable = spec.home.is_absolute() && spec.home.components().count() > 1;
    match spec.profile {
        Profile::Run if usable => spec.home.clone(),
        _ => PathBuf::from("/home/user"),
    }
}

fn system() -> Vec<System> {
    let one = |name: &&str| {
        let path = Path::new("/").join(name);
        let meta = path.symlink_metadata().ok()?;
        match meta.is_symlink() {
            true => Some(System::Link((*name).into(), fs::read_link(&path).ok()?)),
            false => meta.is_dir().then(|| System::Dir((*name).into())),
        }
    };
    SYSTEM.iter().filter_map(one).collect()
}

/// Where a registry says which programs there are, this is none of them.
fn wants_sudo(spec: &SandboxSpec) -> bool {
    spec.sudo && spec.programs.is_none()
}

/// Before all others in anybody's search path, where the host has that.
fn sudo() -> Sudo {
    let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let local = Path::new("/usr/local/bin");
    let place = if is_dir(local) { local } else { Path::new("/usr/bin") };
    let found =
        ["/usr/bin/sudo", "/bin/sudo", "/usr/sbin/sudo"].map(|path| Path::new(path).canonicalize().ok());
    let of_system = |path: &PathBuf| is_system(&top(path)) && path.is_file() && !path.starts_with(place);
    let covers: BTreeSet<PathBuf> = found.into_iter().flatten().filter(of_system).collect();
    Sudo { place: place.to_owned(), covers: covers.into_iter().collect() }
}

fn top(path: &Path) -> PathBuf {
    path.components().take(2).collect()
}

fn existing(below: &str, names: &[&'static str]) -> Vec<&'static str> {
    names.iter().copied().filter(|name| Path::new(below).join(name).symlink_metadata().is_ok()).collect()
}

/// Only what the inside could read is masked: with sub-ids and no groups, a file's mode does the rest.
fn etc_masked(users: &Users) -> Vec<(&'static str, bool)> {
    let readable = |name: &&'static str| {
        let path = Path::new("/etc").join(name);
        let meta = path.symlink_metadata().ok()?;
        let open = match users.way {
            Way::Root => meta.mode() & 0o004 != 0,
            Way::Range | Way::Single => rustix::fs::access(&path, rustix::fs::Access::READ_OK).is_ok(),
        };
        (open && !meta.is_symlink()).then_some((*name, meta.is_dir()))
    };
    ETC_MASKED.iter().filter_map(readable).collect()
}

/// Directories of the table that exist, and directories of the search path that lie in the home.
fn toolchains(home: &Path, search: &[PathBuf], users: &Users) -> Vec<Shown> {
    let listed: Vec<_> =
        fs::read_dir(home).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    let there =
        |name: &&str| Path::new(name).iter().next().is_some_and(|first| listed.iter().any(|l| l == first));
    let named =
        TOOLCHAINS.iter().map(|(name, _)| *name).filter(|name| there(name)).map(|name| home.join(name));
    let searched = search.iter().filter(|path| path.starts_with(home) && *path != home).cloned();
    let mut paths: Vec<PathBuf> = Vec::new();
    let all: BTreeSet<PathBuf> = named.chain(searched).filter(|path| path.is_dir()).collect();
    for path in all {
        // Sorted, so what lies below a shown directory comes after it and needs no mount of its own.
        if !paths.iter().any(|above| path.starts_with(above)) {
            paths.push(path);
        }
    }
    paths.into_iter().filter_map(|path| shown(home, path, users)).collect()
}

fn shown(home: &Path, path: PathBuf, users: &Users) -> Option<Shown> {
    let meta = fs::symlink_metadata(&path).ok()?;
    // A link would be followed by the mount to wherever it leads; a foreign directory is not the caller's.
    if !meta.is_dir() || (users.way != Way::Root && meta.uid() != users.host_uid) {
        return None;
    }
    let secrets =
        TOOLCHAINS.iter().find(|(name, _)| path == home.join(name)).map_or(&[][..], |(_, masked)| masked);
    let masked = secrets
        .iter()
        .map(|name| path.join(name))
        .filter_map(|secret| secret.symlink_metadata().ok().map(|m| (secret, m.is_dir())))
        .collect();
    Some(Shown { path, owner: (meta.uid(), meta.gid()), masked })
}

/// Whether this is one of the host's directories that are shown as they are.
fn is_system(top: &Path) -> bool {
    SYSTEM.iter().any(|name| top == Path::new("/").join(name)) && top.exists()
}

/// Users and groups as the inside shall know them: its own, and the host's system accounts by name.
fn accounts(home: &Path) -> (Vec<u8>, Vec<u8>) {
    static KEPT: Kept<PathBuf, (Vec<u8>, Vec<u8>), 3> = Kept::new();
    let files = ["/etc/passwd", "/etc/group", "/bin/bash"].map(Path::new);
    KEPT.get(home.to_owned(), files, || accounts_as_they_are(home))
}

fn accounts_as_they_are(home: &Path) -> (Vec<u8>, Vec<u8>) {
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let mut passwd =
        format!("root:x:0:0:root:/root:{shell}\nuser:x:1000:1000:user:{}:{shell}\n", home.display());
    let mut group = String::from("root:x:0:\nuser:x:1000:\n");
    let is_system = |line: &&str| {
        let id = line.split(':').nth(2).and_then(|id| id.parse::<u32>().ok());
        id.is_some_and(|id| (1..1000).contains(&id) || id == 65_534)
    };
    for line in fs::read_to_string("/etc/passwd").unwrap_or_default().lines().filter(is_system) {
        passwd.extend([line, "\n"]);
    }
    for line in fs::read_to_string("/etc/group").unwrap_or_default().lines().filter(is_system) {
        let (name, rest) = line.split_once(':').unwrap_or((line, ""));
        let id = rest.split(':').nth(1).unwrap_or_default();
        group.push_str(&format!("{name}:x:{id}:\n"));
    }
    (passwd.into_bytes(), group.into_bytes())
}

/// Name and address for commits. The rest of the file may hold tokens, so it stays out.
fn git_identity(home: &Path) -> Option<Vec<u8>> {
    static KEPT: Kept<PathBuf, Option<Vec<u8>>, 1> = Kept::new();
    let file = home.join(".gitconfig");
    KEPT.get(file.clone(), [&file], || identity(&fs::read_to_string(&file).ok()?))
}

fn identity(text: &str) -> Option<Vec<u8>> {
    let mut in_user = false;
    let mut kept = String::from("[user]\n");
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_user = line.eq_ignore_ascii_case("[user]");
        } else if in_user && line.split('=').next().is_some_and(|key| matches!(key.trim(), "name" | "email"))
        {
            kept.push_str(&format!("\t{line}\n"));
        }
    }
    (kept.lines().count() > 1).then(|| kept.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_identity_of_git_is_taken_over() {
        let home = tempfile::tempdir().unwrap();
        let text = "[credential]\n\thelper = store\n[user]\n\tname = Ada\n\tsigningkey = X\n\temail = a@b\n[http]\n\textraheader = secret\n";
        fs::write(home.path().join(".gitconfig"), text).unwrap();
        let kept = String::from_utf8(git_identity(home.path()).unwrap()).unwrap();
        assert_eq!(kept, "[user]\n\tname = Ada\n\temail = a@b\n");
    }
}
