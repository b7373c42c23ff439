//! What becomes of a session when its machine fails: the VMM killed, the machine's own programs and its kernel dead,
//! words on its streams that are none, streams that nobody reads, kept machines that have decayed, a disk that is
//! full. Each with a real kernel, which a test harms from outside, as nobody inside can.

use crate::crash::nothing_is_left;
use crate::live::Hall;
use crate::site;
use cofferdam_testkit::{Site, eventually, needs_root};
use rustix::fs::{OFlags, SeekFrom};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MACHINE: [&str; 4] = ["--isolation", "microvm", "--memory", "256m"];
const PAGE: usize = 4096;

/// Everyone whom this process has started, and those that they have.
fn below(process: Pid) -> Vec<i32> {
    let above = |pid: i32| -> Option<i32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
    };
    let top = process.as_raw_nonzero().get();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| std::iter::successors(above(*pid), |pid| above(*pid)).any(|pid| pid == top)).collect()
}

/// The VMMs among them.
pub(crate) fn vmms_of(process: Pid) -> Vec<Pid> {
    let is_vmm = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("qemu"))
    };
    below(process).into_iter().filter(is_vmm).filter_map(Pid::from_raw).collect()
}

/// A session in a machine, and its VMM.
fn session(hall: &Hall<'_>, name: &str) -> (String, Vmm) {
    let there = hall.supervisor().map(vmms_of).unwrap_or_default();
    let id = hall.create(&[&["--name", name][..], &MACHINE].concat());
    hall.does(name, "true");
    let now = vmms_of(hall.supervisor().unwrap());
    (id, Vmm(now.into_iter().find(|vmm| !there.contains(vmm)).expect("a VMM runs")))
}

#[derive(Clone, Copy)]
struct Vmm(Pid);

impl Vmm {
    fn proc(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0.as_raw_nonzero()))
    }

    /// Its end of a stream, by which it passes on what the machine says.
    fn end_of(self, port: &str) -> File {
        let line = fs::read(self.proc("cmdline")).unwrap();
        let line = String::from_utf8_lossy(&line).into_owned();
        let number = line.split('\0').find_map(|word| word.strip_prefix(&format!("socket,id={port},fd=")));
        let number: i32 = number.unwrap().parse().unwrap();
        let process = pidfd_open(self.0, PidfdFlags::empty()).unwrap();
        let end: OwnedFd = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).unwrap();
        let flags = rustix::fs::fcntl_getfl(&end).unwrap();
        rustix::fs::fcntl_setfl(&end, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
        File::from(end)
    }

    /// Makes programs in the machine ones that no processor can go on with: every page of theirs that is in its
    /// memory, wherever. It reads them from the initial file system that the machine was booted with.
    fn spoil(self, site: &Site, programs: &[&str]) {
        let initrd = first(&site.state().join("vm/kernels")).join("initrd");
        let archive = fs::read(initrd).unwrap();
        let pages: HashSet<&[u8]> = programs
            .iter()
            .flat_map(|name| file_of(&archive, name).chunks_exact(PAGE))
            .filter(|page| page.iter().filter(|byte| **byte != 0).count() > PAGE / 4)
            .collect();
        // It stands still meanwhile, so that nothing of it dies before all is done.
        kill_process(self.0, Signal::STOP).unwrap();
        let (base, size) = self.mapping();
        let through = OpenOptions::new().read(true).write(true).open(self.proc("mem")).unwrap();
        // An instruction that there is not.
        let nothing: Vec<u8> = [0x0f, 0x0b].repeat(PAGE / 2);
        let mut spoiled = 0;
        let mut page = vec![0; PAGE];
        for at in self.filled(base, size) {
            through.read_exact_at(&mut page, base + at).unwrap();
            if pages.contains(page.as_slice()) {
                through.write_all_at(&nothing, base + at).unwrap();
                spoiled += 1;
            }
        }
        kill_process(self.0, Signal::CONT).unwrap();
        assert!(spoiled > 3, "{spoiled} pages of {programs:?} were found");
    }

    /// Where the machine's memory is in its own, and how much.
    fn mapping(self) -> (u64, u64) {
        let maps = fs::read_to_string(self.proc("maps")).unwrap();
        let lines = maps.lines().filter(|line| is_memory(line));
        let ranges = lines.map(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
            (number(from), number(to) - number(from))
        });
        ranges.max_by_key(|(_, size)| *size).unwrap()
    }

    /// Pages of the memory that have something in them: those of the template, and those that were touched since.
    fn filled(self, base: u64, size: u64) -> BTreeSet<u64> {
        let open = fs::read_dir(self.proc("fd")).unwrap().flatten().map(|entry| entry.path());
        let leads_to_it =
            |path: &PathBuf| fs::read_link(path).is_ok_and(|to| is_memory(&to.to_string_lossy()));
        let memory = File::open(open.into_iter().find(leads_to_it).unwrap()).unwrap();
        let (mut found, mut at) = (BTreeSet::new(), 0);
        while let Ok(data) = rustix::fs::seek(&memory, SeekFrom::Data(at)) {
            at = rustix::fs::seek(&memory, SeekFrom::Hole(data)).unwrap();
            found.extend((data..at.min(size)).step_by(PAGE));
        }
        let map = File::open(self.proc("pagemap")).unwrap();
        let mut entries = vec![0; (size as usize / PAGE) * 8];
        map.read_exact_at(&mut entries, base / PAGE as u64 * 8).unwrap();
        let entries = entries.chunks_exact(8).map(|entry| u64::from_le_bytes(entry.try_into().unwrap()));
        found.extend(
            entries.enumerate().filter(|(_, entry)| entry >> 63 == 1).map(|(n, _)| (n * PAGE) as u64),
        );
        found
    }
}

