//! Where on this host groups can be made: the mounts, and our own place in each hierarchy.

use super::{Controller, Version, v2};
use crate::procfs;
use rustix::fs::{Access, CWD};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was found. Parents are directories in which a session's group can be made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hierarchies {
    /// Version 1: a controller and our own group in its hierarchy.
    pub(crate) v1: Vec<(Controller, PathBuf)>,
    /// Version 2: the ancestors of our own group, nearest first.
    pub(crate) v2: Vec<PathBuf>,
    /// Our own group of version 2, in which one with limits can be made only if nobody is in it.
    pub(crate) own: Option<PathBuf>,
    /// What is missing in general.
    pub(crate) notes: Vec<String>,
}

const ALL: [Controller; 5] =
    [Controller::Memory, Controller::Pids, Controller::Cpu, Controller::Freezer, Controller::Account];

pub(crate) fn hierarchies() -> Hierarchies {
    let mounts = procfs::read(CWD, "/proc/self/mountinfo").unwrap_or_default();
    let own = procfs::read(CWD, "/proc/self/cgroup").unwrap_or_default();
    parse(&mounts, &own, &ALL)
}

/// What was found, and in which groups we were then.
struct Known {
    own: String,
    places: Vec<(Controller, Found)>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where groups with these controllers can be made. Looked for again only where we are in other groups than we were, or
/// something was missing: whoever makes many sessions finds the same each time.
pub(crate) fn places_for(controllers: &[Controller]) -> Vec<(Controller, Found)> {
    let own = procfs::read(CWD, "/proc/self/cgroup").unwrap_or_default();
    let same = |known: &&Known| known.own == own && known.places.iter().map(|(one, _)| one).eq(controllers);
    if let Some(known) = known().as_ref().filter(same) {
        return known.places.clone();
    }
    let mounts = procfs::read(CWD, "/proc/self/mountinfo").unwrap_or_default();
    let places = parse(&mounts, &own, controllers).places(controllers);
    if places.iter().all(|(_, place)| place.is_ok()) {
        *known() = Some(Known { own, places: places.clone() });
    }
    places
}

/// No group could be made where one was thought to be possible.
pub(crate) fn look_again() {
    *known() = None;
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
            "cgroup2" => {
                let own = mount.locate(own_path(own, None));
                found.v2 = ancestors(Path::new(mount.point), &own);
                found.own = Some(own);
            }
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
fn ancestors(top: &Path, own: &Path) -> Vec<PathBuf> {
    own.ancestors().skip(1).take_while(|path| path.starts_with(top)).map(Path::to_owned).collect()
}

/// A directory in which a group with a controller can be made, or why there is none.
pub(crate) type Found = Result<(Version, PathBuf), String>;

impl Hierarchies {
    /// Where each of these can be had. A process is in one group of version 2 only, so all that come from there have
    /// one parent: the nearest that gives the most of them.
    pub(crate) fn places(&self, controllers: &[Controller]) -> Vec<(Controller, Found)> {
        let unified = self.unified(controllers);
        let each = |&controller: &Controller| {
            let found = match &unified {
                Ok((parent, given)) if given.contains(&controller) => Ok((Version::V2, parent.clone())),
                _ => self.first_version(controller, unified.as_ref().err()),
            };
            (controller, found)
        };
        controllers.iter().map(each).collect()
    }

    /// The parent of groups of version 2, and which controllers it gives them; or why there is none.
    fn unified(&self, controllers: &[Controller]) -> Result<(PathBuf, Vec<Controller>), String> {
        let offer = |parent: &Path| v2::offered(parent, controllers);
        let mut parents: Vec<(&Path, Vec<Controller>)> = self
            .v2
            .iter()
            .chain(&self.own)
            .filter(|parent| can_hold_groups(parent))
            .map(|parent| (parent.as_path(), offer(parent)))
            .filter(|(_, given)| !given.is_empty())
            .collect();
        // Stable: among those that give as many, the nearest stays the first.
        parents.sort_by_key(|(_, given)| std::cmp::Reverse(given.len()));
        let mut refusal = None;
        for (parent, given) in parents {
            let is_own = self.own.as_deref() == Some(parent);
            match v2::enable(parent, &given, is_own) {
                Ok(()) => return Ok((parent.to_owned(), given)),
                Err(reason) => refusal = refusal.or(Some(reason)),
            }
        }
        Err(refusal.unwrap_or_else(|| match self.v2.first().or(self.own.as_ref()) {
            Some(parent) if !can_hold_groups(parent) => {
                format!("{} is not writable for this user", parent.display())
            }
            Some(parent) => format!("{} offers no such controller", parent.display()),
            None => "no version 2 is mounted".into(),
        }))
    }

    fn first_version(&self, controller: Controller, of_second: Option<&String>) -> Found {
        match (self.v1.iter().find(|(c, _)| *c == controller), of_second) {
            (Some((_, parent)), _) if is_writable(parent) => Ok((Version::V1, parent.clone())),
            (Some((_, parent)), _) => Err(format!("{} is not writable for this user", parent.display())),
            (None, _) if !self.notes.is_empty() => Err(self.notes.join("; ")),
            (None, Some(reason)) if !self.v2.is_empty() || self.own.is_some() => Err(reason.clone()),
            (None, _) => Err(format!("no writable group offers the {} controller", controller.name())),
        }
    }
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK).is_ok()
}

/// Whoever puts a process from one group into another has to be allowed to do so where the two meet.
fn can_hold_groups(path: &Path) -> bool {
    is_writable(path) && is_writable(&path.join("cgroup.procs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        assert_eq!(found.own, Some(PathBuf::from("/cg/unified")));
        let (_, pids) = found.places(&[Controller::Pids]).pop().unwrap();
        assert!(pids.is_err());
    }

    #[test]
    fn places_that_are_known_are_those_that_are_found() {
        let wanted = [Controller::Memory, Controller::Pids];
        let found = hierarchies().places(&wanted);
        assert_eq!((places_for(&wanted), places_for(&wanted)), (found.clone(), found.clone()));
        assert_eq!(places_for(&wanted[..1]).len(), 1, "for others they are looked for anew");
        look_again();
        assert_eq!(places_for(&wanted), found);
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

    /// A tree as version 2 has it, with what each group can give and gives.
    fn tree(groups: &[(&str, &str, &str)]) -> (tempfile::TempDir, Hierarchies) {
        let dir = tempfile::tempdir().unwrap();
        for (path, offered, given) in groups {
            let group = dir.path().join(path);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("cgroup.controllers"), offered).unwrap();
            fs::write(group.join("cgroup.subtree_control"), given).unwrap();
            fs::write(group.join("cgroup.procs"), "").unwrap();
        }
        let own = dir.path().join(groups.last().unwrap().0);
        let v2 = ancestors(dir.path(), &own);
        (dir, Hierarchies { v2, own: Some(own), ..Hierarchies::default() })
    }

    /// A process cannot be in two groups: what one parent lacks must not be looked for in another.
    #[test]
    fn all_controllers_of_version_2_have_one_parent() {
        let all = "cpu memory pids";
        let (dir, found) =
            tree(&[("", all, all), ("user.slice", "memory pids", "memory pids"), ("user.slice/s", "", "")]);
        let places = |wanted: &[Controller]| -> Vec<PathBuf> {
            found.places(wanted).into_iter().map(|(_, place)| place.unwrap().1).collect()
        };
        let near = dir.path().join("user.slice");
        assert_eq!(places(&[Controller::Memory, Controller::Pids]), [near.clone(), near]);
        let three = [Controller::Memory, Controller::Pids, Controller::Cpu];
        assert_eq!(places(&three), vec![dir.path().to_owned(); 3]);
    }

    #[test]
    fn what_the_best_parent_lacks_is_missing_with_a_reason() {
        let (_dir, found) = tree(&[("", "memory pids", "memory pids"), ("s", "", "")]);
        let places = found.places(&[Controller::Memory, Controller::Cpu]);
        assert!(places[0].1.is_ok());
        assert_eq!(places[1].1, Err("no writable group offers the cpu controller".into()));
    }

    #[test]
    fn nothing_mounted_is_said() {
        assert_eq!(parse("", "", &ALL).notes.len(), 1);
    }
}
