//! The microVM tier as people use it: a real kernel is booted, and a real copy of it for every run. One place for
//! all of it, so that the machine that others are copied from is booted once.

use crate::site;
use cofferdam_testkit::Site;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

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
