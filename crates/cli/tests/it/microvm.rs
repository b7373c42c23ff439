//! The microVM tier as people use it: a real kernel is booted, and a real copy of it for every run. One place for
//! all of it, so that the machine that others are copied from is booted once.

use crate::site;
use cofferdam_testkit::Site;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

const POLICY: &str = r#"
[[rule]]
id = "one"
reason = "one host is enough"
effect = "allow"
host = "allowed.example"
methods = ["GET"]
"#;

const OTHER_QEMU: &str = r#"#!/bin/sh
case $1 in
--version) echo "QEMU emulator version 9.2.0";;
*) echo "virt-9.2             QEMU 9.2 ARM Virtual Machine";;
esac
"#;

fn machine<'a>(site: &'a Site, script: &str) -> cofferdam_testkit::Call<'a> {
    site.sh(script).with(&["--isolation", "microvm"])
}

/// The lines of the last report.
fn report(site: &Site) -> Vec<Value> {
    let bodies = site.bodies("enforcement");
    bodies.last().and_then(|body| body["controls"].as_array().cloned()).unwrap_or_default()
}

#[test]
fn a_machine_runs_commands_and_hands_over_what_they_changed() {
    let site = site();
    site.write("kept.txt", "kept\n");
    site.write("gone.txt", "gone\n");
    site.write(".env", "SECRET=1\n");
    let script =
        "uname -r; cat; ls -A; rm gone.txt; mkdir -p a/b; echo new > a/b/file; ln -s b a/link; exit 3";
    let done = machine(&site, script).input("from outside\n").exits(3);
    let host = rustix::system::uname().release().to_string_lossy().into_owned();
    let out = done.out();
    assert!(!out.contains(&host) && out.contains("from outside") && out.contains("kept.txt"), "{out}");
    assert!(!out.contains(".env"), "{out}");
    assert_eq!(site.read("a/b/file"), "new\n");
    assert!(!site.work().join("gone.txt").exists() && site.work().join(".env").exists());
    assert_eq!(fs::read_link(site.work().join("a/link")).unwrap().to_str(), Some("b"));
    let lines = report(&site);
    let value = |name: &str| lines.iter().find(|line| line["name"] == name).map(|line| line["value"].clone());
    assert_eq!(value("vm.monitor").unwrap()["vmm"], "qemu");
    assert!(["kvm", "tcg"].contains(&value("vm.accelerator").unwrap().as_str().unwrap()));
    for line in ["vm.kernel", "vm.shared", "seccomp", "vmm.seccomp", "vmm.namespace.net"] {
        assert!(lines.iter().any(|found| found["name"] == line), "{line}");
    }
    site.call(&["trace", "verify", "latest"]).exits(0);

    // Whether programs lie elsewhere every time is told as it is.
    let randomizes = machine(&site, "cat /proc/sys/kernel/randomize_va_space").exits(0).out().trim() == "2";
    let detail =
        lines.iter().find(|line| line["name"] == "vm.accelerator").map(|line| line["detail"].clone());
    let detail = detail.unwrap().as_str().unwrap().to_owned();
    assert_eq!(detail.contains("lie at the same addresses every time"), !randomizes, "{detail}");

    // What is to be dropped is dropped.
    machine(&site, "echo x > kept.txt; echo y > more").with(&["--changes", "discard"]).exits(0);
    assert_eq!(site.read("kept.txt"), "kept\n");
    assert!(!site.work().join("more").exists());

    // Clients that know of a proxy and clients that do not meet the policy.
    let policy = site.write("policy.toml", POLICY);
    let script = "curl -sS -m 20 -o /dev/null -w '%{http_code}\\n' http://denied.example/; \
                  curl -sS -m 20 --noproxy '*' -o /dev/null -w '%{http_code}\\n' http://192.0.2.7:8081/; true";
    let flags = ["--policy", policy.to_str().unwrap()];
    let done = machine(&site, script).with(&flags).exits(0);
    assert_eq!(done.out(), "403\n403\n", "{}", done.err());
    assert!(done.err().contains("denied.example"), "{}", done.err());

    // A template that is damaged is not used: another is booted, or it is said that none could be, in time.
    let template = fs::read_dir(site.state().join("vm/templates")).unwrap().next().unwrap().unwrap().path();
    let mut state = fs::read(template.join("state")).unwrap();
    let middle = state.len() / 2;
    state[middle] ^= 1;
    fs::write(template.join("state"), state).unwrap();
    let done = machine(&site, "echo ran").env("COFFERDAM_VM_BOOT_SECONDS", "0").exits(125);
    assert!(done.out().is_empty() && done.err().contains("did not boot within 0 s"), "{}", done.err());
    assert!(!template.exists(), "what is damaged is gone");
}

