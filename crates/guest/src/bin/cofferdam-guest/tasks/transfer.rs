//! The bytes of files: out of one, and into one that appears as a whole or not at all.

use super::entry::{self, descriptor, names_in};
use super::tree::{self, Owner};
use super::{Done, Failed, input, joined, output, path, say, write_all};
use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::{Said, Why};
use core::ffi::CStr;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

const PIECE: usize = 256 * 1024;
/// Each level is a call within another.
const DEEPEST: usize = 500;

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(super) fn read(at: &CStr, from: u64, most: Option<u64>) -> Done {
    // One that nobody writes to would be waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(at, flags, Mode::empty())?;
    match kind(&rustix::fs::fstat(&file)?) {
        FileType::RegularFile => (),
        FileType::Directory => return Err(Failed::because(Why::IsDirectory, Errno::ISDIR)),
        _ => return Err(Failed::because(Why::Special, Errno::INVAL)),
    }
    say(&Said::Entry(entry::of(at, Vec::new())?))?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(from))?;
    let mut left = most.unwrap_or(u64::MAX);
    let mut buffer = Vec::new();
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
        let sent = if buffer.is_empty() {
            rustix::fs::sendfile(output(), &file, None, most)
        } else {
            let most = most.min(buffer.len());
            let count = rustix::io::read(&file, buffer.get_mut(..most).unwrap_or_default());
            count.and_then(|count| write_all(buffer.get(..count).unwrap_or_default()).map(|()| count))
        };
        match sent {
            Ok(0) => break,
            Ok(count) => left -= count as u64,
            Err(Errno::INTR) => (),
            // Not every file can be sent so.
            Err(Errno::INVAL | Errno::NOSYS) if buffer.is_empty() => buffer = vec![0; PIECE],
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Where the bytes go until they are all there.
enum Place {
    /// A file without a name, which goes by itself if this child does.
    Nameless(OwnedFd),
    /// Where there is no such thing: a file beside it.
    Beside(OwnedFd, CString),
    /// The file itself: what it is has to stay, or nothing can be made beside it.
    Itself(OwnedFd),
}

pub(super) fn write(
    at: &[u8],
    mode: Option<u32>,
    notes: Option<&[(Vec<u8>, Vec<u8>)]>,
    owner: Owner,
) -> Done {
    // Through links: what they lead to is what is written.
    let at = resolved(at)?;
    let whole = path(&at)?;
    let before = rustix::fs::stat(&whole).ok();
    match before.as_ref().map(kind) {
        None | Some(FileType::RegularFile) => (),
        Some(FileType::Directory) => return Err(Failed::because(Why::IsDirectory, Errno::ISDIR)),
        Some(_) => return into_special(&whole),
    }
    tree::make_parents(&at, owner)?;
    let place = open_place(&at, before.as_ref())?;
    let (Place::Nameless(file) | Place::Beside(file, _) | Place::Itself(file)) = &place;
    let done = fill(file).and_then(|size| {
        let bits = mode.or(before.as_ref().map(|stat| stat.st_mode & 0o7777)).unwrap_or(0o644);
        rustix::fs::fchmod(file, Mode::from_raw_mode(bits))?;
        if let Some(notes) = notes {
            entry::set_notes(&descriptor(file), notes)?;
        }
        settle(&place, &whole, before.as_ref(), owner, size)
    });
    if let (Err(_), Place::Beside(_, name)) = (&done, &place) {
        let _ = rustix::fs::unlink(name);
    }
    done?;
    say(&Said::Entry(entry::of(&whole, Vec::new())?))
}

/// The path with a link at its end replaced by where that leads, also if nothing is there yet.
fn resolved(at: &[u8]) -> Result<Vec<u8>, Failed> {
    let mut at = at.to_vec();
    for _ in 0..40 {
        let Ok(target) = rustix::fs::readlink(path(&at)?, Vec::new()) else { return Ok(at) };
        let target = target.into_bytes();
        at = match (target.first(), at.iter().rposition(|byte| *byte == b'/')) {
            (Some(b'/'), _) | (_, None) => target,
            (_, Some(end)) => joined(at.get(..=end).unwrap_or_default(), &target),
        };
    }
    Err(Errno::LOOP.into())
}

fn into_special(at: &CStr) -> Done {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(at, flags, Mode::empty())?;
    fill(&file)?;
    say(&Said::Entry(entry::of(at, Vec::new())?))
}

fn open_place(at: &[u8], before: Option<&Stat>) -> Result<Place, Failed> {
    let end = at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let directory = path(at.get(..end.max(1)).unwrap_or(b"/"))?;
    let private = Mode::from_raw_mode(0o600);
    // Others know it by another name, and would not see the new one.
    let shared = before.is_some_and(|stat| stat.st_nlink > 1);
    if !shared {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(&directory, flags, private) {
            return Ok(Place::Nameless(file));
        }
        let pid = super::decimal(rustix::process::getpid().as_raw_nonzero().get() as u32);
        let name = entry::below(directory.to_bytes(), &[b".".as_slice(), &pid, b".part~"].concat())?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(&name, flags, private) {
            return Ok(Place::Beside(file, name));
        }
    }
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(Place::Itself(rustix::fs::open(path(at)?, flags, Mode::from_raw_mode(0o644))?))
}

/// All of the input, and how much that was.
fn fill(file: &OwnedFd) -> Result<u64, Failed> {
    let mut size = 0_u64;
    let mut buffer = Vec::new();
    loop {
        let moved = if buffer.is_empty() {
            rustix::pipe::splice(input(), None, file, None, PIECE, SpliceFlags::MOVE)
        } else {
            rustix::io::read(input(), &mut buffer[..]).and_then(|count| {
                into(file, buffer.get(..count).unwrap_or_default())?;
                Ok(count)
            })
        };
        match moved {
            Ok(0) => return Ok(size),
            Ok(count) => size += count as u64,
            Err(Errno::INTR) => (),
            Err(Errno::INVAL | Errno::NOSYS) if buffer.is_empty() => buffer = vec![0; PIECE],
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn into(file: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Puts it where it belongs. Whoever watches the directory sees a file that is made, given away and written, as if
/// it had been written where it is.
fn settle(place: &Place, whole: &CStr, before: Option<&Stat>, owner: Owner, size: u64) -> Done {
    let give = |file: &OwnedFd| match (owner, before) {
        (Some((uid, gid)), _) => rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))),
        // Whose it was; a plain user cannot, and need not.
        (None, Some(stat)) => {
            let _ =
                rustix::fs::fchown(file, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
            Ok(())
        }
        (None, None) => Ok(()),
    };
    match place {
        Place::Itself(file) => return Ok(give(file)?),
        Place::Beside(file, name) => {
            give(file)?;
            rustix::fs::rename(name, whole)?;
        }
        Place::Nameless(file) => {
            give(file)?;
            let from = descriptor(file);
            let link = |to: &CStr| {
                rustix::fs::linkat(rustix::fs::CWD, &from, rustix::fs::CWD, to, AtFlags::SYMLINK_FOLLOW)
            };
            match link(whole) {
                Err(Errno::EXIST) => {
                    let beside = [whole.to_bytes(), b".part~"].concat();
                    let beside = path(&beside)?;
                    let _ = rustix::fs::unlink(&beside);
                    link(&beside)?;
                    rustix::fs::rename(&beside, whole)?;
                }
                other => other?,
            }
        }
    }
    // By its new name, for those who watch; what it is stays as it is.
    let stat = rustix::fs::stat(whole)?;
    let _ = rustix::fs::chown(whole, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
    if let Ok(file) = rustix::fs::open(whole, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::fs::ftruncate(&file, size);
    }
    Ok(())
}

/// For a move between file systems. Links stay links; what is neither file, link nor directory stays behind.
pub(super) fn copy_tree(from: &[u8], to: &[u8], depth: usize) -> Done {
    if depth > DEEPEST {
        return Err(Failed::because(Why::TooDeep, Errno::LOOP));
    }
    let (old, new) = (path(from)?, path(to)?);
    let stat = rustix::fs::lstat(&old)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    match kind(&stat) {
        FileType::Symlink => rustix::fs::symlink(rustix::fs::readlink(&old, Vec::new())?, &new)?,
        FileType::Directory => {
            rustix::fs::mkdir(&new, Mode::from_raw_mode(0o700))?;
            for name in names_in(&old)? {
                copy_tree(&joined(from, &name), &joined(to, &name), depth + 1)?;
            }
            rustix::fs::chmod(&new, mode)?;
        }
        FileType::RegularFile => {
            let read =
                rustix::fs::open(&old, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
            let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
            let write = rustix::fs::open(&new, flags, Mode::from_raw_mode(0o600))?;
            let mut buffer = vec![0; PIECE];
            loop {
                match rustix::io::read(&read, &mut buffer[..]) {
                    Ok(0) => break,
                    Ok(count) => into(&write, buffer.get(..count).unwrap_or_default())?,
                    Err(Errno::INTR) => (),
                    Err(errno) => return Err(errno.into()),
                }
            }
            rustix::fs::fchmod(&write, mode)?;
        }
        _ => return Err(Failed::because(Why::Special, Errno::INVAL)),
    }
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    // Where this child may not give files away they are its own.
    let _ = rustix::fs::chownat(rustix::fs::CWD, &new, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
    Ok(())
}
