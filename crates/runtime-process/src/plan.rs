//! From a layout to the list of operations that the boot child performs. Pure: the order and every attribute
//! can be read and tested here without a kernel.

use crate::layout::{Asked, Layout, System};
use crate::network;
use crate::shown::{self, Placed};
use crate::users::{Users, Way};
use crate::view::{DEVICE_LINKS, DEVICES};
use cofferdam_sys::boot::{Access, Attr, Kept, Op, Resource};
use cofferdam_sys::landlock::{Grant, Ruleset};
use cofferdam_sys::seccomp::Program;
use rustix::thread::UnshareFlags;
use std::ffi::CString;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything that is decided, and what it needs of already open things.
pub(crate) struct Decided<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) users: &'a Users,
    pub(crate) staging: &'a Path,
    /// The session's upper and work directories on the host, or nothing to keep them in the scratch memory.
    pub(crate) layer: Option<&'a Path>,
    /// Layers that are frozen, between the session's own and the work dir: the upper ones first.
    pub(crate) base: &'a [PathBuf],
    /// Whether other rooms are to be made in this place, and how many layers of the session's own the one has.
    pub(crate) room: Room,
    pub(crate) scratch: Scratch,
    /// Maps the owner of the work dir (and of toolchains) to the inside's user; only when root.
    pub(crate) idmapped: bool,
    pub(crate) rlimits: Vec<(Resource, u64)>,
    /// Ids and capabilities the guest keeps.
    pub(crate) guest: Access,
    pub(crate) keep_capabilities: u64,
    /// The files by which to enter control groups that the child was not born in.
    pub(crate) groups: Vec<PathBuf>,
    pub(crate) landlock: Option<u32>,
    pub(crate) nested: bool,
    pub(crate) seccomp: Option<(Arc<Program>, bool)>,
    pub(crate) files: &'a [Placed],
    /// The doors, where they were asked for.
    pub(crate) network: Option<&'a network::Wanted>,
    pub(crate) inherited: Inherited,
    /// Controls that a test or a weakened profile leaves out, by their name in the report.
    pub(crate) without: &'a [String],
}

/// What of a sandbox is made. A room is all that belongs to one process tree: its mount namespace, with the work
/// dir as the layers show it now. What rooms share (the skeleton, the scratch space, the network) is the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// The place and the one room in it.
    Only,
    /// The place, which is kept, and the first room.
    First,
    /// Another room of a place that was kept, with so many layers of the session's own.
    Another { levels: usize },
}

/// Where the layers on disk are while a root is put together.
const DISK: &str = "../scratch/disk";

/// Descriptors that the child was born with, by their numbers in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inherited {
    pub(crate) channel: RawFd,
    pub(crate) image: RawFd,
}

/// The one memory file system that holds everything writable but the work dir's layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scratch {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

fn c(path: impl AsRef<Path>) -> CString {
    let bytes: Vec<u8> = path.as_ref().as_os_str().as_bytes().iter().copied().filter(|&b| b != 0).collect();
    // NUL bytes were just removed, so this cannot fail.
    CString::new(bytes).unwrap_or_default()
}

/// An absolute path of the inside, relative to the root under construction.
fn at(path: &Path) -> CString {
    c(path.strip_prefix("/").unwrap_or(path))
}

/// What the child does first, whatever else is decided: it takes as long as deciding the rest does.
pub(crate) fn first(users: &Users, network: Option<&network::Wanted>, without: &[String]) -> Vec<Op> {
    let on = |control: &str| !without.iter().any(|name| name == control);
    let mut ops = vec![Op::DieWithSupervisor];
    if users.way == Way::Single {
        ops.push(Op::MapOwnIds {
            uid_map: users.uid_map.clone().into_bytes(),
            gid_map: users.gid_map.clone().into_bytes(),
        });
    }
    let mut namespaces = UnshareFlags::NEWNS;
    for (control, flag) in [
        ("namespace.net", UnshareFlags::NEWNET),
        ("namespace.ipc", UnshareFlags::NEWIPC),
        ("namespace.uts", UnshareFlags::NEWUTS),
    ] {
        namespaces.set(flag, on(control));
    }
    ops.push(Op::Unshare { namespaces });
    // Where a namespace is left out on purpose, these are the host's own.
    if on("namespace.uts") {
        ops.push(Op::Hostname { name: b"cofferdam".to_vec() });
    }
    if on("namespace.net") {
        ops.push(Op::LoopbackUp);
        if let Some(network) = network {
            network.open(on("network.capture"), &mut ops);
        }
    }
    ops.push(Op::PrivateMounts);
    ops
}

