//! What was changed inside and outside: a commit overwrites nothing, and both versions are to be had afterwards.

use crate::crash::nothing_is_left;
use crate::live::Hall;
use crate::{each, site};
use cofferdam_testkit::{Mode, Site, eventually};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;

fn json(site: &Site, words: &[&str]) -> Value {
    serde_json::from_str(&site.call(words).with(&["--json"]).exits(0).out()).unwrap()
}

/// A run that changes `both` and `dir/new`, which are written outside while it lasts.
fn meet(site: &Site) -> (String, Value) {
    site.write("both", "before\n");
    let mount = format!("{}:/shared:rw", site.home().display());
    let script = "printf 'inside\\n' > both; mkdir dir; echo inside > dir/new; chmod 755 both; \
        : > /shared/ready; while ! test -e /shared/go; do sleep 0.02; done";
    let running = site.sh(script).with(&["--changes", "keep", "--mount", &mount]).start();
    eventually("the session's changes", || site.home().join("ready").exists().then_some(()));
    site.write("both", "outside\n");
    site.write("dir", "a file\n");
    site.write(site.home().join("go"), "");
    let done = running.finish().exits(0);
    (done.err(), site.bodies("changes.decided")[0].clone())
}

#[test]
fn the_insides_version_is_named_shown_and_taken() {
    each(|site| {
        let (told, decided) = meet(site);
        let name = decided["aside"].as_str().unwrap().to_owned();
        assert_eq!(name, site.traces()[0]);
        assert!(told.contains("not kept: both") && told.contains(&format!("conflict take {name}")), "{told}");
        let shown = site.call(&["trace", "show", "latest"]).exits(0).out();
        assert!(shown.contains(&format!("conflict show {name}")), "{shown}");
        assert_eq!(site.read("both"), "outside\n");

        let all = json(site, &["conflict", "ls"]);
        assert_eq!((all.as_array().unwrap().len(), &all[0]["name"]), (1, &Value::from(name.as_str())));
        let one = json(site, &["conflict", "show", &name[..12]]);
        let paths: Vec<_> =
            one["paths"].as_array().unwrap().iter().map(|p| p["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["both", "dir", "dir/new"]);
        assert_eq!(one["paths"][0]["mode"], 0o755);
        let files = one["files"].as_str().unwrap();
        for (path, mode) in [("both", 0o600), ("dir", 0o700), ("dir/new", 0o600), ("..", 0o700)] {
            let found = fs::metadata(format!("{files}/{path}")).unwrap().mode() & 0o7777;
            assert_eq!(found, mode, "{path}");
        }
        assert_eq!(site.call(&["conflict", "show", "latest", "both"]).exits(0).out(), "inside\n");
        let diff = site.call(&["conflict", "diff", "latest", "both"]).exits(0).out();
        assert!(diff.contains("-outside\n+inside"), "{diff}");

        // Nothing is replaced unasked.
        let refused = site.call(&["conflict", "take", "latest", "both"]).exits(1).err();
        assert!(refused.contains("--over"), "{refused}");
        assert_eq!(site.read("both"), "outside\n");
        site.call(&["conflict", "take", "latest", "both", "--over"]).exits(0);
        assert_eq!(site.read("both"), "inside\n");
        assert_eq!(fs::metadata(site.work().join("both")).unwrap().mode() & 0o7777, 0o755);
        fs::remove_file(site.work().join("dir")).unwrap();
        site.call(&["conflict", "take", "latest", "dir"]).exits(0);
        assert_eq!(site.read("dir/new"), "inside\n");
        let owners = |path: &str| fs::metadata(site.work().join(path)).map(|m| (m.uid(), m.gid())).unwrap();
        assert_eq!((owners("both"), owners("dir/new")), (owners("."), owners(".")));
        assert!(site.call(&["conflict", "take", "latest", "../x"]).exits(2).err().contains("no version of"));

        site.call(&["conflict", "rm", &name]).exits(0);
        assert_eq!(fs::read_dir(site.state().join("conflicts")).unwrap().count(), 0);
        assert!(site.call(&["conflict", "show", &name]).exits(2).err().contains("conflict ls"));
        nothing_is_left(site);
    });
}

#[test]
fn a_session_keeps_what_each_of_its_commits_left_out() {
    each(|site| {
        if site.mode == Mode::Range {
            return;
        }
        for place in ["memory", "disk"] {
            let hall = Hall(site);
            site.write("file", "before\n");
            let id = hall.create(&["--layer", place]);
            hall.does(&id, "echo first > file");
            site.write("file", "outside 1\n");
            let told: Value =
                serde_json::from_str(&hall.call(&["commit", &id, "--json"]).exits(0).out()).unwrap();
            assert_eq!(told["host"]["aside"], id.as_str());
            assert_eq!(hall.does(&id, "cat file; echo second > file"), "outside 1\n");
            site.write("file", "outside 2\n");
            let second = format!("{id}.2");
            let told = hall.call(&["kill", &id, "--changes", "keep"]).exits(0).err();
            assert!(told.contains(&format!("conflict take {second}")), "{told}");
            assert_eq!(site.read("file"), "outside 2\n");
            for (name, text) in [(&id, "first\n"), (&second, "second\n")] {
                assert_eq!(site.call(&["conflict", "show", name, "file"]).exits(0).out(), text);
            }
            nothing_is_left(site);
        }
    });
}

/// As long as the operator says, and not longer.
#[test]
fn what_is_old_goes_with_the_next_start() {
    let site = site();
    let (_, decided) = meet(&site);
    let dir = site.state().join("conflicts").join(decided["aside"].as_str().unwrap());
    let dated = |days: u64| {
        let at = std::time::SystemTime::now() - std::time::Duration::from_secs(days * 24 * 3600);
        fs::File::open(&dir).unwrap().set_modified(at).unwrap();
        site.run(&["true"]).exits(0);
    };
    dated(29);
    assert!(dir.exists());
    fs::write(site.state().join("operator.toml"), "[sessions]\nkeep-conflicts = \"60d\"").unwrap();
    dated(31);
    assert!(dir.exists());
    fs::remove_file(site.state().join("operator.toml")).unwrap();
    dated(31);
    eventually("what is old to go", || (!dir.exists()).then_some(()));
}
