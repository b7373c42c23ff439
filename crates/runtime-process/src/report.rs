//! The enforcement report: read back from the kernel after the sandbox stands and before anything hostile
//! runs. It looks at the guest's process from outside; what we meant to do is not consulted.

mod kernel;
mod network;

use crate::cgroup::{Controller, Group, Groups, Version};
use crate::layout::Layout;
use crate::limits::Resolved;
use crate::users::{Users, Way};
use crate::view::SYSTEM;
use crate::watched::CLASSES;
use cofferdam_model::{Bytes, Control, EnforcementReport, Profile, State, Syscalls, Tier, Weakness};
use cofferdam_runtime::{Doors, RuntimeError};
use cofferdam_sys::landlock;
pub(crate) use kernel::{Fixed, Settled, look_at_ourselves};
use kernel::{Mount, Seen};
use rustix::fs::StatVfs;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

pub(crate) struct Observed<'a> {
    pub(crate) pid: i32,
    pub(crate) users: &'a Users,
    pub(crate) layout: &'a Layout,
    pub(crate) groups: &'a Groups,
    pub(crate) limits: &'a Resolved,
    /// What is left in the file system that lies in a file, where there is one.
    pub(crate) left: Option<StatVfs>,
    pub(crate) profile: Profile,
    pub(crate) nested: bool,
    pub(crate) tracing: bool,
    pub(crate) landlock_probe: Option<Errno>,
    pub(crate) listens: bool,
    pub(crate) syscalls: Syscalls,
    /// What was asked for, and the doors that there are.
    pub(crate) doors: Option<(&'a crate::network::Wanted, Option<&'a Doors>)>,
}

/// Must be in force whatever the spec says; Landlock only where its lack is not accepted.
const MANDATORY: &[&str] = &[
    "namespace.user",
    "namespace.mount",
    "namespace.pid",
    "namespace.net",
    "namespace.ipc",
    "namespace.uts",
    "users",
    "filesystem.root",
    "filesystem.workdir",
    "proc",
    "network",
    "network.capture",
    "no-new-privileges",
    "capabilities",
    "seccomp",
    "programs",
];

fn line(name: &str, state: State, detail: impl Into<String>, value: Value) -> Control {
    Control { name: name.into(), state, detail: detail.into(), value }
}

/// What was read while the guest's image was executed need not be read again.
pub(crate) fn read(o: &Observed<'_>, settled: Option<Settled>) -> Result<EnforcementReport, RuntimeError> {
    let settled = settled.map_or_else(|| Settled::read(o.pid), Ok);
    let seen =
        settled.and_then(Seen::read).map_err(RuntimeError::io("read the sandbox back from the kernel"))?;
    let mut controls = namespaces(&seen);
    controls.push(users(o, &seen));
    controls.push(groups(&seen));
    controls.extend(filesystem(o, &seen));
    controls.push(proc(&seen));
    controls.push(network(o, &seen));
    let net = seen.namespaces.iter().find(|(name, ..)| *name == "net").map_or(0, |(.., inode)| *inode);
    controls.extend(o.doors.map(|(wanted, doors)| network::capture(net, doors, &wanted.knocks())));
    controls.push(privileges(&seen));
    controls.push(capabilities(o, &seen));
    controls.push(landlock_line(o));
    controls.extend(seccomp(o, &seen));
    controls.extend(cgroups(o, &seen));
    controls.extend(limits(o, &seen));
    controls.push(hidden(o));
    controls.extend(programs(o, &seen));
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Ok(EnforcementReport { tier: Tier::Process, kernel, controls })
}

fn namespaces(seen: &Seen) -> Vec<Control> {
    let each = |(name, ours, theirs): &(&str, u64, u64)| {
        let (state, detail) = if ours == theirs {
            (State::Off, "shared with the host".to_owned())
        } else {
            (State::Enforced, "its own".to_owned())
        };
        line(&format!("namespace.{name}"), state, detail, json!({ "inode": theirs }))
    };
    seen.namespaces.iter().map(each).collect()
}