/// What the child of another room does first: it joins what was kept, and makes the rest anew.
pub(crate) fn again(mounts: RawFd, network: RawFd, without: &[String]) -> Vec<Op> {
    let on = |control: &str| !without.iter().any(|name| name == control);
    let mut ops = vec![Op::DieWithSupervisor];
    if on("namespace.net") {
        ops.push(Op::Join { namespace: network, kind: Kept::Network });
    }
    ops.push(Op::Join { namespace: mounts, kind: Kept::Mounts });
    let mut namespaces = UnshareFlags::NEWNS;
    namespaces.set(UnshareFlags::NEWIPC, on("namespace.ipc"));
    namespaces.set(UnshareFlags::NEWUTS, on("namespace.uts"));
    ops.push(Op::Unshare { namespaces });
    if on("namespace.uts") {
        ops.push(Op::Hostname { name: b"cofferdam".to_vec() });
    }
    ops
}

/// All the rest.
pub(crate) fn operations(d: &Decided<'_>) -> Vec<Op> {
    let mut ops = Vec::with_capacity(120);
    match d.room {
        Room::Another { .. } => ops.push(Op::Enter { at: c(d.staging.join("root")) }),
        Room::Only | Room::First => {
            root(d, &mut ops);
            system(d, &mut ops);
            devices(&mut ops);
            layers(d, &mut ops);
        }
    }
    if d.room == Room::First {
        ops.push(Op::KeepPlace);
    }
    proc(d, &mut ops);
    places(d, &mut ops);
    join_groups(d, &mut ops);
    close_root(&mut ops);
    finish_namespaces(d, &mut ops);
    drop_privileges(d, &mut ops);
    ops.push(Op::Descriptors { channel: d.inherited.channel });
    confine(d, &mut ops);
    ops.push(Op::Execute { image: d.inherited.image, name: c"cofferdam-guest".into() });
    ops
}

/// An empty root, and the scratch space from which everything writable is bound. The scratch space and the
/// work dir's own files are mounted beside the new root, not in it, and so go with the old root: each unmount
/// of its own would wait for all processors.
fn root(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let owner = owner(d);
    let options = format!("mode=0755,size={},nr_inodes={}", d.scratch.bytes, d.scratch.inodes);
    ops.push(Op::Tmpfs { at: c(d.staging.join("scratch")), options: c(options), attr: Attr::WRITABLE });
    let root = d.staging.join("root");
    ops.push(Op::Tmpfs {
        at: c(&root),
        options: c("mode=0755,size=16m,nr_inodes=4096"),
        attr: Attr::WRITABLE,
    });
    ops.push(Op::Enter { at: c(&root) });
    for (name, mode) in [("tmp", 0o1777), ("shm", 0o1777), ("home", 0o755), ("run", 0o755), ("layer", 0o700)]
    {
        let owner = if mode == 0o755 { owner } else { None };
        ops.push(Op::Dir { at: c(format!("../scratch/{name}")), mode, owner });
    }
    // Something to write to that only Landlock forbids.
    ops.push(Op::File { at: c("../scratch/run/cofferdam.probe"), mode: 0o666, content: Vec::new() });
    ops.push(dir(".cofferdam", 0o755));
    ops.push(Op::File { at: c(".cofferdam/mask"), mode: 0, content: Vec::new() });
    ops.push(dir(".cofferdam/mask.d", 0));
    if let (Some(content), Some(_)) = (&d.layout.gitconfig, &d.layout.home) {
        ops.push(Op::File { at: c("../scratch/home/.gitconfig"), mode: 0o644, content: content.clone() });
    }
}

