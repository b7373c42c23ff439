//! What this host can enforce, found out by trying where trying is cheap, with the fix for each "no".

use crate::ProcessBackend;
use crate::backing;
use crate::cgroup::{Controller, hierarchies};
use crate::explain::{container_fix, in_container, user_namespace_fix};
use cofferdam_model::{EnforcementReport, LayerPlace, Limits, Profile, SessionId, State, Tier, UserMode};
use cofferdam_runtime::{Backend, Network, Probe, RuntimeError, SandboxSpec};
use cofferdam_sys::landlock;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a sandbox is booted in to be looked at.
const PROBE: &str = "cofferdam-probe-";

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub name: &'static str,
    pub ok: bool,
    pub detail: String,
    pub fix: Option<String>,
}

fn fact(name: &'static str, ok: bool, detail: impl Into<String>, fix: impl Into<String>) -> Fact {
    Fact { name, ok, detail: detail.into(), fix: (!ok).then(|| fix.into()) }
}

pub fn facts() -> Vec<Fact> {
    let mut facts = vec![kernel(), caller(), container(), user_namespaces(), landlock_fact(), seccomp()];
    facts.extend(cgroups());
    facts.extend([sub_ids(), egress(), layer_limit(), kvm()]);
    facts
}

fn kernel() -> Fact {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    fact(
        "kernel",
        version >= (5, 12),
        format!("Linux {release}"),
        "Linux 5.12 or newer is needed; 6.7 or newer is best",
    )
}

fn caller() -> Fact {
    let uid = rustix::process::geteuid().as_raw();
    let detail = match uid {
        0 => "root: sandboxes get sub-ids, the work dir is idmapped".to_owned(),
        uid => format!("plain user {uid}: sandboxes get this one id, or a sub-id range where there is one"),
    };
    fact("caller", true, detail, "")
}

fn container() -> Fact {
    match in_container() {
        true => fact("host", true, format!("a container; if a step is refused: {}", container_fix()), ""),
        false => fact("host", true, "not inside a container", ""),
    }
}

/// Asks for one, with the program that every distribution has; where it is missing, the settings have to do.
fn user_namespaces() -> Fact {
    let tried =
        Command::new("unshare").args(["--user", "--map-current-user", "--mount", "--net", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => fact("user-namespaces", true, "can be made", ""),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            fact("user-namespaces", false, said, user_namespace_fix())
        }
        Err(_) => fact("user-namespaces", true, "not tried: `unshare` of util-linux is not here", ""),
    }
}

fn landlock_fact() -> Fact {
    match landlock::version() {
        Some(abi) => fact("landlock", true, format!("ABI {abi}: {}", landlock::Ruleset::describe(abi)), ""),
        None => fact(
            "landlock",
            false,
            "not in this kernel, or not switched on",
            "boot with `lsm=landlock,…` on the kernel's command line, or run with `--accept no-landlock`",
        ),
    }
}

fn seccomp() -> Fact {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let notify = actions.split_whitespace().any(|a| a == "user_notif");
    let detail = if notify { "filters, and a record of refused calls" } else { "no user notification" };
    fact("seccomp", notify, detail, "a kernel with CONFIG_SECCOMP_FILTER, Linux 5.0 or newer")
}

fn cgroups() -> Vec<Fact> {
    let name = |controller| match controller {
        Controller::Memory => "cgroup.memory",
        Controller::Pids => "cgroup.pids",
        _ => "cgroup.cpu",
    };
    let fix = "run as root, or under `systemd-run --user --scope -p Delegate=yes`; else limits are held per process and reported so";
    let found = hierarchies().places(&[Controller::Memory, Controller::Pids, Controller::Cpu]);
    let one = |(controller, place)| match place {
        Ok((version, path)) => {
            let path: std::path::PathBuf = path;
            fact(name(controller), true, format!("{version:?} at {}", path.display()), "")
        }
        Err(reason) => fact(name(controller), false, reason, fix),
    };
    found.into_iter().map(one).collect()
}

fn sub_ids() -> Fact {
    let uid = rustix::process::geteuid().as_raw();
    if uid == 0 {
        return fact("sub-ids", true, "root needs no entry in /etc/subuid", "");
    }
    let name = crate::users::user_name(uid).unwrap_or_else(|| uid.to_string());
    let listed = fs::read_to_string("/etc/subuid")
        .unwrap_or_default()
        .lines()
        .any(|l| l.starts_with(&format!("{name}:")));
    let tool = ["/usr/bin/newuidmap", "/bin/newuidmap"].iter().any(|p| Path::new(p).exists());
    let fix = format!(
        "only for `--profile box`: sudo apt-get install uidmap && sudo usermod --add-subuids 200000-265535 --add-subgids 200000-265535 {name}"
    );
    let detail = match (listed, tool) {
        (true, true) => "a range and newuidmap are here",
        (false, _) => "no range in /etc/subuid",
        (true, false) => "newuidmap is not installed",
    };
    fact("sub-ids", listed && tool, detail, fix)
}

