//! Prepared sandboxes: claimed once, bound late, held as any other, and gone when nobody wants them.

use crate::crash::nothing_is_left;
use crate::each;
use crate::live::Hall;
use cofferdam_testkit::{Mode, Site, eventually, groups_of};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn pool(site: &Site) -> Value {
    serde_json::from_str(&site.call(&["pool", "ls", "--json"]).exits(0).out()).unwrap()
}

fn marks(site: &Site) -> Vec<String> {
    let found = fs::read_dir(site.state().join("pool")).into_iter().flatten().flatten();
    found.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Waits until so many of the latest kind are ready.
fn ready(site: &Site, count: u64) {
    eventually("the pool to be full", || (pool(site)["kinds"][0]["ready"] == count).then_some(()));
}

/// What is in force, without what is another for every sandbox: numbers of namespaces and groups, the range of ids.
fn enforcement(site: &Site, id: &str) -> Vec<(String, String, String)> {
    let events = fs::read_to_string(site.events_file(id)).unwrap();
    let event = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let report = event.into_iter().find(|event| event["kind"] == "enforcement").unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let own = |detail: String| {
        detail.split(' ').filter(|word| word.parse::<u64>().is_err()).collect::<Vec<_>>().join(" ")
    };
    let controls = report["body"]["controls"].as_array().unwrap();
    controls.iter().map(|c| (text(&c["name"]), text(&c["state"]), own(text(&c["detail"])))).collect()
}

#[test]
fn a_prepared_sandbox_is_held_as_one_made_from_nothing() {
    each(|site| {
        let hall = Hall(site);
        let policy = site.write("p.toml", "");
        let data = site.root().join("data");
        fs::create_dir(&data).unwrap();
        site.give(&data);
        fs::write(data.join("shown"), "shown\n").unwrap();
        let mount = format!("{}:/data:ro", data.display());
        let memory: &[&str] =
            if site.mode == Mode::Root { &["--memory", "200M", "--cpu", "0.5"] } else { &[] };
        let plain = [&["--pids", "77", "--mount", &mount, "--env", "LATE=yes"][..], memory].concat();
        let guarded = [&plain[..], &["--policy", policy.to_str().unwrap()]].concat();
        let boxed = [&guarded[..], &["--profile", "box", "--sudo"]].concat();
        // As the service's are.
        let at_home = [&boxed[..], &["--workdir-at", "/home/user"]].concat();
        let several = site.mode != Mode::Single;
        let kinds = [Some(&plain), Some(&guarded), several.then_some(&boxed), several.then_some(&at_home)];
        for flags in kinds.into_iter().flatten() {
            site.call(&["pool", "set", "0"]).exits(0);
            let cold = hall.create(flags);
            site.call(&["pool", "set", "2"]).exits(0);
            // The kind is known from the first that is asked for, and then ready.
            hall.asks(&["kill", &hall.create(flags)]);
            ready(site, 2);
            let before = pool(site)["claimed"].as_u64().unwrap();
            let pooled = hall.create(flags);
            assert_eq!(pool(site)["claimed"].as_u64().unwrap(), before + 1);
            assert_eq!(enforcement(site, &pooled), enforcement(site, &cold));
            let look = "cat /data/shown; echo $LATE; ulimit -n; grep -E 'Seccomp|Cap|NoNew' /proc/self/status; \
                 cut -d' ' -f5,6 /proc/self/mountinfo | sort; ls -A; cat /proc/sys/kernel/hostname";
            assert_eq!(hall.does(&pooled, look), hall.does(&cold, look));
            assert!(hall.does(&pooled, look).starts_with("shown\nyes\n"));
            if flags == &boxed || flags == &at_home {
                let root = "sudo id -u; type sudo; stat -c '%A %u %s' $(command -v sudo)";
                assert_eq!(hall.does(&pooled, root), hall.does(&cold, root));
                assert!(hall.does(&pooled, root).starts_with("0\n"));
            }
            if site.mode != Mode::Range {
                hall.does(&pooled, "echo x > made");
                hall.asks(&["begin", &pooled]);
                hall.does(&pooled, "rm made");
                hall.asks(&["rollback", &pooled]);
                assert_eq!(hall.does(&pooled, "cat made"), "x\n");
            }
            if hall.can_pause() {
                hall.asks(&["pause", &pooled]);
                hall.asks(&["resume", &pooled]);
                assert!(hall.show(&pooled)["usage"]["cpu_us"].as_u64().unwrap() > 0);
            }
            for id in [&pooled, &cold] {
                hall.asks(&["kill", id, "--changes", "discard"]);
                site.call(&["trace", "verify", id]).exits(0);
            }
        }
        site.call(&["pool", "set", "0"]).exits(0);
        eventually("what was prepared to be gone", || marks(site).is_empty().then_some(()));
        nothing_is_left(site);
    });
}

/// The mounts of every guest that the supervisor has, as the host names them.
fn guests(hall: &Hall<'_>) -> Vec<PathBuf> {
    let tasks = format!("/proc/{}/task", hall.supervisor().unwrap().as_raw_nonzero());
    let children = fs::read_dir(tasks).unwrap().flatten();
    let children = children.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<String> =
        children.flat_map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
    let of = |pid: &str, name: &str| Path::new("/proc").join(pid).join(name);
    let is_guest = |pid: &&String| {
        fs::read_to_string(of(pid, "comm")).is_ok_and(|name| name.trim() == "memfd:cofferdam")
    };
    pids.iter().filter(is_guest).filter_map(|pid| fs::read_link(of(pid, "ns/mnt")).ok()).collect()
}

/// The same of a session, as it sees them itself.
fn mounts(hall: &Hall<'_>, id: &str) -> PathBuf {
    hall.does(id, "readlink /proc/self/ns/mnt").trim().into()
}

/// How many processes are in these mounts, as the host sees it.
fn present(mounts: &Path) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("ns/mnt"));
    all.filter(|link| fs::read_link(link).is_ok_and(|own| own == mounts)).count()
}

