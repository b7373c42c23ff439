//! The memory of a machine that stands still, where it is: what the machine has changed lies in its VMM's process, and all
//! else in what it began with. Read from there, none of it has to be moved through anybody before it is written down.
//!
//! The process is whoever below the sandbox's first one has memory of that size, all of it, and for itself: what the machine
//! began with, or a copy of it that nobody can write to. A VMM that somebody broke into can make this any memory that is its
//! own; that is the machine's, and so is what begins with it.

use crate::machine::Machine;
use crate::memory::{Readable, Shared};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

const PAGE: u64 = 4096;
/// Of the kernel's word on a page: it is there, it is on disk for now, it is a file's.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// So many pages are asked about at once.
const PAGES: usize = 32 << 10;

/// A part of a file that a process has mapped for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapped {
    /// Where in the file it begins and ends, and where in the process it begins.
    begin: u64,
    end: u64,
    address: u64,
}

pub(crate) struct Standing<'a> {
    shared: &'a File,
    process: File,
    /// What the machine has changed, in order.
    own: Vec<Mapped>,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// The number of a process that is known by its descriptor.
fn pid(process: BorrowedFd<'_>) -> io::Result<u32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    number.ok_or_else(|| broken("the sandbox around it has ended"))
}

/// What the kernel says of one process, open, and the namespace that tells whose sandbox it is in.
fn process(pid: u32) -> io::Result<(File, u64)> {
    let place = File::open(format!("/proc/{pid}"))?;
    let sandbox = fs::metadata(within(&place, "ns/pid"))?.ino();
    Ok((place, sandbox))
}

fn within(place: &File, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", place.as_raw_fd())
}

/// All that descend from it.
fn below(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        at += 1;
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found
}

/// The parts of one file of this size that are mapped for nobody else, from its first byte to its last, by what the kernel says
/// of mappings.
fn mapped(maps: &str, size: u64) -> Option<Vec<Mapped>> {
    let part = |line: &str| {
        let mut words = line.split_whitespace();
        let (addresses, flags, offset) = (words.next()?, words.next()?, words.next()?);
        let file = (words.next()?.to_owned(), words.next()?.parse::<u64>().ok()?);
        let (from, to) = addresses.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (address, begin) = (hex(from)?, hex(offset)?);
        let length = hex(to)?.checked_sub(address)?;
        let end = begin.checked_add(length)?;
        (flags.ends_with('p') && file.1 != 0).then_some((file, Mapped { begin, end, address }))
    };
    let mut files: BTreeMap<(String, u64), Vec<Mapped>> = BTreeMap::new();
    for (file, part) in maps.lines().filter_map(part) {
        files.entry(file).or_default().push(part);
    }
    files.into_values().find_map(|mut parts| {
        parts.sort_by_key(|part| part.begin);
        let end = parts.iter().try_fold(0, |at, part| (part.begin == at).then_some(part.end));
        (end == Some(size)).then_some(parts)
    })
}

/// What of a part is the process's own, page after page.
fn own(pagemap: &File, part: Mapped, own: &mut Vec<Mapped>) -> io::Result<()> {
    let mut words = vec![0u8; PAGES * 8];
    let mut at = part.begin;
    while at < part.end {
        let count = usize::try_from((part.end - at) / PAGE).unwrap_or(usize::MAX).min(PAGES);
        let some = words.get_mut(..count * 8).unwrap_or_default();
        let address = part.address + (at - part.begin);
        pagemap.read_exact_at(some, address / PAGE * 8)?;
        for (number, word) in (0u64..).zip(some.chunks_exact(8)) {
            let word = word.try_into().map_or(0, u64::from_le_bytes);
            let is_own = word & SWAPPED != 0 || word & (PRESENT | OF_FILE) == PRESENT;
            if !is_own {
                continue;
            }
            let (begin, address) = (at + number * PAGE, address + number * PAGE);
            match own.last_mut() {
                Some(last) if last.end == begin && last.address + (begin - last.begin) == address => {
                    last.end += PAGE;
                }
                _ => own.push(Mapped { begin, end: begin + PAGE, address }),
            }
        }
        at += count as u64 * PAGE;
    }
    Ok(())
}