/// Root's files would be nobody's inside; others' are already the user's own.
fn owner(d: &Decided<'_>) -> Option<(u32, u32)> {
    (d.users.way == Way::Root).then_some((d.users.host_uid, d.users.host_gid))
}

fn dir(path: impl AsRef<Path>, mode: u32) -> Op {
    Op::Dir { at: c(path), mode, owner: None }
}

fn bind(from: impl AsRef<Path>, to: impl AsRef<Path>, attr: Attr) -> Op {
    Op::Bind { from: c(from), at: c(to), attr, idmapped: false }
}

fn mask(path: impl AsRef<Path>, is_dir: bool) -> Op {
    bind(if is_dir { ".cofferdam/mask.d" } else { ".cofferdam/mask" }, path, Attr::READ_ONLY)
}

fn system(d: &Decided<'_>, ops: &mut Vec<Op>) {
    for entry in &d.layout.system {
        match entry {
            System::Link(name, to) => ops.push(Op::Symlink { at: c(name), to: c(to) }),
            System::Dir(name) => {
                ops.push(dir(name, 0o755));
                ops.push(bind(Path::new("/").join(name), name, Attr::READ_ONLY));
            }
        }
    }
    for (name, is_dir) in &d.layout.etc_masked {
        ops.push(mask(Path::new("etc").join(name), *is_dir));
    }
    if let Some((passwd, group)) = &d.layout.passwd {
        for (name, content) in [("passwd", passwd), ("group", group)] {
            let made = format!(".cofferdam/{name}");
            ops.push(Op::File { at: c(&made), mode: 0o644, content: content.clone() });
            ops.push(bind(&made, Path::new("etc").join(name), Attr::READ_ONLY));
        }
    }
    ops.push(dir("var", 0o755));
    ops.push(Op::Symlink { at: c("var/run"), to: c("/run") });
    ops.push(Op::Symlink { at: c("var/tmp"), to: c("/tmp") });
    for path in &d.layout.var {
        parents(Path::new(path), ops);
        ops.push(dir(path, 0o755));
        ops.push(bind(Path::new("/").join(path), path, Attr::READ_ONLY));
    }
    for (name, place) in [("tmp", "tmp"), ("run", "run")] {
        ops.push(dir(place, 0o755));
        ops.push(bind(format!("../scratch/{name}"), place, Attr::WRITABLE));
    }
    ops.push(dir("sys", 0o755));
    shown::show(d.files, ops);
}

/// Directories on the way to a mount point.
fn parents(path: &Path, ops: &mut Vec<Op>) {
    let mut above: Vec<&Path> =
        path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty() && *p != Path::new("/")).collect();
    above.reverse();
    ops.extend(above.into_iter().map(|p| Op::Dir { at: at(p), mode: 0o755, owner: None }));
}

fn devices(ops: &mut Vec<Op>) {
    ops.push(dir("dev", 0o755));
    for name in DEVICES {
        let place = format!("dev/{name}");
        ops.push(Op::File { at: c(&place), mode: 0o666, content: Vec::new() });
        ops.push(bind(Path::new("/").join(&place), &place, Attr::DEVICE));
    }
    for (name, to) in DEVICE_LINKS {
        ops.push(Op::Symlink { at: c(format!("dev/{name}")), to: c(to) });
    }
    ops.push(dir("dev/pts", 0o755));
    ops.push(Op::Devpts { at: c("dev/pts") });
    ops.push(dir("dev/shm", 0o1777));
    ops.push(bind("../scratch/shm", "dev/shm", Attr::WRITABLE));
}