#[test]
fn what_is_missing_is_refused_by_name() {
    let site = site();
    let refused = |name: &str, value: &str, said: &str| {
        let done = machine(&site, "echo ran").env(name, value).exits(125);
        assert!(done.out().is_empty() && done.err().contains(said), "{}", done.err());
    };
    refused("COFFERDAM_VM_QEMU", "/nowhere/qemu", "/nowhere/qemu");
    refused("COFFERDAM_VM_QEMU", "/bin/true", "/bin/true cannot be used");
    refused("COFFERDAM_VM_KERNEL", "/nowhere/vmlinuz", "/nowhere/vmlinuz");
    refused("COFFERDAM_VM_KERNEL", "/bin/true", "PVH");
    refused("COFFERDAM_VM_ACCEL", "warp", "COFFERDAM_VM_ACCEL");
    refused("COFFERDAM_VM_VMM", "warp", "COFFERDAM_VM_VMM");
    refused("COFFERDAM_VM_FIRECRACKER", "/nowhere/firecracker", "/nowhere/firecracker");
    refused("COFFERDAM_VM_FIRECRACKER", "/bin/true", "/bin/true cannot be used");
    // Of another processor: a QEMU that has no such machine, and a kernel by its own header.
    let other = site.write("qemu-other", OTHER_QEMU);
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    refused("COFFERDAM_VM_QEMU", other.to_str().unwrap(), "built for another processor");
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(4096, 0);
    header[18] = 183;
    let other = site.write("vmlinux-other", header);
    refused("COFFERDAM_VM_KERNEL", other.to_str().unwrap(), "no kernel for x86_64");
    // What doctor says of it can be typed.
    let doctor = |name: &str, value: &str, fix: &str| {
        let told = site.call(&["doctor"]).env(name, value).done().out();
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(value) && told.contains(fix), "{told}");
    };
    doctor("COFFERDAM_VM_QEMU", "/nowhere/qemu", "sudo apt-get install qemu-system-x86");
    doctor("COFFERDAM_VM_KERNEL", "/nowhere/vmlinuz", "sudo apt-get install linux-image-cloud-amd64");
    // Who executes instructions here was found out by having some executed, and is told with the reason.
    let told = site.call(&["doctor"]).done().out();
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("no KVM: ") || told.contains("on KVM: "), "{told}");
    if told.contains("no KVM: ") {
        refused("COFFERDAM_VM_ACCEL", "kvm", "KVM cannot be used");
        // Firecracker is here, and has nothing to run a machine on: QEMU is taken, unless nothing else will do.
        let small = site.write("firecracker", "#!/bin/sh\necho Firecracker v1.9.0\n");
        fs::set_permissions(&small, fs::Permissions::from_mode(0o755)).unwrap();
        let done = machine(&site, "echo ran")
            .env("COFFERDAM_VM_FIRECRACKER", small.to_str().unwrap())
            .env("COFFERDAM_VM_VMM", "firecracker")
            .exits(125);
        assert!(
            done.out().is_empty() && done.err().contains("on KVM alone, and there is none: "),
            "{}",
            done.err()
        );
        let told =
            site.call(&["doctor"]).env("COFFERDAM_VM_FIRECRACKER", small.to_str().unwrap()).done().out();
        assert!(told.contains("QEMU "), "{told}");
    }
    let mount = format!("{}:/agents:rw", site.home().display());
    let done = site.run(&["true"]).with(&["--isolation", "microvm", "--mount", &mount]).done();
    assert_eq!(done.code(), 125, "{}", done.err());
}

/// For real, which takes a Firecracker and KVM.
#[test]
fn a_machine_of_firecracker_runs_commands() {
    let site = site();
    let done =
        machine(&site, "uname -r; cat kept.txt; echo new > made").env("COFFERDAM_VM_VMM", "firecracker");
    site.write("kept.txt", "kept\n");
    let done = done.done();
    let missing = ["firecracker is not installed", "on KVM alone, and there is none"];
    if done.code() == 125 && missing.iter().any(|reason| done.err().contains(reason)) {
        println!("not run: there is no Firecracker here, or no KVM for it: {}", done.err().trim());
        return;
    }
    assert_eq!(done.code(), 0, "{}", done.err());
    assert!(done.out().contains("kept\n"), "{}", done.out());
    assert_eq!(site.read("made"), "new\n");
    let lines = report(&site);
    let monitor = lines.iter().find(|line| line["name"] == "vm.monitor").unwrap();
    assert_eq!(monitor["value"]["vmm"], "firecracker");
    let done = machine(&site, "cat made").env("COFFERDAM_VM_VMM", "firecracker").exits(0);
    assert_eq!(done.out(), "new\n", "a second copy of the same machine");
}