fn users(o: &Observed<'_>, seen: &Seen) -> Control {
    let maps_root = seen.uid_map.iter().any(|&(_, host, count)| host == 0 && count > 0);
    let state = if maps_root { State::Off } else { State::Enforced };
    let detail = match (maps_root, o.users.way) {
        (true, _) => "host uid 0 is mapped".to_owned(),
        (_, Way::Single) => format!("single: only uid {}, itself", o.users.uid),
        (_, way) => format!(
            "{}: uid {} inside is {} outside; host uid 0 is in no map",
            way.name(),
            o.users.uid,
            o.users.host_uid
        ),
    };
    let map: Vec<Value> =
        seen.uid_map.iter().map(|(inside, host, count)| json!([inside, host, count])).collect();
    line("users", state, detail, json!({ "uid_map": map }))
}

fn groups(seen: &Seen) -> Control {
    let extra = seen.groups.len();
    match extra {
        0 => line("groups", State::Enforced, "no supplementary groups", Value::Null),
        _ => line(
            "groups",
            State::Weaker,
            format!("{extra} of the caller's groups remain: the kernel lets no single-id map drop them"),
            json!({ "count": extra }),
        ),
    }
}

fn filesystem(o: &Observed<'_>, seen: &Seen) -> Vec<Control> {
    let workdir = seen.mount(&o.layout.shown_at.to_string_lossy());
    let workdir_state =
        if workdir.is_some_and(|m| m.kind == "overlay") { State::Enforced } else { State::Off };
    let writable: Vec<&str> = seen.mounts.iter().filter(|m| !m.read_only).map(|m| m.point.as_str()).collect();
    let host_writable = o.layout.mounts.iter().filter(|asked| asked.mount.writable).count();
    let mounts_state = if host_writable == 0 { State::Enforced } else { State::Weaker };
    let mounts_detail = match host_writable {
        0 => "no file of the host is writable".to_owned(),
        n => format!("{n} writable mounts of the host, by request"),
    };
    vec![
        root(o, seen),
        line("filesystem.workdir", workdir_state, "changes go to a layer of the session's own", Value::Null),
        line("filesystem.host", mounts_state, mounts_detail, json!({ "writable": writable })),
    ]
}

/// Of the host's directories a read-only skeleton; or an image under a layer, with nothing of the host's system in it.
fn root(o: &Observed<'_>, seen: &Seen) -> Control {
    let at_root = seen.mount("/");
    let mounts = seen.mounts.len();
    let Some(image) = &o.layout.root else {
        let held = at_root.is_some_and(|m| m.kind == "tmpfs" && m.read_only);
        let state = if held { State::Enforced } else { State::Off };
        let detail = "a read-only skeleton, host directories bound read-only";
        return line("filesystem.root", state, detail, json!({ "mounts": mounts }));
    };
    let asked = |m: &Mount| o.layout.mounts.iter().any(|asked| asked.mount.target == Path::new(&m.point));
    let of_host = |m: &Mount| SYSTEM.iter().any(|name| m.point == format!("/{name}")) && !asked(m);
    let held = at_root.is_some_and(|m| m.kind == "overlay") && !seen.mounts.iter().any(of_host);
    let (state, rest) = match (held, image.owners) {
        (false, _) => (State::Off, "does not stand alone"),
        (true, true) => (State::Enforced, "nothing of the host's system is there; changes go to a layer"),
        (true, false) => (
            State::Weaker,
            "nothing of the host's system is there; changes go to a layer; all files belong to the one user",
        ),
    };
    let value =
        json!({ "mounts": mounts, "image": image.name, "digest": image.digest, "owners": image.owners });
    line("filesystem.root", state, format!("the image {}: {rest}", image.name), value)
}

fn proc(seen: &Seen) -> Control {
    let read_only = seen.mount("/proc/sys").is_some_and(|m| m.read_only);
    let whole = seen.mount("/.cofferdam/proc").is_some();
    let (state, detail) = match (read_only, whole) {
        (true, false) => (State::Enforced, "/proc/sys is read-only"),
        (true, true) => (State::Weaker, "/proc/sys is read-only; a whole one is there for nested sandboxes"),
        (false, _) => (State::Off, "/proc/sys is as the kernel gives it"),
    };
    line("proc", state, detail, Value::Null)
}

fn network(o: &Observed<'_>, seen: &Seen) -> Control {
    let only_loopback = seen.interfaces.iter().all(|name| name == "lo");
    let state = if only_loopback { State::Enforced } else { State::Off };
    let detail = match (only_loopback, o.doors) {
        (true, None) => "loopback only; nothing leaves",
        (true, Some(_)) => "loopback only; nothing leaves but through the doors",
        (false, _) => "the host's interfaces are there",
    };
    line("network", state, detail, json!({ "interfaces": seen.interfaces }))
}

