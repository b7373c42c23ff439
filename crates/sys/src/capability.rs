//! Capabilities as bit masks: what is not named is dropped.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

pub const CHOWN: u64 = 1 << 0;
pub const DAC_OVERRIDE: u64 = 1 << 1;
pub const FOWNER: u64 = 1 << 3;
pub const KILL: u64 = 1 << 5;
pub const SETGID: u64 = 1 << 6;
pub const SETUID: u64 = 1 << 7;

/// Removes from the bounding set all but `keep`, up to the last capability this kernel knows.
pub(crate) fn bound(keep: u64) -> Result<(), Errno> {
    for number in 0..64u32 {
        if keep & (1 << number) != 0 {
            continue;
        }
        match crate::raw::drop_from_bounding_set(number) {
            Ok(_) => {}
            // The first number past the kernel's last capability ends the list.
            Err(Errno::INVAL) if number > 0 => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Effective, permitted and inheritable become `keep`; ambient is emptied.
pub(crate) fn keep_only(keep: u64) -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let set = CapabilitySet::from_bits_retain(keep);
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: set, permitted: set, inheritable: set },
    )
}
