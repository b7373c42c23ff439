//! What is done to files as a whole: told, listed, made, moved.

use super::accounts::Names;
use super::tree::{self, Owner};
use super::{Done, Failed, entry, joined, path, say};
use alloc::vec::Vec;
use cofferdam_guest::wire::{FileKind, Said, Why};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

pub(super) fn list(at: &[u8], depth: u32) -> Done {
    let whole = path(at)?;
    if FileType::from_raw_mode(rustix::fs::stat(&whole)?.st_mode) != FileType::Directory {
        return Err(Failed::because(Why::NotDirectory, Errno::NOTDIR));
    }
    let names = Names::load();
    // What is asked for may be a link to a directory; those below are not followed.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let top = entry::names_of(rustix::fs::open(&whole, flags, Mode::empty())?)?;
    let mut waiting: Vec<(Vec<u8>, u32)> = top.into_iter().rev().map(|name| (name, 1)).collect();
    // Depth first and by name, as a walk would come by them.
    while let Some((name, level)) = waiting.pop() {
        let one = entry::below(at, &name)?;
        let Ok(found) = entry::with(&one, name.clone(), &names) else { continue };
        let descends = found.kind == FileKind::Directory && found.target.is_none() && level < depth.max(1);
        say(&Said::Entry(found))?;
        if descends {
            let below = entry::names_in(&one).unwrap_or_default();
            waiting.extend(below.into_iter().rev().map(|n| (joined(&name, &n), level + 1)));
        }
    }
    say(&Said::Done)
}

pub(super) fn make_dir(at: &[u8], owner: Owner) -> Done {
    let whole = path(at)?;
    match rustix::fs::stat(&whole) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            return Err(Errno::EXIST.into());
        }
        Ok(_) => return Err(Failed::because(Why::NotDirectory, Errno::EXIST)),
        Err(_) => tree::make_all(at, owner)?,
    }
    say(&Said::Entry(entry::of(&whole, Vec::new())?))
}

pub(super) fn rename(from: &[u8], to: &[u8], owner: Owner) -> Done {
    let (old, new) = (path(from)?, path(to)?);
    rustix::fs::lstat(&old)?;
    tree::make_parents(to, owner)?;
    match rustix::fs::rename(&old, &new) {
        Err(Errno::XDEV) => move_over(&old, &new, from, to)?,
        other => other?,
    }
    say(&Said::Entry(entry::of(&new, Vec::new())?))
}

/// Between file systems: a copy of it, and then away with it.
fn move_over(old: &core::ffi::CStr, new: &core::ffi::CStr, from: &[u8], to: &[u8]) -> Done {
    super::transfer::copy_tree(from, to, 0)?;
    let _ = new;
    tree::remove(old)
}
