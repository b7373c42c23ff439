//! Removes what a supervisor that was killed left behind. Its processes died with it; directories and
//! control groups do not.

use crate::{cgroup, layer};
use std::path::{Path, PathBuf};

/// What one dead session owned, as its supervisor wrote it down when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub session: String,
    pub layer: PathBuf,
}

/// Removes the session's control groups and layer. Does nothing for what is not there.
pub fn reap(leftover: &Leftover) {
    let name = format!("cofferdam-{}", leftover.session);
    let found = cgroup::hierarchies();
    let parents = found.v1.iter().map(|(_, path)| path).chain(&found.v2);
    for group in parents.map(|parent| parent.join(&name)).filter(|path| path.is_dir()) {
        cgroup::remove_group(&group);
    }
    if is_ours(&leftover.layer, &leftover.session) {
        let _ = layer::remove_tree(&leftover.layer);
    }
}

/// A layer is removed only if its path ends in the session's own id: a damaged note must not cost a home.
fn is_ours(path: &Path, session: &str) -> bool {
    session.len() == 20 && path.file_name().is_some_and(|name| name == session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sessions_own_layer_is_removed() {
        assert!(is_ours(Path::new("/state/layers/0123456789abcdefghjk"), "0123456789abcdefghjk"));
        assert!(!is_ours(Path::new("/home/ada"), "0123456789abcdefghjk"));
        assert!(!is_ours(Path::new("/home/ada"), "ada"));
    }
}
