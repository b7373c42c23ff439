//! Volumes outlive sessions; archives bring their files to other ones.

use crate::live::Hall;
use crate::tx::{CHANGE, furnish};
use crate::{each, site};
use cofferdam_testkit::{Mode, Site, for_each_mode};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

fn listed(site: &Site) -> Value {
    serde_json::from_str(&site.call(&["volume", "ls", "--json"]).exits(0).out()).unwrap()
}

#[test]
fn what_is_written_stays_and_is_shared() {
    each(|site| {
        site.call(&["volume", "create", "cache"]).exits(0);
        site.call(&["volume", "create", "acme/cache"]).exits(0);
        let shown: &[&str] = &["--volume", "cache:/cache"];
        let done =
            site.sh("echo kept > /cache/file; mkdir /cache/dir; ls -ld /cache/file").with(shown).exits(0);
        assert!(!done.out().contains("nobody"), "{}", done.out());
        assert_eq!(site.sh("cat /cache/file").with(shown).exits(0).out(), "kept\n");
        // Only what is named is there, under its own name, and as it was asked for.
        site.sh("test ! -e /cache").exits(0);
        assert_eq!(site.sh("ls /cache").with(&["--volume", "acme/cache:/cache"]).exits(0).out(), "");
        site.sh("echo x > /cache/file").with(&["--volume", "cache:/cache:ro"]).exits(2);
        // The work dir's changes are another matter.
        site.sh("echo more >> /cache/file; echo x > made")
            .with(shown)
            .with(&["--changes", "discard"])
            .exits(0);
        assert!(!site.work().join("made").exists());
        assert_eq!(site.sh("cat /cache/file").with(shown).exits(0).out(), "kept\nmore\n");
        let all = listed(site);
        assert_eq!((&all[0]["name"], &all[1]["name"]), (&"cache".into(), &"acme/cache".into()), "{all}");
        assert!(all[0]["files"] == 2 && all[0]["in_use"] == false, "{all}");
        site.call(&["volume", "rm", "cache"]).exits(0);
        site.call(&["volume", "rm", "acme/cache"]).exits(0);
        assert_eq!(listed(site), serde_json::json!([]));
        assert_eq!(fs::read_dir(site.state().join("volumes")).unwrap().count(), 0);
    });
}

#[test]
fn what_is_wrong_is_named() {
    let site = site();
    for (words, said) in [
        (&["volume", "create", "../x"][..], "is no name of a volume"),
        (&["volume", "show", "none"], "there is no volume `none`"),
        (&["volume", "rm", "none"], "there is no volume `none`"),
    ] {
        let done = site.call(words).exits(2);
        assert!(done.err().contains(said), "{}", done.err());
    }
    site.call(&["volume", "create", "one"]).exits(0);
    assert!(site.call(&["volume", "create", "one"]).exits(2).err().contains("already"));
    for (volume, said) in
        [("none:/x", "there is no volume `none`"), ("one:x", "absolute path"), ("one", "NAME:TARGET")]
    {
        let done = site.run(&["true"]).with(&["--volume", volume]).done();
        assert!(done.code() != 0 && done.err().contains(said), "{}", done.err());
    }
}

/// What was planted inside is not followed outside, and one that is in use is not removed.
#[test]
fn a_volume_in_use_stays_and_links_in_it_lead_nowhere() {
    let site = site();
    site.call(&["volume", "create", "v"]).exits(0);
    let outside = site.write(site.root().join("outside/file"), "mine");
    let script = format!(
        "ln -s {0} /v/link; ln -s {0}/.. /v/dir; chmod 0 /v/link 2>/dev/null; sleep 600",
        outside.display()
    );
    let hall = Hall(&site);
    hall.create(&["--name", "s", "--volume", "v:/v"]);
    hall.call(&["exec", "-d", "s", "--", "sh", "-c", &script]).exits(0);
    let done = site.call(&["volume", "rm", "v"]).exits(2);
    assert!(done.err().contains("in use"), "{}", done.err());
    assert_eq!(listed(&site)[0]["in_use"], true);
    hall.asks(&["kill", "s"]);
    site.call(&["volume", "rm", "v"]).exits(0);
    assert_eq!(fs::read_to_string(outside).unwrap(), "mine");
    // One that a killed process was about to remove goes with the next.
    fs::create_dir_all(site.state().join("volumes/.gone-x/data")).unwrap();
    symlink("/etc", site.state().join("volumes/.gone-x/data/etc")).unwrap();
    site.call(&["volume", "create", "w"]).exits(0);
    assert!(!site.state().join("volumes/.gone-x").exists() && fs::metadata("/etc/passwd").is_ok());
}

