//! Removes what a supervisor that was killed left behind. Its processes died with it; directories and
//! control groups do not.

use crate::{cgroup, layer};
use cofferdam_model::SessionId;
use std::fs;
use std::path::{Path, PathBuf};

const PREFIX: &str = "cofferdam-";

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

/// Removes a dead session's control groups and its layer. Does nothing for what is not there.
pub fn reap(session: &SessionId, layer: &Path) {
    let name = group_name(session);
    for group in parents().into_iter().map(|parent| parent.join(&name)).filter(|path| path.is_dir()) {
        cgroup::remove_group(&group);
    }
    // Only if the path ends in the session's own id: a mistake must not cost a home.
    if layer.file_name().is_some_and(|name| name == session.as_str()) {
        let _ = layer::remove_tree(layer);
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