fn privileges(seen: &Seen) -> Control {
    let on = seen.no_new_privileges;
    line(
        "no-new-privileges",
        if on { State::Enforced } else { State::Off },
        if on { "set-id programs gain nothing" } else { "set-id programs work" },
        Value::Null,
    )
}

fn capabilities(o: &Observed<'_>, seen: &Seen) -> Control {
    let hex = |set: u64| format!("{set:x}");
    let value =
        json!({ "effective": hex(seen.capabilities.effective), "bounding": hex(seen.capabilities.bounding) });
    let all = seen.capabilities.effective | seen.capabilities.bounding | seen.capabilities.permitted;
    match (all, o.profile) {
        (0, _) => line("capabilities", State::Enforced, "none, and none to be had", value),
        (_, Profile::Box) if all.count_ones() <= 6 => {
            line("capabilities", State::Weaker, "a box's root owns its files and users, inside only", value)
        }
        _ => line("capabilities", State::Off, "capabilities remain", value),
    }
}

fn landlock_line(o: &Observed<'_>) -> Control {
    let abi = landlock::version();
    let value = json!({ "abi": abi });
    match (o.landlock_probe, abi) {
        (Some(Errno::ACCESS), Some(abi)) => line(
            "landlock",
            State::Enforced,
            format!("ABI {abi}: {}", landlock::Ruleset::describe(abi)),
            value,
        ),
        (_, None) => line("landlock", State::Absent, "this kernel has none", value),
        (None, Some(_)) if o.layout.root.is_some() => {
            line("landlock", State::Weaker, "scopes only: all of an image's tree is the sandbox's own", value)
        }
        (None, Some(_)) if o.nested => {
            line("landlock", State::Weaker, "scopes only: nested sandboxes need to mount", value)
        }
        _ => line("landlock", State::Off, "a write outside all rules succeeded", value),
    }
}

fn seccomp(o: &Observed<'_>, seen: &Seen) -> Vec<Control> {
    let filtered = seen.seccomp_mode == 2;
    let (state, detail) = match (filtered, o.nested, o.tracing) {
        (false, ..) => (State::Off, "no filter"),
        (true, false, false) => (State::Enforced, "allow-list; the escape surface is refused"),
        (true, true, false) => (State::Weaker, "allow-list with namespaces and mounts, by request (nested)"),
        (true, false, true) => (State::Weaker, "allow-list with tracing, by request of a tool"),
        (true, true, true) => {
            (State::Weaker, "allow-list with namespaces, mounts (nested) and tracing, by request")
        }
    };
    let recorded = filtered && o.listens;
    vec![
        line("seccomp", state, detail, json!({ "mode": seen.seccomp_mode, "filters": seen.seccomp_filters })),
        line(
            "seccomp.record",
            if recorded { State::Enforced } else { State::Off },
            match (recorded, o.syscalls) {
                (true, Syscalls::Surface) => "refused attempts are events".to_owned(),
                (true, Syscalls::All) => {
                    format!("refused attempts are events, and what is let through: {}", CLASSES.join(", "))
                }
                (false, _) => "refused attempts are not recorded".to_owned(),
            },
            json!({ "calls": o.syscalls }),
        ),
    ]
}

fn cgroups(o: &Observed<'_>, seen: &Seen) -> Vec<Control> {
    let each = |controller: Controller| {
        let name = format!("cgroup.{}", controller.name());
        if let Some(group) = o.groups.group(controller) {
            return cgroup_line(&name, group, controller, seen);
        }
        if let Some((_, reason)) = o.groups.missing.iter().find(|(c, _)| *c == controller) {
            return fallback_line(&name, controller, reason, o, seen);
        }
        line(&name, State::Off, "no limit asked for", Value::Null)
    };
    [Controller::Memory, Controller::Pids, Controller::Cpu].into_iter().map(each).collect()
}

