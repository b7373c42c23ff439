//! What was found to be as it was written is not read to its end again in the same boot of the host, unless it is another
//! file by then, or was written to: the kernel tells that by a time which nobody can set.

use crate::accelerator::boot_id;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Beside the file.
fn note_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sound");
    name.into()
}

/// Which file this is, how it is now, and in which boot.
fn known(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let file = (meta.dev(), meta.ino(), meta.len());
    let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
    Some(format!("{} {file:?} {times:?}", boot_id()))
}

/// Has this file looked at, if it was not before.
pub(crate) fn once(path: &Path, look: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (note, known) = (note_of(path), known(path));
    let is_known = |known: &String| fs::read(&note).is_ok_and(|kept| kept == known.as_bytes());
    if known.as_ref().is_some_and(is_known) {
        return Ok(());
    }
    look()?;
    // Where it cannot be kept, the next one looks again.
    let _ = known.map(|known| fs::write(note, known));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_is_looked_at_again_when_it_was_written_to_whatever_its_time_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ram");
        fs::write(&path, "as it was written").unwrap();
        let looked = || {
            let mut looked = false;
            once(&path, || {
                looked = true;
                Ok(())
            })
            .unwrap();
            looked
        };
        let bad = once(&path, || Err(io::ErrorKind::InvalidData.into()));
        assert!(bad.is_err());
        assert!(looked(), "what was bad is looked at again");
        assert!(!looked());
        std::thread::sleep(std::time::Duration::from_millis(30));
        let file = File::options().write(true).open(&path).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"A", 0).unwrap();
        file.set_modified(time).unwrap();
        assert!(looked() && !looked());
        // A note of another boot is none.
        let note = fs::read_to_string(note_of(&path)).unwrap();
        fs::write(note_of(&path), note.replacen(&boot_id(), "another", 1)).unwrap();
        assert!(looked());
    }
}