fn proc(d: &Decided<'_>, ops: &mut Vec<Op>) {
    ops.push(dir("proc", 0o755));
    ops.push(Op::Proc { at: c("proc") });
    if off(d, "proc") {
        return;
    }
    for name in &d.layout.proc_read_only {
        let place = Path::new("proc").join(name);
        ops.push(bind(&place, &place, Attr { no_exec: true, ..Attr::READ_ONLY }));
    }
    for name in &d.layout.proc_masked {
        ops.push(bind(
            "dev/null",
            Path::new("proc").join(name),
            Attr { read_only: true, no_dev: false, no_exec: true },
        ));
    }
}

fn off(d: &Decided<'_>, control: &str) -> bool {
    d.without.iter().any(|name| name == control)
}

/// The home, the work dir and the mounts asked for, outer ones first so that none covers another.
fn places(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let depth = |path: &Path| path.components().count();
    let home_first = d.layout.home.as_ref().is_none_or(|home| depth(home) <= depth(&d.layout.workdir));
    if home_first {
        home(d, ops);
        workdir(d, ops);
    } else {
        workdir(d, ops);
        home(d, ops);
    }
    for Asked { mount, owner, is_dir } in &d.layout.mounts {
        parents(&mount.target, ops);
        ops.push(match is_dir {
            true => Op::Dir { at: at(&mount.target), mode: 0o755, owner: None },
            false => Op::File { at: at(&mount.target), mode: 0o644, content: Vec::new() },
        });
        let attr = if mount.writable { Attr::WRITABLE } else { Attr::READ_ONLY };
        let idmapped = d.idmapped && *owner == d.layout.workdir_owner;
        ops.push(Op::Bind { from: c(&mount.source), at: at(&mount.target), attr, idmapped });
    }
}

fn home(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let Some(home) = &d.layout.home else { return };
    parents(home, ops);
    ops.push(Op::Dir { at: at(home), mode: 0o755, owner: owner(d) });
    ops.push(Op::Bind { from: c("../scratch/home"), at: at(home), attr: Attr::WRITABLE, idmapped: false });
    for shown in &d.layout.toolchains {
        parents(&shown.path, ops);
        ops.push(Op::Dir { at: at(&shown.path), mode: 0o755, owner: owner(d) });
        let idmapped = d.idmapped && shown.owner == d.layout.workdir_owner;
        ops.push(Op::Bind { from: c(&shown.path), at: at(&shown.path), attr: Attr::READ_ONLY, idmapped });
        ops.extend(
            shown.masked.iter().map(|(path, is_dir)| mask(path.strip_prefix("/").unwrap_or(path), *is_dir)),
        );
    }
}

/// Makes the session's own layer, or brings the one on disk to where the overlay finds it by a short name: the
/// kernel takes no long ones.
fn layers(d: &Decided<'_>, ops: &mut Vec<Op>) {
    match (d.layer, d.room) {
        (Some(path), Room::First) => {
            ops.push(dir(DISK, 0o700));
            ops.push(bind(path, DISK, Attr::WRITABLE));
        }
        (Some(_), _) => {}
        (None, _) => {
            let owner = owner(d);
            ops.push(Op::Dir { at: c("../scratch/layer/upper"), mode: 0o755, owner });
            ops.push(dir("../scratch/layer/work", 0o700));
            plant(d, ops);
            ops.push(Op::HandOver { at: c("../scratch/layer/upper") });
        }
    }
    if d.room == Room::First && d.layer.is_none() {
        ops.push(Op::HandOver { at: c("../scratch/layer") });
    }
}

fn base(at: usize) -> PathBuf {
    Path::new("../scratch/base").join(at.to_string())
}