/// A file that is lent, or a copy of one.
fn is_memory(name: &str) -> bool {
    name.contains("memfd:cofferdam-vm") || name.ends_with("/ram")
}

fn first(dir: &Path) -> PathBuf {
    let mut all: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all.into_iter().next().unwrap()
}

/// A file in an archive of the `newc` kind.
fn file_of<'a>(archive: &'a [u8], name: &str) -> &'a [u8] {
    let mut rest = archive;
    loop {
        assert!(rest.starts_with(b"070701"), "{name} is not in the archive");
        let number =
            |at: usize| usize::from_str_radix(str::from_utf8(&rest[at..at + 8]).unwrap(), 16).unwrap();
        let (size, length) = (number(54), number(94));
        let begins = (110 + length).next_multiple_of(4);
        if &rest[110..110 + length - 1] == name.as_bytes() {
            return &rest[begins..begins + size];
        }
        rest = &rest[(begins + size).next_multiple_of(4)..];
    }
}

/// What is left of machines that ran.
#[track_caller]
fn no_machine_is_left(site: &Site) {
    eventually("the places of machines to be gone", || {
        let left: Vec<_> =
            fs::read_dir(site.state().join("vm/run")).into_iter().flatten().flatten().collect();
        left.is_empty().then_some(())
    });
    nothing_is_left(site);
}

/// A session whose command was under way when something was done: it ends, with a trace that is whole, and says why.
fn ends_by(hall: &Hall<'_>, wrong: &mut Vec<String>, name: &str, says: &str, doing: impl FnOnce(Vmm)) {
    let (id, vmm) = session(hall, name);
    let running = hall.exec(name, "echo begun; exec sleep 1000").start();
    eventually("the command to run", || {
        hall.show(name)["execs"].as_array().is_some_and(|all| all.len() == 2).then_some(())
    });
    doing(vmm);
    let done = running.finish();
    if done.code() == 0 || !done.err().contains(says) {
        wrong.push(format!("{name} does not say `{says}`: {}", done.err()));
    }
    eventually("the session to be gone", || {
        (!hall.call(&["ls"]).exits(0).out().contains(name)).then_some(())
    });
    hall.0.call(&["trace", "verify", &id]).exits(0);
    eventually("its VMM to be gone", || kill_process(vmm.0, Signal::CONT).is_err().then_some(()));
}

