//! The inside's files, as operations: an empty root, and on it what is shown of the host, devices, the home, the work
//! dir over its layers, and what was asked for besides. In which order the rest comes is not decided here.

use super::{Decided, Room, Scratch, Skeleton};
use crate::layout::{Asked, Found, System};
use crate::shown;
use crate::users::{Users, Way};
use crate::view::{DEVICE_LINKS, DEVICES};
use cofferdam_sys::boot::{Attr, Op};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the layers on disk are while a root is put together.
const DISK: &str = "../scratch/disk";

pub(super) fn c(path: impl AsRef<Path>) -> CString {
    let bytes: Vec<u8> = path.as_ref().as_os_str().as_bytes().iter().copied().filter(|&b| b != 0).collect();
    // NUL bytes were just removed, so this cannot fail.
    CString::new(bytes).unwrap_or_default()
}

/// An absolute path of the inside, relative to the root under construction.
pub(super) fn at(path: &Path) -> CString {
    c(path.strip_prefix("/").unwrap_or(path))
}

/// An empty root, and the scratch space from which everything writable is bound. The scratch space and the
/// work dir's own files are mounted beside the new root, not in it, and so go with the old root: each unmount
/// of its own would wait for all processors.
pub(super) fn root(d: &Skeleton<'_>, ops: &mut Vec<Op>) {
    let owner = owner(d.users);
    let scratch = c(d.staging.join("scratch"));
    ops.push(match d.scratch.in_file {
        true => Op::MountGiven { at: scratch },
        false => {
            let options = c(format!("mode=0755,{}", size(d.scratch)));
            Op::Tmpfs { at: scratch, options, attr: Attr::WRITABLE }
        }
    });
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
    // `PROBE`.
    ops.push(Op::File { at: c("../scratch/run/cofferdam.probe"), mode: 0o666, content: Vec::new() });
    ops.push(dir(".cofferdam", 0o755));
    ops.push(Op::File { at: c(".cofferdam/mask"), mode: 0, content: Vec::new() });
    ops.push(dir(".cofferdam/mask.d", 0));
    if let (Some(content), Some(_)) = (&d.layout.gitconfig, &d.layout.home) {
        ops.push(Op::File { at: c("../scratch/home/.gitconfig"), mode: 0o644, content: content.clone() });
    }
}

fn size(scratch: Scratch) -> String {
    format!("size={},nr_inodes={}", scratch.bytes, scratch.inodes)
}

/// What was made ahead, for the limits that there are now.
pub(super) fn resize(d: &Decided<'_>, made: Scratch, ops: &mut Vec<Op>) {
    if made != d.scratch {
        ops.push(Op::Resize { at: c("../scratch"), options: c(size(d.scratch)) });
    }
}

/// The last that is done to it: whatever is in it now is not the inside's, and neither are those that are yet to come.
pub(super) fn allow_files(d: &Decided<'_>, scratch: &str, to_come: u64, ops: &mut Vec<Op>) {
    let allowed = d.scratch.allowed.map(|more| more.saturating_add(to_come));
    match (d.scratch.in_file, allowed) {
        (true, files) => {
            let ballast = c(Path::new(scratch).join("ballast"));
            ops.push(Op::LeaveRoom { ballast, bytes: d.scratch.bytes, files });
        }
        (false, Some(more)) => ops.push(Op::AllowFiles { at: c(scratch), more }),
        (false, None) => {}
    }
}

/// How many directories `put` makes in the scratch space, which has no name any more by then: those that lead to what
/// stands in a directory of the inside's own.
pub(super) fn to_be_put(d: &Decided<'_>) -> u64 {
    let shown = &d.layout.shown_at;
    let own = ["/tmp", "/run", "/dev/shm"].map(Path::new).into_iter();
    let own: Vec<&Path> = own.chain(d.layout.home.as_deref()).chain([shown.as_path()]).collect();
    // What leads to the home is there already.
    let there = |path: &Path| d.layout.home.as_ref().is_some_and(|home| home.starts_with(path));
    let is_own =
        |path: &&Path| !there(path) && own.iter().any(|place| path.starts_with(place) && path != place);
    let placed = d.layout.mounts.iter().map(|asked| &asked.mount.target).chain([shown]);
    let made: BTreeSet<&Path> = placed.flat_map(|path| path.ancestors().filter(is_own)).collect();
    made.len() as u64
}

/// Files of the inside's own.
pub(super) fn files(d: &Decided<'_>, ops: &mut Vec<Op>) {
    shown::show(d.files, ops);
}

/// Root's files would be nobody's inside; others' are already the user's own.
fn owner(users: &Users) -> Option<(u32, u32)> {
    (users.way == Way::Root).then_some((users.host_uid, users.host_gid))
}

pub(super) fn dir(path: impl AsRef<Path>, mode: u32) -> Op {
    Op::Dir { at: c(path), mode, owner: None }
}

pub(super) fn bind(from: impl AsRef<Path>, to: impl AsRef<Path>, attr: Attr) -> Op {
    Op::Bind { from: c(from), at: c(to), attr, idmapped: false }
}

