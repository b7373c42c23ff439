//! What of a layout is the session's own: its work dir with what is hidden of it, and the mounts that were asked for.

use super::{Asked, Layout, is_system, refused};
use crate::hidden::{self, Hidden};
use crate::rooted;
use cofferdam_model::Mount;
use cofferdam_runtime::{RuntimeError, SandboxSpec};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is the session's own, whatever the host shows besides.
pub(super) struct Own<'a> {
    pub(super) workdir: &'a Path,
    pub(super) shown_at: &'a Path,
    pub(super) owner: (u32, u32),
    pub(super) mounts: Vec<Asked>,
    pub(super) hidden: Hidden,
    pub(super) hidden_parents: Vec<(PathBuf, u32)>,
}

pub(super) fn own(spec: &SandboxSpec) -> Result<Own<'_>, RuntimeError> {
    let workdir = check_workdir(&spec.workdir)?;
    let shown_at = match (&spec.shown_at, &spec.root) {
        (at, Some(_)) => rooted::check_shown_at(at.as_deref().unwrap_or(workdir))?,
        (Some(at), None) => check_shown_at(at)?,
        (None, None) => workdir,
    };
    let meta =
        fs::metadata(workdir).map_err(RuntimeError::io(format!("look at work dir {}", workdir.display())))?;
    let mounts = mounts(&spec.mounts, spec.root.is_none())?;
    let mut hidden = hidden::find(workdir, &spec.hide);
    let hidden_parents = hidden_parents(workdir, &hidden);
    // Where there is no directory, there is nothing in it to hide.
    let can_hold =
        |dir: &Path| dir.as_os_str().is_empty() || hidden_parents.iter().any(|(parent, _)| parent == dir);
    hidden.paths.retain(|path| path.parent().is_none_or(can_hold));
    Ok(Own { workdir, shown_at, owner: (meta.uid(), meta.gid()), mounts, hidden, hidden_parents })
}

/// What a session wants, over what was made ahead of it. Whether the host still shows that is for `gather` to say.
pub(crate) fn over(made: &Layout, spec: &SandboxSpec) -> Result<Layout, RuntimeError> {
    let Own { workdir, shown_at, owner, mounts, hidden, hidden_parents } = own(spec)?;
    Ok(Layout {
        workdir: workdir.to_owned(),
        shown_at: shown_at.to_owned(),
        workdir_owner: owner,
        mounts,
        hidden,
        hidden_parents,
        ..made.host()
    })
}

impl Layout {
    /// The same with nothing of a session's own.
    fn host(&self) -> Self {
        Self {
            system: self.system.clone(),
            var: self.var.clone(),
            etc_masked: self.etc_masked.clone(),
            proc_read_only: self.proc_read_only.clone(),
            proc_masked: self.proc_masked.clone(),
            home: self.home.clone(),
            toolchains: self.toolchains.clone(),
            workdir: PathBuf::new(),
            shown_at: PathBuf::new(),
            root_home: self.root_home,
            workdir_owner: self.workdir_owner,
            hidden: Hidden::default(),
            hidden_parents: Vec::new(),
            mounts: Vec::new(),
            programs: None,
            passwd: self.passwd.clone(),
            gitconfig: self.gitconfig.clone(),
            root: None,
            sudo: self.sudo.clone(),
        }
    }
}

fn check_workdir(path: &Path) -> Result<&Path, RuntimeError> {
    const RESERVED: &[&str] = &["/", "/proc", "/sys", "/dev", "/run"];
    let fix = "choose a project directory with --workdir";
    if !path.is_absolute() {
        return Err(refused(format!("work dir {} is not an absolute path", path.display()), fix));
    }
    if !path.is_dir() {
        return Err(refused(format!("work dir {} is not a directory that exists", path.display()), fix));
    }
    let reserved = RESERVED.iter().any(|r| path == Path::new(r) || (*r != "/" && path.starts_with(r)));
    if reserved {
        return Err(refused(format!("work dir {} cannot be shared with a sandbox", path.display()), fix));
    }
    Ok(path)
}

