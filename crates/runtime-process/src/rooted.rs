//! A sandbox whose root is an image: what of the host is then not shown, and where the work dir may stand. The image's
//! own files are hostile data; nothing here looks into them.

use crate::layout::{Layout, refused};
use crate::users::{Users, Way};
use cofferdam_runtime::{RuntimeError, SandboxSpec};
use std::path::{Component, Path, PathBuf};

/// Places that are the sandbox's own, whatever the image has there.
pub(crate) const OWN: &[&str] = &["dev", "proc", "tmp", "run", ".cofferdam"];

/// Nothing of the host's system is there, and no home but the image's.
pub(crate) fn emptied(layout: Layout, spec: &SandboxSpec) -> Layout {
    let Some(root) = &spec.root else { return layout };
    Layout {
        root: Some(root.clone()),
        system: Vec::new(),
        var: Vec::new(),
        etc_masked: Vec::new(),
        home: None,
        toolchains: Vec::new(),
        root_home: None,
        passwd: None,
        gitconfig: None,
        ..layout
    }
}

/// The same where everything is known.
pub(crate) fn furnish(layout: Layout, spec: &SandboxSpec, users: &Users) -> Result<Layout, RuntimeError> {
    if spec.root.is_none() {
        return Ok(layout);
    }
    if spec.programs.is_some() {
        return Err(refused(
            "a registry of tools names programs of the host, and an image has its own".into(),
            "leave --tools or --image out",
        ));
    }
    if users.way == Way::Root && users.root_outside().is_none() {
        return Err(refused(
            "an image needs a range of 65536 ids, and this user namespace has none to spare".into(),
            "give the container one, or run as a plain user",
        ));
    }
    Ok(emptied(layout, spec))
}

/// A place of the image's tree, and none that the sandbox itself needs.
pub(crate) fn check_shown_at(at: &Path) -> Result<&Path, RuntimeError> {
    let plain = at.is_absolute() && !at.components().any(|part| part == Component::ParentDir);
    let parts: Vec<Component<'_>> = at.components().skip(1).collect();
    let top =
        |names: &[&str]| names.iter().any(|name| parts.first() == Some(&Component::Normal(name.as_ref())));
    // A directory below `/tmp` is one like any other.
    let own = top(&["dev", "proc", "sys", "run", ".cofferdam"]) || (parts.len() == 1 && top(&["tmp"]));
    let system = parts.len() == 1 && top(&["usr", "bin", "sbin", "lib", "lib64", "etc", "var"]);
    match plain && !parts.is_empty() && !own && !system {
        true => Ok(at),
        false => Err(refused(
            format!("the work dir cannot stand at {} in an image", at.display()),
            "choose a place as /work with --workdir-at",
        )),
    }
}

/// What was done to an image's files by those who came before, the upper ones first.
pub(crate) fn system_layers(spec: &SandboxSpec) -> Result<Vec<PathBuf>, RuntimeError> {
    let beside = spec.base.layers.iter().map(|layer| layer.with_file_name("system"));
    let found: Vec<PathBuf> = beside.filter(|path| path.is_dir()).collect();
    match found.is_empty() || spec.root.is_some() {
        true => Ok(found),
        false => {
            Err(refused("these files were made over an image".into(), "name the same image with --image"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_dir_stands_anywhere_but_where_the_sandbox_or_the_system_does() {
        for bad in ["/", "/etc", "/usr", "/proc/1", "/tmp", "/dev/shm/x", "/run/x", "/work/../etc", "work"] {
            assert!(check_shown_at(Path::new(bad)).is_err(), "{bad}");
        }
        for good in ["/home/user", "/work", "/usr/src/app", "/tmp/x/y", "/root/project", "/app"] {
            assert!(check_shown_at(Path::new(good)).is_ok(), "{good}");
        }
    }
}