impl<'a> Standing<'a> {
    /// Of this machine, which is a copy.
    pub(crate) fn of(machine: &'a Machine, size: u64) -> io::Result<Self> {
        let gone = || io::Error::other("the machine has ended");
        let (first, shared) = (machine.first().ok_or_else(gone)?, machine.shares.as_ref());
        Self::find(first, shared.ok_or_else(gone)?, size)
    }

    /// Of the VMM below this process, which is the first of the sandbox around it.
    fn find(first: BorrowedFd<'_>, shared: &'a Shared, size: u64) -> io::Result<Self> {
        let number = pid(first)?;
        let (place, sandbox) = process(number)?;
        if pid(first)? != number {
            return Err(broken("the sandbox around it has ended"));
        }
        drop(place);
        let has = |pid: &u32| {
            // By what is open from here on: a number may be another's by the time that it is used.
            let (place, own) = process(*pid).ok()?;
            let maps = fs::read_to_string(within(&place, "maps")).ok().filter(|_| own == sandbox)?;
            Some((place, mapped(&maps, size)?))
        };
        let found = below(number).iter().find_map(has);
        let (place, parts) =
            found.ok_or_else(|| broken("no process that can be looked at has its memory"))?;
        let open = |name: &str| {
            let failed = |error: io::Error| {
                io::Error::new(error.kind(), format!("its VMM's memory cannot be read ({name}: {error})"))
            };
            File::open(within(&place, name)).map_err(failed)
        };
        let (process, pagemap) = (open("mem")?, open("pagemap")?);
        let mut changed = Vec::new();
        parts.into_iter().try_for_each(|part| own(&pagemap, part, &mut changed))?;
        Ok(Self { shared: shared.file(), process, own: changed })
    }

    /// Those that end after this.
    fn after(&self, at: u64) -> &[Mapped] {
        let first = self.own.partition_point(|part| part.end <= at);
        self.own.get(first..).unwrap_or_default()
    }
}