/// A place of the inside's own: none that is the host's.
fn check_shown_at(at: &Path) -> Result<&Path, RuntimeError> {
    use std::path::Component;
    let plain = at.is_absolute() && !at.components().any(|part| part == Component::ParentDir);
    let top = at.components().nth(1).map(|top| Path::new("/").join(top));
    let own = ["/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/.cofferdam", "/var"];
    let taken = top.is_none_or(|top| is_system(&top) || own.iter().any(|own| top == Path::new(own)));
    match plain && !taken && !at.ancestors().any(Path::is_symlink) {
        true => Ok(at),
        false => Err(refused(
            format!("the work dir cannot stand at {}", at.display()),
            "choose a place as /home/user or /work",
        )),
    }
}

/// Outer ones first. A parent that is not there, or not a directory, hides nothing.
fn hidden_parents(workdir: &Path, hidden: &Hidden) -> Vec<(PathBuf, u32)> {
    let above = |path: &PathBuf| path.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
    let all: BTreeSet<PathBuf> =
        hidden.paths.iter().flat_map(above).filter(|p| !p.as_os_str().is_empty()).collect();
    let mode = |path: PathBuf| {
        fs::symlink_metadata(workdir.join(&path))
            .ok()
            .filter(|m| m.is_dir())
            .map(|m| (path, m.mode() & 0o7777))
    };
    all.into_iter().filter_map(mode).collect()
}

/// `of_host`: whether they are put among the host's directories.
fn mounts(asked: &[Mount], of_host: bool) -> Result<Vec<Asked>, RuntimeError> {
    let mut found = Vec::with_capacity(asked.len());
    for mount in asked {
        // Targets are made and mounted before the new root is one: a link on the way would lead into the host's.
        let link = mount.target.ancestors().find(|path| path.is_symlink());
        if let Some(link) = link.filter(|_| of_host) {
            let what =
                format!("mount target {} goes through the link {}", mount.target.display(), link.display());
            return Err(refused(what, "name the path that the link leads to"));
        }
        let top = mount.target.components().nth(1).map(|top| Path::new("/").join(top));
        if let Some(top) = top.filter(|top| of_host && is_system(top) && !mount.target.exists()) {
            let what = format!("mount target {} is not there", mount.target.display());
            let name = mount.target.file_name().unwrap_or_default().to_string_lossy();
            let fix =
                format!("{} is the host's and read-only: choose another place, as /{name}", top.display());
            return Err(refused(what, &fix));
        }
        let source = mount
            .source
            .canonicalize()
            .map_err(RuntimeError::io(format!("mount source {}", mount.source.display())))?;
        let meta =
            fs::metadata(&source).map_err(RuntimeError::io(format!("mount source {}", source.display())))?;
        found.push(Asked {
            mount: Mount { source, ..mount.clone() },
            owner: (meta.uid(), meta.gid()),
            is_dir: meta.is_dir(),
        });
    }
    found.sort_by_key(|asked| asked.mount.target.components().count());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_target_through_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/root", dir.path().join("link")).unwrap();
        let ask =
            |name: &str| Mount { source: "/usr".into(), target: dir.path().join(name), writable: false };
        assert!(mounts(&[ask("plain/x")], true).is_ok());
        for name in ["link", "link/x/y"] {
            assert!(
                mounts(&[ask(name)], true).unwrap_err().to_string().contains("goes through the link"),
                "{name}"
            );
        }
    }

    #[test]
    fn a_mount_target_that_nobody_can_make_is_refused() {
        let ask = |target: &str| {
            mounts(&[Mount { source: "/usr".into(), target: target.into(), writable: false }], true)
                .map_err(|error| error.to_string())
        };
        assert!(ask("/usr/bin").is_ok() && ask("/agents").is_ok() && ask("/srv/agents").is_ok());
        let said = ask("/usr/no/such/tools").unwrap_err();
        assert!(said.contains("/usr/no/such/tools is not there") && said.contains("as /tools"), "{said}");
    }

    #[test]
    fn a_work_dir_stands_where_nothing_of_the_hosts_does() {
        for bad in ["/", "/etc", "/usr/local/x", "/proc/1", "/tmp", "/root", "/work/../etc", "work", "/bin"] {
            assert!(check_shown_at(Path::new(bad)).is_err(), "{bad}");
        }
        for good in ["/home/user", "/no-such-work-dir", "/no/such/work"] {
            assert!(check_shown_at(Path::new(good)).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_work_dir_must_be_one() {
        for bad in ["/", "/proc/self", "/dev", "/no/such/dir", "relative"] {
            assert!(check_workdir(Path::new(bad)).is_err(), "{bad}");
        }
        assert!(check_workdir(Path::new("/tmp")).is_ok());
    }
}
