//! Where on this host groups can be made: the mounts, and our own place in each hierarchy.

use super::{Controller, Version, freeze, v2};
use crate::procfs;
use rustix::fs::CWD;
use std::path::{Path, PathBuf};

/// What was found. Parents are directories in which a session's group can be made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hierarchies {
    /// Version 1: a controller and our own group in its hierarchy.
    pub(crate) v1: Vec<(Controller, PathBuf)>,
    /// Version 2: our own group's ancestors, nearest first.
    pub(crate) v2: Vec<PathBuf>,
    /// What is missing in general.
    pub(crate) notes: Vec<String>,
}

const ALL: [Controller; 5] =
    [Controller::Memory, Controller::Pids, Controller::Cpu, Controller::Freezer, Controller::Account];

pub(crate) fn hierarchies() -> Hierarchies {
    hierarchies_of(&ALL)
}

/// The same for some controllers: each that is looked for costs a little.
pub(crate) fn hierarchies_of(controllers: &[Controller]) -> Hierarchies {
    let mounts = procfs::read(CWD, "/proc/self/mountinfo").unwrap_or_default();
    let own = procfs::read(CWD, "/proc/self/cgroup").unwrap_or_default();
    parse(&mounts, &own, controllers)
}

/// Whether the host has version 2 and nothing else.
pub(crate) fn is_unified() -> bool {
    const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
    rustix::fs::statfs("/sys/fs/cgroup").is_ok_and(|found| found.f_type as u64 == CGROUP2_SUPER_MAGIC)
}

fn parse(mounts: &str, own: &str, controllers: &[Controller]) -> Hierarchies {
    let mut found = Hierarchies::default();
    for line in mounts.lines() {
        let Some(mount) = Mount::parse(line) else { continue };
        match mount.kind {
            "cgroup" => {
                for &controller in controllers {
                    if mount.options.split(',').any(|o| o == controller.name()) {
                        let place = own_path(own, Some(controller.name()));
                        found.v1.push((controller, mount.locate(place)));
                    }
                }
            }
            "cgroup2" => found.v2 = ancestors(&mount, own_path(own, None)),
            _ => {}
        }
    }
    if found.v1.is_empty() && found.v2.is_empty() {
        found.notes.push("no cgroup file system is mounted at /sys/fs/cgroup".into());
    }
    found
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let mut back = back.split(' ');
        Some(Self { root: front.next()?, point: front.next()?, kind: back.next()?, options: back.nth(1)? })
    }

    /// Our own group below the mount point, or the mount point itself where that is not visible.
    fn locate(&self, own: &str) -> PathBuf {
        let relative = own.strip_prefix(self.root.trim_end_matches('/')).unwrap_or("");
        let path = Path::new(self.point).join(relative.trim_start_matches('/'));
        if path.is_dir() { path } else { self.point.into() }
    }
}

/// The line of `/proc/self/cgroup` for a controller of version 1, or for version 2.
fn own_path<'a>(own: &'a str, controller: Option<&str>) -> &'a str {
    let find = |line: &'a str| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match controller {
            Some(name) => controllers.split(',').any(|c| c == name),
            None => id == "0" && controllers.is_empty(),
        };
        ours.then_some(path)
    };
    own.lines().find_map(find).unwrap_or("/")
}

/// Version 2 wants groups with limits beside, not below, the group our own process is in.
fn ancestors(mount: &Mount<'_>, own: &str) -> Vec<PathBuf> {
    let top = Path::new(mount.point);
    let own = mount.locate(own);
    own.ancestors()
        .skip(usize::from(own != top))
        .take_while(|path| path.starts_with(top))
        .map(Path::to_owned)
        .collect()
}

impl Hierarchies {
    /// A directory in which a group with this controller can be made.
    pub(crate) fn place(&self, controller: Controller) -> Result<(Version, PathBuf), String> {
        let gives = |parent: &Path| match controller.is_core() {
            true => freeze::kernel_has_it(),
            false => v2::enable(parent, controller),
        };
        if let Some(parent) = self.v2.iter().find(|parent| usable(parent) && gives(parent)) {
            return Ok((Version::V2, parent.clone()));
        }
        match self.v1.iter().find(|(c, _)| *c == controller) {
            Some((_, parent)) if usable(parent) => Ok((Version::V1, parent.clone())),
            Some((_, parent)) => Err(format!("{} is not writable for this user", parent.display())),
            None if !self.notes.is_empty() => Err(self.notes.join("; ")),
            None => Err(format!("no writable group offers the {} controller", controller.name())),
        }
    }
}

fn usable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /cg/memory rw,relatime - cgroup cgroup rw,memory
31 25 0:27 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 / /cg/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn each_controller_is_found_where_it_is() {
        let found = parse(HYBRID, "4:memory:/job/a\n1:cpu,cpuacct:/\n0::/\n", &ALL);
        let controllers: Vec<Controller> = found.v1.iter().map(|(c, _)| *c).collect();
        assert_eq!(controllers, [Controller::Memory, Controller::Cpu, Controller::Account]);
        assert_eq!(found.v2, [PathBuf::from("/cg/unified")]);
        assert!(found.place(Controller::Pids).is_err());
    }

    #[test]
    fn own_paths() {
        let own = "4:memory:/job/a:b\n1:cpu,cpuacct:/x\n0::/user.slice/s.scope\n";
        for (controller, path) in [
            (Some("memory"), "/job/a:b"),
            (Some("cpu"), "/x"),
            (None, "/user.slice/s.scope"),
            (Some("pids"), "/"),
        ] {
            assert_eq!(own_path(own, controller), path);
        }
    }

    #[test]
    fn nothing_mounted_is_said() {
        assert_eq!(parse("", "", &ALL).notes.len(), 1);
    }
}
