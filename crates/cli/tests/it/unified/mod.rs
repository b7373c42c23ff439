//! A host whose control groups are of version 2 only, which most are: a real kernel is booted with nothing else, as it is
//! booted by systemd, and the program is run by root, by a user with a manager of its own, by a service of that user's,
//! and by a login to which nothing is delegated. What holds is what that kernel says.

use crate::BINARY;
use cofferdam_testkit::{finish, program};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const INIT: &str = include_str!("init.sh");
const CASES: &str = include_str!("cases.sh");

/// What a sandbox needs that distributions build as modules, and a disk, with how they are loaded.
const MODULES: [(&str, &str); 4] =
    [("brd", " rd_nr=1 rd_size=131072"), ("overlay", ""), ("nf_tables", ""), ("nft_tproxy", "")];

/// What was said in each case, and how it ended.
type Said = BTreeMap<String, (String, i32)>;

fn needed(name: &str, package: &str) -> PathBuf {
    program(name).unwrap_or_else(|| panic!("{name} is missing: apt-get install {package}"))
}

/// A kernel of the distribution's, and its modules.
fn kernel() -> (PathBuf, PathBuf) {
    let names = fs::read_dir("/boot").into_iter().flatten().flatten();
    let mut releases: Vec<String> = names
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("vmlinuz-").map(str::to_owned))
        .filter(|release| release.contains("cloud"))
        .collect();
    releases.sort();
    let release = releases.pop().expect("no kernel to boot: apt-get install linux-image-cloud-amd64");
    (format!("/boot/vmlinuz-{release}").into(), format!("/lib/modules/{release}").into())
}

fn module_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

/// Copies the modules and what they need, and lists them in the order in which they can be loaded.
fn put_modules(from: &Path, to: &Path) {
    let listed = fs::read_to_string(from.join("modules.dep")).unwrap();
    let all: HashMap<String, (&str, &str)> = listed
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (module_name(path), (path, needs)))
        .collect();
    let (mut there, mut order) = (HashSet::new(), String::new());
    for (name, options) in MODULES {
        let Some((path, needs)) = all.get(name) else { continue };
        // What a module needs is listed the nearest first.
        for one in needs.split_whitespace().rev().chain([*path]) {
            if there.insert(one) {
                let name = format!("{}.ko", module_name(one));
                let bytes = fs::read(from.join(one)).unwrap();
                assert!(one.ends_with(".ko"), "{one} is compressed, and nothing here unpacks it");
                fs::write(to.join(&name), bytes).unwrap();
                let options = if one == *path { options } else { "" };
                order.push_str(&format!("{name}{options}\n"));
            }
        }
    }
    fs::write(to.join("order"), order).unwrap();
}

/// The program with what it is linked to, a shell, and the cases.
fn files(root: &Path, modules: &Path) {
    for dir in ["bin", "etc", "lib64", "usr/bin", "usr/lib", "modules"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let copy = |from: &Path, to: &str| {
        let to = root.join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, &to).unwrap();
    };
    copy(&needed("busybox", "busybox-static"), "bin/busybox");
    copy(Path::new(BINARY), "usr/bin/cofferdam");
    let linked = finish(Command::new(needed("ldd", "libc-bin")).arg(BINARY)).out();
    for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
        // The loader looks in `/lib64` for itself, and in `/usr/lib` for all others.
        let name = Path::new(library).file_name().unwrap().to_str().unwrap();
        let place = if name.starts_with("ld-") { "lib64" } else { "usr/lib" };
        copy(Path::new(library), &format!("{place}/{name}"));
    }
    symlink("usr/lib", root.join("lib")).unwrap();
    symlink("/bin/busybox", root.join("bin/sh")).unwrap();
    put_modules(modules, &root.join("modules"));
    fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\nclerk:x:1001:1001::/home/clerk:/bin/sh\n")
        .unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\nagent:x:1000:\nclerk:x:1001:\n").unwrap();
    fs::write(root.join("etc/cases"), CASES).unwrap();
    fs::write(root.join("init"), INIT).unwrap();
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Boots it, and waits until it has done everything.
fn machine() -> Said {
    let qemu = needed("qemu-system-x86_64", "qemu-system-x86");
    let (image, modules) = kernel();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    files(&root, &modules);
    let pack = format!("find . | {} -o -H newc --quiet > ../initrd", needed("cpio", "cpio").display());
    finish(Command::new("sh").args(["-c", &pack]).current_dir(&root)).exits(0);
    let mut machine = Command::new(qemu);
    machine.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-machine", "pc"]);
    machine.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1536M"]);
    machine.args(["-serial", "stdio"]).arg("-kernel").arg(image);
    machine.arg("-initrd").arg(dir.path().join("initrd"));
    machine.args([
        "-append",
        "console=ttyS0 quiet loglevel=1 panic=-1 reboot=t mitigations=off cgroup_no_v1=all",
    ]);
    let told = finish(&mut machine);
    let text = told.out().replace('\r', "");
    // For whoever looks for the reason of a failure.
    eprintln!("{text}");
    assert!(text.lines().any(|line| line == "@@ done"), "the machine ended early: {text}{}", told.err());
    parse(&text)
}