impl Readable for Standing<'_> {
    fn parts(&self, size: u64, each: &mut dyn FnMut(u64, u64) -> io::Result<()>) -> io::Result<()> {
        let mut all: Vec<(u64, u64)> = self.own.iter().map(|part| (part.begin, part.end)).collect();
        self.shared.parts(size, &mut |begin, end| {
            all.push((begin, end));
            Ok(())
        })?;
        all.sort_unstable();
        let mut all = all.into_iter();
        let Some((mut begin, mut end)) = all.next() else { return Ok(()) };
        for (next, last) in all {
            if next > end {
                each(begin, end)?;
                begin = next;
            }
            end = end.max(last);
        }
        each(begin, end)
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.shared.read_exact_at(bytes, at)?;
        let end = at + bytes.len() as u64;
        for part in self.after(at).iter().take_while(|part| part.begin < end) {
            let (from, to) = (part.begin.max(at), part.end.min(end));
            let (first, last) = ((from - at) as usize, (to - at) as usize);
            let some = bytes.get_mut(first..last).ok_or_else(|| broken("its memory is none"))?;
            self.process.read_exact_at(some, part.address + (from - part.begin))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use proptest::prelude::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsFd;
    use std::process::{Child, Command, Stdio};

    const SIZE: u64 = 1 << 20;

    fn part(begin: u64, end: u64, address: u64) -> Mapped {
        Mapped { begin, end, address }
    }

    #[test]
    fn memory_is_what_is_mapped_from_the_first_byte_to_the_last_and_for_nobody_else() {
        let check = |maps: &str, expected: Option<Vec<Mapped>>| assert_eq!(mapped(maps, 0x3000), expected);
        let whole = "7000-a000 rw-p 00000000 fe:00 12  /some where/ram (deleted)\n";
        check(whole, Some(vec![part(0, 0x3000, 0x7000)]));
        check(&whole.replace("rw-p", "rw-s"), None);
        check(&whole.replace(" 12 ", " 0 "), None);
        check(&whole.replace("a000", "b000"), None);
        // In parts, of which others lie in between, and in any order.
        let parts = "1000-2000 rw-p 00002000 00:01 7 /memfd:x\n3000-5000 r--p 00000000 00:01 8 /usr/lib\n\
                     8000-a000 rw-p 00000000 00:01 7 /memfd:x\nc000-d000 rw-p 00000000 00:00 0\n";
        check(parts, Some(vec![part(0, 0x2000, 0x8000), part(0x2000, 0x3000, 0x1000)]));
        check(&parts.replace("00002000", "00003000"), None);
        check("", None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fall(text in "([0-9a-f]{1,17}-[0-9a-f]{1,17} [rwxps-]{1,4} [0-9a-f]{1,17} .{0,12}\n?){0,4}") {
            let _ = mapped(&text, 0x1000);
        }
    }

    /// A program that has a file's memory for itself, and changes some of it.
    struct Program(Child);

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Program {
        fn start(path: &std::path::Path) -> Self {
            let script = "import mmap, sys\nfile = open(sys.argv[1], 'rb')\nmemory = mmap.mmap(file.fileno(), 0, \
                          access=mmap.ACCESS_COPY)\nmemory[40960]\nmemory[4096:4101] = b'first'\n\
                          memory[8192:8196] = bytes(4)\nmemory[-4:] = b'last'\nprint('ready', flush=True)\ninput()";
            // Below another, as a VMM is.
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", "python3 -c \"$0\" \"$1\"; :", script]).arg(path);
            let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
            assert_eq!(said, "ready\n");
            Self(child)
        }
    }

    #[test]
    fn what_a_process_has_changed_is_read_from_it_and_the_rest_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, to) = (dir.path().join("ram"), dir.path().join("kept"));
        let file = File::create(&path).unwrap();
        file.set_len(SIZE).unwrap();
        file.write_all_at(&[7; 8192], 4096).unwrap();
        file.write_all_at(b"shared", 40960).unwrap();
        let mut program = Program::start(&path);
        let shared = memory::share(&path, SIZE, true).unwrap().memory;
        let first = pidfd_open(Pid::from_child(&program.0), PidfdFlags::empty()).unwrap();

        let standing = Standing::find(first.as_fd(), &shared, SIZE).unwrap();
        let own: Vec<(u64, u64)> = standing.own.iter().map(|part| (part.begin, part.end)).collect();
        assert_eq!(own, [(4096, 12288), (SIZE - 4096, SIZE)], "what was only read is the file's");
        let mut expected = vec![0; SIZE as usize];
        expected[4096..12288].fill(7);
        expected[4096..4101].copy_from_slice(b"first");
        expected[8192..8196].fill(0);
        expected[40960..40966].copy_from_slice(b"shared");
        let end = SIZE as usize;
        expected[end - 4..].copy_from_slice(b"last");
        let mut read = vec![1; 3 * 4096 + 100];
        standing.read(&mut read, 4000).unwrap();
        assert_eq!(read, expected[4000..4000 + read.len()]);
        let kept = memory::keep(&standing, &to, SIZE).unwrap();
        assert_eq!(fs::read(&to).unwrap(), expected);
        assert_eq!(memory::digest(&to).unwrap(), kept.digest);

        let other = Standing::find(first.as_fd(), &shared, 2 * SIZE).err().unwrap().to_string();
        assert!(other.contains("no process"), "{other}");
        program.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        program.0.wait().unwrap();
        assert!(Standing::find(first.as_fd(), &shared, SIZE).is_err(), "it has ended");
    }
}
