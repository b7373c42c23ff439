//! The state directory: where it is, whose it is, and where things lie in it.
//!
//! Opening it is one look at its owner and mode. Nothing in it is made before it is needed.

use crate::keys::KeptKey;
use cofferdam_model::SessionId;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("there is no place for Cofferdam's state: set COFFERDAM_HOME or HOME to a directory of yours")]
    Nowhere,
    #[error("cannot use `{path}` for Cofferdam's state ({source}): set COFFERDAM_HOME to another directory")]
    Unusable { path: PathBuf, source: io::Error },
    #[error("`{0}` is not a directory: set COFFERDAM_HOME to another place")]
    NotADirectory(PathBuf),
    #[error(
        "`{path}` belongs to user {owner}, and you are {user}: set COFFERDAM_HOME to a directory of yours"
    )]
    NotYours { path: PathBuf, owner: u32, user: u32 },
    #[error("others may write to `{path}` (mode {mode:04o}): run `chmod go-w {path}`")]
    Shared { path: PathBuf, mode: u32 },
}

/// Where the state is kept when nobody says: `$COFFERDAM_HOME`, or `cofferdam` in the XDG data directory.
pub fn default_home(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, HomeError> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = set("COFFERDAM_HOME") {
        return Ok(home);
    }
    // By the XDG specification, a relative path there counts as unset.
    let data = set("XDG_DATA_HOME").filter(|path| path.is_absolute());
    let data =
        data.or_else(|| set("HOME").filter(|path| path.is_absolute()).map(|home| home.join(".local/share")));
    data.map(|data| data.join("cofferdam")).ok_or(HomeError::Nowhere)
}

#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
    /// The signing key, once it was read.
    pub(crate) key: Arc<KeptKey>,
}

impl Home {
    /// Opens the state directory and makes it if it is not there. One that someone else could have prepared
    /// is refused: whoever writes the keys decides what is believed.
    pub fn open(root: &Path) -> Result<Self, HomeError> {
        let unusable = |source| HomeError::Unusable { path: root.to_owned(), source };
        let root = std::path::absolute(root).map_err(unusable)?;
        let found = in_dir(&root, || fs::metadata(&root)).map_err(unusable)?;
        if !found.is_dir() {
            return Err(HomeError::NotADirectory(root));
        }
        let (owner, user) = (found.uid(), rustix::process::geteuid().as_raw());
        if owner != user {
            return Err(HomeError::NotYours { path: root, owner, user });
        }
        let mode = found.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(HomeError::Shared { path: root, mode });
        }
        Ok(Self { root, key: Arc::default() })
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    pub fn traces_dir(&self) -> PathBuf {
        self.root.join("traces")
    }

    pub fn trace_dir(&self, id: &SessionId) -> PathBuf {
        self.traces_dir().join(id.as_str())
    }

    /// Where the bundle of the next trace is made ahead.
    pub fn spare_trace(&self) -> PathBuf {
        self.root.join("next")
    }

    /// Where this thread makes it. Should it die over that, whoever lists the traces removes what is left.
    pub fn spare_trace_in_the_making(&self) -> PathBuf {
        let thread = rustix::thread::gettid().as_raw_nonzero();
        self.traces_dir().join(format!("{}next-{thread}", crate::bundles::DOOMED))
    }

