//! Images for the root of a sandbox: taken in, listed, used and removed, by every kind of user.

use crate::live::Hall;
use crate::{each, site};
use cofferdam_testkit::{Image, Mode, Registry, Site, eventually, processes_with};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn listed(site: &Site) -> Value {
    serde_json::from_str(&site.call(&["image", "ls", "--json"]).exits(0).out()).unwrap()
}

fn import(site: &Site, from: &Path, name: &str) -> Value {
    let done = site.call(&["image", "import", from.to_str().unwrap(), "--name", name, "--json"]).exits(0);
    serde_json::from_str(&done.out()).unwrap()
}

/// A site with the image `app`.
fn with_image(test: impl Fn(&Site)) {
    each(|site| {
        import(site, &Image::shared().layout(), "app");
        test(site);
    });
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const IN: &[&str] = &["--image", "app", "--workdir-at", "/work"];

#[test]
fn the_image_is_the_root_and_nothing_of_the_hosts_system_is_there() {
    with_image(|site| {
        site.write("file", "of the work dir\n");
        let script = "cat /etc/release /work/file; pwd; echo $PATH $GREETING; own-tool; ls /usr/share/emptied
            test ! -e /etc/gone; test ! -e /etc/os-release; test ! -e /usr/bin/env; test ! -e /etc/debian_version
            ls -A / | tr '\\n' ' '";
        let out = site.sh(script).with(IN).exits(0).out();
        let expected = "second\nof the work dir\n/work\n/bin:/opt/bin hello\nown tool\nnew\n\
            .cofferdam bin dev etc home lib lib64 opt proc root run srv sys tmp usr var work ";
        assert_eq!(out, expected, "{:?}", site.mode);
        // Nothing of the state directory, the home or other places of the host is within reach.
        let state = site.state();
        site.sh(&format!("test ! -e {}; test ! -e /.cofferdam/shown.0", state.display())).with(IN).exits(0);
    });
}

#[test]
fn what_the_kernel_says_of_it_is_reported() {
    with_image(|site| {
        site.run(&["true"]).with(IN).exits(0);
        let report = site.bodies("enforcement").remove(0);
        let line = |name: &str| {
            let all = report["controls"].as_array().unwrap();
            all.iter().find(|line| line["name"] == name).unwrap().clone()
        };
        let root = line("filesystem.root");
        let owned = site.mode == Mode::Root;
        assert_eq!(root["state"], if owned { "enforced" } else { "weaker" }, "{root}");
        assert!(
            root["detail"]
                .as_str()
                .unwrap()
                .starts_with("the image app:latest: nothing of the host's system"),
            "{root}"
        );
        assert_eq!(root["value"]["owners"], owned);
        assert!(root["value"]["digest"].as_str().unwrap().starts_with("sha256:"));
        assert_eq!(line("landlock")["state"], "weaker");
        for name in [
            "filesystem.workdir",
            "filesystem.host",
            "proc",
            "users",
            "seccomp",
            "no-new-privileges",
            "network",
        ] {
            assert_eq!(line(name)["state"], "enforced", "{name}");
        }
        let refused = site.run(&["true"]).with(IN).with(&["--require", "landlock"]).done();
        assert!(refused.code() != 0 && refused.err().contains("landlock"), "{}", refused.err());
    });
}

#[test]
fn the_system_is_written_to_a_layer_and_the_work_dir_is_kept() {
    with_image(|site| {
        // In `run` a plain user of the inside owns what the image gives it; with one owner for all, all of it.
        let out = site
            .sh("echo x > /work/made; echo y > /tmp/y; echo z > ~/z; id -u; echo $HOME")
            .with(IN)
            .exits(0)
            .out();
        assert!(out.ends_with("/home/user\n"), "{out}");
        assert_eq!(site.read("made"), "x\n");
        site.sh("test ! -e /tmp/y && test ! -e ~/z && cat /etc/release").with(IN).exits(0);
        let id = listed(site)[0]["digest"].as_str().unwrap().to_owned();
        let root = site.state().join("images").join(&id).join("rootfs");
        assert_eq!(fs::read_to_string(root.join("etc/release")).unwrap(), "second\n");
        assert!(!root.join("home/user/z").exists());
        if site.mode == Mode::Single {
            return;
        }
        let script =
            "set -e; echo changed > /etc/release; echo made > /usr/made; rm /opt/bin/own-tool; mv /srv /srv2
            echo 'other:x:1001:1001::/:/bin/sh' >> /etc/passwd; chown other /usr/made; ls -l /usr/made | grep -q other; cat /etc/release";
        let as_root = ["--profile", "box", "--user", "root"];
        assert_eq!(site.sh(script).with(IN).with(&as_root).exits(0).out(), "changed\n", "{:?}", site.mode);
        assert_eq!(fs::read_to_string(root.join("etc/release")).unwrap(), "second\n");
        assert!(!root.join("usr/made").exists() && root.join("opt/bin/own-tool").exists());
        site.sh("cat /etc/release; test ! -e /usr/made").with(IN).with(&as_root).exits(0);
    });
}

#[test]
fn its_own_command_runs_as_it_was_meant_to() {
    with_image(|site| {
        let out = site.call(&["run"]).with(site.mode.flags()).with(IN).exits(0).out();
        assert_eq!(out, "/srv/app\nhello\nsecond\n");
        let out = site.sh("echo $GREETING $PWD").with(IN).with(&["--env", "GREETING=mine"]).exits(0).out();
        assert_eq!(out, "mine /work\n");
    });
}

/// In a box, where there is more than one user; whoever says who it is to be is heard.
#[test]
fn its_own_command_is_who_it_was_meant_to_be() {
    with_image(|site| {
        if site.mode == Mode::Single {
            return;
        }
        let layout = site.root().join("users");
        for (name, user, expected) in [
            ("named", "daemon", "2 2 /"),
            ("numbered", "4711:42", "4711 42 /"),
            ("of-root", "root", "1000 1000 /home/user"),
        ] {
            let _ = fs::remove_dir_all(&layout);
            order(&["cp", "-r", Image::shared().layout().to_str().unwrap(), layout.to_str().unwrap()]);
            let place = format!("{}:1", layout.display());
            let said = "echo $(id -u) $(id -g) $HOME";
            let with = [
                "--config.user",
                user,
                "--config.cmd",
                "/bin/sh",
                "--config.cmd",
                "-c",
                "--config.cmd",
                said,
            ];
            order(&[&["umoci", "config", "--image", &place], &with[..]].concat());
            order(&["chmod", "-R", "a+rX", layout.to_str().unwrap()]);
            import(site, &layout, name);
            let call = |words: &[&str]| {
                let flags = ["--image", name, "--workdir-at", "/work", "--profile", "box"];
                site.call(&["run"]).with(site.mode.flags()).with(&flags).with(words).exits(0).out()
            };
            assert_eq!(call(&[]).trim(), expected, "{name}");
            assert_eq!(call(&["--user", "root"]).split(' ').next(), Some("0"), "{name}");
            assert_eq!(call(&["--", "id", "-u"]), "1000\n", "{name}");
        }
    });
}

fn order(words: &[&str]) {
    let done = std::process::Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn owners_are_those_of_the_image_where_root_unpacked_it() {
    with_image(|site| {
        let out = site.sh("stat -c '%u %a' /etc/passwd /etc/shadow /bin/busybox /home/user; cat /etc/shadow >/dev/null && echo read").with(IN).done();
        let text = out.out();
        match site.mode {
            Mode::Root => assert_eq!(text, "0 644\n0 600\n0 755\n1000 755\n", "{}", out.err()),
            _ => assert!(text.ends_with("read\n"), "{text}"),
        }
        // What had a set-id bit gains nothing, and has none.
        let out = site.sh("stat -c %a /opt/bin/raise; id -u; raise").with(IN).exits(0).out();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!((lines[0], lines[1]), ("755", lines[2]));
        let shown = site.call(&["image", "show", "app"]).exits(0).out();
        assert!(shown.contains("set-id bits of opt/bin/raise"), "{shown}");
    });
}

#[test]
fn every_form_of_an_image_is_the_same_image() {
    let site = site();
    let made = Image::shared();
    let one = import(&site, &made.layout(), "one");
    assert_eq!(one["layers"], 2);
    let mut gone = one.clone();
    for (from, name) in [(made.oci_archive(), "two"), (made.docker_archive(), "three")] {
        let other = import(&site, &from, name);
        for field in ["config", "files", "bytes", "notes", "layers"] {
            assert_eq!(other[field], one[field], "{name} {field}");
        }
        gone = other;
    }
    assert!(gone["names"].as_array().unwrap().iter().any(|name| name == "three:latest"));
    for name in ["one", "two", "three"] {
        assert_eq!(site.run(&["cat", "/etc/release"]).with(&["--image", name]).exits(0).out(), "second\n");
    }
}

#[test]
fn a_registry_gives_what_was_put_into_it() {
    let site = site();
    let registry = Registry::start(Image::shared());
    let from = format!("docker://{}/team/app:1", registry.address);
    let info: Value =
        serde_json::from_str(&site.call(&["image", "import", &from, "--json"]).exits(0).out()).unwrap();
    assert_eq!(info["names"], serde_json::json!(["team/app:1"]));
    assert_eq!(
        site.run(&["cat", "/etc/release"]).with(&["--image", "team/app:1"]).exits(0).out(),
        "second\n"
    );
    let manifest = info["manifest"].as_str().unwrap();
    let pinned = format!("docker://{}/team/app@sha256:{manifest}", registry.address);
    site.call(&["image", "import", &pinned, "--name", "pinned"]).exits(0);
    for (from, said) in [
        (format!("docker://{}/team/app:2", registry.address), "404"),
        (format!("docker://{}/team/none", registry.address), "404"),
        ("docker://127.0.0.1:1/x".to_owned(), "cannot be reached"),
        ("docker://no such".to_owned(), "no reference of a registry"),
    ] {
        let done = site.call(&["image", "import", &from, "--name", "x"]).done();
        assert!(done.code() != 0 && done.err().contains(said), "{from}: {}", done.err());
    }
    assert_eq!(listed(&site).as_array().unwrap().len(), 1);
}

/// As many as without an image, wherever the limit lies.
#[test]
fn files_are_counted_over_an_image_too() {
    with_image(|site| {
        const COUNT: &str = "n=0; while true > f$n; do n=$((n + 1)); done 2> /dev/null; echo $n";
        let on_disk: &[&str] =
            if site.mode == Mode::Root { &["--layer", "disk", "--disk", "16M"] } else { &[] };
        for place in [".", "/tmp"] {
            for most in ["1", "100"] {
                for layer in [&[][..], on_disk] {
                    let call = site.sh(&format!("cd {place}; {COUNT}")).with(IN).with(layer);
                    let done = call.with(&["--inodes", most, "--changes", "discard"]).done();
                    assert_eq!(done.out().trim(), most, "{place} {layer:?}: {}", done.err());
                }
            }
        }
    });
}

#[test]
fn an_image_in_use_stays() {
    let site = site();
    import(&site, &Image::shared().layout(), "app");
    let hall = Hall(&site);
    let session = hall.create(&["--image", "app", "--layer", "disk"]);
    let said = site.call(&["image", "rm", "app"]).exits(2).err();
    assert!(said.contains("in use"), "{said}");
    assert_eq!(listed(&site)[0]["in_use"], true);
    hall.call(&["snapshot", &session, "kept"]).exits(0);
    hall.call(&["kill", &session]).exits(0);
    let said = site.call(&["image", "rm", "app"]).exits(2).err();
    assert!(said.contains("the snapshot `kept`"), "{said}");
    hall.call(&["snapshots", "--rm", "kept"]).exits(0);
    site.call(&["image", "rm", "app"]).exits(0);
    assert_eq!(listed(&site), serde_json::json!([]));
    assert_eq!(names(&site.state().join("images")), ["names"]);
    let said = site.run(&["true"]).with(&["--image", "app"]).done();
    assert!(said.code() != 0 && said.err().contains("no image `app`"), "{}", said.err());
}

#[test]
fn what_is_wrong_is_named_and_leaves_nothing() {
    let site = site();
    let text = site.write("text", "no image");
    let empty = site.root().join("empty");
    fs::create_dir(&empty).unwrap();
    for (from, said) in [
        (text.to_str().unwrap(), "this is no image"),
        (empty.to_str().unwrap(), "without `index.json`"),
        ("/no/such/file", "No such file"),
        ("docker://Host", "no reference of a registry"),
    ] {
        let done = site.call(&["image", "import", from, "--name", "x"]).done();
        assert!(done.code() != 0 && done.err().contains(said), "{from}: {}", done.err());
    }
    let done = site.call(&["image", "import", text.to_str().unwrap(), "--name", "../x"]).exits(2);
    assert!(done.err().contains("no name of an image"), "{}", done.err());
    let layout = Image::shared().layout();
    let done =
        site.call(&["image", "import", layout.to_str().unwrap(), "--name", "x", "--most", "10K"]).done();
    assert!(done.code() != 0 && done.err().contains("--most"), "{}", done.err());
    assert_eq!(names(&site.state().join("images")), ["names"]);
    assert_eq!(names(&site.state().join("images/names")), Vec::<String>::new());
    import(&site, &layout, "app");
    for (flags, said) in [
        (&["--image", "none"][..], "no image `none`"),
        (&["--image", "app", "--workdir-at", "/proc/x"], "cannot stand at"),
        (&["--image", "app", "--isolation", "microvm"], "process tier only"),
        (&["--image", "app", "--browser"], "do not go together"),
    ] {
        let done = site.run(&["true"]).with(flags).done();
        assert!(done.code() != 0 && done.err().contains(said), "{flags:?}: {}", done.err());
    }
}

/// A layout with one layer that was changed after its digest was taken.
#[test]
fn a_blob_that_is_not_what_its_digest_says_is_refused() {
    let site = site();
    let copy = site.root().join("copy");
    let done =
        std::process::Command::new("cp").arg("-r").arg(Image::shared().layout()).arg(&copy).status().unwrap();
    assert!(done.success());
    let blobs = copy.join("blobs/sha256");
    let largest =
        names(&blobs).into_iter().max_by_key(|name| fs::metadata(blobs.join(name)).unwrap().len()).unwrap();
    let path = blobs.join(largest);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    site.call(&["image", "import", copy.to_str().unwrap(), "--name", "x"]).exits(2);
    assert_eq!(names(&site.state().join("images")), ["names"]);
}

#[test]
fn an_import_that_is_killed_leaves_nothing_that_counts() {
    let site = site();
    let layout = Image::shared().layout();
    let images = site.state().join("images");
    for wait in [0, 1, 3, 6, 12, 25, 50] {
        let running = site.call(&["image", "import", layout.to_str().unwrap(), "--name", "app"]).start();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        drop(running);
        let all = listed(&site);
        for image in all.as_array().unwrap() {
            let root = images.join(image["digest"].as_str().unwrap()).join("rootfs");
            assert_eq!(fs::read_to_string(root.join("etc/release")).unwrap(), "second\n");
        }
    }
    import(&site, &layout, "app");
    let left: Vec<String> = names(&images).into_iter().filter(|name| name.starts_with(".making")).collect();
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(site.run(&["cat", "/etc/release"]).with(&["--image", "app"]).exits(0).out(), "second\n");
}

#[test]
fn imports_at_the_same_time_are_one_image() {
    let site = site();
    let layout = Image::shared().layout();
    let started: Vec<_> = (0..4)
        .map(|at| {
            site.call(&["image", "import", layout.to_str().unwrap(), "--name", &format!("app{at}")]).start()
        })
        .collect();
    for running in started {
        running.finish().exits(0);
    }
    let all = listed(&site);
    assert_eq!(all.as_array().unwrap().len(), 1);
    assert_eq!(all[0]["names"].as_array().unwrap().len(), 4);
    assert_eq!(names(&site.state().join("images")).len(), 2);
}

#[test]
fn a_session_keeps_its_system_and_snapshots_carry_it_on() {
    let site = site();
    import(&site, &Image::shared().layout(), "app");
    let hall = Hall(&site);
    for place in ["memory", "disk"] {
        let root: &[&str] = if site.mode == Mode::Root { &["--profile", "box"] } else { &[] };
        let flags = [IN, root, &["--layer", place]].concat();
        let session = hall.create(&flags);
        let as_root: &[&str] = if site.mode == Mode::Root { &["--user", "root"] } else { &[] };
        let exec = |session: &str, script: &str| {
            let words = [&["exec"], as_root, &[session, "--", "sh", "-c", script]].concat();
            hall.call(&words).exits(0).out()
        };
        exec(&session, "echo installed > /usr/tool; rm /etc/release; echo w > /work/w");
        assert_eq!(exec(&session, "cat /usr/tool; test ! -e /etc/release"), "installed\n");
        // A transaction covers the system too.
        hall.call(&["begin", &session]).exits(0);
        exec(&session, "echo broken > /usr/tool; echo x > /usr/other");
        hall.call(&["rollback", &session]).exits(0);
        assert_eq!(exec(&session, "cat /usr/tool; test ! -e /usr/other"), "installed\n");
        hall.call(&["begin", &session]).exits(0);
        exec(&session, "echo second > /usr/second; rm /usr/tool");
        hall.call(&["commit", &session]).exits(0);
        assert_eq!(exec(&session, "cat /usr/second; test ! -e /usr/tool"), "second\n");
        let name = format!("snap-{place}");
        hall.call(&["snapshot", &session, &name]).exits(0);
        exec(&session, "echo after > /usr/second");
        let flags = [root, &["--workdir-at", "/work", "--from", &name]].concat();
        let other = hall.create(&flags);
        assert_eq!(
            exec(&other, "cat /usr/second /work/w; test ! -e /etc/release; test ! -e /usr/tool"),
            "second\nw\n"
        );
        let fork = hall.call(&["fork", &session]).exits(0).out().trim().to_owned();
        assert_eq!(exec(&fork, "cat /usr/second; test ! -e /etc/release"), "after\n");
        // The work dir's changes are carried out, and the system stays as it is.
        hall.call(&["commit", &session]).exits(0);
        assert_eq!(site.read("w"), "w\n");
        assert_eq!(exec(&session, "cat /usr/second"), "after\n");
        hall.call(&["restore", &session, &name]).done();
        for session in [&session, &other, &fork] {
            hall.call(&["kill", session, "--changes", "discard"]).exits(0);
        }
        let said = hall.creating(&["--from", &name, "--image", "none"]).done();
        assert!(said.code() != 0, "{}", said.out());
        fs::remove_file(site.work().join("w")).unwrap();
        hall.call(&["snapshots", "--rm", &name]).exits(0);
    }
}

/// Whatever the inside makes of its own tree, the next room of the session is built within it.
#[test]
fn links_that_the_inside_plants_lead_the_next_room_nowhere() {
    let site = site();
    if site.mode != Mode::Root {
        return;
    }
    import(&site, &Image::shared().layout(), "app");
    let outside = site.root().join("outside");
    fs::create_dir_all(outside.join("deep")).unwrap();
    let hall = Hall(&site);
    let flags = ["--image", "app", "--workdir-at", "/planted/deep/work", "--profile", "box"];
    let session = hall.create(&flags);
    let exec = |script: &str| {
        hall.call(&["exec", "--user", "root", &session, "--cwd", "/", "--", "sh", "-c", script])
    };
    exec(&format!("mv /planted /planted2 && ln -s {} /planted && ls -ld /planted", outside.display()))
        .exits(0);
    hall.call(&["begin", &session]).exits(0);
    exec("echo made > /planted/deep/work/made; test -d /planted && test ! -L /planted").exits(0);
    assert_eq!(names(&outside), ["deep"]);
    assert_eq!(names(&outside.join("deep")), Vec::<String>::new());
    hall.call(&["kill", &session, "--changes", "discard"]).exits(0);
}

#[test]
fn nothing_is_left_of_a_run_that_is_killed() {
    with_image(|site| {
        let mark = format!("sleep-{}", site.root().file_name().unwrap().to_string_lossy());
        let running = site.sh(&format!("echo up; : {mark}; sleep 1000; :")).with(IN).start();
        eventually("the command", || (!processes_with(&mark).is_empty()).then_some(()));
        drop(running);
        eventually("its end", || processes_with(&mark).is_empty().then_some(()));
        site.run(&["true"]).with(IN).exits(0);
        assert_eq!(site.remains(), Vec::<String>::new());
    });
}
