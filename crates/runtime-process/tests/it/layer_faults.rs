//! A commit that fails, or whose process is killed, before each of its moments: after the next start the work dir
//! is what it was or what it was to be, never something between, and nothing is left.

use crate::layer_place::{Ground, STAGINGS, Staging, Way, confined};
use cofferdam_runtime_process::layer::{Began, Counts, Recovered, Watch, recover};
use rustix::io::Errno;
use rustix::process::Signal;
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

fn furnish(work: &Path) {
    fs::create_dir_all(work.join("dir/sub")).unwrap();
    for path in ["file", "gone", "moved", "becomes-dir", "dir/one", "dir/two", "dir/sub/deep"] {
        fs::write(work.join(path), format!("{path} as it was\n")).unwrap();
    }
    symlink("file", work.join("link")).unwrap();
}

/// Every kind of step there is.
fn change(at: &Path) {
    fs::write(at.join("file"), "modified").unwrap();
    fs::write(at.join("dir/one"), "modified").unwrap();
    fs::remove_file(at.join("gone")).unwrap();
    fs::remove_file(at.join("becomes-dir")).unwrap();
    fs::create_dir(at.join("becomes-dir")).unwrap();
    fs::write(at.join("becomes-dir/in"), "in").unwrap();
    fs::remove_dir_all(at.join("dir/sub")).unwrap();
    fs::write(at.join("dir/sub"), "a file now").unwrap();
    fs::rename(at.join("moved"), at.join("dir/renamed")).unwrap();
    fs::remove_file(at.join("link")).unwrap();
    symlink("dir", at.join("link")).unwrap();
    fs::create_dir_all(at.join("new/a")).unwrap();
    fs::write(at.join("new/a/b"), "b").unwrap();
    fs::hard_link(at.join("new/a/b"), at.join("c")).unwrap();
    fs::set_permissions(at.join("new/a"), fs::Permissions::from_mode(0o500)).unwrap();
    fs::set_permissions(at.join("dir"), fs::Permissions::from_mode(0o711)).unwrap();
}

/// A session that waits for its commit, as it was the last time: the copies keep every time.
pub(crate) fn prepared(way: Way, staging: Staging, from: Option<&Ground>) -> Ground {
    let ground = Ground::in_memory(way, staging);
    let Some(from) = from else {
        furnish(&ground.work());
        ground.within(&ground.stack().layers().unwrap(), change);
        return ground;
    };
    for (source, target) in [(from.work(), ground.work()), (from.layers(), ground.layers())] {
        let _ = fs::remove_dir(&target);
        let done = Command::new("cp").arg("-a").arg(source).arg(target).status().unwrap();
        assert!(done.success());
    }
    ground
}

/// Commits, and stops before the moment with this number: by a failure, or by the end of the process.
pub(crate) fn interrupted(ground: &Ground, began: Began, at: usize, kill: bool) -> bool {
    let count = Cell::new(0);
    let stop = |_| {
        count.set(count.get() + 1);
        match count.get() - 1 == at {
            true if kill => {
                rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
                loop {
                    std::thread::park();
                }
            }
            true => Err(Errno::IO),
            false => Ok(()),
        }
    };
    let layer = ground.layer(began);
    let changes = ground.diff(&layer);
    let _ = ground.commit(&layer, &changes, Watch(Some(&stop)));
    count.get() > at
}

/// The next start, which is itself stopped once at some moment.
pub(crate) fn next_start(ground: &Ground, at: usize) -> Recovered {
    let count = Cell::new(0);
    let stop = |_| {
        count.set(count.get() + 1);
        if count.get() - 1 == at { Err(Errno::IO) } else { Ok(()) }
    };
    match recover(&ground.session(), Watch(Some(&stop))) {
        Ok(recovered) => recovered,
        Err(_) => recover(&ground.session(), Watch::default()).unwrap(),
    }
}

struct Walk {
    before: String,
    after: String,
    seen: [usize; 2],
}

impl Walk {
    fn look(&mut self, ground: &Ground, at: usize) {
        let recovered = next_start(ground, at % 5);
        let found = ground.hash(Counts::ALL);
        let state = [&self.before, &self.after].iter().position(|hash| **hash == found);
        let state = state.unwrap_or_else(|| panic!("moment {at}: between, {recovered:?}"));
        if let Recovered::Completed { skipped } = &recovered {
            assert_eq!((state, skipped.as_slice()), (1, &[][..]), "moment {at}");
        }
        self.seen[state] += 1;
        let mut remains = ground.remains();
        // What was moved away goes with the layer.
        remains.retain(|name| name != "staging" || recovered != Recovered::Nothing);
        assert_eq!(remains, Vec::<String>::new(), "moment {at}");
        assert_eq!(recover(&ground.session(), Watch::default()).unwrap(), Recovered::Nothing);
    }
}

fn walk(way: Way, staging: Staging, mut stop: impl FnMut(&Ground, usize) -> bool) {
    let first = prepared(way, staging, None);
    let before = first.hash(Counts::ALL);
    let reference = prepared(way, staging, Some(&first));
    assert!(!interrupted(&reference, Began::now(), usize::MAX, false));
    let mut walk = Walk { before, after: reference.hash(Counts::ALL), seen: [0, 0] };
    assert_ne!(walk.before, walk.after);
    for at in 0.. {
        let ground = prepared(way, staging, Some(&first));
        let reached = stop(&ground, at);
        walk.look(&ground, at);
        if !reached {
            break;
        }
    }
    eprintln!("{way:?} {staging:?}: {:?} before and after", walk.seen);
    // Both sides of the decision were met.
    assert!(walk.seen[0] > 10 && walk.seen[1] > 10, "{:?}", walk.seen);
}