/// A claim finds the guest running, and what is left to bind is bound: late, but before anything runs.
#[test]
fn the_guest_of_a_prepared_sandbox_has_waited_for_its_session() {
    each(|site| {
        let hall = Hall(site);
        site.call(&["pool", "set", "1"]).exits(0);
        hall.asks(&["kill", &hall.create(&[])]);
        ready(site, 1);
        let waiting = guests(&hall);
        // Where others map the ids, it is taken no further than its namespaces.
        let waits = site.mode != Mode::Range;
        let id = hall.create(&["--changes", "discard"]);
        let own = mounts(&hall, &id);
        assert_eq!(waiting.contains(&own), waits, "{own:?} of {waiting:?}");
        // Landlock names the work dir, which was not there when the guest began.
        let tries = "echo x > own && cat own; (echo x > /run/cofferdam.probe) 2>&1 | grep -o 'Permission denied'; \
             (echo x > /usr/x) 2>&1 | grep -o 'Read-only file system'; (mkdir /made) 2>&1 | grep -o 'Read-only file system'";
        let said = "x\nPermission denied\nRead-only file system\nRead-only file system\n";
        assert_eq!(hall.does(&id, tries), said);
        eventually("nobody but the guest to be in it", || (present(&own) == 1).then_some(()));
        hall.asks(&["kill", &id]);

        // Boxes with all that the service's have, too.
        if site.mode != Mode::Single {
            let flags = ["--changes", "discard", "--profile", "box", "--sudo", "--workdir-at", "/home/user"];
            hall.asks(&["kill", &hall.create(&flags)]);
            ready(site, 1);
            let waiting = guests(&hall);
            let id = hall.create(&flags);
            assert_eq!(hall.does(&id, "sudo id -u; echo x > ~/own && cat /home/user/own"), "0\nx\n");
            assert_eq!(waiting.contains(&mounts(&hall, &id)), waits);
            hall.asks(&["kill", &id]);
            hall.asks(&["kill", &hall.create(&[])]);
        }

        // What was made ahead does not fit this one: it is made from nothing, and has what it asked for.
        ready(site, 1);
        let waiting = guests(&hall);
        let data = site.root().join("data");
        fs::create_dir(&data).unwrap();
        site.give(&data);
        let id = hall.create(&["--changes", "discard", "--mount", &format!("{}:/data:rw", data.display())]);
        assert!(!waiting.contains(&mounts(&hall, &id)));
        hall.does(&id, "echo kept > /data/made");
        assert_eq!(fs::read_to_string(data.join("made")).unwrap(), "kept\n");
        hall.asks(&["kill", &id]);
    });
}

/// Whatever the one before did is not in the next, and one that does not fit is not given out.
#[test]
fn none_is_given_out_twice() {
    each(|site| {
        let hall = Hall(site);
        site.call(&["pool", "set", "1"]).exits(0);
        hall.asks(&["kill", &hall.create(&[])]);
        for _ in 0..3 {
            ready(site, 1);
            let id = hall.create(&["--changes", "discard"]);
            assert_eq!(hall.does(&id, "cat /tmp/left $HOME/left left 2> /dev/null; ls /proc | grep -c '^[0-9]' | head -1 > /dev/null; :"), "");
            hall.does(&id, "echo x > /tmp/left; echo x > $HOME/left; echo x > left; setsid sleep 1000 > /dev/null 2>&1 &");
            hall.asks(&["kill", &id]);
        }
        // More at once than are ready.
        ready(site, 1);
        let all: Vec<String> = (0..3).map(|_| hall.create(&[])).collect();
        let info = pool(site);
        assert!(info["missed"].as_u64().unwrap() >= 1 && info["claimed"].as_u64().unwrap() >= 4, "{info}");
        for id in &all {
            hall.does(id, "true");
            hall.asks(&["kill", id]);
        }
        assert!(site.call(&["pool", "set", "1000"]).exits(2).err().contains("64"));
    });
}

#[test]
fn nothing_is_left_of_a_pool_whose_supervisor_is_killed() {
    each(|site| {
        let hall = Hall(site);
        for moment in [0, 10, 25, 60] {
            site.call(&["pool", "set", "3"]).exits(0);
            std::thread::sleep(std::time::Duration::from_millis(moment));
            let id = hall.create(&[]);
            let before = marks(site);
            hall.kill_supervisor();
            site.run(&["true"]).exits(0);
            hall.asks(&["kill", &id]);
            assert_eq!(marks(site), Vec::<String>::new());
            eventually("their groups to be gone", || {
                before.iter().all(|id| groups_of(id).is_empty()).then_some(())
            });
            nothing_is_left(site);
        }
    });
}
