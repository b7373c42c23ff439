//! What a layer says was changed, and what of it arrives in the work dir.

use crate::layer_place::{CONTENT, Ground, STAGINGS, Staging, Way, confined};
use cofferdam_model::{Aspect, ChangeOp, FileChange};
use cofferdam_runtime_process::layer::{Began, Counts, FileDiff, Watch, text_diff, tree_hash};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn append(path: impl AsRef<Path>, text: &str) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn attribute(path: impl AsRef<Path>, name: &str, value: &str) {
    rustix::fs::setxattr(path.as_ref(), name, value.as_bytes(), XattrFlags::empty()).unwrap();
}

fn set_time(path: impl AsRef<Path>, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path.as_ref(), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Every staging with a work dir that holds a few things.
fn each(name: &str, test: impl Fn(&Ground)) {
    let Some(way) = confined(name) else { return };
    for staging in STAGINGS {
        eprintln!("{way:?}, {staging:?}");
        let ground = Ground::new(way, staging);
        furnish(&ground.work());
        test(&ground);
    }
}

fn furnish(work: &Path) {
    fs::create_dir_all(work.join("dir/sub")).unwrap();
    for (path, text) in [
        ("file", "one\ntwo\nthree\n"),
        ("gone", "goes\n"),
        ("moved", "the same content under another name\n"),
        ("dir/file", "in dir\n"),
        ("dir/sub/deep", "deep\n"),
    ] {
        fs::write(work.join(path), text).unwrap();
    }
    symlink("file", work.join("link")).unwrap();
}

/// A session that does this leaves a work dir as if it had been done there.
fn as_if(ground: &Ground, act: impl Fn(&Path)) -> Vec<FileChange> {
    let model = ground.path("model");
    fs::create_dir(&model).unwrap();
    furnish(&model);
    act(&model);
    let (layer, changes) = ground.session_of(&act);
    let done = ground.keep(&layer, &changes);
    assert_eq!(done.skipped, []);
    assert_eq!(ground.hash(CONTENT), tree_hash(&model, CONTENT).unwrap().to_string());
    changes
}

fn ops(changes: &[FileChange]) -> Vec<(ChangeOp, String, Vec<Aspect>)> {
    let mut all: Vec<_> =
        changes.iter().map(|change| (change.op, change.path.to_string(), change.changed.clone())).collect();
    all.sort_by(|a, b| a.1.cmp(&b.1));
    all
}

/// What is different, and how it comes to be.
type Change = (&'static str, fn(&Path));

#[test]
fn every_difference_moves_the_hash_of_a_tree() {
    let dir = tempfile::tempdir().unwrap();
    let all = |path: &Path| tree_hash(path, Counts::ALL).unwrap();
    let changes: [Change; 12] = [
        ("content", |at| fs::write(at.join("file"), "One\ntwo\nthree\n").unwrap()),
        ("a mode", |at| chmod(at.join("file"), 0o640)),
        ("a directory's mode", |at| chmod(at.join("dir"), 0o700)),
        ("a time", |at| set_time(at.join("file"), 77)),
        ("a link's time", |at| set_time(at.join("link"), 77)),
        ("a name", |at| fs::rename(at.join("file"), at.join("fil")).unwrap()),
        ("a place", |at| fs::rename(at.join("gone"), at.join("dir/gone")).unwrap()),
        ("a target", |at| {
            fs::remove_file(at.join("link")).unwrap();
            symlink("dir", at.join("link")).unwrap();
        }),
        ("a kind", |at| {
            fs::remove_file(at.join("gone")).unwrap();
            fs::create_dir(at.join("gone")).unwrap();
        }),
        ("an attribute", |at| attribute(at.join("file"), "user.note", "x")),
        ("a second name", |at| fs::hard_link(at.join("file"), at.join("zz")).unwrap()),
        ("a name that is not text", |at| fs::write(at.join(OsStr::from_bytes(b"\xff")), "").unwrap()),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (n, (what, change)) in changes.into_iter().enumerate() {
        let tree = dir.path().join(n.to_string());
        fs::create_dir(&tree).unwrap();
        furnish(&tree);
        let before = all(&tree);
        assert_eq!(all(&tree), before, "reading moves it");
        change(&tree);
        assert_ne!(all(&tree), before, "{what}");
        seen.insert(all(&tree));
    }
    assert_eq!(seen.len(), 12);
}

#[test]
fn a_second_name_is_no_copy_and_a_hole_is_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let tree = |name: &str, make: fn(&Path)| {
        let at = dir.path().join(name);
        fs::create_dir(&at).unwrap();
        fs::write(at.join("a"), "x").unwrap();
        make(&at);
        tree_hash(&at, CONTENT).unwrap()
    };
    let linked = tree("linked", |at| fs::hard_link(at.join("a"), at.join("b")).unwrap());
    let copied = tree("copied", |at| fs::write(at.join("b"), "x").unwrap());
    assert_ne!(linked, copied);
    // A name outside is no part of the tree.
    let outside = tree("outside", |at| {
        fs::write(at.join("b"), "x").unwrap();
        fs::hard_link(at.join("a"), at.with_extension("link")).unwrap();
    });
    assert_eq!(outside, copied);
    let hole = tree("hole", |at| fs::File::create(at.join("b")).unwrap().set_len(1 << 20).unwrap());
    let zeros = tree("zeros", |at| fs::write(at.join("b"), vec![0; 1 << 20]).unwrap());
    assert_eq!(hole, zeros);
}

#[test]
fn changes_are_told_by_what_they_are() {
    each("layer::changes_are_told_by_what_they_are", |ground| {
        let (_, changes) = ground.session_of(|at| {
            append(at.join("file"), "four\n");
            chmod(at.join("gone"), 0o600);
            fs::rename(at.join("moved"), at.join("dir/renamed")).unwrap();
            attribute(at.join("dir/file"), "user.note", "new");
            fs::remove_file(at.join("dir/sub/deep")).unwrap();
            fs::write(at.join("new"), "new").unwrap();
            // Touched, and written with what it held: no change.
            set_time(at.join("link"), 5);
        });
        use {Aspect::*, ChangeOp::*};
        let expected = [
            (Modified, "dir/file", vec![Attributes]),
            (Renamed, "dir/renamed", vec![]),
            (Deleted, "dir/sub/deep", vec![]),
            (Modified, "file", vec![Content]),
            (Modified, "gone", vec![Mode]),
            (Created, "new", vec![]),
        ];
        assert_eq!(ops(&changes), expected.map(|(op, path, aspects)| (op, path.to_owned(), aspects)));
        let renamed = changes.iter().find(|change| change.op == Renamed).unwrap();
        assert_eq!(renamed.from.as_ref().unwrap().to_string(), "moved");
    });
}

#[test]
fn what_was_done_inside_is_what_arrives() {
    each("layer::what_was_done_inside_is_what_arrives", |ground| {
        as_if(ground, |at| {
            append(at.join("file"), "four\n");
            chmod(at.join("dir"), 0o711);
            fs::remove_file(at.join("gone")).unwrap();
            fs::create_dir(at.join("gone")).unwrap();
            fs::write(at.join("gone/in"), "in").unwrap();
            fs::remove_dir_all(at.join("dir/sub")).unwrap();
            fs::write(at.join("dir/sub"), "a file now").unwrap();
            fs::rename(at.join("moved"), at.join("gone/renamed")).unwrap();
            fs::remove_file(at.join("link")).unwrap();
            symlink("elsewhere/that/is/not", at.join("link")).unwrap();
            rustix::fs::mknodat(CWD, at.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
            fs::create_dir_all(at.join("new/a/b")).unwrap();
            fs::write(at.join("new/a/b/c"), "c").unwrap();
            chmod(at.join("new/a"), 0o500);
            attribute(at.join("new"), "user.colour", "blue");
            attribute(at.join("new/a/b/c"), "user.colour", "green");
            attribute(at.join("dir"), "user.colour", "red");
        });
        assert_eq!(fs::metadata(ground.work().join("dir")).unwrap().mode() & 0o777, 0o711);
    });
}

/// More than is held in memory, of every operation: the rest is read from a file, in the same order.
#[test]
fn more_changes_than_memory_holds_arrive() {
    let Some(way) = confined("layer::more_changes_than_memory_holds_arrive") else { return };
    for staging in STAGINGS {
        let ground = Ground::in_memory(way, staging);
        let act = |at: &Path| {
            for file in 0..200 {
                fs::rename(at.join(format!("many/{file}")), at.join(format!("many/z{file}"))).unwrap();
                fs::write(at.join(format!("many/{}", 200 + file)), "modified").unwrap();
                fs::remove_file(at.join(format!("many/{}", 400 + file))).unwrap();
            }
            for dir in 0..17 {
                fs::create_dir(at.join(format!("new{dir}"))).unwrap();
                (0..500).for_each(|file| fs::write(at.join(format!("new{dir}/{file}")), "new").unwrap());
            }
        };
        let model = ground.path("model");
        for place in [&model, &ground.work()] {
            fs::create_dir_all(place.join("many")).unwrap();
            (0..600).for_each(|n| fs::write(place.join(format!("many/{n}")), format!("file {n}")).unwrap());
        }
        act(&model);
        let began = Began::now();
        ground.within(&ground.stack().layers().unwrap(), act);
        let layer = ground.layer(began);
        let found = cofferdam_runtime_process::layer::diff(&layer, &ground.path("")).unwrap();
        let counts = [ChangeOp::Created, ChangeOp::Modified, ChangeOp::Renamed, ChangeOp::Deleted];
        assert_eq!(counts.map(|op| found.count(op)), [8_517, 200, 200, 200]);
        assert!(found.first().len() < found.len(), "some are in the file");
        let paths: Vec<_> = found.iter().map(|change| change.unwrap().path.clone()).collect();
        assert!(paths.is_sorted(), "in the order of names");
        let done = ground.commit_list(&layer, &found, Watch::default()).unwrap();
        assert_eq!((done.applied, done.skipped.as_slice()), (9_117, &[][..]));
        assert_eq!(ground.hash(CONTENT), tree_hash(&model, CONTENT).unwrap().to_string());
    }
}

#[test]
fn a_directory_that_is_replaced_or_moved_arrives_whole() {
    each("layer::a_directory_that_is_replaced_or_moved_arrives_whole", |ground| {
        as_if(ground, |at| {
            fs::remove_dir_all(at.join("dir")).unwrap();
            fs::create_dir_all(at.join("dir/sub/deep")).unwrap();
            fs::write(at.join("dir/sub/deep/new"), "new").unwrap();
            fs::create_dir(at.join("there")).unwrap();
            fs::write(at.join("there/moved"), fs::read(at.join("moved")).unwrap()).unwrap();
            fs::remove_file(at.join("moved")).unwrap();
        });
        assert!(!ground.work().join("dir/file").exists());
    });
}

#[test]
fn names_of_any_bytes_and_trees_of_many_levels_arrive() {
    each("layer::names_of_any_bytes_and_trees_of_many_levels_arrive", |ground| {
        let long = "n".repeat(255);
        as_if(ground, |at| {
            for name in [&b"new\nline"[..], b"\xff\xfe", b" ", b"-rf", long.as_bytes()] {
                fs::write(at.join(OsStr::from_bytes(name)), "x").unwrap();
            }
            // Longer than any path may be: only reached step by step.
            let mut dir = rustix::fs::open(at, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
            for _ in 0..200 {
                rustix::fs::mkdirat(&dir, long.as_str(), Mode::from_raw_mode(0o755)).ok();
                rustix::fs::mkdirat(&dir, "d", Mode::from_raw_mode(0o755)).unwrap();
                dir = rustix::fs::openat(&dir, "d", rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
            }
        });
    });
}

#[test]
fn hard_links_holes_and_times_are_kept() {
    each("layer::hard_links_holes_and_times_are_kept", |ground| {
        let changes = as_if(ground, |at| {
            fs::write(at.join("a"), "shared").unwrap();
            fs::create_dir(at.join("new")).unwrap();
            fs::hard_link(at.join("a"), at.join("new/b")).unwrap();
            // A name for what was there before: it is told, because from now on both are one file.
            fs::hard_link(at.join("file"), at.join("also-file")).unwrap();
            let sparse = fs::File::create(at.join("sparse")).unwrap();
            sparse.set_len(64 << 20).unwrap();
            sparse.write_all_at(b"end", (64 << 20) - 3).unwrap();
            for path in ["a", "sparse", "new"] {
                set_time(at.join(path), 1_234_567);
            }
        });
        assert!(ops(&changes).contains(&(ChangeOp::Modified, "file".into(), vec![Aspect::Links])));
        let meta = |path: &str| fs::metadata(ground.work().join(path)).unwrap();
        assert_eq!(meta("a").ino(), meta("new/b").ino());
        assert_eq!(meta("file").ino(), meta("also-file").ino());
        assert!(meta("sparse").blocks() * 512 < 1 << 20, "{} blocks", meta("sparse").blocks());
        for path in ["a", "new/b", "sparse", "new"] {
            assert_eq!((meta(path).mtime(), meta(path).mtime_nsec()), (1_234_567, 123_456_789), "{path}");
        }
    });
}

/// Set-id bits, capabilities, device nodes, sockets, marks of an overlay: none leaves the sandbox.
#[test]
fn what_grants_something_does_not_arrive() {
    each("layer::what_grants_something_does_not_arrive", |ground| {
        let (layer, changes) = ground.session_of(|at| {
            fs::create_dir(at.join("new")).unwrap();
            for path in ["tool", "new/tool"] {
                fs::write(at.join(path), "#!").unwrap();
                chmod(at.join(path), 0o6755);
                // Version 2, CAP_NET_RAW, effective.
                let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                rustix::fs::setxattr(at.join(path), "security.capability", &capability, XattrFlags::empty())
                    .unwrap();
                // Reading back proves that there is something to strip.
                assert!(rustix::fs::getxattr(at.join(path), "security.capability", &mut [0; 64][..]).is_ok());
            }
            chmod(at.join("new"), 0o2775);
            std::os::unix::net::UnixListener::bind(at.join("socket")).unwrap();
            std::os::unix::net::UnixListener::bind(at.join("new/socket")).unwrap();
            if ground.way == Way::Root {
                let null = rustix::fs::makedev(1, 3);
                let mode = Mode::from_raw_mode(0o666);
                rustix::fs::mknodat(CWD, at.join("null"), FileType::CharacterDevice, mode, null).unwrap();
                // Ordinary attributes here, and meant for a later overlay without root.
                attribute(at.join("new"), "user.overlay.opaque", "y");
                attribute(at.join("tool"), "user.overlay.redirect", "/etc");
            }
        });
        let done = ground.keep(&layer, &changes);
        let work = ground.work();
        for path in ["tool", "new/tool"] {
            assert_eq!(fs::metadata(work.join(path)).unwrap().mode() & 0o7777, 0o755, "{path}");
            let found = rustix::fs::getxattr(work.join(path), "security.capability", &mut [0; 64][..]);
            assert_eq!(found, Err(rustix::io::Errno::NODATA), "{path}");
        }
        assert_eq!(fs::metadata(work.join("new")).unwrap().mode() & 0o7777, 0o775);
        let named: Vec<_> = done.skipped.iter().map(|skipped| skipped.path.to_string()).collect();
        let mut expected = vec!["new/socket", "socket"];
        if ground.way == Way::Root {
            expected.insert(1, "null");
        }
        assert_eq!(named, expected);
        for path in ["socket", "new/socket", "null"] {
            assert!(!work.join(path).exists(), "{path}");
        }
        for path in ["new", "tool", "new/tool"] {
            let mut list = [0u8; 1024];
            let n = rustix::fs::listxattr(work.join(path), &mut list[..]).unwrap();
            let list = String::from_utf8_lossy(&list[..n]);
            assert!(!list.contains("overlay"), "{path}: {list}");
        }
    });
}

/// The mark of an opaque directory, in the name space that the inside can write to.
#[test]
fn a_forged_mark_deletes_nothing() {
    each("layer::a_forged_mark_deletes_nothing", |ground| {
        let (layer, changes) = ground.session_of(|at| {
            // With `user` marks the kernel itself keeps the inside off the name.
            let forged =
                rustix::fs::setxattr(at.join("dir"), "user.overlay.opaque", b"y", XattrFlags::empty());
            assert!(forged.is_ok() || ground.way == Way::User);
            fs::write(at.join("dir/new"), "new").unwrap();
        });
        let told: Vec<_> = changes.iter().map(|change| change.op).collect();
        assert!(!told.contains(&ChangeOp::Deleted), "{changes:?}");
        ground.keep(&layer, &changes);
        for path in ["dir/file", "dir/sub/deep", "dir/new"] {
            assert!(ground.work().join(path).exists(), "{path}");
        }
    });
}

#[test]
fn what_was_changed_outside_is_named_and_left_alone() {
    each("layer::what_was_changed_outside_is_named_and_left_alone", |ground| {
        let (layer, changes) = ground.session_of(|at| {
            for path in ["file", "gone", "dir/file"] {
                append(at.join(path), "inside\n");
            }
            fs::remove_dir_all(at.join("dir/sub")).unwrap();
            fs::remove_file(at.join("link")).unwrap();
            fs::write(at.join("new"), "inside").unwrap();
            fs::create_dir(at.join("both")).unwrap();
            fs::write(at.join("both/inside"), "inside").unwrap();
        });
        let work = ground.work();
        fs::write(work.join("file"), "outside").unwrap();
        fs::write(work.join("new"), "outside").unwrap();
        fs::write(work.join("dir/sub/outside"), "outside").unwrap();
        fs::create_dir(work.join("both")).unwrap();
        chmod(work.join("both"), 0o750);
        fs::write(work.join("both/outside"), "outside").unwrap();
        fs::remove_file(work.join("gone")).unwrap();
        let done = ground.keep(&layer, &changes);
        let named: Vec<_> = done.skipped.iter().map(|skipped| skipped.path.to_string()).collect();
        assert_eq!(named, ["dir/sub/outside", "file", "gone", "new"]);
        let read = |path: &str| fs::read_to_string(work.join(path)).ok();
        for path in ["file", "new", "dir/sub/outside", "both/outside"] {
            assert_eq!(read(path).as_deref(), Some("outside"), "{path}");
        }
        // The rest is complete.
        assert_eq!(read("dir/file").as_deref(), Some("in dir\ninside\n"));
        assert_eq!(read("both/inside").as_deref(), Some("inside"));
        assert_eq!(fs::metadata(work.join("both")).unwrap().mode() & 0o777, 0o750);
        assert_eq!((read("dir/sub/deep"), read("gone")), (None, None));
        assert!(work.join("link").symlink_metadata().is_err());
    });
}

#[test]
fn a_full_disk_changes_nothing() {
    let Some(way) = confined("layer::a_full_disk_changes_nothing") else { return };
    let ground = Ground::new(way, Staging::Workdir);
    // A work dir of its own small size.
    let size = Some(c"size=1m");
    rustix::mount::mount("tmpfs", ground.work(), "tmpfs", rustix::mount::MountFlags::empty(), size).unwrap();
    furnish(&ground.work());
    let before = ground.hash(Counts::ALL);
    let (layer, changes) = ground.session_of(|at| {
        append(at.join("file"), "four\n");
        fs::remove_file(at.join("gone")).unwrap();
        fs::write(at.join("large"), vec![7; 2 << 20]).unwrap();
    });
    let watch = cofferdam_runtime_process::layer::Watch::default();
    let error = ground.commit(&layer, &changes, watch);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("large") && error.contains("nothing was changed"), "{error}");
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(ground.hash(Counts::ALL), before);
    assert_eq!(ground.remains(), Vec::<String>::new());
    rustix::mount::unmount(ground.work(), rustix::mount::UnmountFlags::DETACH).unwrap();
}

#[test]
fn a_difference_is_shown_as_text_where_it_is_text() {
    each("layer::a_difference_is_shown_as_text_where_it_is_text", |ground| {
        let (layer, changes) = ground.session_of(|at| {
            fs::write(at.join("file"), "one\n2\nthree\n").unwrap();
            fs::write(at.join("gone"), b"\0binary").unwrap();
            fs::write(at.join("large"), "x".repeat(2 << 20)).unwrap();
            fs::write(at.join("new"), "hello\n").unwrap();
            chmod(at.join("dir/file"), 0o600);
            fs::remove_file(at.join("dir/sub/deep")).unwrap();
            fs::rename(at.join("moved"), at.join("renamed")).unwrap();
        });
        let of = |path: &str| {
            let change = changes.iter().find(|change| change.path.to_string() == path).unwrap();
            text_diff(&layer, change).unwrap()
        };
        assert_eq!(of("file"), FileDiff::Text("@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n".into()));
        assert_eq!(of("new"), FileDiff::Text("@@ -0,0 +1 @@\n+hello\n".into()));
        assert_eq!(of("dir/sub/deep"), FileDiff::Text("@@ -1 +0,0 @@\n-deep\n".into()));
        assert_eq!(of("gone"), FileDiff::Binary);
        assert_eq!(of("large"), FileDiff::Large(2 << 20));
        assert_eq!((of("dir/file"), of("renamed")), (FileDiff::Nothing, FileDiff::Nothing));
    });
}
