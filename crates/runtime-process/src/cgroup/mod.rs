//! Control groups for one session, controller by controller: v2 where a controller is there, v1 where it is
//! not, both on one host if that is what the host has. What neither gives is not pretended.

mod find;
mod freeze;
mod held;
mod v1;
mod v2;

use find::Found;
pub(crate) use find::{hierarchies, is_unified, look_again, places_for};
pub(crate) use freeze::thaw_group;
pub(crate) use held::{Maker, maker};

use crate::procfs;
use cofferdam_model::{Bytes, Cores, LimitHit};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
    /// Stops all processes. Part of version 2 itself.
    Freezer,
    /// Counts processor time. Part of version 2 itself.
    Account,
}

impl Controller {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Freezer => "freezer",
            Self::Account => "cpuacct",
        }
    }

    /// Whether every group of version 2 has it.
    const fn is_core(self) -> bool {
        matches!(self, Self::Freezer | Self::Account)
    }
}

/// The limits to be held. A controller without one is not used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) memory: Option<Bytes>,
    pub(crate) pids: Option<u32>,
    pub(crate) cpu: Option<Cores>,
    /// Beside everybody's 100.
    pub(crate) share: Option<u32>,
    /// Nothing is limited by it: it can be stopped, and is counted.
    pub(crate) pausable: bool,
}

impl Wanted {
    pub(crate) fn controllers(&self) -> impl Iterator<Item = Controller> {
        let wanted = [
            (Controller::Memory, self.memory.is_some()),
            (Controller::Pids, self.pids.is_some()),
            (Controller::Cpu, self.cpu.is_some() || self.share.is_some()),
            (Controller::Freezer, self.pausable),
            (Controller::Account, self.pausable),
        ];
        wanted.into_iter().filter(|(_, is)| *is).map(|(controller, _)| controller)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// One directory made for the session, and the controllers that are used in it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
    pub(crate) controllers: Vec<Controller>,
}

/// How often limits were reached when that was last told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    killed: u64,
    refused: u64,
    /// Whether the scratch space was full of bytes, or of files.
    pub(crate) full: [bool; 2],
}

/// All groups of a session. Made empty of processes; removed when the last one is gone.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) groups: Vec<Group>,
    /// Controllers that this host does not give us, and why.
    pub(crate) missing: Vec<(Controller, String)>,
    /// The one of version 2, as long as we are there to remove it.
    held: Option<OwnedFd>,
    made: bool,
    limited: bool,
    frozen: bool,
}

impl Groups {
    /// Finds a place in every hierarchy that is needed. A controller that cannot be had is listed, not an error.
    pub(crate) fn place(name: &str, wanted: &Wanted) -> Self {
        Self::among(places_for(&wanted.controllers().collect::<Vec<_>>()), name)
    }

    fn among(places: Vec<(Controller, Found)>, name: &str) -> Self {
        let mut placed = Self::default();
        for (controller, place) in places {
            match place {
                Ok((version, parent)) => placed.add(version, parent.join(name), controller),
                Err(reason) => placed.missing.push((controller, reason)),
            }
        }
        placed
    }

    fn add(&mut self, version: Version, path: PathBuf, controller: Controller) {
        match self.groups.iter_mut().find(|group| group.path == path) {
            Some(group) => group.controllers.push(controller),
            None => self.groups.push(Group { version, path, controllers: vec![controller] }),
        }
    }

