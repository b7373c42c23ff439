//! As the first process of a virtual machine: loads what the kernel lacks, finds the system's image, makes it the
//! root, and starts the program that makes the inside. That ends, and the machine with it.
//!
//! Nobody inside talks to this process, and it talks to nobody: what goes wrong is said on the console.

use alloc::ffi::CString;
use alloc::vec::Vec;
use cofferdam_sys::spawn::{Command, Place, spawn};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{Pid, WaitOptions, wait};
use rustix::system::{RebootCommand, finit_module, reboot};
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::Timespec;

/// Where the initial file system has the modules, and the order in which they are loaded.
const MODULES: &core::ffi::CStr = c"/modules";
const ROOT: &core::ffi::CStr = c"/root";
/// The program that goes on: in the initial file system, in the root that is made, and as it is found there.
const PROGRAM: &core::ffi::CStr = c"/program";
const COPY: &core::ffi::CStr = c"/root/run/program";
const PLACE: &core::ffi::CStr = c"/run/program";
/// Disks in the order in which the kernel may name them.
const DISKS: [&core::ffi::CStr; 3] = [c"/dev/vda", c"/dev/vdb", c"/dev/vdc"];
/// Waits for the disk of a millisecond each.
const PATIENCE: u32 = 10_000;

/// Nobody gave us a channel, and there is nobody before us.
pub(crate) fn is_due() -> bool {
    rustix::process::getpid().is_init() && cofferdam_sys::descriptor::is_free(cofferdam_guest::CHANNEL)
}

pub(crate) fn run() -> i32 {
    match begin() {
        Ok(program) => attend(program),
        Err((doing, errno)) => say(doing, errno),
    }
    // What was said last is on its way still.
    let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 300_000_000 });
    // With nowhere to restart to, this ends the machine.
    let _ = reboot(RebootCommand::Restart);
    cofferdam_guest::exit::SYSTEM
}

type Doing = (&'static str, Errno);

fn at(doing: &'static str) -> impl Fn(Errno) -> Doing {
    move |errno| (doing, errno)
}

fn begin() -> Result<Pid, Doing> {
    put(c"devtmpfs", c"/dev")?;
    load_modules()?;
    mount_image()?;
    for (kind, place) in [
        (c"devtmpfs", c"/root/dev"),
        (c"proc", c"/root/proc"),
        (c"sysfs", c"/root/sys"),
        (c"tmpfs", c"/root/run"),
        (c"tmpfs", c"/root/tmp"),
    ] {
        put(kind, place)?;
    }
    copy_program().map_err(at("copy the program that makes the inside"))?;
    let moved = rustix::process::chdir(ROOT)
        .and_then(|()| mount_move(c".", c"/"))
        .and_then(|()| rustix::process::chroot(c"."))
        .and_then(|()| rustix::process::chdir(c"/"));
    moved.map_err(at("make the image the root"))?;
    start()
}

fn copy_program() -> Result<(), Errno> {
    let bytes = read(PROGRAM, CWD)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let to = rustix::fs::openat(CWD, COPY, flags, Mode::RWXU)?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let count = rustix::io::write(&to, rest)?;
        rest = rest.get(count..).unwrap_or_default();
    }
    // Nobody can reach it any more once the image is the root, and it would stay in memory.
    rustix::fs::unlink(PROGRAM)
}

fn put(kind: &core::ffi::CStr, place: &core::ffi::CStr) -> Result<(), Doing> {
    mount(kind, place, kind, MountFlags::empty(), None).map_err(at("mount the kernel's own file systems"))
}

fn read(path: &core::ffi::CStr, dir: impl AsFd) -> Result<Vec<u8>, Errno> {
    let file = open(path, dir)?;
    let mut bytes = Vec::new();
    let mut part = [0u8; 4096];
    loop {
        match rustix::io::read(&file, &mut part)? {
            0 => return Ok(bytes),
            n => bytes.extend_from_slice(part.get(..n).unwrap_or_default()),
        }
    }
}

fn open(path: &core::ffi::CStr, dir: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn load_modules() -> Result<(), Doing> {
    let failed = at("load the kernel's modules");
    let dir = open(MODULES, CWD).map_err(&failed)?;
    let order = read(c"order", &dir).map_err(&failed)?;
    for name in order.split(|byte| *byte == b'\n').filter(|name| !name.is_empty()) {
        let name = CString::new(name).map_err(|_| failed(Errno::INVAL))?;
        let module = open(&name, &dir).map_err(&failed)?;
        match finit_module(&module, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let _ = rustix::fs::unlinkat(&dir, &name, AtFlags::empty());
    }
    Ok(())
}

/// Of the disks it is the one that has a file system by now.
fn mount_image() -> Result<(), Doing> {
    let mut last = Errno::NODEV;
    for _ in 0..PATIENCE {
        for disk in DISKS {
            match mount(disk, ROOT, c"erofs", MountFlags::RDONLY, None) {
                Ok(()) => return Ok(()),
                Err(errno) => last = errno,
            }
        }
        let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        if let NanosleepRelativeResult::Err(errno) = nanosleep(&pause) {
            last = errno;
        }
    }
    Err(("mount the system's image", last))
}

fn start() -> Result<Pid, Doing> {
    let failed = at("start the program that makes the inside");
    let argv = Vec::from([CString::from(PLACE)]);
    let env = Vec::from([CString::from(c"PATH=/usr/sbin:/usr/bin:/sbin:/bin")]);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let console = rustix::fs::openat(CWD, c"/dev/console", flags, Mode::empty()).map_err(&failed)?;
    let null = rustix::fs::openat(CWD, c"/dev/null", flags, Mode::empty()).map_err(&failed)?;
    let command = Command {
        argv,
        env,
        cwd: CString::from(c"/"),
        stdio: [null.as_fd(), console.as_fd(), console.as_fd()],
        place: Place::Apart,
        user: None,
    };
    spawn(command).map_err(|failure| failed(failure.errno))
}

/// Buries whoever is left to us, until the program itself has ended.
fn attend(program: Pid) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if pid == program => return,
            Err(Errno::CHILD) => return,
            _ => {}
        }
    }
}

fn say(doing: &str, errno: Errno) {
    let Ok(console) = rustix::fs::openat(CWD, c"/dev/console", OFlags::WRONLY, Mode::empty()) else { return };
    // Put together by hand: the usual way needs what a program without a C runtime has not.
    let number = errno.raw_os_error().unsigned_abs();
    let digits = [number / 100 % 10, number / 10 % 10, number % 10].map(|digit| b'0' + digit as u8);
    for part in [b"cofferdam: cannot ".as_slice(), doing.as_bytes(), b": error ", &digits, b"\n"] {
        let _ = rustix::io::write(&console, part);
    }
}
