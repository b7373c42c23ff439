//! The last of a boot, done by the program that was executed: a sandbox that is prepared for nobody has its guest
//! running and waiting here, on the packet socket over which the boot child was spoken to. When it is somebody's, the
//! guest hears what it may touch of the files that are there by then, forbids itself everything else, tries whether
//! that holds, says what came of it, and closes the socket. Nothing of anyone's has run before that.

use crate::descriptor;
use crate::landlock::{self, Ruleset};
use alloc::vec::Vec;
use core::ffi::CStr;
use rustix::fd::{OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Where the guest finds the socket. One that is not to wait has nothing there.
pub const DESCRIPTOR: RawFd = 4;
/// Of what is sent to it.
pub const LENGTH_MAX: usize = 32 << 10;

pub(crate) const WAITING: u8 = b'w';
pub(crate) const PROBE: u8 = b'p';

/// What a guest is told: a path that only Landlock forbids to write to, and the rules, where this kernel has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub probe: alloc::ffi::CString,
    pub rules: Option<Ruleset>,
}

impl Binding {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from(self.probe.as_bytes_with_nul());
        out.extend(self.rules.iter().flat_map(Ruleset::encode));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let probe = CStr::from_bytes_until_nul(bytes).ok()?;
        let rest = bytes.get(probe.count_bytes() + 1..)?;
        let rules = if rest.is_empty() { None } else { Some(Ruleset::decode(rest)?) };
        Some(Self { probe: probe.into(), rules })
    }
}

/// A record of the boot's own: its kind, a position, an error.
pub(crate) const fn record(tag: u8, at: u32, errno: i32) -> [u8; 9] {
    let ([a0, a1, a2, a3], [e0, e1, e2, e3]) = (at.to_le_bytes(), errno.to_le_bytes());
    [tag, a0, a1, a2, a3, e0, e1, e2, e3]
}

/// The socket, if this process is to wait. To be taken before anything is opened that could have its number.
pub fn socket() -> Result<Option<OwnedFd>, Errno> {
    match descriptor::is_free(DESCRIPTOR) {
        true => Ok(None),
        false => descriptor::inherited(DESCRIPTOR).map(Some),
    }
}

/// Waits to be bound. An error means that this process is not, and must not go on.
pub fn wait(socket: OwnedFd) -> Result<(), Errno> {
    send(&socket, &[WAITING], SendFlags::NOSIGNAL)?;
    let binding = hear(&socket)?;
    if let Some(rules) = &binding.rules {
        landlock::restrict(rules)?;
    }
    let errno = landlock::probe(&binding.probe);
    send(&socket, &record(PROBE, 0, errno), SendFlags::NOSIGNAL).map(drop)
}

fn hear(socket: &OwnedFd) -> Result<Binding, Errno> {
    let mut bytes = alloc::vec![0; LENGTH_MAX];
    loop {
        match recv(socket, bytes.as_mut_slice(), RecvFlags::empty()) {
            // Who prepared it is gone, and nobody will come.
            Ok((0, _)) => return Err(Errno::PIPE),
            Ok((_, length)) => {
                return bytes.get(..length).and_then(Binding::decode).ok_or(Errno::BADMSG);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_survives_being_sent() {
        let rules = Ruleset::new(5, Vec::from([(c"/tmp".into(), landlock::Grant::All)]));
        for rules in [None, Some(rules), Some(Ruleset::scopes_only(7))] {
            let binding = Binding { probe: c"/run/probe".into(), rules };
            assert_eq!(Binding::decode(&binding.encode()), Some(binding));
        }
        assert_eq!(Binding::decode(b"no end"), None);
        assert_eq!(Binding::decode(b"/x\0\x01"), None);
    }
}
