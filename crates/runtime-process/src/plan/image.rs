//! An image as the root: its files below, the session's layer above, and in it what the sandbox brings. All of that stands
//! in the skeleton first, which is ours and holds no link of others, and is put into the image's tree at the end, where
//! every path is looked up as the inside would.

use super::Decided;
use super::scene::{at, bind, c, dir, levels, own};
use super::sudo;
use crate::rooted::OWN;
use crate::shown;
use crate::users::Way;
use cofferdam_sys::boot::{Attr, Graft, Op};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// The files, and where they are put together.
const FILES: &str = "../scratch/image";
const ROOT: &str = "../scratch/rootfs";

/// The session's own layer of it, in memory.
pub(super) fn layer(d: &Decided<'_>, ops: &mut Vec<Op>) {
    if d.layout.root.is_none() {
        return;
    }
    ops.push(dir("../scratch/layer/system", 0o700));
    let owner = d.users.root_outside();
    ops.push(Op::Dir { at: c("../scratch/layer/system/upper"), mode: 0o755, owner });
    ops.push(dir("../scratch/layer/system/work", 0o700));
}

/// Makes it the working directory, which is about to be the root.
pub(super) fn stand(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let Some(root) = &d.layout.root else { return };
    for place in [FILES, ROOT] {
        ops.push(dir(place, 0o700));
    }
    ops.push(Op::BindImage { from: c(&root.files), at: c(FILES) });
    let base = |at: usize| Path::new("../scratch/system").join(at.to_string());
    for (at, path) in d.system.iter().enumerate() {
        ops.push(dir("../scratch/system", 0o700));
        ops.push(dir(base(at), 0o700));
        ops.push(bind(path, base(at), Attr::READ_ONLY));
    }
    let levels = levels(d, &own(d).join("system"));
    let Some((top, beneath)) = levels.split_last() else { return };
    let beneath = beneath.iter().rev().map(|level| c(level.join("upper")));
    let lower: Vec<CString> =
        beneath.chain((0..d.system.len()).map(|at| c(base(at)))).chain([c(FILES)]).collect();
    let upper = Some((c(top.join("upper")), c(top.join("work"))));
    ops.push(Op::Overlay { lower, upper, at: c(ROOT), userxattr: d.users.way != Way::Root });
    graft(d, ops);
    ops.push(Op::Enter { at: c(ROOT) });
}

/// What is the sandbox's own, what was asked for, and single files; nothing twice that stands in another.
fn graft(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let own = OWN.iter().map(|name| (Path::new("/").join(name), true));
    let mounts = d.layout.mounts.iter().map(|asked| (asked.mount.target.clone(), asked.is_dir));
    let all: Vec<(PathBuf, bool)> = own.chain([(d.layout.shown_at.clone(), true)]).chain(mounts).collect();
    let within = |path: &Path| all.iter().any(|(other, _)| path != other && path.starts_with(other));
    for (number, (path, is_dir)) in all.iter().enumerate().filter(|(_, (path, _))| !within(path)) {
        ops.push(Op::Graft(Graft {
            from: at(path),
            root: c(ROOT),
            places: way(path),
            dir: *is_dir,
            make: true,
            own: number < OWN.len(),
        }));
    }
    if d.layout.sudo.is_some() {
        let places = way(&sudo::in_image());
        let from = c(sudo::FILE);
        ops.push(Op::Graft(Graft { from, root: c(ROOT), places, dir: false, make: true, own: false }));
    }
    for (made, path, make) in shown::in_image(d.files) {
        let (root, places) = (c(ROOT), way(path));
        ops.push(Op::Graft(Graft { from: c(made), root, places, dir: false, make, own: false }));
    }
}

/// The directories on the way to a path, and the path.
fn way(path: &Path) -> Vec<(CString, CString)> {
    let mut way: Vec<&Path> = path.ancestors().filter(|path| path.file_name().is_some()).collect();
    way.reverse();
    way.into_iter().map(|path| (at(path), c(path.file_name().unwrap_or_default()))).collect()
}
