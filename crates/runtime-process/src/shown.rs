//! Files of the inside's own, put where their path leads on this host. Nobody inside can write to them.

use crate::view::SYSTEM;
use cofferdam_runtime::ShownFile;
use cofferdam_sys::boot::{Attr, Op};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Where what we make lies inside: in the root itself, which is read-only.
const OWN: &str = "/.cofferdam";

/// A file, and the place that was found for it.
#[derive(Debug)]
pub(crate) struct Placed {
    path: PathBuf,
    place: Place,
    content: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The host has a file there, which is covered.
    Covers,
    /// The inside has nothing there yet.
    New,
    /// Wherever it leads in an image: where nothing is there, it may be made, or is left out.
    Image { make: bool },
}

/// What every inside has, also an image that lacks it.
const ALWAYS: &[&str] = &["/etc/resolv.conf", "/etc/hosts"];

/// Finds the places, among the host's files or an image's. A file that can be put nowhere is left out.
pub(crate) fn place(files: Vec<ShownFile>, in_image: bool) -> Vec<Placed> {
    let one = |ShownFile { at, content }| {
        let (path, place) = match in_image && !at.starts_with(OWN) {
            true => (at.clone(), Place::Image { make: ALWAYS.iter().any(|path| at == Path::new(path)) }),
            false => find(&at)?,
        };
        Some(Placed { path, place, content })
    };
    files.into_iter().filter_map(one).collect()
}

/// Where a file has to stand for this path to lead to it. Often the host's is a link into `/run`, of which the
/// inside has its own, empty.
fn find(path: &Path) -> Option<(PathBuf, Place)> {
    if path.starts_with(OWN) {
        return Some((path.to_owned(), Place::New));
    }
    let linked = || Some(flat(&path.parent()?.join(fs::read_link(path).ok()?)));
    let real = path.canonicalize().ok().or_else(linked)?;
    let top = real.components().nth(1)?;
    if SYSTEM.iter().any(|name| top == Component::Normal(name.as_ref())) {
        return real.is_file().then_some((real, Place::Covers));
    }
    real.starts_with("/run").then_some((real, Place::New))
}

/// Without `..`, by the letter: for a link whose target is not there.
fn flat(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn made(number: usize) -> PathBuf {
    PathBuf::from(format!(".cofferdam/shown.{number}"))
}

/// Those that are put into an image: what was made, where it is to be, and whether its place may be made.
pub(crate) fn in_image(files: &[Placed]) -> impl Iterator<Item = (PathBuf, &Path, bool)> {
    files.iter().enumerate().filter_map(|(number, placed)| match placed.place {
        Place::Image { make } => Some((made(number), placed.path.as_path(), make)),
        Place::Covers | Place::New => None,
    })
}

/// The operations that show them. Paths are relative to the root that is being made.
pub(crate) fn show(files: &[Placed], ops: &mut Vec<Op>) {
    for (number, Placed { path, place, content }) in files.iter().enumerate() {
        let at = path.strip_prefix("/").unwrap_or(path);
        let file = |at: &Path| Op::File { at: c(at), mode: 0o644, content: content.clone() };
        match place {
            Place::Image { .. } => ops.push(file(&made(number))),
            Place::Covers => {
                let made = made(number);
                ops.push(file(&made));
                ops.push(Op::Bind { from: c(&made), at: c(at), attr: Attr::READ_ONLY, idmapped: false });
            }
            Place::New => {
                let mut above: Vec<&Path> =
                    at.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
                above.reverse();
                ops.extend(above.into_iter().map(|dir| Op::Dir { at: c(dir), mode: 0o755, owner: None }));
                ops.push(file(at));
            }
        }
    }
}

/// Covers the host's files once more, in a room of a place where they are shown already.
pub(crate) fn cover(files: &[Placed], ops: &mut Vec<Op>) {
    for (number, Placed { path, place, .. }) in files.iter().enumerate() {
        if *place == Place::Covers {
            let at = c(path.strip_prefix("/").unwrap_or(path));
            ops.push(Op::Bind { from: c(&made(number)), at, attr: Attr::READ_ONLY, idmapped: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_its_target_is_followed_by_the_letter() {
        for (path, expected) in [
            ("/etc/../run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
            ("/etc/./a/../../b", "/b"),
            ("/../../x", "/x"),
        ] {
            assert_eq!(flat(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn files_are_put_where_the_path_leads() {
        let placed = |path: &str, place| Placed { path: path.into(), place, content: b"x".to_vec() };
        let files = [
            placed("/run/systemd/resolve/x", Place::New),
            placed("/etc/hosts", Place::Covers),
            placed("/.cofferdam/ca.pem", Place::New),
        ];
        let mut ops = Vec::new();
        show(&files, &mut ops);
        let shown: Vec<String> = ops.iter().map(Op::to_string).collect();
        let expected = [
            "dir run 0755",
            "dir run/systemd 0755",
            "dir run/systemd/resolve 0755",
            "file run/systemd/resolve/x 0644",
            "file .cofferdam/shown.1 0644",
            "bind .cofferdam/shown.1 on etc/hosts ro nodev",
            "dir .cofferdam 0755",
            "file .cofferdam/ca.pem 0644",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_cannot_be_shown_anywhere_is_left_out() {
        let file = |at: &str| ShownFile { at: at.into(), content: Vec::new() };
        let found = place(vec![file("/etc/passwd"), file("/no/such/place"), file("/.cofferdam/x")], false);
        let paths: Vec<&Path> = found.iter().map(|placed| placed.path.as_path()).collect();
        assert_eq!(paths, [Path::new("/etc/passwd"), Path::new("/.cofferdam/x")]);
    }
}
