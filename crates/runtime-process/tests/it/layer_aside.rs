//! What a commit leaves out because it was changed outside as well: both versions are there afterwards, whenever the
//! commit was interrupted, and the inside's is taken only where someone says so.

use crate::layer_faults::{interrupted, next_start, prepared};
use crate::layer_place::{Ground, STAGINGS, Staging, Way, confined};
use cofferdam_model::{Conflict, FileKind};
use cofferdam_runtime_process::layer::conflict::{self, Taken};
use cofferdam_runtime_process::layer::{Began, FileDiff};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What a file system stamps within one tick of its clock is not told apart.
fn a_moment_later() {
    std::thread::sleep(Duration::from_millis(20));
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The only one that is kept, with nothing beside it that is being made.
#[track_caller]
fn only(ground: &Ground) -> Conflict {
    let mut all = conflict::list(&ground.conflicts());
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(fs::read_dir(ground.conflicts()).unwrap().count(), 1, "nothing is half made");
    all.remove(0)
}

fn entry<'a>(conflict: &'a Conflict, path: &str) -> &'a cofferdam_model::AsidePath {
    conflict.paths.iter().find(|entry| entry.path.to_string() == path).unwrap()
}

#[test]
fn both_versions_are_there_after_a_commit() {
    let Some(way) = confined("layer_aside::both_versions_are_there_after_a_commit") else { return };
    for staging in STAGINGS {
        let ground = Ground::new(way, staging);
        let work = ground.work();
        fs::write(work.join("both"), "before\n").unwrap();
        fs::write(work.join("goes"), "before\n").unwrap();
        let (layer, changes) = ground.session_of(|at| {
            fs::write(at.join("both"), "inside\n").unwrap();
            fs::set_permissions(at.join("both"), fs::Permissions::from_mode(0o4755)).unwrap();
            fs::write(at.join("free"), "inside\n").unwrap();
            fs::create_dir(at.join("dir")).unwrap();
            symlink("/etc/passwd", at.join("dir/link")).unwrap();
            fs::write(at.join("dir/in"), "inside\n").unwrap();
            fs::remove_file(at.join("goes")).unwrap();
        });
        a_moment_later();
        fs::write(work.join("both"), "outside\n").unwrap();
        fs::write(work.join("dir"), "outside, a file\n").unwrap();
        fs::write(work.join("goes"), "outside\n").unwrap();
        let done = ground.keep(&layer, &changes);
        assert_eq!(text(&work.join("both")), "outside\n");
        assert_eq!(text(&work.join("dir")), "outside, a file\n");
        assert_eq!(text(&work.join("free")), "inside\n");
        let named: BTreeMap<_, _> = done.skipped.iter().map(|s| (s.path.to_string(), s.aside)).collect();
        // Of what the inside deleted there is no version.
        let expected = [("both", true), ("dir", true), ("dir/in", true), ("dir/link", true), ("goes", false)];
        assert_eq!(named, expected.map(|(path, aside)| (path.to_owned(), aside)).into());

        let kept = only(&ground);
        assert_eq!(done.aside.as_ref(), Some(&kept.name));
        assert_eq!(kept.workdir.as_path(), work);
        let files = kept.files.as_path();
        assert_eq!(text(&files.join("both")), "inside\n");
        assert_eq!(fs::read_link(files.join("dir/link")).unwrap(), Path::new("/etc/passwd"));
        for (path, mode) in [("both", 0o600), ("dir", 0o700), ("dir/in", 0o600), ("", 0o700)] {
            assert_eq!(fs::metadata(files.join(path)).unwrap().mode() & 0o7777, mode, "{path}");
        }
        // Set-id is not carried this way either.
        assert_eq!(entry(&kept, "both").mode, 0o755);
        assert_eq!(entry(&kept, "dir").kind, FileKind::Dir);
        let FileDiff::Text(diff) = conflict::difference(&kept, &entry(&kept, "both").path).unwrap() else {
            panic!("it is text")
        };
        assert!(diff.contains("-outside") && diff.contains("+inside"), "{diff}");
    }
}

#[test]
fn a_version_is_taken_only_where_someone_says_so() {
    let Some(way) = confined("layer_aside::a_version_is_taken_only_where_someone_says_so") else { return };
    let ground = Ground::new(way, Staging::Beside);
    let work = ground.work();
    fs::create_dir(work.join("sub")).unwrap();
    fs::write(work.join("sub/file"), "before\n").unwrap();
    let (layer, changes) = ground.session_of(|at| fs::write(at.join("sub/file"), "inside\n").unwrap());
    a_moment_later();
    fs::write(work.join("sub/file"), "outside\n").unwrap();
    ground.keep(&layer, &changes);
    let kept = only(&ground);
    let file = entry(&kept, "sub/file");

    assert_eq!(conflict::take(&kept, file, &work, false).unwrap(), Taken::Occupied);
    assert_eq!(text(&work.join("sub/file")), "outside\n");
    let other = ground.path("other");
    fs::create_dir(&other).unwrap();
    assert_eq!(conflict::take(&kept, file, &other, false).unwrap(), Taken::Done);
    assert_eq!(text(&other.join("sub/file")), "inside\n");
    assert_eq!(conflict::take(&kept, file, &work, true).unwrap(), Taken::Done);
    assert_eq!(text(&work.join("sub/file")), "inside\n");

    // No link on the way is followed, also not one that came to be since.
    let elsewhere = ground.path("precious");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "precious\n").unwrap();
    fs::remove_dir_all(work.join("sub")).unwrap();
    symlink(&elsewhere, work.join("sub")).unwrap();
    conflict::take(&kept, file, &work, true).unwrap_err();
    assert_eq!(text(&elsewhere.join("file")), "precious\n");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);

    conflict::prune(&ground.conflicts(), Duration::from_secs(3600));
    assert_eq!(only(&ground), kept);
    conflict::forget(&ground.conflicts(), &kept.name).unwrap();
    assert_eq!(fs::read_dir(ground.conflicts()).unwrap().count(), 0);
}

