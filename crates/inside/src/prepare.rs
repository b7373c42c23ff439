//! What there is in the machine before anyone asks for anything: a root that can be added to, control groups, ports.

use crate::serve::{DISKS, PROGRAMS, SESSION};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_move, unmount};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const NEW: &str = "/run/root";
/// What the first process has mounted for us, and what is made anew.
const MOVED: [&str; 3] = ["dev", "proc", "sys"];
const OWN: [&str; 2] = ["run", "tmp"];
/// Where sessions have their work dirs and programs.
const OPEN: [&str; 5] = ["home", "root", "mnt", "srv", "var"];

/// Until the last who had a disk has let it go.
const GONE: Duration = Duration::from_secs(10);
/// Of the memory that is free, what is left alone, and the most that is not: what was used lately is given out first.
const SPARED: usize = 64 << 20;
const BLANKED: usize = 256 << 20;
const CHUNK: usize = 32 << 20;
const PAGE: usize = 4096;

/// The system's image cannot be added to, so the root is a directory in memory on which it is shown.
pub(crate) fn root() -> io::Result<()> {
    let new = Path::new(NEW);
    fs::create_dir(new)?;
    mount("tmpfs", new, "tmpfs", MountFlags::empty(), Some(c"mode=755"))?;
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let name = entry.file_name();
        let (from, to) = (entry.path(), new.join(&name));
        if entry.file_type()?.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        fs::create_dir(&to)?;
        let is = |names: &[&str]| names.iter().any(|known| name == **known);
        if is(&OWN) {
            mount("tmpfs", &to, "tmpfs", MountFlags::empty(), Some(c"mode=755"))?;
        } else if is(&MOVED) {
            mount_move(&from, &to)?;
        } else if is(&OPEN) {
            open(&from, &to, 1)?;
        } else {
            mount_bind_recursive(&from, &to)?;
        }
    }
    std::env::set_current_dir(new)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")?;
    fs::create_dir_all("/dev/pts")?;
    fs::create_dir_all("/dev/shm")
}

/// A directory that can be added to: what the image has in it is shown one level further down.
fn open(from: &Path, to: &Path, levels: usize) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        fs::create_dir(&to)?;
        match levels {
            0 => mount_bind(entry.path(), &to)?,
            levels => open(&entry.path(), &to, levels - 1)?,
        }
    }
    Ok(())
}

/// All controllers that there are, for groups below.
pub(crate) fn groups() -> io::Result<()> {
    let root = Path::new("/sys/fs/cgroup");
    mount("cgroup2", root, "cgroup2", MountFlags::empty(), None)?;
    for controller in ["cpu", "memory", "pids"] {
        fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"))?;
    }
    Ok(())
}

