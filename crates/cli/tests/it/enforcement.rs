//! The report of what is in force: as a caller sees it, and as a caller can demand it.

use crate::each;
use cofferdam_testkit::Mode;

const MUST: &[&str] = &[
    "namespace.user",
    "namespace.mount",
    "namespace.pid",
    "namespace.net",
    "namespace.ipc",
    "namespace.uts",
    "namespace.cgroup",
    "users",
    "groups",
    "filesystem.root",
    "filesystem.workdir",
    "filesystem.host",
    "proc",
    "network",
    "no-new-privileges",
    "capabilities",
    "landlock",
    "seccomp",
    "seccomp.record",
    "limit.files",
    "hidden",
];

#[test]
fn every_control_is_in_force() {
    each(|site| {
        site.run(&["true"]).exits(0);
        let report = &site.bodies("enforcement")[0];
        let controls = report["controls"].as_array().unwrap();
        for name in MUST {
            let line = controls.iter().find(|control| control["name"] == *name);
            let line = line.unwrap_or_else(|| panic!("no line for {name} in {report}"));
            assert_eq!(line["state"], "enforced", "{line}");
        }
    });
}

#[test]
fn what_is_in_force_can_be_required() {
    each(|site| {
        let flags: Vec<&str> = MUST.iter().flat_map(|name| ["--require", name]).collect();
        site.run(&["true"]).with(&flags).exits(0);
    });
}

#[test]
fn an_unmet_floor_is_refused() {
    each(|site| {
        for floor in ["microvm", "gvisor"] {
            let done =
                site.run(&["echo", "ran"]).with(&["--isolation", "process", "--floor", floor]).exits(125);
            assert!(done.out().is_empty() && done.err().contains(floor), "{}", done.err());
        }
        site.run(&["true"]).with(&["--floor", "process"]).exits(0);
        // A layer on disk has no limit, so one cannot be required of it.
        let flags = ["--require", "limit.disk", "--layer", "disk"];
        let done = site.run(&["echo", "ran"]).with(&flags).exits(125);
        let named = if site.mode == Mode::Range { "--layer disk" } else { "limit.disk" };
        assert!(done.out().is_empty() && done.err().contains(named), "{}", done.err());
        site.run(&["true"]).with(&["--require", "limit.disk", "--disk", "64M"]).exits(0);
    });
}

#[test]
fn a_refused_run_is_on_record() {
    each(|site| {
        site.run(&["echo", "ran"]).with(&["--require", "no-such-control"]).exits(125);
        let ended = &site.bodies("session.ended")[0];
        assert!(ended["error"].as_str().unwrap().contains("no-such-control"), "{ended}");
        site.call(&["trace", "verify", "latest"]).exits(0);
    });
}

#[test]
fn what_is_weaker_by_request_is_told() {
    each(|site| {
        let mount = format!("{}:/data:rw", site.home().display());
        // As nested sandboxes do it: namespaces, a mount, a /proc of its own.
        let script =
            "unshare -Urmpf --mount-proc sh -c 'mount -t tmpfs none /tmp && ls /proc | grep -c ^[0-9]'";
        let done = site.sh(script).with(&["--nested", "--mount", &mount]).exits(0);
        assert!(done.out().trim().parse::<u32>().unwrap() < 5, "{}", done.out());
        // The settings of the kernel are nobody's there either.
        let done = site
            .sh("echo x > /.cofferdam/proc/sys/kernel/core_pattern")
            .with(&["--nested", "--mount", &mount])
            .done();
        assert_ne!(done.code(), 0);
        let report = &site.bodies("enforcement")[0];
        for name in ["seccomp", "filesystem.host", "landlock", "proc"] {
            let controls = report["controls"].as_array().unwrap();
            let line = controls.iter().find(|control| control["name"] == name).unwrap();
            assert_eq!(line["state"], "weaker", "{line}");
        }
    });
}

/// A box is a machine for several users, whose root is nobody outside.
#[test]
fn a_box_has_users_of_its_own() {
    each(|site| {
        if site.mode == Mode::Single {
            let done = site.run(&["true"]).with(&["--profile", "box"]).exits(125);
            return assert!(done.err().contains("--users range"), "{}", done.err());
        }
        let done = site.sh("id -un; id -u; echo x > made").with(&["--profile", "box"]).exits(0);
        assert_eq!(done.out(), "user\n1000\n");
        assert_eq!(site.read("made"), "x\n");
    });
}

/// Root of a box changes owners inside and reads no file of the host's root; without a box there is no root.
#[test]
fn root_in_a_box_owns_the_box_and_nothing_else() {
    each(|site| {
        let done = site.run(&["id"]).with(&["--user", "root"]).exits(125);
        assert!(done.err().contains("--profile box"), "{}", done.err());
        if site.mode == Mode::Single {
            return;
        }
        let script = "id -u; touch /tmp/f; chown 33:33 /tmp/f; stat -c %u /tmp/f; cat /etc/shadow; \
            mknod /tmp/null c 1 3; mount -t tmpfs x /tmp; echo x > made; chmod 4755 made; true";
        let done = site.sh(script).with(&["--profile", "box", "--user", "root"]).exits(0);
        assert_eq!(done.out(), "0\n33\n");
        for refused in ["shadow: Permission denied", "null: Operation not permitted", "mount: /tmp:"] {
            assert!(done.err().contains(refused), "{refused}: {}", done.err());
        }
        let kept = std::fs::metadata(site.work().join("made"));
        let mode = kept.map(|meta| std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o7000);
        assert_eq!(mode.unwrap(), 0, "no set-id file reaches the host");
    });
}
