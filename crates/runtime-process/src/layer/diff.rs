//! Reads the layer against the work dir: what was created, modified, deleted.

use super::{Layer, OPEN_DIR, io, names};
use cofferdam_model::{ChangeOp, Digest, FileChange, FileKind, RawPath};
use cofferdam_runtime::RuntimeError;
use cofferdam_seal::Hasher;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Deeper trees exist only to exhaust whoever walks them.
const DEPTH: usize = 400;

pub(crate) fn diff(layer: &Layer) -> Result<Vec<FileChange>, RuntimeError> {
    let mut walk = Walk { layer, found: Vec::new() };
    let lower = layer.workdir.try_clone().map_err(RuntimeError::io("read the work dir"))?;
    walk.dir(layer.upper.as_fd(), Some(lower.as_fd()), Path::new(""), Below { depth: 0, opaque: false })?;
    Ok(walk.found)
}

/// How deep the walk is, and whether some directory above replaced the one that was there.
#[derive(Clone, Copy)]
struct Below {
    depth: usize,
    opaque: bool,
}

struct Walk<'a> {
    layer: &'a Layer,
    found: Vec<FileChange>,
}

/// One name in both layers.
struct Pair<'a> {
    name: &'a CStr,
    path: PathBuf,
    upper: Stat,
    below: Option<Stat>,
}

