//! Attempts that only show later: files left in the work dir for the host to stumble over once the changes are kept.
//! Each has a second half, which looks at the host's work dir.

use crate::escape::check::Finding;
use crate::escape::facts::Facts;
use rustix::fs::XattrFlags;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SET_ID: u32 = 0o6000;
/// Run by whoever takes a name for a command. Made in the directory in which that happens.
const MARK: &str = "was-run";

pub(crate) fn set_id_file(_: &Facts) -> Finding {
    let made = fs::write("tool", "#!/bin/sh\n")
        .and_then(|()| fs::set_permissions("tool", Permissions::from_mode(0o6755)));
    Finding::of("a set-user-id file was made", made)
}

pub(crate) fn set_id_kept(_: &Facts, work: &Path) -> Finding {
    match fs::symlink_metadata(work.join("tool")) {
        Ok(meta) if meta.permissions().mode() & SET_ID != 0 => {
            Finding::open("a set-user-id file is on the host")
        }
        Ok(_) => Finding::blocked("kept without its set-id bits"),
        Err(_) => Finding::blocked("not kept"),
    }
}

/// `cap_setuid+ep`, in the form of the second version.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const ATTRIBUTE: &str = "security.capability";

pub(crate) fn file_capability(_: &Facts) -> Finding {
    let made = fs::write("able", "#!/bin/sh\n")
        .and_then(|()| Ok(rustix::fs::setxattr("able", ATTRIBUTE, &CAPABILITY, XattrFlags::empty())?));
    Finding::of("a file has a capability", made)
}

pub(crate) fn capability_kept(_: &Facts, work: &Path) -> Finding {
    let mut value = [0_u8; 64];
    match rustix::fs::lgetxattr(work.join("able"), ATTRIBUTE, &mut value) {
        Ok(_) => Finding::open("a file with a capability is on the host"),
        Err(_) => Finding::blocked("kept without a capability"),
    }
}

/// The project has a link to a directory outside. It becomes a directory with a file in it: who keeps the file and
/// not the directory first, writes through the link.
pub(crate) fn through_link(_: &Facts) -> Finding {
    if std::path::Path::new("/.cofferdam").exists() {
        let _ = fs::remove_file("way");
        let _ = fs::create_dir("way");
    }
    Finding::of("a file was written below the link", fs::write("way/planted", "x"))
}

pub(crate) fn link_kept(facts: &Facts, _: &Path) -> Finding {
    let planted = facts.outside.join("planted");
    let found = planted.exists();
    let _ = fs::remove_file(planted);
    match found {
        true => Finding::open("a file was written outside of the work dir"),
        false => Finding::blocked("nothing was written through the link"),
    }
}

/// Names that mean something to a shell, or look like an option.
pub(crate) fn names_as_options(_: &Facts) -> Finding {
    let names = [
        format!("$(touch {MARK})"),
        format!("`touch {MARK}`"),
        format!("x; touch {MARK}"),
        format!("x\ntouch {MARK}\n"),
        "--checkpoint=1".to_owned(),
        format!("--checkpoint-action=exec=touch {MARK}"),
        "-rf".to_owned(),
        "--help".to_owned(),
    ];
    Finding::any(
        names.map(|name| Finding::of("a name that looks like an option was made", fs::write(name, "x"))),
    )
}

pub(crate) fn names_kept(facts: &Facts, work: &Path) -> Finding {
    let mut places = vec![work.join(MARK), facts.outside.join(MARK)];
    places.extend(std::env::current_dir().map(|dir| dir.join(MARK)));
    match places.iter().find(|place| place.exists()) {
        Some(place) => {
            let _ = fs::remove_file(place);
            Finding::open("a file's name was taken for a command")
        }
        None => Finding::blocked("names are only names"),
    }
}
