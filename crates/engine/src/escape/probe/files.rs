//! Attempts on files: the host's own, what was planted in a home, settings of the kernel.

use crate::escape::check::{Finding, words};
use crate::escape::facts::Facts;
use rustix::fs::{Access, Mode, OFlags};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Opens for writing and writes nothing. While a program runs nobody can open it so: then it is asked who may.
fn writes(path: impl AsRef<Path>) -> Finding {
    let path = path.as_ref();
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::TXTBSY) => rustix::fs::access(path, Access::WRITE_OK),
        other => other.map(drop),
    };
    Finding::of(&format!("{} can be written", path.display()), opened)
}

fn opens(path: impl AsRef<Path>) -> Finding {
    let path = path.as_ref();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    Finding::of(&format!("{} can be opened", path.display()), rustix::fs::open(path, flags, Mode::empty()))
}

/// Reads, and looks for the planted word.
fn holds(facts: &Facts, path: impl AsRef<Path>) -> Finding {
    let path = path.as_ref();
    match fs::read(path) {
        Ok(bytes) if facts.finds(&bytes) => Finding::open(format!("{} was read", path.display())),
        Ok(_) => Finding::blocked("not the host's"),
        Err(error) => Finding::blocked(words(&error)),
    }
}

/// The kernel's answer with at least one byte in it; masks are empty.
fn says(path: &str) -> Finding {
    let mut byte = [0];
    match File::open(path).and_then(|mut file| file.read(&mut byte)) {
        Ok(1) => Finding::open(format!("{path} was read")),
        Ok(_) => Finding::blocked("empty"),
        Err(error) => Finding::blocked(words(&error)),
    }
}

pub(crate) fn write_etc(_: &Facts) -> Finding {
    Finding::any(["/etc/passwd", "/etc/hosts", "/etc/ld.so.cache", "/usr/bin/env"].map(writes))
}

pub(crate) fn read_shadow(_: &Facts) -> Finding {
    Finding::any(["/etc/shadow", "/etc/gshadow"].map(says))
}

pub(crate) fn write_outside(facts: &Facts) -> Finding {
    writes(facts.outside.join("writable"))
}

pub(crate) fn read_outside(facts: &Facts) -> Finding {
    holds(facts, facts.outside.join("secret"))
}

/// A file that its mode lets everybody write, shown read-only.
pub(crate) fn write_shown(facts: &Facts) -> Finding {
    writes(&facts.shown)
}

/// Inside it is the sandbox's own, writable by its mode: only Landlock forbids it.
pub(crate) fn write_run(_: &Facts) -> Finding {
    Finding::any(["/run/cofferdam.probe", "/run"].map(|path| match Path::new(path).is_dir() {
        true => Finding::of("/run can be written", tempfile::Builder::new().tempfile_in(path)),
        false => writes(path),
    }))
}

pub(crate) fn disks(_: &Facts) -> Finding {
    let named =
        ["mem", "port", "kmsg", "kvm", "fuse", "loop-control", "loop0", "sda", "vda", "nvme0n1", "dm-0"];
    Finding::any(named.map(|name| opens(Path::new("/dev").join(name))))
}

pub(crate) fn make_device(_: &Facts) -> Finding {
    let dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/tmp"));
    let path = dir.join(format!("device-{}", std::process::id()));
    let kind = rustix::fs::FileType::CharacterDevice;
    // The null device: it would do no harm.
    let device = rustix::fs::makedev(1, 3);
    let made = rustix::fs::mknodat(rustix::fs::CWD, &path, kind, Mode::RUSR | Mode::WUSR, device);
    let opened = made.map_err(std::io::Error::from).and_then(|()| File::open(&path));
    let _ = fs::remove_file(&path);
    Finding::of("a device was made and opened", opened)
}

/// Handed to the kernel's own programs when one of ours crashes: only opened, never written.
pub(crate) fn core_pattern(_: &Facts) -> Finding {
    writes("/proc/sys/kernel/core_pattern")
}

pub(crate) fn kernel_settings(_: &Facts) -> Finding {
    let named = ["kernel/hostname", "kernel/modprobe", "kernel/randomize_va_space", "vm/overcommit_memory"];
    let named =
        named.into_iter().chain(["fs/suid_dumpable", "net/ipv4/ip_forward", "user/max_user_namespaces"]);
    Finding::any(named.map(|name| writes(Path::new("/proc/sys").join(name))))
}

pub(crate) fn sysrq(_: &Facts) -> Finding {
    writes("/proc/sysrq-trigger")
}

pub(crate) fn kcore(_: &Facts) -> Finding {
    Finding::any(["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug"].map(says))
}

pub(crate) fn sys_write(_: &Facts) -> Finding {
    let named =
        ["/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/ksm/run", "/sys/kernel/profiling"];
    let named = named.into_iter().chain(["/sys/kernel/mm/transparent_hugepage/enabled"]);
    Finding::any(named.map(writes))
}

