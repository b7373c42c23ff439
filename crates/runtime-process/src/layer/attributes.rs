//! Extended attributes: only `user.*` is ever carried, because every other name space grants or labels something
//! (capabilities, access lists, security labels, the overlay's own marks).

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

/// More bytes of names or of a value than the kernel allows cannot come.
const MOST: usize = 64 << 10;
const OVERLAY: &[u8] = b"user.overlay.";

pub(super) type Attributes = Vec<(CString, Vec<u8>)>;

fn listed(file: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    // Most files have none, or only the overlay's mark.
    let mut small = [0u8; 256];
    let names = match rustix::fs::flistxattr(file, &mut small[..]) {
        Ok(n) => small[..n].to_vec(),
        Err(Errno::RANGE) => {
            let mut large = vec![0u8; MOST];
            let n = rustix::fs::flistxattr(file, &mut large[..])?;
            large.truncate(n);
            large
        }
        Err(Errno::NOTSUP) => Vec::new(),
        Err(errno) => return Err(errno),
    };
    Ok(names.split(|&b| b == 0).filter(|n| !n.is_empty()).filter_map(|n| CString::new(n).ok()).collect())
}

fn is_plain(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"user.") && !name.to_bytes().starts_with(OVERLAY)
}

/// The ordinary attributes, in the order of their names.
pub(super) fn read(file: BorrowedFd<'_>) -> Result<Attributes, Errno> {
    let mut found = Attributes::new();
    for name in listed(file)?.into_iter().filter(|name| is_plain(name)) {
        let mut value = vec![0u8; MOST];
        let n = rustix::fs::fgetxattr(file, name.as_c_str(), &mut value[..])?;
        value.truncate(n);
        found.push((name, value));
    }
    found.sort();
    Ok(found)
}

/// Removes what may not be carried: everything but ordinary attributes.
pub(super) fn sanitise(file: BorrowedFd<'_>) -> Result<(), Errno> {
    strip(file, |name| !is_plain(name))
}

fn is_label(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"security.") && name != c"security.capability"
}

fn strip(file: BorrowedFd<'_>, goes: impl Fn(&CStr) -> bool) -> Result<(), Errno> {
    for name in listed(file)?.into_iter().filter(|name| goes(name)) {
        match rustix::fs::fremovexattr(file, name.as_c_str()) {
            Ok(()) | Err(Errno::NODATA) => {}
            // A label of the system's own, which every file here has. A capability that stays is none of those.
            Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP) if is_label(&name) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Makes the ordinary attributes of `file` be these. Others stay: they are the system's.
pub(super) fn replace(file: BorrowedFd<'_>, wanted: &Attributes) -> Result<(), Errno> {
    strip(file, |name| is_plain(name) && !wanted.iter().any(|(kept, _)| kept.as_c_str() == name))?;
    for (name, value) in wanted {
        rustix::fs::fsetxattr(file, name.as_c_str(), value, XattrFlags::empty())?;
    }
    Ok(())
}