impl Walk<'_> {
    fn dir(
        &mut self,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        at: &Path,
        below: Below,
    ) -> Result<(), RuntimeError> {
        if below.depth > DEPTH {
            let fix = "discard the changes, or keep them with a shallower tree".into();
            return Err(RuntimeError::Refused {
                what: format!("the work dir has more than {DEPTH} levels"),
                fix,
            });
        }
        for name in names(upper).map_err(io(format!("read the layer at /{}", at.display())))? {
            let path = at.join(OsStr::from_bytes(name.to_bytes()));
            let stat =
                |dir: BorrowedFd<'_>| rustix::fs::statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
            let seen = stat(upper).map_err(io(format!("look at {}", path.display())))?;
            let pair = Pair { name: &name, path, upper: seen, below: lower.and_then(|dir| stat(dir).ok()) };
            self.entry(upper, lower, pair, below)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        pair: Pair<'_>,
        at: Below,
    ) -> Result<(), RuntimeError> {
        if is_whiteout(&pair.upper) {
            if let Some(below) = pair.below.filter(|_| !self.layer.planted.contains(&pair.path)) {
                self.deleted(&pair.path, &below);
            }
            return Ok(());
        }
        match kind(&pair.upper) {
            FileKind::Dir => self.directory(upper, lower, pair, at),
            FileKind::File => self.file(upper, lower, pair),
            _ => {
                self.push(&pair, None);
                Ok(())
            }
        }
    }

    fn directory(
        &mut self,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        pair: Pair<'_>,
        at: Below,
    ) -> Result<(), RuntimeError> {
        let merged = pair.below.as_ref().is_some_and(|b| kind(b) == FileKind::Dir);
        if !merged || pair.below.as_ref().is_some_and(|b| mode(b) != mode(&pair.upper)) {
            self.push(&pair, None);
        }
        let inner = match open_own(upper, pair.name, OPEN_DIR, Mode::RWXU) {
            Ok(inner) => inner,
            // Another inside user's private directory (range mode): it is told, without its content.
            Err(Errno::ACCESS | Errno::PERM) => return Ok(()),
            Err(errno) => return Err(io(format!("read the layer at {}", pair.path.display()))(errno)),
        };
        let below = match (lower, merged) {
            (Some(dir), true) => rustix::fs::openat(dir, pair.name, OPEN_DIR, Mode::empty()).ok(),
            _ => None,
        };
        // What lies in a directory that replaced another carries no mark of its own.
        let opaque = at.opaque || is_opaque(&inner, self.layer.by_root);
        if let Some(below) = below.as_ref().filter(|_| opaque) {
            self.hidden_by_opaque(&inner, below, &pair.path)?;
        }
        let at = Below { depth: at.depth + 1, opaque };
        self.dir(inner.as_fd(), below.as_ref().map(AsFd::as_fd), &pair.path, at)
    }

    /// An opaque directory replaced the one below: what it does not hold itself is gone.
    fn hidden_by_opaque(&mut self, upper: &OwnedFd, lower: &OwnedFd, at: &Path) -> Result<(), RuntimeError> {
        for name in names(lower.as_fd()).map_err(io(format!("read {}", at.display())))? {
            let stat = |dir: &OwnedFd| rustix::fs::statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
            if let (Err(Errno::NOENT), Ok(below)) = (stat(upper), stat(lower)) {
                self.deleted(&at.join(OsStr::from_bytes(name.to_bytes())), &below);
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        pair: Pair<'_>,
    ) -> Result<(), RuntimeError> {
        let digest = match open_own(upper, pair.name, READ_FILE, Mode::RUSR | Mode::WUSR).and_then(digest) {
            Ok(digest) => Some(digest),
            // Another inside user's private file (range mode): the change is still told, without its content.
            Err(Errno::ACCESS | Errno::PERM) => None,
            Err(errno) => return Err(io(format!("read {}", pair.path.display()))(errno)),
        };
        let same_shape = |b: &Stat| {
            kind(b) == FileKind::File && b.st_size == pair.upper.st_size && mode(b) == mode(&pair.upper)
        };
        let unchanged = pair.below.as_ref().is_some_and(same_shape)
            && digest.is_some()
            && lower.and_then(|dir| {
                rustix::fs::openat(dir, pair.name, READ_FILE, Mode::empty()).and_then(self::digest).ok()
            }) == digest;
        if !unchanged {
            self.push(&pair, digest);
        }
        Ok(())
    }

    fn push(&mut self, pair: &Pair<'_>, digest: Option<Digest>) {
        let same_kind = pair.below.as_ref().is_some_and(|b| kind(b) == kind(&pair.upper));
        self.found.push(FileChange {
            op: if same_kind { ChangeOp::Modified } else { ChangeOp::Created },
            kind: kind(&pair.upper),
            path: RawPath::from(pair.path.as_path()),
            mode: Some(mode(&pair.upper)),
            size: (kind(&pair.upper) == FileKind::File).then_some(pair.upper.st_size as u64),
            digest,
        });
    }

    fn deleted(&mut self, path: &Path, below: &Stat) {
        let path = RawPath::from(path);
        self.found.push(FileChange {
            op: ChangeOp::Deleted,
            kind: kind(below),
            path,
            mode: None,
            size: None,
            digest: None,
        });
    }
}

fn is_whiteout(stat: &Stat) -> bool {
    kind(stat) == FileKind::Device && stat.st_rdev == 0
}

/// The overlay's own mark. The other kind's name is an ordinary attribute, which the inside may set.
fn is_opaque(dir: &OwnedFd, by_root: bool) -> bool {
    let mut value = [0u8; 1];
    let name = if by_root { "trusted.overlay.opaque" } else { "user.overlay.opaque" };
    rustix::fs::fgetxattr(dir, name, &mut value[..]) == Ok(1) && value[0] == b'y'
}

/// Opens something of the layer that its owner may have closed to itself, by giving us permission first. The
/// layer is ours, and what the change says of its mode was noted before.
fn open_own(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(dir, name, mode, AtFlags::empty())?;
            rustix::fs::openat(dir, name, flags, Mode::empty())
        }
        other => other,
    }
}

fn mode(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

pub(super) fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::Device,
    }
}

const READ_FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

fn digest(file: OwnedFd) -> Result<Digest, Errno> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0u8; 128 << 10];
    loop {
        match rustix::io::read(&file, &mut buffer)? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&buffer[..n]),
        }
    }
}
