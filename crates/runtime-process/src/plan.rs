//! From a layout to the list of operations that the boot child performs. Pure: the order and every attribute
//! can be read and tested here without a kernel.

mod image;
mod scene;
mod sudo;

use crate::layout::Layout;
use crate::network;
use crate::shown::{self, Placed};
use crate::users::{Users, Way};
use cofferdam_sys::boot::{Access, Kept, Op, Resource};
use cofferdam_sys::landlock::{Grant, Ruleset};
use cofferdam_sys::late::Binding;
use cofferdam_sys::seccomp::Program;
use rustix::thread::UnshareFlags;
use scene::{c, off};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something to write to that only Landlock forbids.
const PROBE: &str = "/run/cofferdam.probe";

/// Everything that is decided, and what it needs of already open things.
pub(crate) struct Decided<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) users: &'a Users,
    pub(crate) staging: &'a Path,
    /// The session's upper and work directories on the host, or nothing to keep them in the scratch memory.
    pub(crate) layer: Option<&'a Path>,
    /// Layers that are frozen, between the session's own and the work dir: the upper ones first.
    pub(crate) base: &'a [PathBuf],
    /// The same of what was done to an image's files.
    pub(crate) system: &'a [PathBuf],
    /// Whether other rooms are to be made in this place, and how many layers of the session's own the one has.
    pub(crate) room: Room,
    pub(crate) scratch: Scratch,
    /// The skeleton was made ahead, with this scratch space.
    pub(crate) ahead: Option<Scratch>,
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
    /// A node of the host's `kvm`.
    pub(crate) kvm: Option<&'a Path>,
}

/// What is alike in every sandbox of a user: the root, the host's directories in it, devices.
pub(crate) struct Skeleton<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) users: &'a Users,
    pub(crate) staging: &'a Path,
    pub(crate) scratch: Scratch,
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

/// Descriptors that the child was born with, by their numbers in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inherited {
    pub(crate) channel: RawFd,
    pub(crate) image: RawFd,
}

/// The one file system that holds everything writable, but for a layer on disk that has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scratch {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// How many the inside may make, where that was asked for: what is there before it begins does not count.
    pub(crate) allowed: Option<u64>,
    /// It lies in a file, and the supervisor gives it; else it is memory.
    pub(crate) in_file: bool,
}

/// What the child does first, whatever else is decided: it takes as long as deciding the rest does.
pub(crate) fn first(without: &[String]) -> Vec<Op> {
    let on = |control: &str| !without.iter().any(|name| name == control);
    let mut namespaces = UnshareFlags::NEWNS;
    for (control, flag) in [
        ("namespace.net", UnshareFlags::NEWNET),
        ("namespace.ipc", UnshareFlags::NEWIPC),
        ("namespace.uts", UnshareFlags::NEWUTS),
    ] {
        namespaces.set(flag, on(control));
    }
    let mut ops = vec![Op::DieWithSupervisor, Op::Unshare { namespaces }];
    // Where a namespace is left out on purpose, these are the host's own.
    if on("namespace.uts") {
        ops.push(Op::Hostname { name: b"cofferdam".to_vec() });
    }
    if on("namespace.net") {
        ops.push(Op::LoopbackUp);
    }
    ops.push(Op::PrivateMounts);
    ops
}

