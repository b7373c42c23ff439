//! A place for a sandbox, and what the sandbox may have left in it.

use cofferdam_model::{LayerPlace, Limits, Profile, SessionId, UserMode};
use cofferdam_runtime::{Network, SandboxSpec};
use cofferdam_testkit::{groups_of, mounts_below};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// One sandbox at a time, so that the children of this process are the sandbox's.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) struct Place {
    root: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let root = tempfile::tempdir().unwrap();
        for dir in ["work", "home", "layers", "staging/root", "staging/scratch", "staging/lower"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        fs::write(root.path().join("work/.env"), "SECRET=1").unwrap();
        Self { root, _alone: alone }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn spec(&self, layer_place: LayerPlace) -> SandboxSpec {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = u64::from(std::process::id()) << 32 | NEXT.fetch_add(1, Ordering::Relaxed);
        let id = SessionId::new(1, number);
        SandboxSpec {
            layer: self.dir("layers").join(id.as_str()),
            base: Default::default(),
            conflicts: self.dir("conflicts"),
            id,
            workdir: self.dir("work"),
            shown_at: None,
            home: self.dir("home"),
            path: Vec::new(),
            mounts: Vec::new(),
            hide: Vec::new(),
            profile: Profile::Run,
            users: UserMode::Auto,
            limits: Limits::default(),
            layer_place,
            nested: false,
            sudo: false,
            syscalls: Default::default(),
            programs: None,
            root: None,
            tracing: false,
            pausable: false,
            ahead: false,
            network: Network::None,
            files: Vec::new(),
            require: Vec::new(),
            accept: Vec::new(),
            staging: self.dir("staging"),
            ranges: self.dir("ranges"),
        }
    }

    #[track_caller]
    pub(crate) fn is_clean(&self, session: &SessionId, after: &str) {
        for dir in ["layers", "staging/root", "staging/scratch", "staging/lower"] {
            assert_eq!(fs::read_dir(self.dir(dir)).unwrap().count(), 0, "{dir} after {after}");
        }
        assert_eq!(groups_of(session.as_str()), Vec::<PathBuf>::new(), "control groups after {after}");
        assert_eq!(mounts_below(self.root.path()), Vec::<String>::new(), "mounts after {after}");
        let behind = |device: fs::DirEntry| fs::read_to_string(device.path().join("loop/backing_file")).ok();
        let attached: Vec<String> =
            fs::read_dir("/sys/block").into_iter().flatten().flatten().filter_map(behind).collect();
        let ours = attached.iter().filter(|file| file.starts_with(self.root.path().to_str().unwrap()));
        assert_eq!(ours.count(), 0, "loop devices after {after}");
        assert_eq!(children(), Vec::<String>::new(), "processes after {after}");
        assert_eq!(fs::read_to_string(self.dir("work/.env")).unwrap(), "SECRET=1");
    }
}

/// Children of this thread, also those that wait to be reaped; other tests have theirs on threads of their own.
pub(crate) fn children() -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/children").unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}
