//! What there is in the machine before anyone asks for anything: a root that can be added to, control groups, ports.

use crate::serve::DISKS;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_move, unmount};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const NEW: &str = "/run/root";
/// What the first process has mounted for us, and what is made anew.
const MOVED: [&str; 3] = ["dev", "proc", "sys"];
const OWN: [&str; 2] = ["run", "tmp"];
/// Where sessions have their work dirs and programs.
const OPEN: [&str; 5] = ["home", "root", "mnt", "srv", "var"];

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

/// Mounts a disk, and shows its directories and files where they are on the host.
pub(crate) fn show(disk: &str, paths: &[PathBuf]) -> io::Result<()> {
    let place = place_of(disk);
    fs::create_dir_all(&place)?;
    mount(device(disk)?, &place, "erofs", MountFlags::RDONLY, None)?;
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

/// The device of a disk, by the name that the VMM gave it, or by its place among them.
fn device(disk: &str) -> io::Result<PathBuf> {
    if crate::port::is_numbered() {
        let known = DISKS.into_iter().zip(["/dev/vda", "/dev/vdb", "/dev/vdc"]);
        let device = known.into_iter().find(|(name, _)| *name == disk).map(|(_, device)| device.into());
        return device.ok_or_else(|| io::ErrorKind::NotFound.into());
    }
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("serial")).is_ok_and(|serial| serial.trim() == disk) {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// A place for changes.
pub(crate) fn layers(at: &Path) -> io::Result<()> {
    fs::create_dir_all(at)?;
    Ok(mount("tmpfs", at, "tmpfs", MountFlags::empty(), Some(c"mode=700"))?)
}

/// Makes it no larger than is allowed.
pub(crate) fn bound(at: &Path, bytes: u64) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(at, MountFlags::empty(), format!("size={bytes}"))?)
}

/// What tells this machine from others. It is written to in place, so that whoever has it shown sees the new one.
pub(crate) const MACHINE_ID: &str = "/run/machine-id";

/// Shows it where programs look, in the machine's own root, of which every inside shows a part.
pub(crate) fn machine_id() -> io::Result<()> {
    fs::write(MACHINE_ID, "uninitialized\n")?;
    Ok(mount_bind(MACHINE_ID, "/etc/machine-id")?)
}

/// Gives a name to the machine, and to every inside that has its own: a thread goes there to say it.
pub(crate) fn name_hosts(name: &str) {
    let _ = rustix::system::sethostname(name.as_bytes());
    let own = fs::read_link("/proc/self/ns/uts").ok();
    let mut met = vec![own];
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let link = entry.path().join("ns/uts");
        let Ok(space) = fs::read_link(&link) else { continue };
        if met.contains(&Some(space.clone())) {
            continue;
        }
        met.push(Some(space));
        let Ok(open) = File::open(&link) else { continue };
        let name = name.to_owned();
        let there = std::thread::spawn(move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::HostNameAndNISDomainName);
            if rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&open), kind).is_ok() {
                let _ = rustix::system::sethostname(name.as_bytes());
            }
        });
        let _ = there.join();
    }
}