#[test]
fn each_commit_of_a_session_has_its_own() {
    let Some(way) = confined("layer_aside::each_commit_of_a_session_has_its_own") else { return };
    let ground = Ground::new(way, Staging::Beside);
    for (round, name) in ["journal", "journal.2", "journal.3"].into_iter().enumerate() {
        fs::write(ground.work().join("file"), "before").unwrap();
        a_moment_later();
        let inside = format!("inside {round}");
        let (layer, changes) = ground.session_of(|at| fs::write(at.join("file"), &inside).unwrap());
        a_moment_later();
        fs::write(ground.work().join("file"), "outside").unwrap();
        let done = ground.keep(&layer, &changes);
        assert_eq!(done.aside.as_deref(), Some(name));
        assert_eq!(text(&ground.conflicts().join(name).join("files/file")), inside);
    }
    conflict::prune(&ground.conflicts(), Duration::ZERO);
    assert_eq!(fs::read_dir(ground.conflicts()).unwrap().count(), 0);
}

/// A session whose changes meet others', of every kind.
fn meeting(way: Way, staging: Staging, from: &Ground) -> (Ground, Began) {
    let ground = prepared(way, staging, Some(from));
    let began = Began::now();
    a_moment_later();
    let work = ground.work();
    fs::write(work.join("file"), "outside").unwrap();
    fs::write(work.join("c"), "outside").unwrap();
    fs::write(work.join("new"), "outside").unwrap();
    fs::write(work.join("dir/one"), "outside").unwrap();
    (ground, began)
}

fn nothing_is_lost(ground: &Ground, at: usize) -> bool {
    let recovered = next_start(ground, at % 5);
    let work = ground.work();
    for path in ["file", "c", "new", "dir/one"] {
        assert_eq!(text(&work.join(path)), "outside", "moment {at}");
    }
    let committed = !work.join("gone").exists();
    if committed {
        let files = only(ground).files.as_path().to_owned();
        let kept = [("file", "modified"), ("dir/one", "modified"), ("c", "b"), ("new/a/b", "b")];
        for (path, content) in kept {
            assert_eq!(text(&files.join(path)), content, "moment {at}: {path}");
        }
    } else {
        let left = fs::read_dir(ground.conflicts()).into_iter().flatten().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert!(left.is_empty(), "moment {at}: {recovered:?} left {left:?}");
    }
    committed
}

#[test]
fn a_failure_at_any_moment_loses_no_version() {
    let Some(way) = confined("layer_aside::a_failure_at_any_moment_loses_no_version") else { return };
    for staging in STAGINGS {
        let first = prepared(way, staging, None);
        let mut seen = [0, 0];
        for at in 0.. {
            let (ground, began) = meeting(way, staging, &first);
            let reached = interrupted(&ground, began, at, false);
            seen[usize::from(nothing_is_lost(&ground, at))] += 1;
            if !reached {
                break;
            }
        }
        assert!(seen.iter().all(|&times| times > 3), "{staging:?}: {seen:?}");
    }
}

const PLACE: &str = "COFFERDAM_TEST_MEETING";

#[test]
fn kill_at_any_moment_loses_no_version() {
    const NAME: &str = "layer_aside::kill_at_any_moment_loses_no_version";
    let Some(way) = confined(NAME) else { return };
    if let Ok(place) = std::env::var(PLACE) {
        let parts: Vec<&str> = place.split('|').collect();
        let staging = STAGINGS.into_iter().find(|one| format!("{one:?}") == parts[1]).unwrap();
        let began = Began::at(serde_json::from_str(parts[3]).unwrap());
        let ground = Ground::again(parts[0].into(), way, staging);
        let reached = interrupted(&ground, began, parts[2].parse().unwrap(), true);
        assert!(!reached, "it was to be killed");
        return;
    }
    for staging in STAGINGS {
        let first = prepared(way, staging, None);
        for at in 0.. {
            let (ground, began) = meeting(way, staging, &first);
            let began = serde_json::to_string(&began.kept(None)).unwrap();
            let place = format!("{}|{staging:?}|{at}|{began}", ground.path("").display());
            let mut child = Command::new(std::env::current_exe().unwrap());
            let done = child.args([NAME, "--exact"]).env(PLACE, place).output().unwrap();
            let killed = std::os::unix::process::ExitStatusExt::signal(&done.status) == Some(9);
            assert!(killed || done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            nothing_is_lost(&ground, at);
            if !killed {
                break;
            }
        }
    }
}
