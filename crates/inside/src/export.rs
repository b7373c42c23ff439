//! Tells what was changed, as a walk through the upper layer.

use crate::wire::{Entry, PIECE, Stat, Tell, send, send_entry, send_piece};
use rustix::fs::{FileType, SeekFrom};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

pub(crate) fn export(upper: &Path, to: &mut impl Write) -> io::Result<()> {
    let mut walk = Walk { to, files: 0, linked: HashMap::new() };
    walk.dir(upper, Vec::new(), &fs::symlink_metadata(upper)?)?;
    send(walk.to, &Tell::End)
}

struct Walk<'a, W> {
    to: &'a mut W,
    files: u64,
    linked: HashMap<u64, u64>,
}

fn attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0u8; 64 << 10];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else { return Vec::new() };
    let mut found = Vec::new();
    for name in names.get(..length).unwrap_or_default().split(|byte| *byte == 0) {
        if !name.starts_with(b"user.") || name.starts_with(b"user.overlay.") {
            continue;
        }
        let mut value = vec![0u8; 64 << 10];
        if let Ok(length) = rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value[..]) {
            value.truncate(length);
            found.push((name.to_vec(), value));
        }
    }
    found
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0u8; 1];
    rustix::fs::lgetxattr(path, "trusted.overlay.opaque", &mut value[..]) == Ok(1) && value == *b"y"
}

fn stat(path: &Path, meta: &Metadata) -> Stat {
    Stat {
        mode: meta.mode() & 0o7777,
        seconds: meta.mtime(),
        nanos: meta.mtime_nsec() as u32,
        attributes: if meta.is_symlink() { Vec::new() } else { attributes(path) },
    }
}

impl<W: Write> Walk<'_, W> {
    fn say(&mut self, entry: Entry) -> io::Result<()> {
        send_entry(self.to, &entry)
    }

    fn dir(&mut self, path: &Path, name: Vec<u8>, meta: &Metadata) -> io::Result<()> {
        self.say(Entry::Enter { name, opaque: is_opaque(path), stat: stat(path, meta) })?;
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let path = entry.path();
            let meta = fs::symlink_metadata(&path)?;
            self.entry(&path, entry.file_name().as_bytes().to_vec(), &meta)?;
        }
        self.say(Entry::Leave)
    }

    fn entry(&mut self, path: &Path, name: Vec<u8>, meta: &Metadata) -> io::Result<()> {
        match FileType::from_raw_mode(meta.mode()) {
            FileType::Directory => self.dir(path, name, meta),
            FileType::RegularFile => self.file(path, name, meta),
            FileType::Symlink => {
                let target = fs::read_link(path)?.as_os_str().as_bytes().to_vec();
                self.say(Entry::Link { name, target, stat: stat(path, meta) })
            }
            FileType::Fifo => self.say(Entry::Fifo { name, stat: stat(path, meta) }),
            FileType::CharacterDevice if meta.rdev() == 0 => self.say(Entry::Gone { name }),
            // Sockets and devices are never carried.
            _ => Ok(()),
        }
    }

    fn file(&mut self, path: &Path, name: Vec<u8>, meta: &Metadata) -> io::Result<()> {
        if meta.nlink() > 1 {
            if let Some(&file) = self.linked.get(&meta.ino()) {
                return self.say(Entry::Same { name, file });
            }
            self.linked.insert(meta.ino(), self.files);
        }
        self.files += 1;
        self.say(Entry::File { name, size: meta.len(), stat: stat(path, meta) })?;
        let file = File::open(path)?;
        let mut bytes = vec![0u8; PIECE];
        let mut at = 0;
        // Holes are not sent: what is not told of a file is zeros.
        while at < meta.len() {
            at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(at) => at,
                Err(Errno::NXIO) => break,
                Err(errno) => return Err(errno.into()),
            };
            let end = rustix::fs::seek(&file, SeekFrom::Hole(at))?;
            while at < end {
                let most = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
                let count = file.read_at(bytes.get_mut(..most).unwrap_or_default(), at)?;
                if count == 0 {
                    return Ok(());
                }
                self.say(Entry::Bytes { at })?;
                send_piece(self.to, bytes.get(..count).unwrap_or_default())?;
                at += count as u64;
            }
        }
        Ok(())
    }
}