#[test]
fn a_failure_at_any_moment_leaves_all_or_nothing() {
    let Some(way) = confined("layer_faults::a_failure_at_any_moment_leaves_all_or_nothing") else { return };
    for staging in STAGINGS {
        walk(way, staging, |ground, at| interrupted(ground, Began::now(), at, false));
    }
}

const PLACE: &str = "COFFERDAM_TEST_PLACE";

/// The part of the test below that is killed: in a process of its own, told where and when.
fn be_killed(way: Way, place: &str) {
    let mut parts = place.split('|');
    let mut next = || parts.next().unwrap();
    let (root, staging, at) = (next(), next(), next().parse().unwrap());
    let staging = STAGINGS.into_iter().find(|one| format!("{one:?}") == staging).unwrap();
    let ground = Ground::again(root.into(), way, staging);
    assert!(!interrupted(&ground, Began::now(), at, true), "it was to be killed");
}

#[test]
fn kill_at_any_moment_leaves_all_or_nothing() {
    const NAME: &str = "layer_faults::kill_at_any_moment_leaves_all_or_nothing";
    let Some(way) = confined(NAME) else { return };
    if let Ok(place) = std::env::var(PLACE) {
        return be_killed(way, &place);
    }
    for staging in STAGINGS {
        walk(way, staging, |ground, at| {
            let place = format!("{}|{staging:?}|{at}", ground.path("").display());
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args([NAME, "--exact"]).env(PLACE, place);
            let done = child.output().unwrap();
            let killed = std::os::unix::process::ExitStatusExt::signal(&done.status) == Some(9);
            assert!(killed || done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            killed
        });
    }
}

/// Between the end of one process and the next start, someone works in the work dir.
#[test]
fn a_completed_commit_overwrites_nothing_that_came_between() {
    let Some(way) = confined("layer_faults::a_completed_commit_overwrites_nothing_that_came_between") else {
        return;
    };
    for staging in STAGINGS {
        let ground = prepared(way, staging, None);
        let journal = ground.session().join("journal");
        let found = (0..).find(|&at| {
            let again = prepared(way, staging, Some(&ground));
            interrupted(&again, Began::now(), at, false);
            again.session().join("journal").exists()
        });
        let ground = prepared(way, staging, Some(&ground));
        assert!(!journal.exists());
        interrupted(&ground, Began::now(), found.unwrap(), false);
        // It waits where it should, and files of a layer on the same file system are not copied.
        let beside = ground.session().join("staging").exists();
        let within = ground.remains().iter().any(|name| name.starts_with(".cofferdam-"));
        assert_eq!((beside, within), (staging != Staging::Workdir, staging == Staging::Workdir));
        let text = fs::read_to_string(ground.session().join("journal")).unwrap();
        assert_eq!(text.contains(r#""from":"layer""#), staging == Staging::Layer, "{text}");
        if staging != Staging::Workdir {
            // Nobody waited for it: the disk may have lost it.
            fs::remove_file(ground.session().join("intent")).unwrap();
        }
        let work = ground.work();
        fs::write(work.join("file"), "outside").unwrap();
        fs::write(work.join("c"), "outside").unwrap();
        let Recovered::Completed { skipped } = recover(&ground.session(), Watch::default()).unwrap() else {
            panic!("it was decided")
        };
        let named: Vec<_> = skipped.iter().map(|skipped| skipped.path.to_string()).collect();
        assert_eq!(named, ["c", "file"]);
        for path in ["file", "c"] {
            assert_eq!(fs::read_to_string(work.join(path)).unwrap(), "outside");
        }
        assert_eq!(fs::read_to_string(work.join("dir/one")).unwrap(), "modified");
        // What was to be placed is kept, also by who completes it.
        assert!(skipped.iter().all(|skipped| skipped.aside), "{skipped:?}");
        let kept = cofferdam_runtime_process::layer::conflict::list(&ground.conflicts());
        let [kept] = kept.as_slice() else { panic!("{kept:?}") };
        assert_eq!(fs::read_to_string(kept.files.as_path().join("file")).unwrap(), "modified");
        assert_eq!(fs::read_to_string(kept.files.as_path().join("c")).unwrap(), "b");
    }
}

/// A journal whose work dir is gone waits; another directory in its place is not it.
#[test]
fn a_commit_waits_for_its_work_dir() {
    let Some(way) = confined("layer_faults::a_commit_waits_for_its_work_dir") else { return };
    let first = prepared(way, Staging::Beside, None);
    let ground = (0..)
        .map(|at| {
            let ground = prepared(way, Staging::Beside, Some(&first));
            interrupted(&ground, Began::now(), at, false);
            ground
        })
        .find(|ground| ground.session().join("journal").exists())
        .unwrap();
    let away = ground.path("away");
    fs::rename(ground.work(), &away).unwrap();
    fs::create_dir(ground.work()).unwrap();
    let error = recover(&ground.session(), Watch::default()).unwrap_err().to_string();
    assert!(error.contains("that directory is gone"), "{error}");
    assert_eq!(fs::read_dir(ground.work()).unwrap().count(), 0);
    fs::remove_dir(ground.work()).unwrap();
    fs::rename(&away, ground.work()).unwrap();
    assert!(matches!(recover(&ground.session(), Watch::default()), Ok(Recovered::Completed { .. })));
    assert_eq!(fs::read_to_string(ground.work().join("file")).unwrap(), "modified");
}
