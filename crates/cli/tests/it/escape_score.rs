//! `cofferdam escape`: nothing gets out, every refusal means something, and each control holds what it is said to.

use crate::{each, site};
use cofferdam_testkit::{Mode, Site, mounts_below};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// What is left out, and the attempts that succeed then and not before.
const HOLDS: &[(&[&str], &[&str])] = &[
    (&["capabilities"], &["privileged.capabilities"]),
    (&["landlock"], &["hostpath_etc.run"]),
    (
        &["namespace.net", "landlock"],
        &[
            "docker_socket.abstract",
            "hostpath_etc.run",
            "k8s_route_localnet.loopback",
            "exfiltration.interface",
            "exfiltration.datagram",
        ],
    ),
    (&["namespace.ipc"], &["privileged.ipc"]),
    (&["namespace.pid"], &["pid_namespace.see"]),
    (&["namespace.cgroup"], &[]),
    (&["namespace.net"], &["k8s_route_localnet.loopback", "exfiltration.interface", "exfiltration.datagram"]),
    (&["seccomp"], SECCOMP),
];

/// A plain user has no capability that could be left to the inside, and cannot mount a `/proc` of the host's
/// processes.
const ONLY_ROOTS: &[&str] = &["capabilities", "namespace.pid"];

/// Held by the filter alone.
const SECCOMP: &[&str] = &[
    "sys_admin.mount_api",
    "sys_admin.chroot",
    "sys_admin.setns",
    "sys_admin.unshare",
    "sys_admin.hostname",
    "packet_socket.packet",
    "packet_socket.raw",
    "kernel.io_uring",
    "kernel.userfaultfd",
    "kernel.perf",
    "kernel.keyctl",
    "kernel.add_key",
    "kernel.kcmp",
    "kernel.ptrace",
    "kernel.process_vm",
    "kernel.pidfd_getfd",
    "kernel.unshare_user",
    "kernel.clone_user",
    "kernel.fanotify",
    "kernel.modify_ldt",
    "kernel.new_call",
    "kernel.other_numbers",
    "kernel.tty_input",
    "kernel.vsock",
    "kernel.netfilter",
    "kernel.crypto",
];

/// Proven for any user on any kernel that this product runs on.
const ALWAYS_PROVEN: &[&str] = &[
    "privileged.new_privileges",
    "privileged.ipc",
    "docker_socket.path",
    "docker_socket.abstract",
    "hostpath_etc.outside",
    "hostpath_etc.mount",
    "hostpath_etc.run",
    "k8s_runc.descriptor",
    "k8s_runc.cwd",
    "pid_namespace.see",
    "pid_namespace.signal",
    "k8s_rbac.keys",
    "k8s_malicious_binary.set_id",
    "k8s_malicious_binary.link",
    "k8s_route_localnet.loopback",
    "k8s_route_localnet.proxy",
    "k8s_crio.names",
    "exfiltration.metadata",
    "exfiltration.dns",
    "exfiltration.quic",
    "exfiltration.raw_tcp",
    "exfiltration.placeholder",
    "planted_secret.home",
    "planted_secret.work_dir",
    "planted_secret.environment",
    "kernel.ptrace",
    "kernel.process_vm",
    "kernel.unshare_user",
];

#[track_caller]
fn score(site: &Site, flags: &[&str], code: i32) -> Value {
    let done = site.call(&["escape", "--json"]).with(flags).exits(code);
    let mut score: Value = serde_json::from_str(&done.out()).unwrap();
    assert_eq!(score["tiers"].as_array().unwrap().len(), 1, "{score}");
    score["tiers"][0].take()
}