/// The overlay: the host's directory below, the session's layers above. Their own mounts are never seen.
fn workdir(d: &Decided<'_>, ops: &mut Vec<Op>) {
    ops.push(Op::Bind {
        from: c(&d.layout.workdir),
        at: c("../lower"),
        attr: Attr::READ_ONLY,
        idmapped: d.idmapped,
    });
    for (at, path) in d.base.iter().enumerate() {
        ops.push(dir("../scratch/base", 0o700));
        ops.push(dir(base(at), 0o700));
        ops.push(bind(path, base(at), Attr::READ_ONLY));
    }
    let own = match (d.layer, d.room) {
        (Some(path), Room::Only) => path.to_owned(),
        (Some(_), _) => PathBuf::from(DISK),
        (None, _) => PathBuf::from("../scratch/layer"),
    };
    let levels = if let Room::Another { levels } = d.room { levels } else { 1 };
    let level = |at: usize| if at == 0 { own.clone() } else { own.join(at.to_string()) };
    let top = level(levels.saturating_sub(1));
    let beneath = (0..levels.saturating_sub(1)).rev().map(|at| c(level(at).join("upper")));
    let lower: Vec<CString> =
        beneath.chain((0..d.base.len()).map(|at| c(base(at)))).chain([c("../lower")]).collect();
    let userxattr = d.users.way != Way::Root;
    parents(&d.layout.workdir, ops);
    ops.push(Op::Dir { at: at(&d.layout.workdir), mode: 0o755, owner: owner(d) });
    if levels > 1 {
        // What there was before the innermost transaction, to compare with.
        ops.push(dir("../scratch/below", 0o700));
        ops.push(Op::Overlay { lower: lower.clone(), upper: None, at: c("../scratch/below"), userxattr });
        ops.push(Op::HandOver { at: c("../scratch/below") });
    }
    let upper = Some((c(top.join("upper")), c(top.join("work"))));
    ops.push(Op::Overlay { lower, upper, at: at(&d.layout.workdir), userxattr });
}

/// Hidden paths of the work dir do not exist in the layer above, whatever the host has below.
fn plant(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let upper = Path::new("../scratch/layer/upper");
    for (path, mode) in &d.layout.hidden_parents {
        ops.push(Op::Dir { at: c(upper.join(path)), mode: *mode, owner: owner(d) });
    }
    ops.extend(d.layout.hidden.paths.iter().map(|path| Op::Whiteout { at: c(upper.join(path)) }));
}

/// As late as the host's files can be named: the supervisor makes the groups meanwhile.
fn join_groups(d: &Decided<'_>, ops: &mut Vec<Op>) {
    if !d.groups.is_empty() {
        ops.push(Op::AwaitSupervisor);
        ops.extend(d.groups.iter().map(|entrance| Op::JoinGroup { tasks: c(entrance) }));
    }
}

fn close_root(ops: &mut Vec<Op>) {
    ops.push(Op::ReadOnly { at: c(".") });
    ops.push(Op::PivotHere);
}

fn finish_namespaces(d: &Decided<'_>, ops: &mut Vec<Op>) {
    if !off(d, "namespace.cgroup") {
        ops.push(Op::NewCgroupNamespace);
    }
    // Any other child was born in its own.
    if d.users.way == Way::Root {
        ops.push(Op::EnterUserNamespace);
    }
}

fn drop_privileges(d: &Decided<'_>, ops: &mut Vec<Op>) {
    ops.extend(d.rlimits.iter().map(|&(resource, value)| Op::Limit { resource, value }));
    if d.users.way != Way::Single {
        ops.push(Op::Become { who: d.guest });
        // Changing ids clears it.
        ops.push(Op::DieWithSupervisor);
    }
    if !off(d, "capabilities") {
        ops.push(Op::BoundCapabilities { keep: d.keep_capabilities });
        ops.push(Op::Capabilities { keep: d.keep_capabilities });
    }
    if !off(d, "no-new-privileges") {
        ops.push(Op::NoNewPrivileges);
    }
}

fn confine(d: &Decided<'_>, ops: &mut Vec<Op>) {
    if let Some(abi) = d.landlock.filter(|_| !off(d, "landlock")) {
        ops.push(Op::Landlock { ruleset: ruleset(d, abi) });
    }
    ops.push(Op::ProbeLandlock { at: c("/run/cofferdam.probe") });
    if let Some(network) = d.network.filter(|_| !off(d, "namespace.net")) {
        ops.push(Op::ProbeDoors { at: network.knocks() });
    }
    if let Some((program, notify)) = &d.seccomp {
        ops.push(Op::Seccomp { program: program.clone(), notify: *notify });
    }
}

