//! Disks as files, for a VMM that takes nothing else: what is on a disk is written out whole, with every file that it
//! lists, as large as every disk claims to be and with holes where nothing is. What many machines have (the system, the
//! programs of a home) is written once and linked; a session's own is written for it, and goes with it.

use crate::nbd::{Disk, SIZE};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// So many are kept; the oldest go, and machines that have them keep them.
const KEPT: usize = 6;

/// Puts what is on the disk at this path, where something may be already: who has that open keeps it.
pub(crate) fn place(disk: &Disk, at: &Path, kept: Option<&Path>) -> io::Result<()> {
    let making = at.with_extension("making");
    let _ = fs::remove_file(&making);
    match (kept, disk.digest()?) {
        (Some(kept), Some(digest)) => {
            let whole = kept.join(digest);
            if !whole.is_file() {
                fs::create_dir_all(kept)?;
                fs::set_permissions(kept, fs::Permissions::from_mode(0o700))?;
                let own = whole.with_extension(std::process::id().to_string());
                let written = write(disk, &own).and_then(|()| fs::rename(&own, &whole));
                if written.is_err() {
                    let _ = fs::remove_file(&own);
                }
                written?;
                tidy(kept, &whole);
            }
            fs::hard_link(&whole, &making)?;
        }
        _ => write(disk, &making)?,
    }
    fs::rename(&making, at)
}

/// A VMM opens it as another user, where nobody else comes to.
fn write(disk: &Disk, at: &Path) -> io::Result<()> {
    let _ = fs::remove_file(at);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(at)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.set_len(SIZE)?;
    disk.write(&file)
}

fn tidy(dir: &Path, own: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<(i64, PathBuf)> = entries
        .filter(|entry| entry.path() != own)
        .filter_map(|entry| Some((entry.metadata().ok()?.mtime(), entry.path())))
        .collect();
    found.sort();
    let over = found.len().saturating_sub(KEPT - 1);
    found.into_iter().take(over).for_each(|(_, path)| _ = fs::remove_file(path));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Image, Taken, Tree};
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    /// Whether something was written there: a hole is none.
    fn blocks(file: &File) -> u64 {
        file.metadata().map_or(0, |meta| meta.blocks())
    }

    #[test]
    fn a_file_has_what_the_disk_has_and_is_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("below")).unwrap();
        fs::write(from.join("small"), "hello").unwrap();
        let large: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        fs::write(from.join("below/large"), &large).unwrap();
        let mut tree = Tree::new();
        tree.take(Path::new("/"), &from, &Taken::default()).unwrap();
        let disk = || {
            let disk = Disk::default();
            disk.put(Image::of(&tree).unwrap().give());
            disk
        };
        let (at, kept) = (dir.path().join("disk"), dir.path().join("kept"));
        place(&disk(), &at, Some(&kept)).unwrap();
        let file = File::open(&at).unwrap();
        assert_eq!(file.metadata().unwrap().len(), SIZE);
        assert!(blocks(&file) < 2000, "what is not there takes no room");
        // Block by block as the disk itself gives it.
        let whole = disk();
        let (mut ours, mut theirs) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        for at in (0..1 << 20).step_by(1 << 16) {
            whole.read(at, &mut ours).unwrap();
            file.read_exact_at(&mut theirs, at).unwrap();
            assert!(ours == theirs, "at {at}");
        }
        let first = fs::metadata(&at).unwrap().ino();
        place(&disk(), &dir.path().join("other"), Some(&kept)).unwrap();
        assert_eq!(fs::metadata(dir.path().join("other")).unwrap().ino(), first, "linked, not written");
        // A session's own takes the place of an empty one, which whoever has it open keeps.
        place(&Disk::default(), &at, None).unwrap();
        let mut empty = File::open(&at).unwrap();
        place(&disk(), &at, None).unwrap();
        let mut start = [1; 4096];
        empty.read_exact(&mut start).unwrap();
        assert!(start.iter().all(|byte| *byte == 0) && blocks(&empty) == 0);
        assert_ne!(fs::metadata(&at).unwrap().ino(), first);
        // A file that has changed since it was listed is not put on any disk.
        fs::write(from.join("small"), "hello!").unwrap();
        let said = place(&disk(), &at, None).unwrap_err().to_string();
        assert!(said.contains("has changed"), "{said}");
    }
}
