//! Removes what a supervisor that was killed left behind. Its processes died with it; directories and
//! control groups do not.

use crate::cgroup::{self, Maker};
use crate::layer;
use cofferdam_model::SessionId;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "cofferdam-";
/// A session's first process enters its groups within milliseconds; longer than this takes none.
const BEGINNING: Duration = Duration::from_secs(60);

/// The name of a session's control groups.
pub(crate) fn group_name(session: &SessionId) -> String {
    format!("{PREFIX}{session}")
}

/// The directories in which sessions have their control groups, looked for once.
#[derive(Debug)]
pub struct Grounds(Vec<PathBuf>);

impl Grounds {
    pub fn look() -> Self {
        let found = cgroup::hierarchies();
        let first = found.v1.into_iter().map(|(_, path)| path);
        let mut all: Vec<PathBuf> = first.chain(found.v2).chain(found.own).collect();
        all.sort();
        all.dedup();
        Self(all)
    }

    /// Sessions that have a control group: those that run, and those whose supervisor was killed.
    pub fn sessions(&self) -> Vec<SessionId> {
        let entries = self.0.iter().flat_map(fs::read_dir).flatten().flatten();
        let named = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok();
        let mut all: Vec<SessionId> = entries.filter_map(named).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Whether whoever made this session's group lives, though nothing else may be there of the session yet.
    pub fn is_held(&self, session: &SessionId) -> bool {
        let name = group_name(session);
        self.0.iter().any(|parent| matches!(cgroup::maker(&parent.join(&name)), Maker::Lives))
    }

    /// Removes a session's control groups if nothing is in them and whoever made them is gone: those of a state
    /// directory that is gone, or of a session that had not even begun, which nobody else will remove. Where it
    /// cannot be seen who made them, they have to be older than any session is when it begins. Ends no process.
    pub fn reap_if_deserted(&self, session: &SessionId) {
        let name = group_name(session);
        for group in self.0.iter().map(|parent| parent.join(&name)) {
            let made = || fs::metadata(&group).and_then(|meta| meta.modified()).ok()?.elapsed().ok();
            let maker = cgroup::maker(&group);
            let is_abandoned = match &maker {
                Maker::Lives => false,
                Maker::Gone { .. } => true,
                Maker::Unknown => made().is_some_and(|age| age > BEGINNING),
            };
            let is_empty =
                || fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|processes| processes.is_empty());
            if is_abandoned && is_empty() {
                // A process that enters meanwhile makes this fail.
                let _ = fs::remove_dir(&group);
            }
        }
    }
}

/// Removes a dead session's control groups and its layer, after completing a commit that it had decided on. Does
/// nothing for what is not there.
pub fn reap(session: &SessionId, layer: &Path) {
    let name = group_name(session);
    let Grounds(grounds) = Grounds::look();
    let groups: Vec<_> =
        grounds.into_iter().map(|parent| parent.join(&name)).filter(|path| path.is_dir()).collect();
    // First of all: what was paused when its supervisor was killed may be waiting to die.
    groups.iter().for_each(|group| cgroup::thaw_group(group));
    groups.iter().for_each(|group| cgroup::remove_group(group));
    // Only if the path ends in the session's own id: a mistake must not cost a home. What cannot be completed
    // now stays for another start.
    if layer.file_name().is_some_and(|name| name == session.as_str())
        && layer::recover(layer, layer::Watch::default()).is_ok()
    {
        layer::leave(layer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sessions_own_layer_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let session = SessionId::new(1, 2);
        let (own, other) = (dir.path().join(session.as_str()), dir.path().join("precious"));
        for path in [&own, &other] {
            fs::create_dir_all(path.join("upper")).unwrap();
        }
        reap(&session, &own);
        reap(&session, &other);
        assert!(!own.exists() && other.exists());
    }
}