fn cgroup_line(name: &str, group: &Group, controller: Controller, seen: &Seen) -> Control {
    let file = match (controller, group.version) {
        (Controller::Memory, Version::V1) => "memory.limit_in_bytes",
        (Controller::Memory, Version::V2) => "memory.max",
        (Controller::Pids, _) => "pids.max",
        (Controller::Cpu, Version::V1) => "cpu.cfs_quota_us",
        (Controller::Cpu, Version::V2) => "cpu.max",
        (Controller::Freezer | Controller::Account, _) => "cgroup.procs",
    };
    let limit = fs::read_to_string(group.path.join(file)).unwrap_or_default().trim().to_owned();
    let hierarchy = (group.version == Version::V1).then(|| controller.name());
    let name_of = group.path.file_name().map(|name| name.to_string_lossy());
    let member = name_of.is_some_and(|name| seen.is_in_group(hierarchy, &name));
    let version = if group.version == Version::V1 { "v1" } else { "v2" };
    let shown = match (controller, limit.parse::<u64>()) {
        (Controller::Memory, Ok(bytes)) => Bytes(bytes).to_string(),
        (Controller::Cpu, _) => quota(&limit, group),
        _ => limit.clone(),
    };
    let state = if member && !limit.is_empty() { State::Enforced } else { State::Off };
    line(name, state, format!("{shown} (cgroup {version})"), json!({ "limit": limit, "version": version }))
}

/// Version 2 writes the time and the period that it is of, and `max` for none; in version 1 the period is what we set.
fn quota(limit: &str, group: &Group) -> String {
    let mut numbers = limit.split_whitespace().map(|number| number.parse::<u64>().ok());
    let (time, period) = (numbers.next().flatten(), numbers.next().flatten().unwrap_or(100_000));
    match time {
        Some(time) => format!("{} cores{}", time as f64 / period.max(1) as f64, share(group)),
        None => format!("no quota{}", share(group)).replacen("no quota, ", "", 1),
    }
}

/// Its weight beside others, where that is not everybody's.
fn share(group: &Group) -> String {
    let (file, usual) = match group.version {
        Version::V1 => ("cpu.shares", 1024),
        Version::V2 => ("cpu.weight", 100),
    };
    match fs::read_to_string(group.path.join(file)).ok().and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(weight) if weight != usual => {
            format!(", a share of {} beside others' 100", (weight * 100).div_ceil(usual))
        }
        _ => String::new(),
    }
}

/// A limit per process is something else than one for the session, and is said to be.
fn fallback_line(name: &str, controller: Controller, reason: &str, o: &Observed<'_>, seen: &Seen) -> Control {
    let value = json!({ "reason": reason });
    match controller {
        Controller::Pids if seen.limit("Max processes") == o.limits.cgroup.pids.map(u64::from) => line(
            name,
            State::Weaker,
            format!("{} by rlimit, counted per user namespace", o.limits.cgroup.pids.unwrap_or(0)),
            value,
        ),
        Controller::Memory if seen.limit("Max address space").is_some() => {
            line(name, State::Weaker, "per process, by rlimit: address space", value)
        }
        _ => line(name, State::Absent, format!("not limited: {reason}"), value),
    }
}

fn limits(o: &Observed<'_>, seen: &Seen) -> Vec<Control> {
    let files = seen.limit("Max open files");
    let (disk, held) = disk(o, seen);
    let what = match (o.limits.layer_in_scratch, o.limits.in_file) {
        (true, true) => "work dir layer, home and temporary files, in a file on disk",
        (true, false) => "work dir layer, home and temporary files",
        (false, _) => "home and temporary files; the work dir's layer has no limit",
    };
    vec![
        line(
            "limit.files",
            if files.is_some() { State::Enforced } else { State::Off },
            format!("{} open files a process", files.unwrap_or(0)),
            json!(files),
        ),
        line(
            "limit.disk",
            disk,
            format!("{} in {} files for {what}", Bytes(o.limits.scratch), o.limits.files_told()),
            held,
        ),
    ]
}

/// What the kernel says of the file system that everything writable is in: of memory its options, of one in a file what
/// is left of it.
fn disk(o: &Observed<'_>, seen: &Seen) -> (State, Value) {
    let mount = seen.mount("/tmp");
    let Some(left) = o.left.as_ref().filter(|_| o.limits.in_file) else {
        let [size, inodes] =
            ["size", "nr_inodes"].map(|name| mount.as_ref().and_then(|mount| mount.option(name)));
        let state =
            if o.limits.layer_in_scratch && !o.limits.in_file { State::Enforced } else { State::Weaker };
        return (state, json!({ "size": size, "inodes": inodes }));
    };
    let bytes = left.f_bavail.saturating_mul(left.f_frsize);
    let most = o.limits.scratch.next_multiple_of(left.f_frsize.max(1));
    let files = o.limits.allowed_inodes.is_none_or(|allowed| left.f_ffree <= allowed);
    let held = mount.is_some_and(|mount| mount.kind == "ext4") && bytes <= most && files;
    let state = if held { State::Enforced } else { State::Weaker };
    (state, json!({ "size": format!("{}k", bytes >> 10), "inodes": left.f_ffree.to_string() }))
}

