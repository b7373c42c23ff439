//! The file system that holds all that a session may write where this is to lie on disk and within a limit: an ext4 of
//! its own in a file of the session's directory, mounted in the sandbox's mount namespace and nowhere else.
//!
//! It goes with whoever holds it: the mount with the namespace, the loop device with the mount, both by the kernel's own
//! doing. The file goes with the session's directory. The file is locked as long as it is mounted anywhere, so that no
//! two ever are.
//!
//! It has no journal and waits for no disk: what is to last is copied out of it. What is left of one whose machine
//! stopped under it is checked before it is mounted again.

use crate::layer::{self, archive, open_dir};
use crate::users::{Users, Way};
use cofferdam_model::{Bytes, Provenance};
use cofferdam_runtime::RuntimeError;
use cofferdam_sys::blockfile::{self, Stage};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// In the session's directory.
const FILE: &str = "layer.ext4";
/// The same, when its files could not be had.
const DAMAGED: &str = "layer.damaged";
const BLOCK: u64 = 4096;
/// Of an inode, with what the overlay notes of a file.
const INODE: u64 = 256;
/// Blocks that ext4 counts together.
const GROUP: u64 = 32_768;
/// What ext4 keeps for itself when all else is full: a share of it, and no more blocks than these.
const KEPT: (u64, u64) = (50, 4_096);
/// Without a limit on bytes: as large as what it lies on has room, and never more.
const LARGEST: u64 = 256 << 30;
/// How long the last of a session that was killed may take to end.
const ENDING: Duration = Duration::from_secs(3);
/// What does nothing by itself, and is known to every ext4.
const FEATURES: &str = "none,extent,dir_index,filetype,sparse_super,large_file,huge_file,dir_nlink,extra_isize,flex_bg,metadata_csum,64bit";

const INSTEAD: &str = "leave `--layer disk` out: the limit then holds for changes in memory";

fn refused(what: impl Into<String>, fix: impl Into<String>) -> RuntimeError {
    RuntimeError::Refused { what: what.into(), fix: fix.into() }
}

/// Programs of the system's own, wherever a search path leads.
fn tool(name: &str) -> Option<PathBuf> {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"];
    places.iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file())
}

fn needed(name: &str) -> Result<PathBuf, RuntimeError> {
    tool(name).ok_or_else(|| {
        let what = format!("a limit on a layer on disk needs `{name}`, which is not here");
        refused(what, format!("install it (`apt-get install e2fsprogs`), or {INSTEAD}"))
    })
}

/// What can be said before anything is made.
pub(crate) fn check(users: &Users) -> Result<(), RuntimeError> {
    if users.way != Way::Root {
        let what = "`--disk` and `--inodes` hold for a layer on disk only where a loop device can be mounted, which takes root";
        return Err(refused(what, format!("{INSTEAD}; or run as root")));
    }
    needed("mkfs.ext4").map(drop)
}

/// How large it is to be: as was asked for, if there is room for that, and else as there is room.
pub(crate) fn room(dir: &Path, asked: Option<Bytes>) -> Result<u64, RuntimeError> {
    let near = dir.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let now = rustix::fs::statvfs(near)
        .map_err(|errno| RuntimeError::io(format!("look at {}", near.display()))(errno.into()))?;
    let left = now.f_bavail.saturating_mul(now.f_frsize);
    match asked {
        Some(asked) if asked.0 > left => {
            let left = Bytes(left);
            let what = format!("{left} are free where changes would be held, and `--disk` is {asked}");
            Err(refused(what, "make room, ask for less, or name another state directory with `--home`"))
        }
        Some(asked) => Ok(asked.0),
        None => Ok(left.min(LARGEST) / BLOCK * BLOCK),
    }
}