/// What it does next, before any file is made: whose it is, and its doors.
pub(crate) fn second(users: &Users, network: Option<&network::Wanted>, without: &[String]) -> Vec<Op> {
    let on = |control: &str| !without.iter().any(|name| name == control);
    let mut ops = Vec::new();
    if users.way == Way::Single {
        ops.push(Op::MapOwnIds {
            uid_map: users.uid_map.clone().into_bytes(),
            gid_map: users.gid_map.clone().into_bytes(),
        });
    }
    if let Some(network) = network.filter(|_| on("namespace.net")) {
        network.open(on("network.capture"), &mut ops);
    }
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

/// What can be made before anything is known of the session.
pub(crate) fn skeleton(skeleton: &Skeleton<'_>, ops: &mut Vec<Op>) {
    scene::root(skeleton, ops);
    scene::system(skeleton, ops);
    scene::devices(ops);
}

/// All the rest but what it forbids itself.
pub(crate) fn operations(d: &Decided<'_>) -> Vec<Op> {
    let mut ops = Vec::with_capacity(120);
    match d.room {
        Room::Another { .. } => ops.push(Op::Enter { at: c(d.staging.join("root")) }),
        Room::Only | Room::First => {
            match d.ahead {
                Some(made) => scene::resize(d, made, &mut ops),
                None => {
                    let Decided { layout, users, staging, scratch, .. } = *d;
                    skeleton(&Skeleton { layout, users, staging, scratch }, &mut ops);
                }
            }
            scene::files(d, &mut ops);
            sudo::add(d, &mut ops);
            scene::layers(d, &mut ops);
        }
    }
    if d.room == Room::First {
        ops.push(Op::KeepPlace);
    }
    scene::proc(d, &mut ops);
    scene::programs(d, &mut ops);
    scene::places(d, &mut ops);
    let counts = matches!(d.room, Room::Only | Room::First);
    if counts && d.layout.root.is_none() {
        scene::allow_files(d, "../scratch", 0, &mut ops);
    }
    join_groups(d, &mut ops);
    ops.push(Op::ReadOnly { at: c(".") });
    image::stand(d, &mut ops);
    if counts && d.layout.root.is_some() {
        // What is put into an image's tree is in the scratch space too. It stands there.
        scene::allow_files(d, "..", 0, &mut ops);
    }
    ops.push(Op::PivotHere);
    finish_namespaces(d, &mut ops);
    ops.extend(d.rlimits.iter().map(|&(resource, value)| Op::Limit { resource, value }));
    ops.push(Op::TellSettled);
    ops
}

/// The last of it: what the child forbids itself, and the guest. The filter takes a while to compile, so it comes when
/// the child is at work already.
pub(crate) fn confinement(d: &Decided<'_>) -> Vec<Op> {
    let mut ops = Vec::with_capacity(12);
    drop_privileges(d, &mut ops);
    ops.push(Op::Descriptors { channel: d.inherited.channel, waits: false });
    confine(d, &mut ops);
    ops.push(Op::Execute { image: d.inherited.image, name: c"cofferdam-guest".into() });
    ops
}

/// All that can be made of a place and its room before it is known whose they are. The guest runs at the end of it,
/// under everything but the rules on files, and waits.
pub(crate) fn ahead(d: &Decided<'_>) -> Vec<Op> {
    let mut ops = Vec::with_capacity(80);
    sudo::add(d, &mut ops);
    ops.push(Op::KeepPlace);
    scene::proc(d, &mut ops);
    scene::home(d, &mut ops);
    join_groups(d, &mut ops);
    ops.push(Op::ReadOnly { at: c(".") });
    ops.push(Op::PivotHere);
    finish_namespaces(d, &mut ops);
    drop_privileges(d, &mut ops);
    ops.push(Op::Descriptors { channel: d.inherited.channel, waits: true });
    guard(d, &mut ops);
    ops.push(Op::Execute { image: d.inherited.image, name: c"cofferdam-guest".into() });
    ops
}

/// What the steward of one that waits does first: it goes where rooms are made.
pub(crate) fn steward(staging: &Path, place: RawFd) -> Vec<Op> {
    let join = Op::Join { namespace: place, kind: Kept::Mounts };
    vec![Op::DieWithSupervisor, join, Op::Enter { at: c(staging.join("root")) }]
}

/// What is left when it is known whose it is, for the steward: what all rooms of the place have, then what stands in
/// this one, which it enters for that. The last is a word to the guest.
pub(crate) fn late(d: &Decided<'_>, room: RawFd, guest: RawFd) -> Vec<Op> {
    let mut ops = Vec::with_capacity(40);
    if let Some(made) = d.ahead {
        scene::resize(d, made, &mut ops);
    }
    scene::files(d, &mut ops);
    scene::layers(d, &mut ops);
    scene::carry(d, &mut ops);
    scene::allow_files(d, "../scratch", scene::to_be_put(d), &mut ops);
    ops.push(Op::Join { namespace: room, kind: Kept::Mounts });
    ops.push(Op::Writable { at: c("/") });
    ops.push(Op::Enter { at: c("/") });
    scene::put(d, &mut ops);
    shown::cover(d.files, &mut ops);
    ops.push(Op::ReadOnly { at: c("/") });
    ops.push(Op::TellGuest { socket: guest, binding: binding(d).encode() });
    ops.push(Op::Leave);
    ops
}

/// What its guest then forbids itself.
fn binding(d: &Decided<'_>) -> Binding {
    let abi = d.landlock.filter(|_| !off(d, "landlock"));
    Binding { probe: c(PROBE), rules: abi.map(|abi| ruleset(d, abi)) }
}

/// As late as the host's files can be named: the supervisor makes the groups meanwhile.
fn join_groups(d: &Decided<'_>, ops: &mut Vec<Op>) {
    if !d.groups.is_empty() {
        ops.push(Op::AwaitSupervisor);
        ops.extend(d.groups.iter().map(|entrance| Op::JoinGroup { tasks: c(entrance) }));
    }
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
    ops.push(Op::ProbeLandlock { at: c(PROBE) });
    guard(d, ops);
}

fn guard(d: &Decided<'_>, ops: &mut Vec<Op>) {
    if let Some(network) = d.network.filter(|_| !off(d, "namespace.net")) {
        ops.push(Op::ProbeDoors { at: network.knocks() });
    }
    if let Some((program, notify)) = &d.seccomp {
        ops.push(Op::Seccomp { program: program.clone(), notify: *notify });
    }
}

/// Reads as the mounts allow; writes only where writing is meant.
fn ruleset(d: &Decided<'_>, abi: u32) -> Ruleset {
    // All of an image's tree is the sandbox's own to write; what of the host is in it is mounted read-only.
    if d.nested || d.layout.root.is_some() {
        return Ruleset::scopes_only(abi);
    }
    let mut rules = vec![(c("/"), Grant::Read), (c("/proc"), Grant::ReadAndWrite)];
    let home = d.layout.home.iter().cloned();
    let writable =
        d.layout.mounts.iter().filter(|asked| asked.mount.writable).map(|asked| asked.mount.target.clone());
    let all = ["/tmp", "/dev"]
        .map(PathBuf::from)
        .into_iter()
        .chain([d.layout.shown_at.clone()])
        .chain(home)
        .chain(d.layout.root_home.map(|_| PathBuf::from("/root")))
        .chain(writable);
    rules.extend(all.map(|path| (c(path), Grant::All)));
    Ruleset::new(abi, rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hidden::Hidden;
    use crate::layout::{Asked, Found, Sudo, System};
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
            shown_at: "/home/ada/work".into(),
            root_home: None,
            workdir_owner: (7, 7),
            hidden: Hidden { paths: vec![".env".into(), "a/.env".into()], complete: true },
            hidden_parents: vec![("a".into(), 0o750)],
            mounts,
            programs: None,
            passwd: None,
            gitconfig: None,
            root: None,
            sudo: None,
        }
    }

    fn performed(layout: &Layout, without: &[&str]) -> Vec<String> {
        performed_with(layout, without, None)
    }

    fn performed_with(layout: &Layout, without: &[&str], network: Option<&network::Wanted>) -> Vec<String> {
        planned(layout, without, network, |d| {
            first(d.without)
                .into_iter()
                .chain(second(d.users, network, d.without))
                .chain(operations(d))
                .chain(confinement(d))
                .collect()
        })
    }

    fn planned(
        layout: &Layout,
        without: &[&str],
        network: Option<&network::Wanted>,
        plan: impl FnOnce(&Decided<'_>) -> Vec<Op>,
    ) -> Vec<String> {
        let without: Vec<String> = without.iter().map(|w| (*w).to_owned()).collect();
        let decided = Decided {
            layout,
            users: &Users::for_tests(Way::Single, 7),
            staging: Path::new("/state/staging"),
            layer: None,
            base: &[],
            system: &[],
            room: Room::Only,
            scratch: Scratch { bytes: 1 << 20, inodes: 100, allowed: None, in_file: false },
            ahead: None,
            idmapped: false,
            rlimits: vec![(Resource::Core, 0)],
            guest: Access { uid: 7, gid: 7, drop_groups: false },
            keep_capabilities: 0,
            groups: vec!["/cg/pids/s/tasks".into()],
            landlock: Some(7),
            nested: false,
            seccomp: Some((crate::filter::program(Default::default()), true)),
            files: &[],
            network,
            inherited: Inherited { channel: 5, image: 6 },
            without: &without,
            kvm: None,
        };
        let mut kernel = Recorder::default();
        for op in plan(&decided) {
            kernel.perform(&op).unwrap();
        }
        kernel.performed
    }

    fn in_order(ops: &[String], order: &[&str]) {
        let places: Vec<usize> = order.iter().map(|start| position(ops, start)).collect();
        assert!(places.is_sorted(), "{order:?} came in the order {places:?}");
    }

    fn position(ops: &[String], start: &str) -> usize {
        ops.iter().position(|op| op.starts_with(start)).unwrap_or_else(|| panic!("no `{start}` in {ops:#?}"))
    }

    #[test]
    fn everything_is_closed_before_the_guest_runs() {
        let ops = performed(&layout(Vec::new()), &[]);
        let order = [
            "new namespaces",
            "private-mounts",
            "map-own-ids",
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

    /// What waits has nothing of anyone's, and is held by everything but the rules that name what it will have.
    #[test]
    fn one_that_waits_is_closed_before_its_guest_runs() {
        let doors = network::look(false);
        let ops = planned(&layout(Vec::new()), &[], Some(&doors), ahead);
        let order = [
            "keep-place",
            "proc",
            "bind ../scratch/home on home/ada rw",
            "await-supervisor",
            "join-group",
            "read-only .",
            "pivot-root",
            "bound-capabilities 0x0",
            "capabilities 0x0",
            "no-new-privileges",
            "descriptors and wait",
            "probe-doors",
            "seccomp",
            "execute",
        ];
        in_order(&ops, &order);
        assert_eq!(position(&ops, "seccomp"), ops.len() - 2);
        for absent in ["overlay", "landlock", "rlimit", "bind /home"] {
            assert!(!ops.iter().any(|op| op.starts_with(absent)), "{absent} in {ops:#?}");
        }
    }

    /// The host's paths are taken hold of where they can be named, and put down where they cannot.
    #[test]
    fn what_comes_late_is_carried_into_the_room_and_the_room_closed_again() {
        let asked = |target: &str, writable| Asked {
            mount: Mount { source: "/data".into(), target: target.into(), writable },
            owner: (7, 7),
            is_dir: true,
        };
        let with = layout(vec![asked("/one", false), asked("/two", true)]);
        let ops = planned(&with, &[], None, |d| late(d, 9, 10));
        let order = [
            "whiteout ../scratch/layer/upper/a/.env",
            "hand-over ../scratch/layer/upper",
            "bind /home/ada/work on ../lower ro",
            "carry-overlay ../lower",
            "carry /data ro nodev",
            "carry /data rw nodev",
            "join Mounts",
            "writable /",
            "put home/ada/work",
            "put one",
            "put two",
            "read-only /",
            "tell-guest",
            "leave",
        ];
        in_order(&ops, &order);
        assert_eq!(position(&ops, "leave"), ops.len() - 1);
        let room = &ops[position(&ops, "join")..];
        assert!(
            !room.iter().any(|op| op.contains("/data")),
            "no path of the host is named inside: {room:#?}"
        );
    }

    #[test]
    fn a_guest_that_waits_is_told_the_rules_of_any_other() {
        let mut rules = None;
        planned(&layout(Vec::new()), &[], None, |d| {
            rules = Some((binding(d), ruleset(d, 7)));
            Vec::new()
        });
        let (told, own) = rules.unwrap();
        assert_eq!((told.probe.to_str().unwrap(), told.rules), (PROBE, Some(own)));
        planned(&layout(Vec::new()), &["landlock"], None, |d| {
            assert_eq!(binding(d).rules, None);
            Vec::new()
        });
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

    /// The host's own directory is covered before anything of it is shown again, and closed after.
    #[test]
    fn only_the_programs_that_are_named_are_there() {
        let found = vec![("git".into(), Found::File), ("vi".into(), Found::Link("git".into()))];
        let named = Layout { programs: Some(vec![("/usr/bin".into(), found)]), ..layout(Vec::new()) };
        let ops = performed(&named, &[]);
        let order = [
            "bind /usr on usr ro",
            "tmpfs usr/bin",
            "file usr/bin/git",
            "bind /usr/bin/git on usr/bin/git ro",
            "symlink usr/bin/vi -> git",
            "read-only usr/bin",
            "pivot-root",
        ];
        let places: Vec<usize> = order.iter().map(|start| position(&ops, start)).collect();
        assert!(places.is_sorted(), "{order:?} came in the order {places:?}");
    }

    /// Added to a directory of the host's that stays as it is, and closed before anything runs.
    #[test]
    fn sudo_is_added_and_the_hosts_is_covered() {
        let sudo = Sudo { place: "/usr/local/bin".into(), covers: vec!["/usr/bin/sudo".into()] };
        let ops = performed(&Layout { sudo: Some(sudo), ..layout(Vec::new()) }, &[]);
        let order = [
            "bind /usr on usr ro",
            "file .cofferdam/bin/sudo 0755",
            "overlay .cofferdam/bin usr/local/bin on usr/local/bin",
            "read-only usr/local/bin",
            "bind .cofferdam/bin/sudo on usr/bin/sudo ro",
            "pivot-root",
        ];
        let places: Vec<usize> = order.iter().map(|start| position(&ops, start)).collect();
        assert!(places.is_sorted(), "{order:?} came in the order {places:?}");
        assert!(!performed(&layout(Vec::new()), &[]).iter().any(|op| op.contains("sudo")));
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
        let doors = network::look(false);
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
        let doors = network::look(false);
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