/// A port of the machine, by the name that the VMM gave it.
pub(crate) fn port(name: &str) -> io::Result<File> {
    for entry in fs::read_dir("/sys/class/virtio-ports")? {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("name"))?.trim() == name {
            let path = Path::new("/dev").join(entry.file_name());
            return OpenOptions::new().read(true).write(true).open(path);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Where a disk is mounted.
pub(crate) fn place_of(disk: &str) -> PathBuf {
    Path::new("/run/disks").join(disk)
}

/// Mounts a disk.
pub(crate) fn put(disk: &str) -> io::Result<()> {
    Ok(mount(device(disk)?, place_of(disk), "erofs", MountFlags::RDONLY, None)?)
}

/// Shows directories and files of a disk where they are on the host.
pub(crate) fn show(disk: &str, paths: &[PathBuf]) -> io::Result<()> {
    let place = place_of(disk);
    for path in paths {
        let below = path.strip_prefix("/").unwrap_or(path);
        let from = place.join(below);
        if fs::symlink_metadata(&from)?.is_dir() {
            fs::create_dir_all(path)?;
        } else {
            path.parent().map(fs::create_dir_all).transpose()?;
            if fs::symlink_metadata(path).is_err() {
                File::create(path)?;
            }
        }
        mount_bind(&from, path)?;
    }
    Ok(())
}

/// Takes a disk away again, and waits until nothing of it is known any more: what is put on it next is read anew.
pub(crate) fn hide(disk: &str, paths: &[PathBuf]) -> io::Result<()> {
    for path in paths.iter().rev() {
        unmount(path, UnmountFlags::empty())?;
    }
    unmount(place_of(disk), UnmountFlags::empty())?;
    let (device, until) = (device(disk)?, Instant::now() + GONE);
    let alone = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    loop {
        match rustix::fs::open(&device, alone, Mode::empty()) {
            Ok(_) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Where disks are, which is looked for once.
static DEVICES: OnceLock<Vec<(&'static str, PathBuf)>> = OnceLock::new();

/// The device of a disk, by the name that the VMM gave it, or by its place among them.
fn device(disk: &str) -> io::Result<PathBuf> {
    let known =
        DEVICES.get_or_init(|| DISKS.into_iter().filter_map(|name| Some((name, find(name)?))).collect());
    let found = known.iter().find(|(name, _)| *name == disk);
    found.map(|(_, device)| device.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn find(disk: &str) -> Option<PathBuf> {
    if crate::port::is_numbered() {
        let known = DISKS.into_iter().zip(["/dev/vda", "/dev/vdb", "/dev/vdc"]);
        return known.into_iter().find(|(name, _)| *name == disk).map(|(_, device)| device.into());
    }
    fs::read_dir("/sys/block").into_iter().flatten().flatten().find_map(|entry| {
        let serial = fs::read_to_string(entry.path().join("serial")).ok()?;
        (serial.trim() == disk).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// Where the disks will be mounted. What is found now need not be looked for by every copy.
pub(crate) fn places() -> io::Result<()> {
    for disk in [PROGRAMS, SESSION] {
        fs::create_dir_all(place_of(disk))?;
        device(disk)?;
    }
    Ok(())
}

/// What a kernel does now and then, whoever uses it: a copy would do it just when it is waited for.
const CALM: [(&str, &str); 2] = [("vm/stat_interval", "60"), ("vm/compaction_proactiveness", "0")];

/// Has it done less often.
pub(crate) fn calm() {
    for (name, value) in CALM {
        // A kernel that does not know of it does not do it.
        let _ = fs::write(Path::new("/proc/sys").join(name), value);
    }
}

/// Has the kernel know what is in a directory in which programs are looked for, on whichever disk it is.
pub(crate) fn look_into(dir: &Path) {
    let on_disk = place_of(PROGRAMS).join(dir.strip_prefix("/").unwrap_or(dir));
    for dir in [dir, &on_disk] {
        fs::read_dir(dir).into_iter().flatten().for_each(drop);
    }
}

/// Fills what memory is free with zeros, but for a rest, and gives it back.
pub(crate) fn blank() {
    let mut taken = Vec::new();
    while free() > SPARED + CHUNK && taken.len() * CHUNK < BLANKED {
        let mut chunk = vec![0u8; CHUNK];
        // The kernel gives a page, filled with zeros, to who writes to it.
        chunk.chunks_mut(PAGE).filter_map(<[u8]>::first_mut).for_each(|byte| *std::hint::black_box(byte) = 0);
        taken.push(chunk);
    }
}

fn free() -> usize {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = told.lines().find_map(|line| line.strip_prefix("MemFree:"));
    free.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or(0) << 10
}

/// A place for changes.
pub(crate) fn layers(at: &Path, bytes: u64) -> io::Result<()> {
    fs::create_dir_all(at)?;
    let options = CString::new(format!("mode=700,size={bytes}")).map_err(io::Error::other)?;
    Ok(mount("tmpfs", at, "tmpfs", MountFlags::empty(), Some(options.as_c_str()))?)
}

/// Makes it no larger than is allowed.
pub(crate) fn bound(at: &Path, bytes: u64) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(at, MountFlags::empty(), format!("size={bytes}"))?)
}

/// What tells this machine from others. It is written to in place, so that whoever has it shown sees the new one.
const MACHINE_ID: &str = "/run/machine-id";

/// Shows it where programs look, in the machine's own root, of which every inside shows a part; and opens it.
pub(crate) fn machine_id() -> io::Result<File> {
    fs::write(MACHINE_ID, "uninitialized\n")?;
    mount_bind(MACHINE_ID, "/etc/machine-id")?;
    OpenOptions::new().write(true).open(MACHINE_ID)
}