/// The programs that the kernel starts when a group empties, and the limits of our own group.
pub(crate) fn cgroup_files(_: &Facts) -> Finding {
    let top = Path::new("/sys/fs/cgroup");
    let dirs = fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = dirs.chain([top.to_owned()]).flat_map(|dir| {
        ["release_agent", "cgroup.procs", "cgroup.subtree_control"].map(|name| writes(dir.join(name)))
    });
    Finding::any(all)
}

/// The first process inside is our own program; on the host it is one that was started for this.
pub(crate) fn overwrite_guest(facts: &Facts) -> Finding {
    let pid = if std::process::id() == 1 || Path::new("/.cofferdam").exists() { 1 } else { facts.keeper };
    Finding::any([writes(format!("/proc/{pid}/exe")), overwrite_by_link(pid)])
}

/// The way of the known attack: the link is opened first, then what it leads to, again and for writing.
fn overwrite_by_link(pid: u32) -> Finding {
    let held = rustix::fs::open(format!("/proc/{pid}/exe"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    match held {
        Ok(fd) => writes(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd))),
        Err(errno) => Finding::blocked(words(&errno.into())),
    }
}

pub(crate) fn overwrite_tool(_: &Facts) -> Finding {
    writes("/proc/self/exe")
}

/// A descriptor that was left open on a directory outside.
pub(crate) fn descriptors(facts: &Facts) -> Finding {
    let names = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().map(|entry| entry.path());
    let ways = names.map(|path| holds(facts, path.join("secret")));
    Finding::any(ways.chain([Finding::blocked("no descriptor leads outside")]))
}

/// Up from where we are, and by the directories that other processes have.
pub(crate) fn up_and_out(facts: &Facts) -> Finding {
    let tail = facts.outside.strip_prefix("/").unwrap_or(&facts.outside).join("secret");
    let starts = ["", "/proc/self/cwd/", "/proc/1/cwd/", "/proc/1/root/", "/proc/self/root/"];
    Finding::any(
        starts.map(|start| holds(facts, Path::new(&format!("{start}{}", "../".repeat(40))).join(&tail))),
    )
}

pub(crate) fn home(facts: &Facts) -> Finding {
    let named = [".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".netrc"];
    Finding::any(named.map(|name| holds(facts, facts.home.join(name))))
}

/// A directory of the home that is shown for the programs in it, with a key among them.
pub(crate) fn toolchain(facts: &Facts) -> Finding {
    holds(facts, facts.home.join(".cargo/credentials.toml"))
}

/// By its name, by another name for it, and after it was moved.
pub(crate) fn work_dir_secret(facts: &Facts) -> Finding {
    let linked =
        std::os::unix::fs::symlink(".env", "by-link").and_then(|()| fs::hard_link(".env", "by-name"));
    let moved = linked.and_then(|()| fs::rename("by-name", "moved"));
    let found =
        Finding::any([".env", "./././.env", "by-link", "by-name", "moved"].map(|name| holds(facts, name)));
    drop(moved);
    for name in ["by-link", "by-name", "moved"] {
        let _ = fs::remove_file(name);
    }
    found
}

/// The key that traces are signed with, the vault and what opens it.
pub(crate) fn state(facts: &Facts) -> Finding {
    let names = fs::read_dir(&facts.state).into_iter().flatten().flatten().map(|entry| entry.path());
    let listed: Vec<PathBuf> = names.collect();
    match listed.first() {
        Some(first) => Finding::open(format!("{} can be seen", first.display())),
        None => Finding::of("the state directory can be seen", fs::metadata(&facts.state)),
    }
}

/// A daemon's socket, and those of daemons that hosts usually have.
pub(crate) fn daemon_socket(facts: &Facts) -> Finding {
    let usual = [
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/crio/crio.sock",
        "/run/dbus/system_bus_socket",
    ];
    let reach = |path: &Path| match UnixStream::connect(path) {
        Ok(_) => Finding::open(format!("{} answers", path.display())),
        Err(error) => Finding::blocked(words(&error)),
    };
    Finding::any(usual.iter().map(Path::new).chain([facts.socket.as_path()]).map(reach))
}

/// The socket by which people answer for this session and change its policy.
pub(crate) fn control_socket(facts: &Facts) -> Finding {
    let live = facts.state.join("live");
    let names = fs::read_dir(&live).into_iter().flatten().flatten().map(|entry| entry.path());
    let found: Vec<Finding> = names
        .map(|path| {
            let reached = UnixStream::connect(&path)
                .and_then(|stream| stream.set_read_timeout(Some(Duration::from_secs(2))));
            Finding::of("the session's own socket answers", reached)
        })
        .collect();
    Finding::any(
        found.into_iter().chain([Finding::of("the sockets of sessions can be seen", fs::metadata(&live))]),
    )
}