/// What a file system takes that has so many bytes and inodes to give: a little more than it needs, which nothing is
/// written to.
fn size(bytes: u64, inodes: u64) -> u64 {
    let (share, most) = KEPT;
    let content = bytes.div_ceil(BLOCK) + inodes.div_ceil(BLOCK / INODE);
    // Its maps, the end of its table of inodes, and in few groups copies of what describes all of them.
    let groups = content / GROUP + 2;
    let described = groups.div_ceil(BLOCK / 64) + 1;
    let own = groups * 4 + groups.min(64) * described + 1_024;
    let blocks = content + own;
    (blocks + (blocks / (share - 1)).min(most + 1)) * BLOCK
}

/// Makes one in `dir`, a directory of the session's own that is made for it, and mounts it nowhere.
pub(crate) fn make(dir: &Path, bytes: u64, inodes: u64) -> Result<OwnedFd, RuntimeError> {
    rustix::fs::mkdir(dir, Mode::RWXU)
        .map_err(|errno| RuntimeError::io(format!("make {}", dir.display()))(errno.into()))?;
    make_in(dir, bytes, inodes).inspect_err(|_| {
        let _ = layer::remove_tree(dir);
    })
}

fn make_in(dir: &Path, bytes: u64, inodes: u64) -> Result<OwnedFd, RuntimeError> {
    let making = || format!("make a file system of {} in {}", Bytes(bytes), dir.display());
    let failed = |errno: Errno| RuntimeError::io(making())(errno.into());
    let path = dir.join(FILE);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    lock(&file).map_err(failed)?;
    rustix::fs::ftruncate(&file, size(bytes, inodes)).map_err(failed)?;
    run(
        Command::new(needed("mkfs.ext4")?)
            .args(["-q", "-F", "-b", "4096", "-I", "256", "-m", "0", "-O", FEATURES])
            .args(["-E", "lazy_itable_init=0,root_owner=0:0", "-N", &inodes.to_string()])
            .arg(&path),
        0,
    )
    .map_err(|what| RuntimeError::Io { doing: making(), source: std::io::Error::other(what) })?;
    mount(&file)
}

fn lock(file: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Runs it with nothing of ours, and says what it said if it ends with more than this.
fn run(command: &mut Command, most: i32) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .env_clear()
        // Whatever the host would have made otherwise.
        .env("MKE2FS_CONFIG", "/dev/null")
        .env("E2FSCK_CONFIG", "/dev/null")
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if done.status.code().is_some_and(|code| code <= most) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let line = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
    Err(format!("{name}: {}", line.chars().take(200).collect::<String>()))
}

fn mount(file: &OwnedFd) -> Result<OwnedFd, RuntimeError> {
    blockfile::mount(file.as_fd()).map_err(|(stage, errno)| {
        let fix = match (stage, errno) {
            (_, Errno::PERM | Errno::ACCESS) => {
                format!(
                    "it takes a root that may mount devices (in a container: `--privileged`), or {INSTEAD}"
                )
            }
            (Stage::Control | Stage::Device, _) => {
                format!("load the module with `modprobe loop` (in a container: `--privileged`), or {INSTEAD}")
            }
            (Stage::Kind, _) => format!("load the module with `modprobe ext4`, or {INSTEAD}"),
            (Stage::Attach, Errno::BUSY) => format!("all loop devices are in use: end some, or {INSTEAD}"),
            _ => INSTEAD.to_owned(),
        };
        refused(format!("a limit on a layer on disk cannot be had: {stage}: {errno}"), fix)
    })
}

/// Whether one can be made here, by making one.
pub(crate) fn probe(dir: &Path) -> Result<(), RuntimeError> {
    needed("mkfs.ext4")?;
    let dir = dir.join("backing");
    let made = make(&dir, 1 << 20, 64).map(drop);
    let _ = layer::remove_tree(&dir);
    made
}

/// What becomes of a layer that lies in such a file, when its session is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Salvaged {
    /// There is no such file, or nothing in it.
    Nothing,
    /// Its files are where they were wanted.
    Files,
    /// It is still in use, or something is missing here: another start may find it otherwise.
    Later,
    /// They cannot be had. The file is kept under another name.
    Damaged,
}

