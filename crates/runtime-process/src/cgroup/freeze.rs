//! Stopping a session's processes where they stand, and what its groups have counted.
//!
//! Signals would not do: who is inside can see a stop, ignore it for its children, or start others meanwhile.

use super::{Controller, Groups, Version, keyed, number};
use cofferdam_model::Counters;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// A process in an uninterruptible call freezes when that call is over.
const PATIENCE: Duration = Duration::from_secs(10);

/// Version 2 can freeze since Linux 5.2.
pub(super) fn kernel_has_it() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 2)
}

/// Lets the processes of a group go on. Nothing happens to one that is no freezer's.
pub(crate) fn thaw_group(path: &Path) {
    for (file, value) in [("cgroup.freeze", "0"), ("freezer.state", "THAWED")] {
        let file = path.join(file);
        if file.exists() {
            let _ = fs::write(file, value);
        }
    }
}

impl Groups {
    /// Stops everything in the groups, and comes back when nothing runs any more.
    pub(crate) fn freeze(&mut self) -> Result<(), String> {
        let Some(group) = self.group(Controller::Freezer) else {
            let reason = self.missing.iter().find(|(c, _)| *c == Controller::Freezer);
            return Err(reason.map_or_else(|| "it was not made to be paused".into(), |(_, why)| why.clone()));
        };
        let path = group.path.clone();
        let (file, value) = match group.version {
            Version::V1 => ("freezer.state", "FROZEN"),
            Version::V2 => ("cgroup.freeze", "1"),
        };
        let is_frozen = |version| match version {
            Version::V1 => fs::read_to_string(path.join(file)).is_ok_and(|state| state.trim() == "FROZEN"),
            Version::V2 => keyed(&path.join("cgroup.events"), "frozen") == Some(1),
        };
        let version = group.version;
        let failed = |error: io::Error| format!("cannot write {}: {error}", path.join(file).display());
        fs::write(path.join(file), value).map_err(failed)?;
        self.frozen = true;
        let began = Instant::now();
        while !is_frozen(version) {
            if began.elapsed() > PATIENCE {
                self.thaw();
                return Err(format!("a process in it cannot be stopped within {} s", PATIENCE.as_secs()));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    pub(crate) fn thaw(&mut self) {
        if std::mem::take(&mut self.frozen)
            && let Some(group) = self.group(Controller::Freezer)
        {
            thaw_group(&group.path);
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let file = |controller, v1: &str, v2: &str| {
            let group = self.group(controller)?;
            Some(group.path.join(if group.version == Version::V1 { v1 } else { v2 }))
        };
        let cpu = self.group(Controller::Account).and_then(|group| match group.version {
            Version::V1 => number(&group.path.join("cpuacct.usage")).map(|nanoseconds| nanoseconds / 1000),
            Version::V2 => keyed(&group.path.join("cpu.stat"), "usage_usec"),
        });
        let memory = file(Controller::Memory, "memory.usage_in_bytes", "memory.current");
        let processes = file(Controller::Pids, "pids.current", "pids.current");
        Counters {
            cpu_us: cpu,
            memory: memory.and_then(|path| number(&path)),
            peak_memory: self.peak_memory(),
            processes: processes.and_then(|path| number(&path)),
            disk: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Group;
    use super::*;

    fn groups(version: Version, path: &Path) -> Groups {
        let controllers = vec![Controller::Freezer, Controller::Account];
        Groups { groups: vec![Group { version, path: path.to_owned(), controllers }], ..Groups::default() }
    }

    #[test]
    fn both_versions_are_frozen_thawed_and_read_by_their_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        fs::write(dir.path().join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        fs::write(dir.path().join("cpu.stat"), "usage_usec 1234\n").unwrap();
        let mut second = groups(Version::V2, dir.path());
        second.freeze().unwrap();
        assert_eq!(read("cgroup.freeze"), "1");
        assert_eq!(second.counters().cpu_us, Some(1234));
        second.thaw();
        assert_eq!(read("cgroup.freeze"), "0");
        fs::write(dir.path().join("cpuacct.usage"), "5000\n").unwrap();
        let mut first = groups(Version::V1, dir.path());
        first.freeze().unwrap();
        assert_eq!(read("freezer.state"), "FROZEN");
        assert_eq!(first.counters().cpu_us, Some(5));
        first.thaw();
        assert_eq!(read("freezer.state"), "THAWED");
    }

    #[test]
    fn a_host_without_a_freezer_says_why() {
        let none = super::super::find::Hierarchies {
            notes: vec!["no cgroup is mounted".into()],
            ..Default::default()
        };
        let mut groups = Groups::among(none.places(&[Controller::Freezer, Controller::Account]), "s");
        assert_eq!(groups.freeze(), Err("no cgroup is mounted".into()));
        assert!(Groups::default().freeze().is_err());
    }
}