fn hidden(o: &Observed<'_>) -> Control {
    let hidden = &o.layout.hidden;
    let state = if hidden.complete { State::Enforced } else { State::Weaker };
    let note = if hidden.complete { "" } else { "; the work dir is too large to be searched to the end" };
    let paths: Vec<String> = hidden.paths.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    line("hidden", state, format!("{} paths of the work dir{note}", paths.len()), json!({ "paths": paths }))
}

/// Where a registry says which programs there are: that the host's own directories are covered.
fn programs(o: &Observed<'_>, seen: &Seen) -> Option<Control> {
    let programs = o.layout.programs.as_ref()?;
    let covered = programs.iter().all(|(dir, _)| seen.mount(&dir.to_string_lossy()).is_some());
    let names: Vec<String> = programs
        .iter()
        .flat_map(|(dir, own)| own.iter().map(|(name, _)| dir.join(name).to_string_lossy().into_owned()))
        .collect();
    let (state, what) = match covered {
        true => (State::Enforced, "the registry's, and no others of the host's"),
        false => (State::Off, "a directory of the host's programs is open"),
    };
    Some(line("programs", state, format!("{} names: {what}", names.len()), json!({ "names": names })))
}

/// Refuses a sandbox that is weaker than every one must be, or than this one was asked to be.
pub(crate) fn check(
    report: &EnforcementReport,
    require: &[String],
    accept: &[Weakness],
    without: &[String],
) -> Result<(), RuntimeError> {
    let refuse = |what: String, fix: &str| Err(RuntimeError::Refused { what, fix: fix.into() });
    for name in require {
        match report.control(name) {
            None => {
                let names: Vec<&str> = report.controls.iter().map(|control| &*control.name).collect();
                return refuse(
                    format!("`require` names `{name}`, which no line of the report has"),
                    &format!("there are {}", names.join(", ")),
                );
            }
            Some(control) if control.state != State::Enforced => {
                return refuse(
                    format!("`{name}` is required and is {}: {}", control.state.word(), control.detail),
                    "see `cofferdam doctor` for what this host lacks",
                );
            }
            Some(_) => {}
        }
    }
    let landlock = if accept.contains(&Weakness::NoLandlock) { &[][..] } else { &["landlock"][..] };
    let is_accepted = |name: &str| name == "network.capture" && accept.contains(&Weakness::NoCapture);
    let demanded = MANDATORY.iter().chain(landlock).filter(|name| !is_accepted(name));
    for name in demanded.filter(|name| !without.iter().any(|w| w == *name)) {
        if let Some(control) = report.control(name).filter(|c| matches!(c.state, State::Off | State::Absent))
        {
            let fix = match *name {
                "landlock" => "boot with lsm=landlock,…, or accept it with `--accept no-landlock`",
                "network.capture" => {
                    "load `nft_tproxy`, or accept with `--accept no-capture` that only programs which ask the proxy reach anything"
                }
                _ => "run `cofferdam doctor`",
            };
            return refuse(format!("`{name}` is not in force: {}", control.detail), fix);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_that_is_lacking_is_refused_unless_it_is_accepted() {
        let lacking = line("network.capture", State::Off, "no module", json!(null));
        let report =
            EnforcementReport { tier: Tier::Process, kernel: String::new(), controls: vec![lacking] };
        let refused = check(&report, &[], &[Weakness::NoLandlock], &[]).unwrap_err().to_string();
        assert!(refused.contains("network.capture") && refused.contains("no-capture"), "{refused}");
        assert!(check(&report, &[], &[Weakness::NoCapture], &[]).is_ok());
        // Who demands it is not served by who accepts its lack.
        assert!(check(&report, &["network.capture".into()], &[Weakness::NoCapture], &[]).is_err());
    }
}