fn mask(path: impl AsRef<Path>, is_dir: bool) -> Op {
    bind(if is_dir { ".cofferdam/mask.d" } else { ".cofferdam/mask" }, path, Attr::READ_ONLY)
}

pub(super) fn system(d: &Skeleton<'_>, ops: &mut Vec<Op>) {
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
    if let Some(owner) = d.layout.root_home {
        ops.push(Op::Dir { at: c("../scratch/root"), mode: 0o700, owner });
        ops.push(dir("root", 0o700));
        ops.push(bind("../scratch/root", "root", Attr::WRITABLE));
    }
    for (name, place) in [("tmp", "tmp"), ("run", "run")] {
        ops.push(dir(place, 0o755));
        ops.push(bind(format!("../scratch/{name}"), place, Attr::WRITABLE));
    }
    ops.push(dir("sys", 0o755));
}

/// Directories on the way to a mount point.
fn parents(path: &Path, ops: &mut Vec<Op>) {
    let mut above: Vec<&Path> =
        path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty() && *p != Path::new("/")).collect();
    above.reverse();
    ops.extend(above.into_iter().map(|p| Op::Dir { at: at(p), mode: 0o755, owner: None }));
}

pub(super) fn devices(ops: &mut Vec<Op>) {
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

pub(super) fn proc(d: &Decided<'_>, ops: &mut Vec<Op>) {
    ops.push(dir("proc", 0o755));
    ops.push(Op::Proc { at: c("proc") });
    if off(d, "proc") {
        return;
    }
    if d.nested {
        // Who is in a nested namespace may mount what the one around it shows whole, and nothing of ours is.
        ops.push(dir(".cofferdam/proc", 0o755));
        ops.push(Op::Proc { at: c(".cofferdam/proc") });
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

pub(super) fn off(d: &Decided<'_>, control: &str) -> bool {
    d.without.iter().any(|name| name == control)
}

/// The home, the work dir and the mounts asked for, outer ones first so that none covers another.
pub(super) fn places(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let depth = |path: &Path| path.components().count();
    let home_first = d.layout.home.as_ref().is_none_or(|home| depth(home) <= depth(&d.layout.shown_at));
    if home_first {
        home(d, ops);
        workdir(d, ops);
    } else {
        workdir(d, ops);
        home(d, ops);
    }
    if let Some(node) = d.kvm {
        ops.push(Op::File { at: c("dev/kvm"), mode: 0o666, content: Vec::new() });
        ops.push(bind(node, "dev/kvm", Attr::DEVICE));
    }
    for asked in &d.layout.mounts {
        target(asked, ops);
        let (attr, idmapped) = shape(d, asked);
        ops.push(Op::Bind { from: c(&asked.mount.source), at: at(&asked.mount.target), attr, idmapped });
    }
}

fn target(Asked { mount, is_dir, .. }: &Asked, ops: &mut Vec<Op>) {
    parents(&mount.target, ops);
    ops.push(match is_dir {
        true => Op::Dir { at: at(&mount.target), mode: 0o755, owner: None },
        false => Op::File { at: at(&mount.target), mode: 0o644, content: Vec::new() },
    });
}

fn shape(d: &Decided<'_>, Asked { mount, owner, .. }: &Asked) -> (Attr, bool) {
    let attr = if mount.writable { Attr::WRITABLE } else { Attr::READ_ONLY };
    (attr, d.idmapped && *owner == d.layout.workdir_owner)
}

/// The work dir and the mounts asked for, taken along for a room that stands already.
pub(super) fn carry(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let lower = beneath(d, ops);
    let own = own(d);
    let upper = (c(own.join("upper")), c(own.join("work")));
    ops.push(Op::CarryOverlay { lower, upper, userxattr: d.users.way != Way::Root });
    for asked in &d.layout.mounts {
        let (attr, idmapped) = shape(d, asked);
        ops.push(Op::Carry { from: c(&asked.mount.source), attr, idmapped });
    }
}

/// In that room, in the same order.
pub(super) fn put(d: &Decided<'_>, ops: &mut Vec<Op>) {
    parents(&d.layout.shown_at, ops);
    ops.push(Op::Dir { at: at(&d.layout.shown_at), mode: 0o755, owner: owner(d.users) });
    ops.push(Op::Put { at: at(&d.layout.shown_at) });
    for asked in &d.layout.mounts {
        target(asked, ops);
        ops.push(Op::Put { at: at(&asked.mount.target) });
    }
}

pub(super) fn home(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let Some(home) = &d.layout.home else { return };
    parents(home, ops);
    ops.push(Op::Dir { at: at(home), mode: 0o755, owner: owner(d.users) });
    ops.push(Op::Bind { from: c("../scratch/home"), at: at(home), attr: Attr::WRITABLE, idmapped: false });
    for shown in &d.layout.toolchains {
        parents(&shown.path, ops);
        ops.push(Op::Dir { at: at(&shown.path), mode: 0o755, owner: owner(d.users) });
        let idmapped = d.idmapped && shown.owner == d.layout.workdir_owner;
        ops.push(Op::Bind { from: c(&shown.path), at: at(&shown.path), attr: Attr::READ_ONLY, idmapped });
        ops.extend(
            shown.masked.iter().map(|(path, is_dir)| mask(path.strip_prefix("/").unwrap_or(path), *is_dir)),
        );
    }
}

/// Makes the session's own layer, or brings the one on disk to where the overlay finds it by a short name: the
/// kernel takes no long ones.
pub(super) fn layers(d: &Decided<'_>, ops: &mut Vec<Op>) {
    match (d.layer, d.room) {
        (Some(path), Room::First) => {
            ops.push(dir(DISK, 0o700));
            ops.push(bind(path, DISK, Attr::WRITABLE));
        }
        (Some(_), _) => {}
        (None, _) => {
            let owner = owner(d.users);
            ops.push(Op::Dir { at: c("../scratch/layer/upper"), mode: 0o755, owner });
            ops.push(dir("../scratch/layer/work", 0o700));
            plant(d, ops);
            ops.push(Op::HandOver { at: c("../scratch/layer/upper") });
            super::image::layer(d, ops);
        }
    }
    if d.room == Room::First && d.layer.is_none() {
        ops.push(Op::HandOver { at: c("../scratch/layer") });
    }
}

/// Where the session's own layers are while a root is put together.
pub(super) fn own(d: &Decided<'_>) -> PathBuf {
    match (d.layer, d.room) {
        (Some(path), Room::Only) => path.to_owned(),
        (Some(_), _) => PathBuf::from(DISK),
        (None, _) => PathBuf::from("../scratch/layer"),
    }
}

/// How many of them there are, and where each is.
pub(super) fn levels(d: &Decided<'_>, own: &Path) -> Vec<PathBuf> {
    let levels = if let Room::Another { levels } = d.room { levels } else { 1 };
    let level = |at: usize| if at == 0 { own.to_owned() } else { own.join(at.to_string()) };
    (0..levels).map(level).collect()
}

fn base(at: usize) -> PathBuf {
    Path::new("../scratch/base").join(at.to_string())
}

/// What lies beneath the session's own layers, upper ones first, each brought to a short name.
fn beneath(d: &Decided<'_>, ops: &mut Vec<Op>) -> Vec<CString> {
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
    (0..d.base.len()).map(|at| c(base(at))).chain([c("../lower")]).collect()
}

/// The overlay: the host's directory below, the session's layers above. Their own mounts are never seen.
fn workdir(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let host = beneath(d, ops);
    let levels = levels(d, &own(d));
    let Some((top, own)) = levels.split_last() else { return };
    let nested = !own.is_empty();
    let own = own.iter().rev().map(|level| c(level.join("upper")));
    let lower: Vec<CString> = own.chain(host).collect();
    let userxattr = d.users.way != Way::Root;
    parents(&d.layout.shown_at, ops);
    ops.push(Op::Dir { at: at(&d.layout.shown_at), mode: 0o755, owner: owner(d.users) });
    if nested {
        // What there was before the innermost transaction, to compare with.
        ops.push(dir("../scratch/below", 0o700));
        ops.push(Op::Overlay { lower: lower.clone(), upper: None, at: c("../scratch/below"), userxattr });
        ops.push(Op::HandOver { at: c("../scratch/below") });
    }
    let upper = Some((c(top.join("upper")), c(top.join("work"))));
    ops.push(Op::Overlay { lower, upper, at: at(&d.layout.shown_at), userxattr });
}

/// Hidden paths of the work dir do not exist in the layer above, whatever the host has below.
fn plant(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let upper = Path::new("../scratch/layer/upper");
    for (path, mode) in &d.layout.hidden_parents {
        ops.push(Op::Dir { at: c(upper.join(path)), mode: *mode, owner: owner(d.users) });
    }
    ops.extend(d.layout.hidden.paths.iter().map(|path| Op::Whiteout { at: c(upper.join(path)) }));
}

/// Where a registry says which programs there are, the directories of programs hold these and no others. Made anew for
/// every room: what the registry says may have changed.
pub(super) fn programs(d: &Decided<'_>, ops: &mut Vec<Op>) {
    for (place, found) in d.layout.programs.iter().flatten() {
        let options = format!("mode=0755,size=1m,nr_inodes={}", found.len() + 8);
        ops.push(Op::Tmpfs { at: at(place), options: c(options), attr: Attr::WRITABLE });
        for (name, what) in found {
            let own = place.join(name);
            match what {
                Found::Link(to) => ops.push(Op::Symlink { at: at(&own), to: c(to) }),
                Found::File => {
                    ops.push(Op::File { at: at(&own), mode: 0o755, content: Vec::new() });
                    let from = Path::new("/").join(own.strip_prefix("/").unwrap_or(&own));
                    ops.push(Op::Bind {
                        from: c(from),
                        at: at(&own),
                        attr: Attr::READ_ONLY,
                        idmapped: false,
                    });
                }
            }
        }
        ops.push(Op::ReadOnly { at: at(place) });
    }
}