/// Whether a session's directory has a layer in it that lies in a file.
pub fn is_in_file(dir: &Path) -> bool {
    dir.join(FILE).is_file()
}

/// The file of a layer that could not be read, for who wants to try by other means.
pub fn damaged(dir: &Path) -> Option<PathBuf> {
    Some(dir.join(DAMAGED)).filter(|path| path.is_file())
}

/// Copies the session's own layer to the new directory `to`, out of the file in its directory.
pub fn salvage(dir: &Path, to: &Path, since: Provenance) -> Salvaged {
    let path = dir.join(FILE);
    if damaged(dir).is_some() {
        return Salvaged::Damaged;
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(file) = rustix::fs::open(&path, flags, Mode::empty()) else { return Salvaged::Nothing };
    let Some(check) = tool("e2fsck").filter(|_| free(&file)) else { return Salvaged::Later };
    // What was made of the file and not used yet has nothing in it.
    if run(Command::new(check).args(["-f", "-y"]).arg(&path), 1).is_err() {
        return give_up(dir);
    }
    let Ok(mounted) = mount(&file) else { return Salvaged::Later };
    match copy(&mounted, to, since) {
        Ok(true) => Salvaged::Files,
        Ok(false) => Salvaged::Nothing,
        // There may be no room for them now.
        Err(_) => Salvaged::Later,
    }
}

fn give_up(dir: &Path) -> Salvaged {
    match fs::rename(dir.join(FILE), dir.join(DAMAGED)) {
        Ok(()) => Salvaged::Damaged,
        Err(_) => Salvaged::Later,
    }
}

/// Waits until nobody has it mounted any more, which those who did end by themselves.
fn free(file: &OwnedFd) -> bool {
    let until = Instant::now() + ENDING;
    loop {
        match lock(file) {
            Ok(()) => return true,
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => return false,
        }
    }
}

/// Whether there was anything. It is there whole, or not at all.
fn copy(mounted: &OwnedFd, to: &Path, since: Provenance) -> Result<bool, RuntimeError> {
    let failed = |errno: Errno| RuntimeError::io(format!("copy the layer to {}", to.display()))(errno.into());
    let layers = PathBuf::from(format!("/proc/self/fd/{}/layer", mounted.as_raw_fd()));
    let upper = layers.join("upper");
    let Ok(open) = open_dir(&upper) else { return Ok(false) };
    // A merge that was under way is not guessed at.
    let merging = |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".merging");
    let under_way = fs::read_dir(&layers).is_ok_and(|mut entries| entries.any(|one| one.is_ok_and(merging)));
    if under_way || layer::names(open.as_fd()).map_err(failed)?.is_empty() {
        return Ok(false);
    }
    let making = to.with_file_name("making");
    for path in [&making, to] {
        layer::remove_tree(path).map_err(failed)?;
    }
    archive::duplicate(&upper, &making, true, since)?;
    rustix::fs::rename(&making, to).map_err(failed)?;
    Ok(true)
}

/// What was written reached the file: a disk that was full under it is told here, and nobody takes the rest for whole.
pub(crate) fn settle(upper: &OwnedFd) -> Result<(), RuntimeError> {
    rustix::fs::syncfs(upper).map_err(|errno| {
        let what =
            format!("what the session wrote did not all reach the disk ({errno}): its changes are not whole");
        refused(what, "make room where the state directory lies, and do the work again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for is there before anything is taken away, whatever the size.
    #[test]
    fn a_file_is_large_enough_for_what_it_is_to_hold() {
        for bytes in [1, 1 << 20, 8 << 20, 1 << 30, 100 << 30] {
            for inodes in [64, 10_000, 4_000_000] {
                let blocks = size(bytes, inodes) / BLOCK;
                let taken = inodes.div_ceil(16) + blocks / GROUP * 3 + (blocks / KEPT.0).min(KEPT.1) + 256;
                assert!(blocks >= bytes.div_ceil(BLOCK) + taken, "{bytes} {inodes}");
            }
        }
    }
}