/// Reads as the mounts allow; writes only where writing is meant.
fn ruleset(d: &Decided<'_>, abi: u32) -> Ruleset {
    if d.nested {
        return Ruleset::scopes_only(abi);
    }
    let mut rules = vec![(c("/"), Grant::Read), (c("/proc"), Grant::ReadAndWrite)];
    let home = d.layout.home.iter().cloned();
    let writable =
        d.layout.mounts.iter().filter(|asked| asked.mount.writable).map(|asked| asked.mount.target.clone());
    let all = ["/tmp", "/dev"]
        .map(PathBuf::from)
        .into_iter()
        .chain([d.layout.workdir.clone()])
        .chain(home)
        .chain(writable);
    rules.extend(all.map(|path| (c(path), Grant::All)));
    Ruleset::new(abi, rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hidden::Hidden;
    use cofferdam_model::Mount;
    use cofferdam_sys::Errno;
    use cofferdam_sys::boot::{Kernel, Recorder};

    fn layout(mounts: Vec<Asked>) -> Layout {
        Layout {
            system: vec![System::Dir("usr".into()), System::Link("bin".into(), "usr/bin".into())],
            var: Vec::new(),
            etc_masked: vec![("shadow", false)],
            proc_read_only: vec!["sys"],
            proc_masked: vec!["kcore"],
            home: Some("/home/ada".into()),
            toolchains: Vec::new(),
            workdir: "/home/ada/work".into(),
            workdir_owner: (7, 7),
            hidden: Hidden { paths: vec![".env".into(), "a/.env".into()], complete: true },
            hidden_parents: vec![("a".into(), 0o750)],
            mounts,
            passwd: None,
            gitconfig: None,
        }
    }

    fn performed(layout: &Layout, without: &[&str]) -> Vec<String> {
        performed_with(layout, without, None)
    }

    fn performed_with(layout: &Layout, without: &[&str], network: Option<&network::Wanted>) -> Vec<String> {
        let without: Vec<String> = without.iter().map(|w| (*w).to_owned()).collect();
        let decided = Decided {
            layout,
            users: &Users::for_tests(Way::Single, 7),
            staging: Path::new("/state/staging"),
            layer: None,
            base: &[],
            room: Room::Only,
            scratch: Scratch { bytes: 1 << 20, inodes: 100 },
            idmapped: false,
            rlimits: vec![(Resource::Core, 0)],
            guest: Access { uid: 7, gid: 7, drop_groups: false },
            keep_capabilities: 0,
            groups: vec!["/cg/pids/s/tasks".into()],
            landlock: Some(7),
            nested: false,
            seccomp: Some((Arc::new(crate::filter::program(Default::default())), true)),
            files: &[],
            network,
            inherited: Inherited { channel: 5, image: 6 },
            without: &without,
        };
        let mut kernel = Recorder::default();
        for op in first(decided.users, network, decided.without).into_iter().chain(operations(&decided)) {
            kernel.perform(&op).unwrap();
        }
        kernel.performed
    }

    fn position(ops: &[String], start: &str) -> usize {
        ops.iter().position(|op| op.starts_with(start)).unwrap_or_else(|| panic!("no `{start}` in {ops:#?}"))
    }

    #[test]
    fn everything_is_closed_before_the_guest_runs() {
        let ops = performed(&layout(Vec::new()), &[]);
        let order = [
            "map-own-ids",
            "new namespaces",
            "private-mounts",
            "overlay",
            "await-supervisor",
            "join-group",
            "read-only .",
            "pivot-root",
            "bound-capabilities 0x0",
            "capabilities 0x0",
            "no-new-privileges",
            "descriptors",
            "landlock",
            "probe-landlock",
            "seccomp",
            "execute",
        ];
        let places: Vec<usize> = order.iter().map(|start| position(&ops, start)).collect();
        assert!(places.is_sorted(), "{order:?} came in the order {places:?}");
        assert_eq!(position(&ops, "execute"), ops.len() - 1);
        assert_eq!(
            position(&ops, "seccomp"),
            ops.len() - 2,
            "nothing may come between the filter and the guest"
        );
    }

    #[test]
    fn no_directory_of_the_host_is_bound_writable_unless_asked() {
        let asked = |writable| Asked {
            mount: Mount { source: "/data".into(), target: "/data".into(), writable },
            owner: (7, 7),
            is_dir: true,
        };
        let writable = |ops: &[String]| {
            let host = ops.iter().filter(|op| op.starts_with("bind /") && !op.starts_with("bind /dev/"));
            host.filter(|op| op.contains(" rw")).cloned().collect::<Vec<_>>()
        };
        assert_eq!(writable(&performed(&layout(vec![asked(false)]), &[])), Vec::<String>::new());
        assert_eq!(writable(&performed(&layout(vec![asked(true)]), &[])), ["bind /data on data rw nodev"]);
    }

    #[test]
    fn hidden_paths_are_away_before_the_work_dir_appears() {
        let ops = performed(&layout(Vec::new()), &[]);
        assert!(position(&ops, "whiteout ../scratch/layer/upper/a/.env") < position(&ops, "overlay"));
        assert!(
            position(&ops, "dir ../scratch/layer/upper/a 0750")
                < position(&ops, "whiteout ../scratch/layer/upper/a/.env")
        );
        assert!(position(&ops, "bind .cofferdam/mask on etc/shadow ro") < position(&ops, "pivot-root"));
    }

    #[test]
    fn a_control_that_is_left_out_leaves_out_its_operation() {
        for (control, op) in [
            ("landlock", "landlock"),
            ("no-new-privileges", "no-new-privileges"),
            ("capabilities", "capabilities"),
        ] {
            let ops = performed(&layout(Vec::new()), &[control]);
            assert!(!ops.iter().any(|o| o.split(' ').next() == Some(op)), "{control}");
        }
        assert!(
            !performed(&layout(Vec::new()), &["namespace.uts"]).iter().any(|op| op.starts_with("hostname"))
        );
    }

    /// The doors are made while there is power over the network, and tried when there is none left.
    #[test]
    fn doors_are_made_before_and_tried_after_privileges_are_dropped() {
        let doors = network::look();
        let ops = performed_with(&layout(Vec::new()), &[], Some(&doors));
        let order = [
            "loopback-up",
            "doors",
            "netlink routes",
            "netlink capture",
            "bound-capabilities",
            "no-new-privileges",
            "landlock",
            "probe-doors",
            "seccomp",
            "execute",
        ];
        let places: Vec<usize> = order.iter().map(|start| position(&ops, start)).collect();
        assert!(places.is_sorted(), "{order:?} came in the order {places:?}");
    }

    /// In the host's own network they would capture the host's traffic; unasked they would cost time.
    #[test]
    fn without_a_network_of_its_own_or_unasked_there_are_no_doors() {
        let doors = network::look();
        let shared = performed_with(&layout(Vec::new()), &["namespace.net"], Some(&doors));
        for ops in [shared, performed(&layout(Vec::new()), &[])] {
            let network =
                |op: &&String| ["netlink", "doors", "probe-doors"].iter().any(|n| op.starts_with(n));
            assert_eq!(ops.iter().find(network), None);
        }
    }

    #[test]
    fn a_fault_stops_the_double_where_it_was_told_to() {
        let mut kernel = Recorder { fault: Some((1, Errno::PERM)), ..Recorder::default() };
        assert_eq!(kernel.perform(&Op::PrivateMounts), Ok(()));
        assert_eq!(kernel.perform(&Op::PivotHere), Err(Errno::PERM));
        assert_eq!(kernel.performed, ["private-mounts"]);
    }
}