fn parse(text: &str) -> Said {
    let (mut said, mut words) = (Said::new(), String::new());
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["@@", "begin", _] => words.clear(),
            ["@@", "end", name, code] => {
                said.insert(name.to_owned(), (std::mem::take(&mut words), code.parse().unwrap()));
            }
            _ => words.extend([line, "\n"]),
        }
    }
    said
}

/// A line of a report: its state, and what it says.
fn control(said: &Said, case: &str, name: &str) -> (String, String) {
    let (text, code) = &said[case];
    assert_eq!(*code, 0, "{case}: {text}");
    let event: Value = serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let lines = event["body"]["controls"].as_array().unwrap();
    let line = lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name}: {event}"));
    (line["state"].as_str().unwrap().to_owned(), line["detail"].as_str().unwrap().to_owned())
}

#[track_caller]
fn holds(said: &Said, case: &str, expected: i32, part: &str) {
    let (text, code) = said.get(case).unwrap_or_else(|| panic!("{case} was not tried: {said:#?}"));
    assert!(*code == expected && text.contains(part), "{case}: {code} and not {expected}, {part:?}: {text}");
}

/// What a place that can have groups has: each limit is hit, each is in the report, and nothing of it is left.
fn is_held(said: &Said, place: &str, parent: &str) {
    let case = |name: &str| format!("{place}.{name}");
    let (doctor, _) = &said[&case("doctor")];
    let doctor: Value = serde_json::from_str(doctor).unwrap_or_else(|error| panic!("{error}: {doctor}"));
    for fact in doctor["facts"].as_array().unwrap() {
        let is_group = fact["name"].as_str().unwrap().starts_with("cgroup.");
        assert!(
            !is_group || (fact["ok"] == true && fact["detail"].as_str().unwrap().contains("V2")),
            "{fact}"
        );
    }
    holds(said, &case("true"), 0, "");
    for name in ["cgroup.memory", "cgroup.pids"] {
        let (state, detail) = control(said, &case("report"), name);
        assert!(state == "enforced" && detail.contains("(cgroup v2)"), "{place} {name}: {state} {detail}");
    }
    holds(said, &case("memory"), 137, "killed: memory limit 48 MiB");
    assert!(said[&case("pids")].0.contains("limit of 12 processes"), "{place}: {:?}", said[&case("pids")]);
    holds(said, &case("cpu"), 0, "");
    assert_eq!(
        control(said, &case("cpu.report"), "cgroup.cpu"),
        ("enforced".into(), "0.2 cores (cgroup v2)".into())
    );
    for name in ["cgroup.memory", "cgroup.pids"] {
        assert_eq!(
            control(said, &case("cpu.report"), name).0,
            "enforced",
            "{place}: in one group with the others"
        );
    }
    let (sessions, _) = &said[&case("sessions")];
    assert_eq!(sessions.lines().count(), 1, "{sessions}");
    assert!(sessions.starts_with(&format!("/sys/fs/cgroup{parent}/cofferdam-")), "{sessions}");
    holds(said, &case("killed"), 0, "");
    holds(said, &case("refused"), 125, "no-such-flag");
    holds(said, &case("again"), 0, "");
    assert_eq!(said[&case("left")].0, "", "{place}: a group is left");
    // A session that stays is stopped where it stands, goes on, and ends.
    for name in ["create", "busy", "pause", "still", "resume", "more", "kill", "end"] {
        holds(said, &case(name), 0, "");
    }
    holds(said, &case("frozen"), 0, "1");
    holds(said, &case("thawed"), 0, "0");
}

#[test]
fn every_limit_holds_where_groups_are_of_version_2_only() {
    let said = machine();
    // The nearest has no controller of processor time until the one above it gives it that.
    is_held(&said, "root", "/batch.slice/user-0.slice");
    is_held(&said, "managed", "/user.slice/user-1000.slice/manager/app.slice");
    is_held(&said, "service", "/system.slice/clerk.service");
    assert_eq!(said["early.there"].0.lines().count(), 1);
    holds(&said, "early.run", 0, "");
    assert_eq!(said["early.left"].0, "", "what was killed before its session began is left");
    // Without delegation limits are of each process, and are said to be.
    let doctor: Value = serde_json::from_str(&said["login.doctor"].0).unwrap();
    let memory =
        doctor["facts"].as_array().unwrap().iter().find(|fact| fact["name"] == "cgroup.memory").unwrap();
    assert!(memory["ok"] == false && memory["fix"].as_str().unwrap().contains("Delegate=yes"), "{memory}");
    holds(&said, "login.true", 0, "");
    assert_eq!(control(&said, "login.report", "cgroup.memory").0, "absent");
    assert_eq!(control(&said, "login.report", "cgroup.pids").0, "weaker");
    holds(&said, "login.memory", 125, "--accept rlimits");
    assert_ne!(said["login.accepted"].1, 0, "{:?}", said["login.accepted"]);
    assert_eq!(control(&said, "login.accepted.report", "cgroup.memory").0, "weaker");
    holds(&said, "login.pids", 0, "");
    assert_eq!(said["login.left"].0, "");
}
