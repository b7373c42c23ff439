//! Attempts on other processes: to see them, signal them, read them, be as powerful as they are.

use crate::escape::check::{Finding, words};
use crate::escape::facts::Facts;
use crate::escape::keeper::segment_key;
use cofferdam_sys::probe;
use rustix::process::{Pid, PidfdFlags};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

/// The keeper by its number, if that number is the keeper's here: inside it may be somebody else's, or nobody's.
fn keeper(facts: &Facts) -> Result<Pid, Finding> {
    let pid = i32::try_from(facts.keeper).ok().and_then(Pid::from_raw);
    let line =
        fs::read(format!("/proc/{}/cmdline", facts.keeper)).map_err(|e| Finding::blocked(words(&e)))?;
    match pid {
        Some(pid) if is_keeper(&line) => Ok(pid),
        _ => Err(Finding::blocked("another process has this number")),
    }
}

fn is_keeper(line: &[u8]) -> bool {
    let mut parts = line.split(|byte| *byte == 0).skip(1);
    parts.next() == Some(b"probe") && parts.next() == Some(b"hold")
}

fn pids() -> impl Iterator<Item = u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok())
}

pub(crate) fn see(_: &Facts) -> Finding {
    let seen = pids().find(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_keeper(&line)));
    match seen {
        Some(pid) => Finding::open(format!("process {pid} of the host can be seen")),
        None => Finding::blocked("no process of the host is in /proc"),
    }
}

pub(crate) fn signal(facts: &Facts) -> Finding {
    let pid = match keeper(facts) {
        Ok(pid) => pid,
        Err(blocked) => return blocked,
    };
    let by_handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .and_then(|fd| rustix::process::pidfd_send_signal(fd, rustix::process::Signal::CONT));
    Finding::any([
        Finding::of("a process of the host can be signalled", rustix::process::test_kill_process(pid)),
        Finding::of("a process of the host can be signalled by a handle", by_handle),
    ])
}

/// Another process's root is a door to its file system.
pub(crate) fn root_of_others(facts: &Facts) -> Finding {
    let secret = facts.outside.strip_prefix("/").unwrap_or(&facts.outside).join("secret");
    let ways = pids().take(4096).filter(|pid| *pid != std::process::id()).map(|pid| {
        match fs::read(std::path::Path::new(&format!("/proc/{pid}/root")).join(&secret)) {
            Ok(bytes) if facts.finds(&bytes) => Finding::open(format!("by the root of process {pid}")),
            Ok(_) => Finding::blocked("not the host's"),
            Err(error) => Finding::blocked(words(&error)),
        }
    });
    Finding::any(ways)
}

pub(crate) fn environment(facts: &Facts) -> Finding {
    let ways = pids().map(|pid| match fs::read(format!("/proc/{pid}/environ")) {
        Ok(bytes) if facts.finds(&bytes) => Finding::open(format!("in the environment of process {pid}")),
        Ok(_) => Finding::blocked("not in any environment that can be read"),
        Err(error) => Finding::blocked(words(&error)),
    });
    Finding::any(ways)
}

/// Two ways to the same place: the call and the file. Of its own, an attempt has the word only backwards.
pub(crate) fn memory(facts: &Facts) -> Finding {
    if let Err(blocked) = keeper(facts) {
        return blocked;
    }
    let mut bytes = vec![0; facts.backwards.len()];
    let file = File::open(format!("/proc/{}/mem", facts.keeper));
    let by_file = file.and_then(|file| file.read_exact_at(&mut bytes, facts.keeper_address));
    if by_file.is_ok() && facts.finds(&bytes) {
        return Finding::open("a secret was read from the memory of a process, by its file");
    }
    match probe::read_memory(facts.keeper, facts.keeper_address, &mut bytes) {
        Ok(_) if facts.finds(&bytes) => Finding::open("a secret was read from the memory of a process"),
        Ok(_) => Finding::blocked("not the secret"),
        Err(errno) => Finding::blocked(words(&errno.into())),
    }
}

/// The first process inside is ours, and knows what the inside should not.
pub(crate) fn guest_memory(facts: &Facts) -> Finding {
    let inside = std::path::Path::new("/.cofferdam").exists();
    let pid = if inside { 1 } else { facts.keeper };
    Finding::any(["mem", "environ", "fd", "maps"].map(|name| {
        let path = format!("/proc/{pid}/{name}");
        let opened = match name {
            "fd" => fs::read_dir(&path).map(drop),
            _ => File::open(&path).map(drop),
        };
        Finding::of(&format!("{path} can be opened"), opened)
    }))
}

struct Helper(Child);

impl Helper {
    fn start() -> Result<Self, Finding> {
        let mut command = Command::new("sleep");
        command.arg("20").stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map(Self).map_err(|error| Finding::blocked(words(&error)))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

pub(crate) fn ptrace(_: &Facts) -> Finding {
    match Helper::start() {
        Ok(child) => Finding::of("a process can be traced", probe::seize(child.0.id())),
        Err(blocked) => blocked,
    }
}

pub(crate) fn read_own_memory(_: &Facts) -> Finding {
    let (there, mut here) = ([7_u8; 8], [0_u8; 8]);
    Finding::of(
        "memory can be read by process",
        probe::read_memory(std::process::id(), there.as_ptr() as u64, &mut here),
    )
}

pub(crate) fn take_descriptor(_: &Facts) -> Finding {
    Finding::of("a descriptor of a process can be taken", probe::take_descriptor())
}

/// Shared memory of a process of the host's, by its number.
pub(crate) fn shared_memory(facts: &Facts) -> Finding {
    let found = probe::finds_segment(segment_key(facts.keeper));
    Finding::of("shared memory of the host was found", found)
}

pub(crate) fn capabilities(_: &Facts) -> Finding {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let sets = status.lines().filter_map(|line| line.strip_prefix("Cap")?.split_once(":\t"));
    let held = sets.filter(|(_, bits)| u64::from_str_radix(bits, 16) != Ok(0));
    let names: Vec<&str> =
        held.map(|(name, _)| name).filter(|name| *name != "Amb" && *name != "Inh").collect();
    match names.is_empty() {
        true => Finding::blocked("no capability is held or can be had"),
        false => Finding::open(format!("capabilities in {}", names.join(", "))),
    }
}

/// Whether a set-user-id program would make us someone else.
pub(crate) fn new_privileges(_: &Facts) -> Finding {
    match rustix::thread::no_new_privs() {
        Ok(true) => Finding::blocked("programs give no new privileges"),
        Ok(false) => Finding::open("a set-user-id program would give its owner's power"),
        Err(errno) => Finding::blocked(words(&errno.into())),
    }
}
