//! A file system that lies in a file, mounted nowhere: whoever has the descriptor of the mount can put it somewhere, or
//! reach into it. Nothing has to be taken down after: the device lets go of the file by itself when the last mount
//! and the last descriptor of it are gone, however their holders end.

use crate::raw;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::ffi::CStr;
use std::fmt;

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// Others look for a free device too, and may be quicker.
const TRIES: usize = 64;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// What could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// `/dev/loop-control` could not be opened or asked.
    Control,
    /// There is no node for the device that is free.
    Device,
    /// The device does not take the file.
    Attach,
    /// This kernel does not know the file system.
    Kind,
    /// What is on the device could not be mounted.
    Mount,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "ask /dev/loop-control for a device",
            Self::Device => "open a loop device",
            Self::Attach => "attach a file to a loop device",
            Self::Kind => "find ext4 in this kernel",
            Self::Mount => "mount a file system that lies in a file",
        })
    }
}

fn at(stage: Stage) -> impl FnOnce(Errno) -> (Stage, Errno) {
    move |errno| (stage, errno)
}

/// Mounts the ext4 in this file. A lock on the open file (`flock`) is held until the device has let go of it, too.
///
/// Nobody waits for the disk: whoever wants what is in it to outlive the machine copies it out.
pub fn mount(file: BorrowedFd<'_>) -> Result<OwnedFd, (Stage, Errno)> {
    let (device, number) = attach(file)?;
    let context = rustix::mount::fsopen(c"ext4", FsOpenFlags::FSOPEN_CLOEXEC).map_err(at(Stage::Kind))?;
    let mut text = [0u8; NAME];
    let path = name(number, &mut text).map_err(at(Stage::Mount))?;
    let set = |key: &CStr, value: &CStr| {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, value).map_err(at(Stage::Mount))
    };
    set(c"source", path)?;
    // A disk that is full under it makes it fail, instead of going on with half of what was written.
    set(c"errors", c"remount-ro")?;
    for flag in [c"nobarrier", c"noinit_itable"] {
        rustix::mount::fsconfig_set_flag(context.as_fd(), flag).map_err(at(Stage::Mount))?;
    }
    rustix::mount::fsconfig_create(context.as_fd()).map_err(at(Stage::Mount))?;
    let attr = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mounted = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attr);
    // From here on the mount alone holds it.
    drop(device);
    mounted.map_err(at(Stage::Mount))
}

const NAME: usize = 32;

fn name(number: u32, text: &mut [u8; NAME]) -> Result<&CStr, Errno> {
    use std::io::Write;
    write!(&mut text[..NAME - 1], "/dev/loop{number}").map_err(|_| Errno::NAMETOOLONG)?;
    CStr::from_bytes_until_nul(text).map_err(|_| Errno::INVAL)
}

/// A device with this file behind it.
fn attach(file: BorrowedFd<'_>) -> Result<(OwnedFd, u32), (Stage, Errno)> {
    let open = |path: &CStr| rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let control = open(c"/dev/loop-control").map_err(at(Stage::Control))?;
    for _ in 0..TRIES {
        let number = raw::ioctl_number(control.as_fd(), LOOP_CTL_GET_FREE).map_err(at(Stage::Control))?;
        let device =
            open(name(number, &mut [0; NAME]).map_err(at(Stage::Device))?).map_err(at(Stage::Device))?;
        match raw::ioctl(device.as_fd(), LOOP_CONFIGURE, &config(file)) {
            Ok(()) => return Ok((device, number)),
            Err(Errno::BUSY) => {}
            Err(errno) => return Err((Stage::Attach, errno)),
        }
    }
    Err((Stage::Attach, Errno::BUSY))
}

fn config(file: BorrowedFd<'_>) -> Config {
    let info = Info {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: LO_FLAGS_AUTOCLEAR,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    Config { fd: file.as_raw_fd() as u32, block_size: 0, info, reserved: [0; 8] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_the_kernels() {
        assert_eq!((size_of::<Info>(), size_of::<Config>()), (232, 304));
    }

    #[test]
    fn a_device_is_named_by_its_number() {
        assert_eq!(name(12, &mut [0; NAME]), Ok(c"/dev/loop12"));
        assert_eq!(name(u32::MAX, &mut [0; NAME]), Ok(c"/dev/loop4294967295"));
    }
}
