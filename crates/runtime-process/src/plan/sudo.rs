//! The inside's own `sudo`: the guest's program under another name, which asks the guest. It is a plain file of nobody's
//! with no bit that grants anything, and no file of the host's is touched for it.

use super::Decided;
use super::scene::{at, bind, c, dir};
use crate::users::Way;
use cofferdam_runtime::guest_program;
use cofferdam_sys::boot::{Attr, Op};
use std::path::{Path, PathBuf};

/// The directory that is added to one of the host's, and the one file in it.
const OWN: &str = ".cofferdam/bin";
pub(super) const FILE: &str = ".cofferdam/bin/sudo";

/// Where it is in an image. Not where packages put theirs: who installs one finds nothing in the way.
pub(super) fn in_image() -> PathBuf {
    PathBuf::from("/usr/local/bin/sudo")
}

pub(super) fn add(d: &Decided<'_>, ops: &mut Vec<Op>) {
    let Some(sudo) = &d.layout.sudo else { return };
    ops.push(dir(OWN, 0o755));
    ops.push(Op::File { at: c(FILE), mode: 0o755, content: guest_program().to_vec() });
    // In an image it is put in its place with all else that is.
    if d.layout.root.is_some() {
        return;
    }
    let place = at(&sudo.place);
    let lower = vec![c(OWN), place.clone()];
    ops.push(Op::Overlay { lower, upper: None, at: place.clone(), userxattr: d.users.way != Way::Root });
    ops.push(Op::ReadOnly { at: place });
    for path in &sudo.covers {
        ops.push(bind(FILE, path.strip_prefix(Path::new("/")).unwrap_or(path), Attr::READ_ONLY));
    }
}