/// A run whose VMM is killed.
fn a_run_says_why(site: &Site) {
    let running = site.sh("echo x >file; exec sleep 1000").with(&MACHINE).start();
    let begun = || !site.traces().is_empty() && !site.bodies("exec.started").is_empty();
    eventually("the command to run", || begun().then_some(()));
    let all = below(running.pid());
    kill_process(vmms_of(running.pid())[0], Signal::KILL).unwrap();
    let done = running.finish().exits(125);
    assert!(done.err().contains("the machine has ended"), "{}", done.err());
    site.call(&["trace", "verify", "latest"]).exits(0);
    let ended = site.bodies("session.ended");
    assert!(ended[0]["error"].as_str().unwrap().contains("the machine has ended"), "{ended:?}");
    assert!(!site.work().join("file").exists(), "nothing of it is kept");
    eventually("all of its processes to be gone", || {
        all.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    no_machine_is_left(site);
}

/// Streams that nobody reads hold up nothing but themselves, and nothing is kept for them.
fn a_flood_waits(hall: &Hall<'_>, name: &str) {
    let supervisor = hall.supervisor().unwrap();
    let memory = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", supervisor.as_raw_nonzero())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    };
    let before = memory();
    let mut floods: Vec<_> = (0..3)
        .map(|_| {
            let mut command = hall.exec(name, "yes; true").command();
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    eventually("the floods to run", || (hall.show(name)["running"] == 3).then_some(()));
    for _ in 0..5 {
        assert_eq!(hall.does(name, "head -c 300000 /dev/zero | wc -c"), "300000\n");
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 32, "{grown} MiB are held for streams that nobody reads");
    for flood in &mut floods {
        let _ = (flood.kill(), flood.wait());
    }
}

/// A snapshot for which there is no room leaves nothing, and the machine as it was.
fn no_room_for_a_snapshot(site: &Site, hall: &Hall<'_>, name: &str) {
    hall.does(name, "echo kept >file");
    let frozen = site.state().join("frozen");
    fs::create_dir_all(&frozen).unwrap();
    let mount = |words: &[&str]| {
        assert!(
            Command::new(words[0]).args(&words[1..]).arg(&frozen).status().unwrap().success(),
            "{words:?}"
        );
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=8m", "none"]);
    let done = hall.call(&["snapshot", name, "full"]).done();
    let left: Vec<_> = walk(&frozen);
    mount(&["umount"]);
    assert!(done.code() != 0 && done.err().contains("No space left"), "{}", done.err());
    assert_eq!(left, Vec::<PathBuf>::new(), "nothing half-made is left");
    assert_eq!(hall.call(&["snapshots", "--json"]).exits(0).out().trim(), "[]");
    assert_eq!(hall.does(name, "cat file"), "kept\n");
    hall.asks(&["snapshot", name, "whole"]);
    hall.asks(&["snapshots", "--rm", "whole"]);
}

/// Files below a directory.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(walk(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

#[test]
fn a_machine_that_fails_takes_its_session_along_and_nothing_else() {
    if !needs_root("to harm a machine from outside") {
        return;
    }
    let site = site();
    a_run_says_why(&site);

    let hall = Hall(&site);
    session(&hall, "other");
    let mut wrong: Vec<String> = Vec::new();
    ends_by(&hall, &mut wrong, "killed", "the machine has ended", |vmm| {
        kill_process(vmm.0, Signal::KILL).unwrap()
    });

    // The program that answers for the machine, the one that runs commands, and the first one, without which no kernel
    // goes on. What a copy has executed before is not read again by an emulator, so something else is asked for.
    let snapshot = |name: &str| drop(hall.call(&["snapshot", name, "x"]).done());
    ends_by(&hall, &mut wrong, "agent", "the machine has ended", |vmm| {
        vmm.spoil(&site, &["program"]);
        snapshot("agent");
    });
    let given = site.root().join("given");
    fs::write(&given, "given").unwrap();
    ends_by(&hall, &mut wrong, "guest", "the guest has ended", |vmm| {
        vmm.spoil(&site, &["init"]);
        hall.call(&["cp", given.to_str().unwrap(), "guest:/tmp/given"]).done();
    });
    ends_by(&hall, &mut wrong, "panic", "Kernel panic", |vmm| {
        vmm.spoil(&site, &["program", "init"]);
        snapshot("panic");
    });

    // Words that are none, on every stream that is read as they come.
    let junk = [0xff; 4096];
    ends_by(&hall, &mut wrong, "channel", "broke the protocol", |vmm| {
        vmm.end_of("guest").write_all(&junk).unwrap()
    });
    ends_by(&hall, &mut wrong, "notes", "tells of system calls", |vmm| {
        vmm.end_of("notes").write_all(&junk).unwrap()
    });
    // More than was allowed: 64 KiB of the command's output, again and again.
    ends_by(&hall, &mut wrong, "flood", "broke the protocol", |vmm| {
        let mut frame = [65536_u32.to_le_bytes(), 2_u32.to_le_bytes(), [4, 2, 1, 0]].concat();
        frame.resize(12 + 65536, b'x');
        let mut end = vmm.end_of("guest");
        while end.write_all(&frame).is_ok() {}
    });
    // An answer that nobody asked for is the answer to the next question, and is none.
    ends_by(&hall, &mut wrong, "house", "broke the protocol", |vmm| {
        vmm.end_of("house").write_all(&junk).unwrap();
        snapshot("house");
    });

    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(hall.does("other", "echo still here"), "still here\n");
    a_flood_waits(&hall, "other");
    no_room_for_a_snapshot(&site, &hall, "other");
    hall.asks(&["kill", "other", "--changes", "discard"]);
    assert_eq!(hall.call(&["snapshots", "--json"]).exits(0).out().trim(), "[]");
    no_machine_is_left(&site);
}

/// Changes one byte of a file, and leaves its time as it was.
fn decay(path: &Path) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let mut byte = [0];
    let filled = (0..size / 509)
        .rev()
        .map(|n| n * 509)
        .find(|at| file.read_exact_at(&mut byte, *at).is_ok() && byte[0] != 0);
    let at = filled.unwrap();
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.set_modified(time).unwrap();
}

#[test]
fn what_has_decayed_is_found_and_named_and_made_again() {
    let site = site();
    let vm = site.state().join("vm");
    let run = || site.sh("echo ran").with(&MACHINE);
    let refused = |says: &str| {
        let done = run().exits(125);
        assert!(done.out().is_empty() && done.err().contains(says), "{says}: {}", done.err());
        assert!(done.err().contains("run this again"), "{}", done.err());
    };
    assert_eq!(run().exits(0).out(), "ran\n");

    let template = first(&vm.join("templates"));
    decay(&template.join("ram"));
    refused("is damaged: its memory is not what was written");
    assert!(!template.exists());
    decay(&first(&vm.join("kernels")).join("vmlinux"));
    refused("the unpacked kernel at");
    // Nothing is kept now, and another is booted: in time, or it is said that it was not, after another try.
    let done = run().env("COFFERDAM_VM_BOOT_SECONDS", "0").exits(125);
    assert!(
        done.err().contains("did not boot within 0 s") && done.err().contains("(tried twice)"),
        "{}",
        done.err()
    );
    assert_eq!(walk(&vm.join("templates")), Vec::<PathBuf>::new(), "nothing half-made is left");
    assert_eq!(run().exits(0).out(), "ran\n");

    let list = fs::read_to_string(vm.join("system/digest")).unwrap();
    decay(&vm.join("system").join(list));
    refused("is damaged: its list of files is not what was written");
}

/// Whether this user, without any right, can open for writing what is open here.
fn can_write(open: &File, user: u32) -> bool {
    let mut shell = Command::new("setpriv");
    shell.args([&format!("--reuid={user}"), "--clear-groups", "--inh-caps=-all"]);
    shell.args(["sh", "-c", ": >>/proc/self/fd/0"]).stdin(open.try_clone().unwrap()).stderr(Stdio::null());
    shell.status().unwrap().success()
}

#[test]
fn a_vmm_has_what_others_begin_with_and_cannot_write_to_it() {
    if !needs_root("to look into a VMM") {
        return;
    }
    let site = site();
    let hall = Hall(&site);
    let (_, vmm) = session(&hall, "one");
    let open = fs::read_dir(vmm.proc("fd")).unwrap().flatten().map(|entry| entry.path());
    let leads_to_it = |path: &PathBuf| fs::read_link(path).is_ok_and(|to| is_memory(&to.to_string_lossy()));
    let lent: Vec<PathBuf> = open.filter(leads_to_it).collect();
    assert!(!lent.is_empty(), "it has its memory open");
    let user = fs::metadata(vmm.proc("")).unwrap().uid();
    assert_ne!(user, 0);
    for path in lent {
        let number: i32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let process = pidfd_open(vmm.0, PidfdFlags::empty()).unwrap();
        let lent = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).unwrap();
        let how = rustix::fs::fcntl_getfl(&lent).unwrap();
        assert_eq!(how & OFlags::RWMODE, OFlags::RDONLY, "{}", path.display());
        let lent = File::from(lent);
        assert!(!can_write(&lent, user));
        assert!(can_write(&lent, 0), "whose it is could");
    }
    // What it changes is its own: another begins as the first one did.
    let template = first(&site.state().join("vm/templates")).join("ram");
    let before = fs::metadata(&template).unwrap();
    hall.does("one", "head -c 30000000 /dev/urandom > /tmp/much");
    let after = fs::metadata(&template).unwrap();
    assert_eq!(
        (before.mtime(), before.ctime(), before.blocks()),
        (after.mtime(), after.ctime(), after.blocks())
    );
}