    /// Makes the groups, without limits yet. What was thought to be there and is not is an error: others have been told
    /// to rely on it.
    pub(crate) fn create(&mut self) -> Result<(), String> {
        if std::mem::replace(&mut self.made, true) {
            return Ok(());
        }
        for Group { version, path, .. } in &self.groups {
            let made = match version {
                Version::V1 => make_dir(path),
                Version::V2 => held::make(path).map(|held| self.held = Some(held)),
            };
            made.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// Makes the groups, if they are not there, and sets their limits.
    pub(crate) fn make(&mut self, wanted: &Wanted) -> Result<(), String> {
        self.create()?;
        if std::mem::replace(&mut self.limited, true) {
            return Ok(());
        }
        for Group { version, path, controllers } in &self.groups {
            for controller in controllers {
                let set = match version {
                    Version::V1 => v1::set(path, *controller, wanted),
                    Version::V2 => v2::set(path, *controller, wanted),
                };
                set.map_err(|error| format!("cannot set the limit in {}: {error}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Whether one of them is of version 2.
    pub(crate) fn has_unified(&self) -> bool {
        self.groups.iter().any(|group| group.version == Version::V2)
    }

    /// The one that a process can be born into.
    pub(crate) fn cradle(&self) -> Option<BorrowedFd<'_>> {
        self.held.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn group(&self, controller: Controller) -> Option<&Group> {
        let missing = self.missing.iter().any(|(c, _)| *c == controller);
        self.groups.iter().find(|group| !missing && group.controllers.contains(&controller))
    }

    /// The most memory the session held at once.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let group = self.group(Controller::Memory)?;
        match group.version {
            Version::V1 => number(&group.path.join("memory.max_usage_in_bytes")),
            Version::V2 => number(&group.path.join("memory.peak")),
        }
    }

    /// Limits that were reached since they were last told, with how often.
    pub(crate) fn hits(&self, wanted: &Wanted, told: &mut Told) -> Vec<LimitHit> {
        let mut hits = Vec::new();
        let since = |count: Option<u64>, told: &mut u64| {
            let now = count?;
            let before = std::mem::replace(told, now);
            (now > before).then(|| now - before)
        };
        let count = |controller, v1: (&str, &str), v2: (&str, &str)| {
            let group = self.group(controller)?;
            let (file, key) = if group.version == Version::V1 { v1 } else { v2 };
            keyed(&group.path.join(file), key)
        };
        let killed =
            count(Controller::Memory, ("memory.oom_control", "oom_kill"), ("memory.events", "oom_kill"));
        if let (Some(times), Some(limit)) = (since(killed, &mut told.killed), wanted.memory) {
            hits.push(LimitHit {
                limit: "memory".into(),
                allowed: limit.0,
                seen: self.peak_memory().unwrap_or(limit.0),
                detail: format!("killed: memory limit {limit} ({times} processes)"),
            });
        }
        let refused = count(Controller::Pids, ("pids.events", "max"), ("pids.events", "max"));
        if let (Some(times), Some(limit)) = (since(refused, &mut told.refused), wanted.pids) {
            hits.push(LimitHit {
                limit: "pids".into(),
                allowed: limit.into(),
                seen: limit.into(),
                detail: format!("fork refused {times} times: limit of {limit} processes"),
            });
        }
        hits
    }

    /// The files by which a process that was born elsewhere enters the groups; only it can do so without a lock
    /// on all other processes, and on version 2 not even it.
    pub(crate) fn entrances(&self, born_inside: bool) -> Vec<PathBuf> {
        let file = |group: &Group| match group.version {
            Version::V1 => Some(group.path.join("tasks")),
            Version::V2 => (!born_inside).then(|| group.path.join("cgroup.procs")),
        };
        self.groups.iter().filter_map(file).collect()
    }

    /// Removes the groups. A group stays busy for a moment after its last process was reaped.
    pub(crate) fn remove(&mut self) {
        self.thaw();
        if std::mem::take(&mut self.made) {
            self.groups.iter().for_each(|group| remove_group(&group.path));
            self.held = None;
        }
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes one group, ending what is still in it.
pub(crate) fn remove_group(path: &Path) {
    for attempt in 0..200u32 {
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if attempt == 20 {
                    kill_all(path);
                }
                std::thread::sleep(Duration::from_micros(50 * u64::from(attempt.min(20) + 1)));
            }
            _ => return,
        }
    }
}

/// Ends every process of a group that has lost its supervisor.
fn kill_all(path: &Path) {
    freeze::thaw_group(path);
    if fs::write(path.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let pids = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    for pid in pids.lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn number(path: &Path) -> Option<u64> {
    procfs::short(path, |text| text.trim().parse().ok())
}

fn keyed(path: &Path, key: &str) -> Option<u64> {
    procfs::short(path, |text| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::find::Hierarchies;
    use super::*;

    fn v2_host(dir: &Path) -> Hierarchies {
        fs::write(dir.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(dir.join("cgroup.subtree_control"), "memory pids cpu\n").unwrap();
        fs::write(dir.join("cgroup.procs"), "").unwrap();
        Hierarchies { v2: vec![dir.to_owned()], ..Hierarchies::default() }
    }

    #[test]
    fn v2_writes_every_limit_into_one_group() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = Wanted {
            memory: Some(Bytes(1 << 20)),
            pids: Some(7),
            cpu: Some(Cores { milli: 1500 }),
            share: Some(250),
            pausable: false,
        };
        let controllers: Vec<Controller> = wanted.controllers().collect();
        let mut groups = Groups::among(v2_host(dir.path()).places(&controllers), "s");
        assert!(!dir.path().join("s").exists(), "placed, not made");
        groups.make(&wanted).unwrap();
        assert!(groups.missing.is_empty(), "{:?}", groups.missing);
        let read = |file: &str| fs::read_to_string(dir.path().join("s").join(file)).unwrap();
        assert_eq!(read("memory.max"), "1048576");
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("pids.max"), "7");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("cpu.weight"), "250");
        fs::write(dir.path().join("s/memory.events"), "low 0\noom 1\noom_kill 2\n").unwrap();
        fs::write(dir.path().join("s/memory.peak"), "1048570\n").unwrap();
        let mut told = Told::default();
        assert_eq!(groups.hits(&wanted, &mut told)[0].detail, "killed: memory limit 1 MiB (2 processes)");
        assert!(groups.hits(&wanted, &mut told).is_empty(), "it was told");
        fs::write(dir.path().join("s/memory.events"), "low 0\noom 1\noom_kill 3\n").unwrap();
        assert_eq!(groups.hits(&wanted, &mut told)[0].detail, "killed: memory limit 1 MiB (1 processes)");
    }

    #[test]
    fn a_host_without_controllers_says_why() {
        let none = Hierarchies { notes: vec!["no cgroup is mounted".into()], ..Hierarchies::default() };
        let groups = Groups::among(none.places(&[Controller::Pids]), "s");
        assert_eq!(groups.missing, [(Controller::Pids, "no cgroup is mounted".to_owned())]);
        assert!(groups.group(Controller::Pids).is_none());
    }
}