/// Tried with a sandbox whose doors are open: what is sent anywhere has to come to them.
fn egress() -> Fact {
    match booted(Network::Doors) {
        Ok(report) => {
            let found = report.control("network.capture").map(|control| control.detail.clone());
            fact("egress", true, found.unwrap_or_default(), "")
        }
        Err(refusal) => fact("egress", false, refusal.0, refusal.1.unwrap_or_default()),
    }
}

/// Tried with a small one.
fn layer_limit() -> Fact {
    let name = "layer-limit";
    if !rustix::process::geteuid().is_root() {
        let fix =
            "only for `--layer disk` with a limit: run as root; in memory the limit holds for everybody";
        return fact(
            name,
            false,
            "`--disk` and `--inodes` hold in memory; for a layer on disk they take root",
            fix,
        );
    }
    match in_temporary(backing::probe) {
        Ok(()) => {
            let detail =
                "`--disk` and `--inodes` hold with `--layer disk` too: a file system in a file was mounted";
            fact(name, true, detail, "")
        }
        Err((what, fix)) => fact(name, false, what, fix.unwrap_or_default()),
    }
}

fn kvm() -> Fact {
    let device = Path::new("/dev/kvm");
    match fs::File::options().read(true).write(true).open(device) {
        Ok(_) => {
            fact("kvm", true, "/dev/kvm can be opened; whether a guest runs on it the microvm tier tries", "")
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let fix = "only for machines at the processor's speed: switch on virtualisation, nested where this is a machine itself";
            fact("kvm", false, "no /dev/kvm", fix)
        }
        Err(error) => {
            let uid = rustix::process::geteuid().as_raw();
            let name = crate::users::user_name(uid).unwrap_or_else(|| uid.to_string());
            let fix = format!(
                "only for machines at the processor's speed: sudo usermod -aG kvm {name}, and log in again"
            );
            fact("kvm", false, format!("/dev/kvm cannot be opened: {error}"), fix)
        }
    }
}

/// The tier as a whole: a sandbox as every session gets one, booted and ended in a directory of its own.
pub(crate) fn probe() -> Probe {
    let tier = Tier::Process;
    match booted(Network::None) {
        Ok(report) => {
            let enforced = report.controls.iter().filter(|control| control.state == State::Enforced).count();
            let detail =
                format!("booted one: {enforced} of {} controls in full force", report.controls.len());
            Probe { tier, works: true, detail, fix: None }
        }
        Err((detail, fix)) => Probe { tier, works: false, detail, fix },
    }
}

/// What is in force in a sandbox that was booted just now; or why there is none, and what to do.
fn booted(network: Network) -> Result<EnforcementReport, (String, Option<String>)> {
    in_temporary(|dir| boot_in(dir, network))
}

fn in_temporary<T>(
    trying: impl FnOnce(&Path) -> Result<T, RuntimeError>,
) -> Result<T, (String, Option<String>)> {
    let temporary = std::env::temp_dir();
    crate::remove_abandoned(&temporary, PROBE);
    let stamp = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos());
    let dir = temporary.join(format!("{PROBE}{}-{stamp}", std::process::id()));
    // Where others can write, a directory that is there already is not ours.
    if let Err(error) = DirBuilder::new().mode(0o700).create(&dir) {
        let fix = "set TMPDIR to a directory of yours".into();
        return Err((format!("cannot make {}: {error}", dir.display()), Some(fix)));
    }
    let tried = trying(&dir);
    let _ = crate::layer::remove_tree(&dir);
    tried.map_err(|error| match error {
        RuntimeError::Refused { what, fix } | RuntimeError::Step { what, fix, .. } => (what, Some(fix)),
        error => (error.to_string(), None),
    })
}

fn boot_in(dir: &Path, network: Network) -> Result<EnforcementReport, RuntimeError> {
    for name in ["work", "staging/root", "staging/scratch", "staging/lower"] {
        let path = dir.join(name);
        fs::create_dir_all(&path).map_err(RuntimeError::io(format!("make {}", path.display())))?;
    }
    let spec = SandboxSpec {
        id: SessionId::new(u64::from(std::process::id()), 0),
        workdir: dir.join("work"),
        shown_at: None,
        home: PathBuf::from("/home/user"),
        path: Vec::new(),
        mounts: Vec::new(),
        hide: Vec::new(),
        profile: Profile::Run,
        users: UserMode::Auto,
        limits: Limits::default(),
        layer_place: LayerPlace::Memory,
        nested: false,
        sudo: false,
        syscalls: Default::default(),
        programs: None,
        root: None,
        tracing: false,
        pausable: false,
        ahead: false,
        network,
        files: Vec::new(),
        require: Vec::new(),
        accept: Vec::new(),
        layer: dir.join("layer"),
        conflicts: dir.join("conflicts"),
        base: Default::default(),
        staging: dir.join("staging"),
        ranges: PathBuf::from("/run/cofferdam/ranges"),
    };
    let sandbox = ProcessBackend::default().create(spec)?;
    Ok(sandbox.report().clone())
}