/// Those that can have a layer on disk.
fn each_on_disk(test: impl Fn(&Site)) {
    for_each_mode(crate::BINARY, |site| {
        if site.mode != Mode::Range {
            test(site);
        }
    });
}

#[test]
fn an_archive_brings_the_files_back_over_the_same_work_dir() {
    each_on_disk(|site| {
        furnish(site);
        let hall = Hall(site);
        hall.create(&["--layer", "disk", "--name", "s"]);
        hall.does("s", CHANGE);
        hall.asks(&["snapshot", "s", "between"]);
        hall.does("s", "echo later > later; rm -rf dir");
        let before = hall.print("s");
        let file = site.home().join("s.tar.zst");
        let path = file.to_str().unwrap();
        hall.asks(&["archive", "s", path]);
        assert_eq!(hall.print("s"), before, "it goes on");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(hall.call(&["archive", "s", path]).exits(2).err().contains("is there already"));
        hall.asks(&["kill", "s", "--changes", "discard"]);
        hall.asks(&["snapshots", "--rm", "between"]);
        assert_eq!(
            fs::read_dir(site.state().join("frozen")).unwrap().count(),
            0,
            "nothing is kept but the file"
        );
        hall.asks(&["unarchive", path, "back"]);
        assert!(hall.call(&["unarchive", path, "back"]).exits(2).err().contains("already"));
        // Copy on write: two begin with it and go their own ways.
        for name in ["one", "two"] {
            hall.create(&["--layer", "disk", "--name", name, "--from", "back"]);
            assert_eq!(hall.print(name), before);
        }
        hall.does("one", "echo mine > later");
        assert_eq!(hall.print("two"), before);
        hall.asks(&["kill", "one", "--changes", "discard"]);
        hall.asks(&["kill", "two"]);
        assert_eq!(site.read("later"), "later\n");
        hall.asks(&["snapshots", "--rm", "back"]);
        assert_eq!(fs::read_dir(site.state().join("frozen")).unwrap().count(), 0);
        let done = hall.call(&["unarchive", site.binary().to_str().unwrap(), "x"]).exits(2);
        assert!(done.err().contains("archive"), "{}", done.err());
        assert_eq!(
            fs::read_dir(site.state().join("frozen")).unwrap().count(),
            0,
            "what failed leaves nothing"
        );
    });
}

/// Killed while it writes or reads an archive, the supervisor leaves nothing that the next does not remove.
#[test]
fn nothing_is_left_of_an_archive_whose_supervisor_is_killed() {
    let site = site();
    let hall = Hall(&site);
    // Its own files would be a snapshot after.
    hall.create(&["--layer", "disk", "--name", "s", "--changes", "discard"]);
    hall.does("s", "i=0; while [ $i -lt 300 ]; do head -c 100000 /dev/urandom > f$i; i=$((i+1)); done");
    let file = site.home().join("a");
    hall.asks(&["archive", "s", file.to_str().unwrap()]);
    for words in [vec!["archive", "s", "b"], vec!["unarchive", file.to_str().unwrap(), "back"]] {
        let running = hall.call(&words).start();
        std::thread::sleep(std::time::Duration::from_millis(60));
        let pid = hall.supervisor().unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let told = running.finish();
        // It may have been done just before: then the file is whole. Otherwise there is none, and no part of one.
        if words[0] == "archive" {
            assert_eq!(site.work().join("b").exists(), told.code() == 0, "{}", told.err());
            let part = |name: &str| name.starts_with("b.");
            let names = fs::read_dir(site.work()).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(names.filter(|name| part(&name.to_string_lossy())).count(), 0);
        }
        hall.create(&["--name", "next"]);
        hall.asks(&["kill", "next"]);
        let frozen = fs::read_dir(site.state().join("frozen")).map_or(0, Iterator::count);
        let named = fs::read_dir(site.state().join("snapshots")).map_or(0, Iterator::count);
        assert!(frozen == named, "{frozen} layers, {named} snapshots after {words:?}");
        if named > 0 {
            hall.asks(&["snapshots", "--rm", "back"]);
        }
    }
}
