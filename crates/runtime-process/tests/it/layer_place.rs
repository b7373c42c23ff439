//! A place with real overlays for tests of layers: each test runs itself again in a mount namespace of its own, as
//! the root that it is and as the root of a new user namespace, where the overlay's marks are other attributes.

use cofferdam_model::FileChange;
use cofferdam_runtime::{ChangeList, Committed, RuntimeError};
use cofferdam_runtime_process::layer::{
    Began, Counts, Desk, Layer, Layers, Stack, Watch, commit, diff, tree_hash,
};
use cofferdam_testkit::{finish, is_root};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Marks are `trusted` attributes.
    Root,
    /// Marks are `user` attributes.
    User,
}

const VARIABLE: &str = "COFFERDAM_TEST_WAY";

/// Where the test named `name` is run: nowhere yet, and then each way once. It fails if one of them does.
#[track_caller]
pub(crate) fn confined(name: &str) -> Option<Way> {
    match std::env::var(VARIABLE).as_deref() {
        Ok("root") => return Some(Way::Root),
        Ok("user") => return Some(Way::User),
        _ => {}
    }
    let ways: &[(&str, &[&str])] = &[("root", &["-m"]), ("user", &["-Urm"])];
    for (way, flags) in ways.iter().skip(usize::from(!is_root())) {
        let mut child = Command::new("unshare");
        child.args(*flags).arg(std::env::current_exe().unwrap());
        child.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(VARIABLE, way);
        let done = finish(&mut child);
        assert!(done.code() == 0, "as {way}:\n{}\n{}", done.out(), done.err());
        // A name that is no test passes as well.
        assert!(done.out().contains("1 passed"), "{name} is no test: {}", done.out());
    }
    None
}

/// Where new content waits before it is put in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staging {
    /// In the layer itself, which lies on the work dir's file system.
    Layer,
    /// Copied beside the journal: the layer lies elsewhere, the journal does not.
    Beside,
    /// Copied into the work dir: layer and journal lie elsewhere.
    Workdir,
}

pub(crate) const STAGINGS: [Staging; 3] = [Staging::Layer, Staging::Beside, Staging::Workdir];

pub(crate) struct Ground {
    dir: PathBuf,
    /// Removes it; nothing where another process made it.
    made: Option<TempDir>,
    pub(crate) way: Way,
    pub(crate) staging: Staging,
}

impl Ground {
    pub(crate) fn new(way: Way, staging: Staging) -> Self {
        let dir = tempfile::Builder::new().prefix("layer.").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { dir: dir.path().to_owned(), made: Some(dir), way, staging }.furnished()
    }

    /// One that no disk is waited for.
    pub(crate) fn in_memory(way: Way, staging: Staging) -> Self {
        let dir = tempfile::Builder::new().prefix("layer.").tempdir().unwrap();
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), None).unwrap();
        Self { dir: dir.path().to_owned(), made: Some(dir), way, staging }.furnished()
    }

    fn furnished(self) -> Self {
        for name in ["work", "merged", "home", "elsewhere"] {
            fs::create_dir(self.dir.join(name)).unwrap();
        }
        if self.staging != Staging::Layer {
            let at = self.dir.join("elsewhere");
            rustix::mount::mount("tmpfs", &at, "tmpfs", MountFlags::empty(), None).unwrap();
        }
        self
    }

    /// One that another process made.
    pub(crate) fn again(dir: PathBuf, way: Way, staging: Staging) -> Self {
        Self { dir, made: None, way, staging }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// Where the stack of layers is.
    pub(crate) fn layers(&self) -> PathBuf {
        match self.staging {
            Staging::Layer => self.path("home/session"),
            _ => self.path("elsewhere/session"),
        }
    }

    /// The session's own directory, where the journal is.
    pub(crate) fn session(&self) -> PathBuf {
        match self.staging {
            Staging::Layer => self.layers(),
            Staging::Beside => self.path("home/journal"),
            Staging::Workdir => self.path("elsewhere/journal"),
        }
    }

    pub(crate) fn stack(&self) -> Stack {
        Stack::open(&self.layers(), &[self.work()], self.way == Way::Root, None, Watch::default()).unwrap()
    }

    /// Does something in the overlay of these layers.
    pub(crate) fn within<T>(&self, layers: &Layers, act: impl FnOnce(&Path) -> T) -> T {
        let merged = self.path("merged");
        let lower: Vec<_> = layers.lower.iter().map(|path| path.to_str().unwrap()).collect();
        let options = format!(
            "lowerdir={},upperdir={},workdir={},volatile{}",
            lower.join(":"),
            layers.upper.display(),
            layers.work.display(),
            if self.way == Way::User { ",userxattr" } else { "" }
        );
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str()))
            .unwrap();
        let done = act(&merged);
        rustix::mount::unmount(&merged, UnmountFlags::empty()).unwrap();
        done
    }

    /// A layer as of now: what changes in the work dir after this is a conflict.
    pub(crate) fn layer(&self, began: Began) -> Layer {
        let open = |path: &Path| {
            rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
        };
        Layer {
            upper: open(&self.layers().join("upper")),
            workdir: open(&self.work()),
            workdir_path: self.work(),
            planted: BTreeSet::new(),
            began,
            owner: None,
            inside: None,
            by_root: self.way == Way::Root,
            linked: false,
            in_use: false,
        }
    }

    /// Does something in a session of its own and gives what it changed.
    pub(crate) fn session_of(&self, act: impl FnOnce(&Path)) -> (Layer, Vec<FileChange>) {
        let began = Began::now();
        self.within(&self.stack().layers().unwrap(), act);
        let layer = self.layer(began);
        let changes = self.diff(&layer);
        (layer, changes)
    }

    pub(crate) fn diff(&self, layer: &Layer) -> Vec<FileChange> {
        let found = diff(layer, &self.dir).unwrap();
        found.iter().map(|change| change.unwrap().into_owned()).collect()
    }

    pub(crate) fn keep(&self, layer: &Layer, changes: &[FileChange]) -> Committed {
        self.commit(layer, changes, Watch::default()).unwrap()
    }

    pub(crate) fn commit(
        &self,
        layer: &Layer,
        changes: &[FileChange],
        watch: Watch<'_>,
    ) -> Result<Committed, RuntimeError> {
        self.commit_list(layer, &changes.to_vec().into(), watch)
    }

    pub(crate) fn commit_list(
        &self,
        layer: &Layer,
        changes: &ChangeList,
        watch: Watch<'_>,
    ) -> Result<Committed, RuntimeError> {
        let (session, conflicts) = (self.session(), self.conflicts());
        commit(layer, changes, Desk { session: &session, conflicts: &conflicts }, watch)
    }

    /// Where what is left out is kept.
    pub(crate) fn conflicts(&self) -> PathBuf {
        self.path("conflicts")
    }

    pub(crate) fn hash(&self, counts: Counts) -> String {
        tree_hash(&self.work(), counts).unwrap().to_string()
    }

    /// What a commit left in the session's directory or in the work dir.
    pub(crate) fn remains(&self) -> Vec<String> {
        let names = |dir: PathBuf| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let own = ["upper", "work"];
        let beside = names(self.session()).into_iter().filter(|name| !own.contains(&name.as_str()));
        beside.chain(names(self.work()).into_iter().filter(|name| name.starts_with(".cofferdam"))).collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.made.is_some() {
            // Where nothing is mounted, nothing is unmounted; and all goes with the namespace.
            let _ = rustix::mount::unmount(self.path("elsewhere"), UnmountFlags::DETACH);
            let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
        }
    }
}

pub(crate) const CONTENT: Counts = Counts { owners: true, times: false };
