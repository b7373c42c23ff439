//! Changes below a directory, as the kernel tells of them.

use super::entry::{self, names_in};
use super::{Done, Failed, joined, path, say};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cofferdam_guest::wire::{Change, Said, WATCHES_MAX, Why};
use core::mem::MaybeUninit;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

struct Watch {
    inotify: OwnedFd,
    root: Vec<u8>,
    recursive: bool,
    entries: bool,
    /// Directories by the kernel's number for them, below the root.
    places: BTreeMap<i32, Vec<u8>>,
    /// There are more directories than are looked at, and that was said.
    overfull: bool,
}

/// Something that the kernel told.
struct Told {
    place: i32,
    flags: ReadFlags,
    name: Vec<u8>,
}

const LOOKED_FOR: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

pub(super) fn watch(root: &[u8], recursive: bool, entries: bool) -> Done {
    let whole = path(root)?;
    if FileType::from_raw_mode(rustix::fs::stat(&whole)?.st_mode) != FileType::Directory {
        return Err(Failed::because(Why::NotDirectory, Errno::NOTDIR));
    }
    let inotify = inotify::init(CreateFlags::CLOEXEC)?;
    let root = root.to_vec();
    let places = BTreeMap::new();
    let mut watch = Watch { inotify, root, recursive, entries, places, overfull: false };
    watch.add(Vec::new())?;
    say(&Said::Done)?;
    watch.look()
}

impl Watch {
    fn at(&self, below: &[u8]) -> Vec<u8> {
        if below.is_empty() { self.root.clone() } else { joined(&self.root, below) }
    }

    /// A directory and, where that is asked for, those in it. Says what of them it found.
    fn add(&mut self, top: Vec<u8>) -> Result<Vec<Vec<u8>>, Failed> {
        let mut found = Vec::new();
        let mut waiting = Vec::from([top]);
        while let Some(below) = waiting.pop() {
            if self.places.len() >= WATCHES_MAX {
                if !core::mem::replace(&mut self.overfull, true) {
                    say(&Said::Missed)?;
                }
                return Ok(found);
            }
            let at = path(&self.at(&below))?;
            match inotify::add_watch(&self.inotify, &at, LOOKED_FOR) {
                Ok(place) => drop(self.places.insert(place, below.clone())),
                // Gone again, or not ours to look at: only the first one matters.
                Err(errno) if below.is_empty() => return Err(errno.into()),
                Err(_) => continue,
            }
            if !self.recursive {
                continue;
            }
            for name in names_in(&at).unwrap_or_default() {
                let one = joined(&below, &name);
                found.push(one.clone());
                let stat = rustix::fs::lstat(path(&self.at(&one))?);
                if stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
                    waiting.push(one);
                }
            }
        }
        Ok(found)
    }

    fn look(&mut self) -> Done {
        let mut buffer = Vec::new();
        buffer.resize(64 * 1024, MaybeUninit::uninit());
        loop {
            self.wait()?;
            let mut told = Vec::new();
            let mut reader = inotify::Reader::new(self.inotify.as_fd(), &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
                        told.push(Told { place: event.wd(), flags: event.events(), name });
                    }
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(errno.into()),
                }
                if reader.is_buffer_empty() {
                    break;
                }
            }
            for told in told {
                self.tell(told)?;
            }
        }
    }

    /// The end of the input is the host's word that nobody listens any more.
    fn wait(&self) -> Done {
        loop {
            let mut set = [
                PollFd::from_borrowed_fd(self.inotify.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(super::input(), PollFlags::IN),
            ];
            match poll(&mut set, None) {
                Ok(_) => (),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let [events, input] = set.map(|fd| !fd.revents().is_empty());
            if input {
                return Err(Errno::CANCELED.into());
            }
            if events {
                return Ok(());
            }
        }
    }

    fn tell(&mut self, told: Told) -> Done {
        let Told { place, flags, name } = told;
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return say(&Said::Missed);
        }
        let Some(dir) = self.places.get(&place).cloned() else { return Ok(()) };
        if flags.contains(ReadFlags::IGNORED) {
            self.places.remove(&place);
            return Ok(());
        }
        if name.is_empty() || is_ours(&name) {
            return Ok(());
        }
        let name = joined(&dir, &name);
        let Some(change) = change(flags) else { return Ok(()) };
        self.say(change, &name)?;
        let new_dir = change == Change::Created && flags.contains(ReadFlags::ISDIR);
        if self.recursive && new_dir {
            // What was in it before it was looked at is told as well.
            for found in self.add(name)? {
                self.say(Change::Created, &found)?;
            }
        }
        Ok(())
    }

    fn say(&self, change: Change, name: &[u8]) -> Done {
        let entry = match self.entries && !matches!(change, Change::Removed | Change::Renamed) {
            true => entry::of(&path(&self.at(name))?, Vec::new()).ok(),
            false => None,
        };
        say(&Said::Changed { change, name: name.to_vec(), entry })
    }
}

/// A file on its way: nameless ones are called by their number.
fn is_ours(name: &[u8]) -> bool {
    name.ends_with(b".part~")
        || name.strip_prefix(b"#").is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}

fn change(flags: ReadFlags) -> Option<Change> {
    let table = [
        (ReadFlags::CREATE, Change::Created),
        (ReadFlags::MOVED_TO, Change::Created),
        (ReadFlags::MODIFY, Change::Written),
        (ReadFlags::DELETE, Change::Removed),
        (ReadFlags::MOVED_FROM, Change::Renamed),
        (ReadFlags::ATTRIB, Change::Attributes),
    ];
    table.into_iter().find(|(flag, _)| flags.contains(*flag)).map(|(_, change)| change)
}
