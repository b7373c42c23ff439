//! What there is in the machine before anyone asks for anything: a root that can be added to, control groups, ports.

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_move, unmount};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const NEW: &str = "/run/root";
/// Where the session's disk is mounted.
pub(super) const SESSION: &str = "/run/session";
/// What the first process has mounted for us, and what is made anew.
const MOVED: [&str; 3] = ["dev", "proc", "sys"];
const OWN: [&str; 2] = ["run", "tmp"];
/// Where sessions have their work dirs and programs.
const OPEN: [&str; 5] = ["home", "root", "mnt", "srv", "var"];

/// The system's image cannot be added to, so the root is a directory in memory on which it is shown.
pub(super) fn root() -> io::Result<()> {
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
pub(super) fn groups() -> io::Result<()> {
    let root = Path::new("/sys/fs/cgroup");
    mount("cgroup2", root, "cgroup2", MountFlags::empty(), None)?;
    for controller in ["cpu", "memory", "pids"] {
        fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"))?;
    }
    Ok(())
}

/// A port of the machine, by the name that the VMM gave it.
pub(super) fn port(name: &str) -> io::Result<File> {
    for entry in fs::read_dir("/sys/class/virtio-ports")? {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("name"))?.trim() == name {
            let path = Path::new("/dev").join(entry.file_name());
            return OpenOptions::new().read(true).write(true).open(path);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Mounts the session's disk, and shows its directories and files where they are on the host.
pub(super) fn show(paths: &[PathBuf]) -> io::Result<()> {
    let session = Path::new(SESSION);
    fs::create_dir_all(session)?;
    let disk = session_disk()?;
    mount(&disk, session, "erofs", MountFlags::RDONLY, None)?;
    for path in paths {
        let below = path.strip_prefix("/").unwrap_or(path);
        let from = session.join(below);
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

/// The disk that the root is not on.
fn session_disk() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let used = |disk: &str| mounts.lines().any(|line| line.starts_with(&format!("{disk} ")));
    let disk = ["/dev/vda", "/dev/vdb"].into_iter().find(|disk| Path::new(disk).exists() && !used(disk));
    disk.map(PathBuf::from).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// A place for changes, no larger than is allowed.
pub(super) fn layers(at: &Path, bytes: u64) -> io::Result<()> {
    fs::create_dir_all(at)?;
    let options = std::ffi::CString::new(format!("mode=700,size={bytes}")).map_err(io::Error::other)?;
    mount("tmpfs", at, "tmpfs", MountFlags::empty(), Some(options.as_c_str()))?;
    Ok(())
}
