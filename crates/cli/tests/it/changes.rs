//! What becomes of a session's changes: kept as they were made, or dropped; recorded either way; and nothing
//! that was not made inside is touched.

use crate::{BINARY, each, site};
use cofferdam_testkit::{Mode, Site, eventually, modes, needs_root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path, to what was done and to which kind of file.
fn recorded(site: &Site) -> BTreeMap<String, (String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |body: &Value| (text(&body["path"]), (text(&body["op"]), text(&body["kind"])));
    site.bodies("file.changed").iter().map(row).collect()
}

#[track_caller]
fn expect(site: &Site, expected: &[(&str, &str, &str)]) {
    let expected = expected.iter().map(|(path, op, kind)| ((*path).into(), ((*op).into(), (*kind).into())));
    assert_eq!(recorded(site), expected.collect::<BTreeMap<_, _>>());
}

fn skipped(site: &Site) -> Vec<String> {
    let decided = site.bodies("changes.decided");
    let skipped = decided.first().and_then(|body| body["skipped"].as_array().cloned()).unwrap_or_default();
    skipped.iter().map(|row| row["path"].as_str().unwrap().to_owned()).collect()
}

/// Every path of a tree with its content, or what else it is.
fn tree(dir: &Path) -> BTreeMap<PathBuf, String> {
    fn walk(dir: &Path, root: &Path, found: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if meta.is_dir() {
                found.insert(name, format!("dir {:o}", meta.mode() & 0o7777));
                walk(&path, root, found);
            } else if meta.is_symlink() {
                found.insert(name, format!("-> {}", fs::read_link(&path).unwrap().display()));
            } else if meta.file_type().is_fifo() {
                found.insert(name, "fifo".into());
            } else {
                let content = fs::read(&path).unwrap();
                found.insert(
                    name,
                    format!("{:o} {}", meta.mode() & 0o7777, String::from_utf8_lossy(&content)),
                );
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(dir, dir, &mut found);
    found
}

/// Every kind of user with every place for a layer, each in a place of its own.
fn each_layer(test: impl Fn(&Site, &[&str])) {
    for &mode in modes() {
        for layer in ["memory", "disk"] {
            if (mode, layer) != (Mode::Range, "disk") {
                eprintln!("mode {mode:?}, layer in {layer}");
                test(&Site::new(mode, BINARY), &["--layer", layer]);
            }
        }
    }
}

const EVERYTHING: &str = "umask 022; echo new > created; echo more >> modified; rm deleted; rm -r olddir; \
    rm becomes-dir; mkdir becomes-dir; echo in > becomes-dir/in; rm -r becomes-file; echo f > becomes-file; \
    chmod 700 mode; ln -s target link; ln -sf elsewhere relinked; mkfifo fifo; mkdir -p a/b/c; echo deep > a/b/c/d; \
    echo same > same.tmp; cat same.tmp > same; rm same.tmp; touch touched; chmod 750 dirmode";

fn plant(site: &Site) {
    for (path, content) in [
        ("modified", "old\n"),
        ("deleted", "x"),
        ("olddir/one", "x"),
        ("becomes-dir", "x"),
        ("becomes-file/x", "x"),
        ("mode", "x"),
        ("same", "same\n"),
        ("touched", "x"),
        ("untouched", "x"),
        ("dirmode/x", "x"),
    ] {
        site.write(path, content);
    }
    symlink("old", site.work().join("relinked")).unwrap();
    site.give_link(&site.work().join("relinked"));
}

#[test]
fn kept_changes_are_what_was_made() {
    each_layer(|site, layer| {
        plant(site);
        let inside = site
            .sh(&format!("{EVERYTHING}; find . -exec stat -c '%n %F %a %s' {{}} + | sort"))
            .with(layer)
            .exits(0);
        expect(
            site,
            &[
                ("created", "created", "file"),
                ("modified", "modified", "file"),
                ("deleted", "deleted", "file"),
                ("olddir", "deleted", "dir"),
                ("becomes-dir", "created", "dir"),
                ("becomes-dir/in", "created", "file"),
                ("becomes-file", "created", "file"),
                ("mode", "modified", "file"),
                ("link", "created", "symlink"),
                ("relinked", "modified", "symlink"),
                ("fifo", "created", "fifo"),
                ("a", "created", "dir"),
                ("a/b", "created", "dir"),
                ("a/b/c", "created", "dir"),
                ("a/b/c/d", "created", "file"),
                ("dirmode", "modified", "dir"),
            ],
        );
        assert_eq!(skipped(site), Vec::<String>::new());
        // The host now has what the inside saw, but for the sizes of directories.
        let script = "find . -exec stat -c '%n %F %a %s' {} + | sort";
        let outside = cofferdam_testkit::finish(site.command("sh").args(["-c", script])).exits(0);
        let files = |text: String| {
            text.lines().filter(|l| !l.contains(" directory ")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(files(outside.out()), files(inside.out()));
        assert_eq!(site.read("modified"), "old\nmore\n");
        assert_eq!(fs::metadata(site.work().join("dirmode")).unwrap().mode() & 0o777, 0o750);
    });
}

#[test]
fn discarded_changes_leave_no_mark() {
    each_layer(|site, layer| {
        plant(site);
        let before = tree(&site.work());
        site.sh(EVERYTHING).with(layer).with(&["--changes", "discard"]).exits(0);
        assert_eq!(tree(&site.work()), before);
        assert_eq!(site.bodies("changes.decided")[0]["kept"], false);
        assert!(recorded(site).len() > 10, "what was not kept is told all the same");
    });
}

#[test]
fn changes_are_kept_whatever_the_code() {
    each(|site| {
        site.sh("echo x > made; exit 9").exits(9);
        assert_eq!(site.read("made"), "x\n");
    });
}

#[test]
fn a_change_has_the_digest_of_its_content() {
    each(|site| {
        site.sh("printf abc > made; head -c 1000000 /dev/zero > large").exits(0);
        for body in site.bodies("file.changed") {
            let path = site.work().join(body["path"].as_str().unwrap());
            let sum = Command::new("sha256sum").arg(&path).output().unwrap();
            let expected = String::from_utf8_lossy(&sum.stdout).split(' ').next().unwrap().to_owned();
            assert!(body["digest"].as_str().unwrap().ends_with(&expected), "{body}");
            assert_eq!(body["size"].as_u64(), Some(fs::metadata(&path).unwrap().len()), "{body}");
        }
    });
}

#[test]
fn names_of_every_kind_are_kept() {
    each(|site| {
        let long = "l".repeat(255);
        let deep = vec!["d"; 60].join("/");
        let script = format!(
            "printf x > \"$(printf 'not-utf8-\\377')\"; printf x > 'new\nline'; printf x > '{long}'; \
             mkdir -p {deep}; printf x > {deep}/end; printf x > ' '; printf x > '-rf'; printf x > 'ünï'"
        );
        site.run(&["bash", "-c", &script]).exits(0);
        let names = [OsStr::from_bytes(b"not-utf8-\xff"), OsStr::new("new\nline"), OsStr::new(&long)];
        let names = names.into_iter().chain([OsStr::new(" "), OsStr::new("-rf"), OsStr::new("ünï")]);
        for name in names.map(PathBuf::from).chain([Path::new(&deep).join("end")]) {
            assert_eq!(fs::read(site.work().join(&name)).unwrap(), b"x", "{name:?}");
        }
        site.call(&["trace", "verify", "latest"]).exits(0);
        let shown = site.call(&["trace", "show", "latest", "--full"]).exits(0);
        assert!(shown.out().lines().all(|line| !line.chars().any(char::is_control)), "{:?}", shown.out());
    });
}

#[test]
fn what_was_changed_outside_meanwhile_is_not_overwritten() {
    each_layer(|site, layer| {
        for path in ["both", "deleted-inside", "dir/nested", "only-inside"] {
            site.write(path, "before");
        }
        let mount = format!("{}:/shared:rw", site.root().join("home").display());
        let script = "echo inside > both; rm deleted-inside; rm -r dir; echo inside > only-inside; echo inside > new; \
            : > /shared/ready; while ! test -e /shared/go; do sleep 0.02; done";
        let running = site.sh(script).with(layer).with(&["--mount", &mount]).start();
        eventually("the session's changes", || site.home().join("ready").exists().then_some(()));
        for path in ["both", "deleted-inside", "dir/nested", "new"] {
            site.write(path, "outside");
        }
        site.write(site.home().join("go"), "");
        let done = running.finish().exits(0);
        for path in ["both", "deleted-inside", "dir/nested", "new"] {
            assert_eq!(fs::read_to_string(site.work().join(path)).ok().as_deref(), Some("outside"), "{path}");
        }
        assert_eq!(site.read("only-inside"), "inside\n");
        let skipped = skipped(site);
        for path in ["both", "deleted-inside", "new"] {
            assert!(skipped.iter().any(|s| s == path), "{path} in {skipped:?}");
            assert!(done.err().contains(path), "{path} is named: {}", done.err());
        }
    });
}

/// Newer kernels stamp a file that was looked at more finely than their coarse clock tells.
#[test]
fn what_was_written_just_before_a_session_is_no_conflict() {
    each(|site| {
        for round in 0..10 {
            let path = site.write("file", "first");
            fs::metadata(&path).unwrap();
            site.write("file", format!("second {round}"));
            let done = site.sh("echo inside > file").exits(0);
            assert_eq!(site.read("file"), "inside\n", "round {round}: {}", done.err());
        }
    });
}

#[test]
fn a_hidden_file_outlives_everything_that_is_done_inside() {
    each_layer(|site, layer| {
        for script in [
            "echo forged > .env",
            "rm -rf service; mkdir service; echo x > service/new",
            "rm -rf service",
            "rm -rf service; echo file > service",
            "mv service elsewhere",
            "rm -rf .[a-z]* *",
            "mkdir .ssh; echo key > .ssh/authorized_keys",
        ] {
            site.write(".env", "SECRET=1");
            let _ = fs::remove_file(site.work().join("service"));
            site.write("service/.env", "SECRET=2");
            site.write("service/code.py", "pass");
            site.write(".ssh/id_rsa", "SECRET=3");
            site.sh(script).with(layer).done();
            for (path, content) in
                [(".env", "SECRET=1"), ("service/.env", "SECRET=2"), (".ssh/id_rsa", "SECRET=3")]
            {
                let found = fs::read_to_string(site.work().join(path)).ok();
                assert_eq!(found.as_deref(), Some(content), "{path} after: {script}");
            }
            assert!(!site.work().join(".ssh/authorized_keys").exists(), "{script}");
        }
    });
}

#[test]
fn a_directory_that_was_replaced_holds_only_what_was_put_into_it() {
    each_layer(|site, layer| {
        site.write("dir/old", "x");
        site.write("dir/sub/old", "x");
        site.write("dir/sub/deep/old", "x");
        site.sh("rm -r dir; mkdir -p dir/sub/deep; echo x > dir/sub/new").with(layer).exits(0);
        let found: Vec<PathBuf> = tree(&site.work()).into_keys().collect();
        let expected = ["dir", "dir/sub", "dir/sub/deep", "dir/sub/new"].map(PathBuf::from);
        assert_eq!(found, expected);
    });
}

#[test]
fn a_directory_that_was_renamed_arrives_whole() {
    each_layer(|site, layer| {
        site.write("before/one", "1");
        site.write("before/sub/two", "2");
        site.sh("mv before after && echo 3 > after/sub/three").with(layer).exits(0);
        let found = tree(&site.work());
        let names: Vec<_> = found.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(names, ["after", "after/one", "after/sub", "after/sub/three", "after/sub/two"]);
        assert!(found[Path::new("after/sub/two")].ends_with(" 2"));
    });
}

#[test]
fn hard_links_and_sparse_files_arrive_with_their_content() {
    each(|site| {
        site.write("linked", "old");
        site.sh("ln linked second; echo new > second; truncate -s 1G sparse; echo end >> sparse").exits(0);
        assert_eq!((site.read("linked"), site.read("second")), ("new\n".into(), "new\n".into()));
        let sparse = fs::metadata(site.work().join("sparse")).unwrap();
        assert_eq!(sparse.len(), (1 << 30) + 4);
        fs::remove_file(site.work().join("sparse")).unwrap();
    });
}

#[test]
fn kept_files_belong_to_the_owner_of_the_work_dir() {
    each_layer(|site, layer| {
        site.write("old", "x");
        site.sh("echo x >> old; echo x > new; mkdir -p d/e; ln -s x l; mkfifo f; echo x > d/e/file")
            .with(layer)
            .exits(0);
        let owner = fs::metadata(site.work()).unwrap();
        for path in ["old", "new", "d", "d/e", "l", "f", "d/e/file"] {
            let meta = fs::symlink_metadata(site.work().join(path)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (owner.uid(), owner.gid()), "{path}");
        }
    });
}

/// Root runs a session in someone else's directory: what is made there is theirs.
#[test]
fn roots_session_in_anothers_work_dir_makes_their_files() {
    if !needs_root("a work dir of someone else's") {
        return;
    }
    let site = site();
    std::os::unix::fs::chown(site.work(), Some(4321), Some(4322)).unwrap();
    let theirs = site.write("theirs", "x");
    std::os::unix::fs::chown(theirs, Some(4321), Some(4322)).unwrap();
    site.sh("echo more >> theirs; echo new > new; stat -c %u theirs").exits(0);
    for path in ["theirs", "new"] {
        let meta = fs::metadata(site.work().join(path)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (4321, 4322), "{path}");
    }
}

#[test]
fn a_setuid_file_is_kept_without_its_bit() {
    each_layer(|site, layer| {
        site.sh("cp /bin/true tool; chmod 6755 tool; mkdir shared; chmod 2775 shared; : > s; chmod 4644 s")
            .with(layer)
            .exits(0);
        for (path, mode) in [("tool", 0o755), ("shared", 0o775), ("s", 0o644)] {
            let found = fs::metadata(site.work().join(path)).unwrap().mode() & 0o7777;
            assert_eq!(found, mode, "{path}: {found:o}");
        }
    });
}

#[test]
fn no_link_leads_a_change_outside() {
    each(|site| {
        let outside = site.write(site.root().join("outside/file"), "before");
        let dir = outside.parent().unwrap();
        // A link that was there, one that is made inside, and one that takes a directory's place meanwhile.
        symlink(dir, site.work().join("there")).unwrap();
        site.write("real/file", "x");
        let mount = format!("{}:/shared:rw", site.home().display());
        let script = format!(
            "ln -s {0} made; echo inside > made/file; echo inside > there/file; echo inside > real/file; \
             rm -f real/x; : > /shared/ready; while ! test -e /shared/go; do sleep 0.02; done",
            dir.display()
        );
        let running = site.sh(&script).with(&["--mount", &mount]).start();
        eventually("the session's changes", || site.home().join("ready").exists().then_some(()));
        fs::remove_dir_all(site.work().join("real")).unwrap();
        symlink(dir, site.work().join("real")).unwrap();
        site.write(site.home().join("go"), "");
        running.finish();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "before");
        assert_eq!(fs::read_link(site.work().join("real")).unwrap(), dir);
    });
}

#[test]
fn a_work_dir_that_cannot_be_read_whole_is_still_one() {
    each_layer(|site, layer| {
        let locked = site.write("locked/file", "x");
        fs::set_permissions(locked.parent().unwrap(), fs::Permissions::from_mode(0o000)).unwrap();
        site.sh("echo x > made; mkdir -m 000 closed; mkdir ro; echo in > ro/file; chmod 555 ro")
            .with(layer)
            .exits(0);
        assert_eq!(site.read("ro/file"), "in\n");
        assert_eq!(fs::metadata(site.work().join("closed")).unwrap().mode() & 0o777, 0);
        assert_eq!(fs::metadata(site.work().join("ro")).unwrap().mode() & 0o777, 0o555);
        assert_eq!(site.remains(), Vec::<String>::new());
        for dir in ["locked", "closed", "ro"] {
            fs::set_permissions(site.work().join(dir), fs::Permissions::from_mode(0o755)).unwrap();
        }
    });
}

#[test]
fn many_files_are_kept() {
    let site = site();
    site.sh(
        "for d in 1 2 3 4 5 6 7 8 9 10; do mkdir $d; for f in $(seq 200); do echo $f > $d/$f; done; done",
    )
    .exits(0);
    assert_eq!(tree(&site.work()).len(), 2010);
    assert_eq!(site.bodies("changes.decided")[0]["created"], 2010);
    site.call(&["trace", "verify", "latest"]).exits(0);
}

#[test]
fn a_change_says_what_it_is() {
    each_layer(|site, layer| {
        for (path, content) in [("moved", "the same under another name"), ("mode", "x"), ("both", "x")] {
            site.write(path, content);
        }
        let done =
            site.sh("mv moved renamed; chmod 711 mode; echo y > both; chmod 711 both").with(layer).exits(0);
        assert_eq!(done.err(), "");
        let bodies = site.bodies("file.changed");
        let of = |path: &str| bodies.iter().find(|body| body["path"] == path).unwrap();
        assert_eq!((&of("renamed")["op"], &of("renamed")["from"]), (&"renamed".into(), &"moved".into()));
        assert_eq!(of("mode")["changed"], serde_json::json!(["mode"]));
        assert_eq!(of("both")["changed"], serde_json::json!(["content", "mode"]));
        assert_eq!(bodies.len(), 3);
        assert_eq!(site.bodies("changes.decided")[0]["renamed"], 1);
        assert_eq!(
            (site.read("renamed").as_str(), site.work().join("moved").exists()),
            ("the same under another name", false)
        );
        let shown = site.call(&["trace", "show", "latest"]).exits(0).out();
        for line in ["1 renamed", "> renamed (27 B) (was moved)", "~ mode (1 B) [mode]"] {
            assert!(shown.contains(line), "{line} in {shown}");
        }
    });
}

/// The supervisor killed while it carries changes over: the next start completes that or drops it, as a whole.
#[test]
fn a_commit_that_is_killed_is_complete_or_absent() {
    each_layer(|site, layer| {
        const FILES: usize = 150;
        let numbered = |word: &str| {
            (0..FILES)
                .map(|n| (PathBuf::from(format!("f{n}")), format!("644 {word}\n")))
                .collect::<BTreeMap<_, _>>()
        };
        let (before, after) = (numbered("before"), numbered("after"));
        let script = format!("for n in $(seq 0 {}); do echo after > f$n; done", FILES - 1);
        let mut met = [0, 0];
        for (round, mark) in ["intent", "journal", "journal"].into_iter().enumerate() {
            (0..FILES).for_each(|n| drop(site.write(format!("f{n}"), "before\n")));
            let running = site.sh(&script).with(layer).start();
            let layers = site.state().join("layers");
            let is_there = || {
                let sessions = fs::read_dir(&layers).into_iter().flatten().flatten();
                sessions.map(|entry| entry.path().join(mark)).any(|path| path.exists())
            };
            // Or it was too fast for us, and is complete.
            while !is_there() && tree(&site.work()) == before {}
            std::thread::sleep(std::time::Duration::from_millis(2 * round as u64));
            running.signal(rustix::process::Signal::KILL);
            running.finish();
            site.run(&["true"]).exits(0);
            let found = tree(&site.work());
            let state = [&before, &after].into_iter().position(|state| *state == found);
            met[state.unwrap_or_else(|| panic!("round {round}: something between"))] += 1;
            assert_eq!(site.remains(), Vec::<String>::new());
        }
        assert!(met[1] > 0, "no commit was decided before its end: {met:?}");
    });
}

/// Nothing can be renamed from a state directory on another file system; it is staged in the work dir.
#[test]
fn a_work_dir_on_another_file_system_is_committed_to() {
    if !needs_root("another file system") {
        return;
    }
    let site = site();
    site.write("old", "old");
    let script = format!(
        "mount -t tmpfs -o mode=700 none {0} && export COFFERDAM_HOME={0} && \
         $C run -- sh -c 'echo new >> old; mkdir -p a/b; echo c > a/b/c' && $C run --layer disk -- rm -r a/b",
        site.state().display()
    );
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", &script]).current_dir(site.work()).env("C", site.binary());
    cofferdam_testkit::finish(&mut shell).exits(0);
    let found: Vec<_> = tree(&site.work()).into_keys().collect();
    assert_eq!(found, ["a", "old"].map(PathBuf::from));
    assert_eq!(site.read("old"), "oldnew\n");
}

/// The inside opened its own directories for a moment; the host's are still closed when the changes arrive.
#[test]
fn a_closed_directory_is_filled_and_closed_again() {
    each_layer(|site, layer| {
        let dirs = ["closed", "gone", "becomes-file"].map(|dir| site.work().join(dir));
        for dir in &dirs {
            site.write(dir.join("old"), "x");
            fs::set_permissions(dir, fs::Permissions::from_mode(0o555)).unwrap();
        }
        let done = site
            .sh("chmod 755 closed gone becomes-file; rm -r gone becomes-file closed/old; echo f > becomes-file; \
                 echo x > closed/new; chmod 555 closed")
            .with(layer)
            .exits(0);
        assert_eq!(done.err(), "");
        let found: Vec<_> = tree(&site.work()).into_iter().collect();
        let expected = [("becomes-file", "644 f\n"), ("closed", "dir 555"), ("closed/new", "644 x\n")];
        assert_eq!(found, expected.map(|(path, what)| (PathBuf::from(path), what.to_owned())));
        fs::set_permissions(&dirs[0], fs::Permissions::from_mode(0o755)).unwrap();
    });
}
