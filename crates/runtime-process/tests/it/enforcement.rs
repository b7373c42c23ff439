//! The report is what the kernel says: each control, left out, changes its own line and is otherwise refused.

use crate::place::Place;
use cofferdam_model::{Control, EnforcementReport, LayerPlace, State};
use cofferdam_runtime::{Backend, RuntimeError};
use cofferdam_runtime_process::ProcessBackend;
use cofferdam_testkit::{finish, needs_root, program};
use std::process::Command;

/// What is left out, the line that must change, and lines that follow from it.
const CONTROLS: &[(&str, &str, &[&str])] = &[
    ("namespace.net", "namespace.net", &["network"]),
    ("namespace.ipc", "namespace.ipc", &[]),
    ("namespace.cgroup", "namespace.cgroup", &[]),
    ("proc", "proc", &[]),
    ("capabilities", "capabilities", &[]),
    // Without it the kernel lets nobody install a ruleset or a filter.
    ("no-new-privileges", "no-new-privileges", &["landlock", "seccomp", "seccomp.record"]),
    ("landlock", "landlock", &[]),
    ("seccomp", "seccomp", &["seccomp.record"]),
    ("seccomp.record", "seccomp.record", &[]),
    ("cgroup", "cgroup.memory", &["cgroup.pids"]),
];

fn made(place: &Place, without: &[&str]) -> Result<EnforcementReport, RuntimeError> {
    let without = without.iter().map(|name| (*name).to_owned()).collect();
    let backend = ProcessBackend { without, ..ProcessBackend::default() };
    backend.create(place.spec(LayerPlace::Memory)).map(|sandbox| sandbox.report().clone())
}

#[track_caller]
fn line<'r>(report: &'r EnforcementReport, name: &str) -> &'r Control {
    report.control(name).unwrap_or_else(|| panic!("no line `{name}`"))
}

fn switched_off(name: &str, changes: &str, follows: &[&str]) {
    let place = Place::new();
    let whole = made(&place, &[]).unwrap();
    assert_eq!(line(&whole, changes).state, State::Enforced, "{changes} with everything on");
    let all: Vec<&str> = [name].into_iter().chain(follows.iter().copied()).collect();
    let weakened = made(&place, &all).unwrap_or_else(|error| panic!("without {name}: {error}"));
    for changed in [changes].into_iter().chain(follows.iter().copied()) {
        let found = line(&weakened, changed);
        assert_ne!(found.state, State::Enforced, "without {name}: {found:?}");
    }
    for control in &whole.controls {
        let same = control.name == changes || follows.contains(&control.name.as_str());
        let state = line(&weakened, &control.name).state;
        assert!(same || state == control.state, "without {name}, {} is {state:?} too", control.name);
    }
}

#[test]
fn every_control_switched_off_changes_its_line() {
    if !needs_root("all controls") {
        return;
    }
    for (name, changes, follows) in CONTROLS {
        switched_off(name, changes, follows);
    }
}

/// Tells the inner run of the test below that it is one.
const INNER: &str = "COFFERDAM_TEST_OWN_HOST_NAME";

/// Without this namespace the sandbox's name is set on the host, so the host is one made for the test.
#[test]
fn a_shared_host_name_changes_its_line() {
    if !needs_root("a host name of its own") {
        return;
    }
    if std::env::var_os(INNER).is_some() {
        return switched_off("namespace.uts", "namespace.uts", &[]);
    }
    let name = || rustix::system::uname().nodename().to_owned();
    let before = name();
    let _alone = Place::new();
    let mut inner = Command::new(program("unshare").expect("unshare is missing: apt-get install util-linux"));
    inner.arg("--uts").arg(std::env::current_exe().unwrap()).env(INNER, "1");
    inner.args(["--exact", "enforcement::a_shared_host_name_changes_its_line", "--nocapture"]);
    let done = finish(&mut inner).exits(0);
    assert!(done.out().contains("1 passed"), "{}", done.out());
    assert_eq!(name(), before);
}

/// A control that is required and left out is a refusal, before anything runs.
#[test]
fn a_required_control_that_is_not_there_is_refused() {
    let place = Place::new();
    for (name, changes, follows) in CONTROLS {
        let mut spec = place.spec(LayerPlace::Memory);
        spec.require = vec![(*changes).into()];
        let session = spec.id.clone();
        let without = [*name].into_iter().chain(follows.iter().copied()).map(str::to_owned).collect();
        let backend = ProcessBackend { without, ..ProcessBackend::default() };
        match backend.create(spec) {
            Err(RuntimeError::Refused { what, .. }) => assert!(what.contains(changes), "{name}: {what}"),
            Err(other) => panic!("{name}: {other}"),
            Ok(_) => panic!("{name} is required, left out, and the sandbox stands"),
        }
        place.is_clean(&session, name);
    }
}

/// Not in force by accident, as against left out on purpose: the line alone is enough to refuse.
#[test]
fn a_line_that_follows_from_another_is_looked_at_too() {
    if !needs_root("the host's network inside") {
        return;
    }
    let place = Place::new();
    match made(&place, &["namespace.net"]) {
        Err(RuntimeError::Refused { what, .. }) => assert!(what.contains("network"), "{what}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a sandbox with the host's interfaces stands"),
    }
}
