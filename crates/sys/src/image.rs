//! The guest's program as an open file that nobody can change: a sealed, anonymous memory file.
//!
//! Inside, `/proc/1/exe` leads to it; a seal keeps even its owner from writing to what the host will run.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

/// One that is empty, for a child to be born with: it is filled while the child is at work.
pub fn blank() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 know no MFD_EXEC, and later ones may refuse executable memory files without it.
    match rustix::fs::memfd_create(c"cofferdam-guest", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(c"cofferdam-guest", flags),
        other => other,
    }
}

/// One that is whole, for many to be started with.
pub fn sealed(program: &[u8]) -> Result<OwnedFd, Errno> {
    let image = blank()?;
    seal(&image, program)?;
    Ok(image)
}

/// Writes the program, and closes the file for all times.
pub fn seal(file: impl AsFd, program: &[u8]) -> Result<(), Errno> {
    let (file, mut rest) = (file.as_fd(), program);
    while !rest.is_empty() {
        let written = rustix::io::write(file, rest)?;
        rest = rest.get(written..).ok_or(Errno::IO)?;
    }
    rustix::fs::fchmod(file, rustix::fs::Mode::from_raw_mode(0o555))?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(file, seals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_image_cannot_be_written_through_its_link() {
        let image = blank().unwrap();
        seal(&image, b"#!/bin/true\n").unwrap();
        let path = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&image));
        let write = std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"x"));
        assert!(write.is_err());
    }
}