/// Machines that stand where sessions begin.
fn standing(site: &Site) -> Vec<PathBuf> {
    let kinds = fs::read_dir(site.state().join("vm/starts")).into_iter().flatten().flatten();
    kinds.map(|kind| kind.path().join("machine")).filter(|machine| machine.join("ram").is_file()).collect()
}

/// Files that a session is shown are its own, also in a copy; and a machine that is damaged is named, and not used.
fn copies_are_shown_their_own(site: &Site) {
    let policy = site.write("policy.toml", POLICY);
    let script = "curl -sS -m 20 -o /dev/null -w '%{http_code}\\n' http://denied.example/; \
                  sha256sum <\"$CURL_CA_BUNDLE\" 2>/dev/null || cat /etc/ssl/certs/ca-certificates.crt | sha256sum";
    let mut authorities = Vec::new();
    let before = standing(site).len();
    let flags = ["--policy", policy.to_str().unwrap(), "--changes", "discard"];
    for _ in 0..4 {
        let out = machine(site, script).with(&flags).exits(0).out().to_owned();
        let (code, authority) = out.split_once('\n').unwrap();
        assert_eq!(code, "403");
        assert!(!authorities.contains(&authority.to_owned()), "another's authority: {authority}");
        authorities.push(authority.to_owned());
    }
    assert_eq!(standing(site).len(), before + 1);

    for machine in standing(site) {
        let ram = machine.join("ram");
        let file = fs::OpenOptions::new().write(true).open(&ram).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"decayed", 64 << 20).unwrap();
        file.set_modified(time).unwrap();
    }
    let done = machine(site, script).with(&flags).exits(125);
    assert!(done.err().contains("its memory is not what was written"), "{}", done.err());
    assert!(machine(site, script).with(&flags).exits(0).out().starts_with("403\n"));
}

#[test]
fn sessions_that_begin_alike_are_copies_of_a_machine_that_stands_where_they_begin() {
    let site = site();
    site.write("kept.txt", "one\n");
    let script =
        "cat kept.txt; cat /etc/machine-id; hostname; od -An -tx1 -N16 /dev/urandom; date +%s; echo x >more";
    let (mut identities, mut reports) = (Vec::new(), Vec::new());
    let mut run = |expected: &str| {
        let done = machine(&site, script).with(&["--changes", "discard"]).exits(0);
        let lines: Vec<String> = done.out().lines().map(str::to_owned).collect();
        let [kept, machine, host, random, time] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(kept, expected);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!(now.abs_diff(time.parse().unwrap()) < 60, "the clock is set: {time} and not {now}");
        for drawn in [machine, host, random] {
            assert!(!identities.contains(drawn), "another one has it: {drawn}");
            identities.push(drawn.clone());
        }
        let names = |report: Vec<Value>| -> Vec<(Value, Value)> {
            report.into_iter().map(|line| (line["name"].clone(), line["status"].clone())).collect()
        };
        reports.push(names(report(&site)));
        assert_eq!(reports.first(), reports.last(), "a copy of it is held by the same");
        site.call(&["trace", "verify", "latest"]).exits(0);
    };
    for _ in 0..2 {
        run("one");
        assert!(standing(&site).is_empty(), "two are not many");
    }
    run("one");
    let kept = standing(&site);
    assert_eq!(kept.len(), 1);
    run("one");
    run("one");

    // What is in the work dir is what is there now, and another machine is kept for that.
    site.write("kept.txt", "two\n");
    run("two");
    assert!(standing(&site).is_empty());
    run("two");
    run("two");
    assert_eq!(standing(&site).len(), 1);

    // A session that stays is one of them as well, and can be copied itself; what is changed is carried over as any.
    let create = ["session", "create", "--isolation", "microvm"];
    let id = site.call(&create).exits(0).out().trim().to_owned();
    let exec = |id: &str, script: &str| {
        site.call(&["session", "exec", id, "--", "sh", "-c", script]).exits(0).out().to_owned()
    };
    assert_eq!(exec(&id, "cat kept.txt; echo here >file; cat /etc/machine-id >own; cat file"), "two\nhere\n");
    let fork = site.call(&["session", "fork", &id]).exits(0).out().trim().to_owned();
    assert_eq!(exec(&fork, "cat file; cmp -s own /etc/machine-id || echo another"), "here\nanother\n");
    for id in [&id, &fork] {
        site.call(&["session", "kill", id, "--changes", "discard"]).exits(0);
    }
    assert_eq!(machine(&site, "echo three >kept.txt").exits(0).out(), "");
    assert_eq!(site.read("kept.txt"), "three\n");

    copies_are_shown_their_own(&site);
}
