//! Removes what a supervisor that was killed left behind. Its processes died with it; directories and
//! control groups do not.

use crate::{cgroup, layer};
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

fn parents() -> Vec<PathBuf> {
    let found = cgroup::hierarchies();
    let mut all: Vec<PathBuf> = found.v1.into_iter().map(|(_, path)| path).chain(found.v2).collect();
    all.sort();
    all.dedup();
    all
}

/// Sessions that have a control group: those that run, and those whose supervisor was killed.
pub fn grouped() -> Vec<SessionId> {
    let entries = parents().into_iter().flat_map(fs::read_dir).flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok()).collect()
}

/// Removes a session's control groups if nothing has been in them since long after it could have begun: those of
/// a state directory that is gone, which nobody else will remove. Ends no process.
pub fn reap_if_deserted(session: &SessionId) {
    let name = group_name(session);
    for group in parents().into_iter().map(|parent| parent.join(&name)) {
        let age =
            fs::metadata(&group).and_then(|meta| meta.modified()).ok().and_then(|made| made.elapsed().ok());
        let empty =
            fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|processes| processes.is_empty());
        if empty && age.is_some_and(|age| age > BEGINNING) {
            // A process that enters meanwhile makes this fail.
            let _ = fs::remove_dir(&group);
        }
    }
}

/// Removes a dead session's control groups and its layer, after completing a commit that it had decided on. Does
/// nothing for what is not there.
pub fn reap(session: &SessionId, layer: &Path) {
    let name = group_name(session);
    let groups: Vec<_> =
        parents().into_iter().map(|parent| parent.join(&name)).filter(|path| path.is_dir()).collect();
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