    pub fn layers_dir(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub fn layer_dir(&self, id: &SessionId) -> PathBuf {
        self.layers_dir().join(id.as_str())
    }

    /// What commits left out, because it was changed outside as well: the inside's versions.
    pub fn conflicts_dir(&self) -> PathBuf {
        self.root.join("conflicts")
    }

    /// Layers that nobody changes any more.
    pub fn frozen_dir(&self) -> PathBuf {
        self.root.join("frozen")
    }

    /// Marks of sandboxes that are prepared for nobody yet.
    pub fn pool_dir(&self) -> PathBuf {
        self.root.join("pool")
    }

    /// What sessions that stay have used, a file each.
    pub fn usage_dir(&self) -> PathBuf {
        self.root.join("usage")
    }

    /// What sessions share and keep, by name.
    pub fn volumes_dir(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// Images that sandboxes have for their root.
    pub fn images_dir(&self) -> PathBuf {
        self.root.join("images")
    }

    /// What names them.
    pub fn snapshots_dir(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// A directory of empty directories (`root`, `scratch`, `lower`) on which sandboxes are put together, each in a
    /// mount namespace of its own. Made, with the place for layers, where it is missing.
    pub fn staging_dir(&self) -> Result<PathBuf, HomeError> {
        let staging = self.root.join("staging");
        // The last to be made, so that it stands for all.
        let last = staging.join("root");
        let make = |dir: &Path| DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let made = match fs::metadata(&last) {
            Ok(_) => Ok(()),
            Err(_) => [self.layers_dir(), staging.join("scratch"), staging.join("lower"), last]
                .iter()
                .try_for_each(|d| make(d)),
        };
        made.map_err(|source| HomeError::Unusable { path: staging.clone(), source })?;
        Ok(staging)
    }

    /// Where running sessions have their sockets. Made where it is missing.
    pub fn live_dir(&self) -> io::Result<PathBuf> {
        let dir = self.root.join("live");
        if fs::metadata(&dir).is_err() {
            keep_apart(&self.root);
            in_dir(&dir, || fs::metadata(&dir))?;
        }
        Ok(dir)
    }

    /// Sessions that have a layer on disk: those that run, and those whose supervisor was killed.
    pub fn layered(&self) -> Vec<SessionId> {
        let entries = fs::read_dir(self.layers_dir()).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    pub(crate) fn keys_dir(&self) -> PathBuf {
        self.root.join("keys")
    }

    pub(crate) fn trusted_dir(&self) -> PathBuf {
        self.root.join("trusted")
    }

    pub(crate) fn index_file(&self) -> PathBuf {
        self.root.join("index.sqlite")
    }
}

/// Has directories made in this one lie apart from each other on the disk, where its file system can do that. Whoever holds
/// sessions makes and removes files in one directory all day, and ext4 without a journal passes by all that were removed
/// within the last minute, one by one, for every new file near them.
fn keep_apart(dir: &Path) {
    use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, open};
    let opened = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    // It works as well without, only slower.
    let _ = opened.and_then(|dir| ioctl_setflags(&dir, ioctl_getflags(&dir)? | IFlags::TOPDIR));
}

/// Does `op`, which needs `dir`; makes `dir` only where it turns out to be missing. Two processes may do so at
/// once.
pub(crate) fn in_dir<T>(dir: &Path, op: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match op() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            op()
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    fn check(env: &[(&str, &str)], expected: Option<&str>) {
        let found = default_home(|name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()));
        assert_eq!(found.ok(), expected.map(PathBuf::from), "{env:?}");
    }

    #[test]
    fn the_default_place() {
        check(&[], None);
        check(&[("HOME", "/u")], Some("/u/.local/share/cofferdam"));
        check(&[("HOME", "/u"), ("XDG_DATA_HOME", "/d")], Some("/d/cofferdam"));
        check(&[("HOME", "/u"), ("XDG_DATA_HOME", "d")], Some("/u/.local/share/cofferdam"));
        check(&[("HOME", "/u"), ("XDG_DATA_HOME", "")], Some("/u/.local/share/cofferdam"));
        check(&[("HOME", "/u"), ("XDG_DATA_HOME", "/d"), ("COFFERDAM_HOME", "/c")], Some("/c"));
        check(&[("HOME", "")], None);
    }

    #[test]
    fn a_new_home_is_private_and_opens_again() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("deep/home");
        let home = Home::open(&path).unwrap();
        assert_eq!(fs::metadata(home.path()).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "nothing is made before it is needed");
        Home::open(&path).unwrap();
    }

    #[test]
    fn what_comes_and_goes_lies_apart_where_the_file_system_can_do_that() {
        use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
        let dir = TempDir::new().unwrap();
        let flags = |path: &Path| ioctl_getflags(fs::File::open(path).unwrap());
        let beside = dir.path().join("beside");
        fs::create_dir(&beside).unwrap();
        let can = ioctl_setflags(fs::File::open(&beside).unwrap(), IFlags::TOPDIR).is_ok();
        let home = Home::open(&dir.path().join("home")).unwrap();
        for _ in 0..2 {
            assert!(home.live_dir().unwrap().is_dir());
            let apart = flags(home.path()).is_ok_and(|flags| flags.contains(IFlags::TOPDIR));
            assert_eq!(apart, can);
        }
    }

    #[test]
    fn a_home_that_others_could_have_prepared_is_refused() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("home");
        Home::open(&path).unwrap();
        for mode in [0o770, 0o777, 0o702] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Home::open(&path), Err(HomeError::Shared { mode: m, .. }) if m == mode));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Home::open(&path).unwrap();

        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(Home::open(&file), Err(HomeError::NotADirectory(_))));
        assert!(matches!(Home::open(&file.join("x")), Err(HomeError::Unusable { .. })));
    }

    #[test]
    fn someone_elses_home_is_refused() {
        // Root can give a directory away; anyone else finds one of root's.
        let dir = TempDir::new().unwrap();
        let root = rustix::process::geteuid().is_root();
        let path = if root { dir.path().to_owned() } else { PathBuf::from("/usr") };
        if root {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        }
        assert!(matches!(Home::open(&path), Err(HomeError::NotYours { .. })));
    }
}