fn ids(score: &Value, wanted: impl Fn(&Value) -> bool) -> BTreeSet<String> {
    let checks = score["checks"].as_array().unwrap().iter().filter(|check| wanted(check));
    checks.map(|check| check["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn nothing_gets_out_and_controls_show_that_it_would() {
    each(|site| {
        let score = score(site, &[], 0);
        assert_eq!(score["tier"], "process");
        // It is kept for the evidence of a gate.
        let kept: Value =
            serde_json::from_slice(&fs::read(site.state().join("escape.json")).unwrap()).unwrap();
        assert_eq!(kept["tiers"][0]["blocked"], score["blocked"]);
        assert_eq!(score["blocked"], score["total"]);
        assert_eq!(score["checks"].as_array().unwrap().len() as u64, score["total"].as_u64().unwrap());
        for check in score["checks"].as_array().unwrap() {
            let (id, scenario) = (check["id"].as_str().unwrap(), check["scenario"].as_str().unwrap());
            assert!(id.starts_with(&format!("{scenario}.")), "{check}");
            assert_eq!(check["blocked"], true, "{check}");
            assert!(!check["why"].as_str().unwrap().is_empty(), "{check}");
            let control = check["control"].as_str().unwrap();
            let says = if check["proven"] == true { "succeeds elsewhere: " } else { "not possible here: " };
            assert!(control.starts_with(says), "{check}");
        }
        let proven = ids(&score, |check| check["proven"] == true);
        let missing: Vec<_> = ALWAYS_PROVEN.iter().filter(|id| !proven.contains(**id)).collect();
        assert!(missing.is_empty(), "no control in mode {:?} for {missing:?}: {score:#}", site.mode);
        assert_eq!(score["proven"].as_u64().unwrap() as usize, proven.len());
    });
}

/// What a kernel lacks or refuses to everybody opens nowhere: only those are expected to open whose control could be
/// made.
#[test]
fn a_control_that_is_left_out_opens_what_it_holds_and_nothing_else() {
    each(|site| {
        let proven = ids(&score(site, &[], 0), |check| check["proven"] == true);
        for (without, holds) in HOLDS {
            if site.mode != Mode::Root && ONLY_ROOTS.contains(&without[0]) {
                continue;
            }
            let flags: Vec<&str> = without.iter().flat_map(|name| ["--without", name]).collect();
            let expected: BTreeSet<String> =
                holds.iter().map(|id| (*id).to_owned()).filter(|id| proven.contains(id)).collect();
            let weakened = score(site, &flags, i32::from(!expected.is_empty()));
            let open = ids(&weakened, |check| check["blocked"] == false);
            assert_eq!(open, expected, "without {without:?} in mode {:?}", site.mode);
        }
    });
}

#[test]
fn nothing_is_left_on_the_host() {
    each(|site| {
        let before = fs::read_dir(site.work()).unwrap().count();
        let temporary = site.root().join("temporary");
        fs::create_dir(&temporary).unwrap();
        site.give(&temporary);
        site.call(&["escape", "--check", "privileged", "--check", "k8s_crio"])
            .env("TMPDIR", &temporary)
            .exits(0);
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        assert_eq!(fs::read_dir(site.work()).unwrap().count(), before);
        assert_eq!(fs::read_dir(site.state()).unwrap().count(), 0, "it has a state directory of its own");
        assert_eq!(mounts_below(site.root()), Vec::<String>::new());
    });
}

#[test]
fn the_page_is_for_people_and_fits() {
    let site = site();
    let page = site.call(&["escape", "--tier", "process", "--check", "sys_admin"]).exits(0).out();
    assert!(page.starts_with("sys_admin\n  blocked  mount "), "{page}");
    assert!(page.contains("process: 9 of 9 blocked"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    let flags = ["escape", "--check", "sys_admin.chroot", "--without", "seccomp"];
    let page = site.call(&flags).exits(1).out();
    assert!(page.contains("0 of 1 blocked") && page.contains("Open\n  sys_admin.chroot\n"), "{page}");
}

#[test]
fn what_is_asked_wrongly_is_told() {
    let site = site();
    let done = site.call(&["escape", "--check", "no_such"]).exits(2);
    assert!(done.err().contains("--check no_such") && done.err().contains("--list"), "{}", done.err());
    let done = site.call(&["escape", "--without", "secomp"]).exits(2);
    assert!(
        done.err().contains("--without secomp") && done.err().contains("seccomp.record"),
        "{}",
        done.err()
    );
    site.call(&["escape", "--tier", "no-such"]).exits(2);
    site.call(&["escape", "--tier", "gvisor"]).exits(4);
    let list = site.call(&["escape", "--list"]).exits(0).out();
    assert!(list.contains("k8s_rbac.control\n  tries    answer for the session"), "{list}");
    let list = site.call(&["escape", "--list", "--json"]).exits(0).out();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert!(list["checks"].as_array().unwrap().iter().all(|check| check["because"].is_string()));
}
