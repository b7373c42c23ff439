//! The microVM tier as people use it: a real kernel is booted, and a real copy of it for every run. One place for
//! all of it, so that the machine that others are copied from is booted once.

use crate::site;
use cofferdam_testkit::Site;
use serde_json::Value;
use std::fs;

const POLICY: &str = r#"
[[rule]]
id = "one"
reason = "one host is enough"
effect = "allow"
host = "allowed.example"
methods = ["GET"]
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

    // A limit that is held by the clock outside, and one that the machine's own kernel holds.
    machine(&site, "sleep 1000").with(&["--timeout", "1s"]).exits(124);
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
    let mount = format!("{}:/agents:rw", site.home().display());
    let done = site.run(&["true"]).with(&["--isolation", "microvm", "--mount", &mount]).done();
    assert_eq!(done.code(), 125, "{}", done.err());
}
