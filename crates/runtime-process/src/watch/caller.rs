//! Who makes a call, as far as it can be told, and how it is told why it may not.

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};

/// Processes that are remembered.
const KNOWN: usize = 128;
/// Of a process's own arguments.
const ARGV: usize = 1024;
/// So often somebody is told in words.
const EXPLAINED: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Who {
    /// As the inside counts.
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) argv: Vec<String>,
}

/// A thread by its directory: whose number is taken by another is not found in it any more.
struct Known {
    dir: OwnedFd,
    inner: u32,
    group: i32,
}

#[derive(Default)]
pub(super) struct Callers {
    known: HashMap<u32, Known>,
    explained: BTreeSet<(u32, String)>,
}

impl Callers {
    pub(super) fn who(&mut self, thread: u32, with_argv: bool) -> Who {
        let said =
            self.known.get(&thread).and_then(|known| Some((read(&known.dir, "comm", 64)?, known.inner)));
        let (program, pid) = match said {
            Some(said) => said,
            None => {
                let Some(known) = Known::of(thread) else { return Who::default() };
                let said = (read(&known.dir, "comm", 64).unwrap_or_default(), known.inner);
                if self.known.len() >= KNOWN {
                    self.known.clear();
                }
                self.known.insert(thread, known);
                said
            }
        };
        let argv = self.known.get(&thread).filter(|_| with_argv).and_then(|k| read(&k.dir, "cmdline", ARGV));
        let argv = argv.unwrap_or_default();
        let words = argv.trim_end_matches('\0').split('\0').filter(|_| !argv.is_empty());
        Who { pid, program: program.trim().to_owned(), argv: words.map(str::to_owned).collect() }
    }

    /// Writes a line where the caller writes its errors, once for each kind of call and program. By a copy of its
    /// own descriptor, with no more rights than it has there itself, and only if that would not wait.
    pub(super) fn explain(&mut self, thread: u32, call: u32, words: &str) {
        let program = self.who(thread, false).program;
        if self.explained.len() >= EXPLAINED || !self.explained.insert((call, program)) {
            return;
        }
        let Some(group) = self.known.get(&thread).and_then(|known| Pid::from_raw(known.group)) else {
            return;
        };
        let Ok(pidfd) = rustix::process::pidfd_open(group, PidfdFlags::empty()) else { return };
        let Ok(stderr) = rustix::process::pidfd_getfd(&pidfd, 2, PidfdGetfdFlags::empty()) else { return };
        let kind = rustix::fs::fstat(&stderr).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let takes_lines = match kind {
            Ok(FileType::Fifo | FileType::RegularFile) => true,
            Ok(FileType::CharacterDevice) => rustix::termios::isatty(&stderr),
            _ => false,
        };
        let mut set = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if takes_lines && matches!(rustix::event::poll(&mut set, Some(&now)), Ok(1)) {
            let _ = rustix::io::write(&stderr, format!("cofferdam: {words}\n").as_bytes());
        }
    }
}

impl Known {
    fn of(thread: u32) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(format!("/proc/{thread}"), flags, Mode::empty()).ok()?;
        let status = read(&dir, "status", 4096)?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // The last of its numbers, one per nested pid namespace.
        let inner = line("NStgid:").and_then(|l| l.split_whitespace().last()?.parse().ok());
        let group = line("Tgid:").and_then(|l| l.trim().parse().ok());
        Some(Self { dir, inner: inner.unwrap_or(thread), group: group.unwrap_or(0) })
    }
}

fn read(dir: &OwnedFd, name: &str, most: usize) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?;
    let mut bytes = vec![0; most];
    let count = rustix::io::read(&file, &mut bytes).ok()?;
    Some(String::from_utf8_lossy(bytes.get(..count)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_while_it_lives() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut callers = Callers::default();
        // The name changes when it executes.
        let who = loop {
            let who = callers.who(child.id(), true);
            if who.program == "sleep" && !who.argv.is_empty() {
                break who;
            }
            std::thread::yield_now();
        };
        assert_eq!((who.pid, who.argv), (child.id(), vec!["sleep".to_owned(), "600".to_owned()]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(callers.who(child.id(), true), Who::default());
    }
}
