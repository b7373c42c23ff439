//! The machine's streams to the host: ports with names, where the VMM has those, and numbers of its vsock where it has
//! nothing else.

use crate::prepare;
use crate::relay::{Held, Side, relay};
use crate::serve::{GUEST, HOUSE, NET, NOTES};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// A word of the kernel's command line: the VMM gives no names to ports and disks, so that they are known by number.
pub const NUMBERED: &str = "cofferdam.devices=numbered";

/// Where a machine listens for its host.
const FIRST: u32 = 1024;

pub(crate) const NAMES: [&str; 4] = [HOUSE, GUEST, NOTES, NET];

/// The number of a stream.
pub fn number(name: &str) -> u32 {
    let at = NAMES.iter().position(|known| *known == name).unwrap_or(NAMES.len());
    FIRST + at as u32
}

pub(crate) fn is_numbered() -> bool {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    line.split_whitespace().any(|word| word == NUMBERED)
}

/// A stream to the host, and what is on its way where that is not the kernel's to know.
pub(crate) struct Port {
    pub(crate) file: File,
    held: Option<Arc<Held>>,
}

impl Port {
    /// Whether all that has come can be read.
    pub(crate) fn is_all_given(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.is_all_given())
    }
}

/// All of them, until they are used.
pub(crate) enum Ports {
    Named,
    Numbered(HashMap<&'static str, Port>),
}

impl Ports {
    /// Numbers are listened to from the beginning: the host calls all of them at once.
    pub(crate) fn new() -> io::Result<Self> {
        if !is_numbered() {
            return Ok(Self::Named);
        }
        let listen = |name: &'static str| {
            let socket = cofferdam_sys::machine::listen_to_host(number(name))?;
            let next = move || Ok(cofferdam_sys::machine::called_by_host(socket.as_fd())?);
            let (stream, held) = relay(Side::Called, next)?;
            Ok((name, Port { file: OwnedFd::from(stream).into(), held: Some(held) }))
        };
        Ok(Self::Numbered(NAMES.into_iter().map(listen).collect::<io::Result<_>>()?))
    }

    pub(crate) fn open(&mut self, name: &str) -> io::Result<Port> {
        match self {
            Self::Named => Ok(Port { file: prepare::port(name)?, held: None }),
            Self::Numbered(ports) => ports.remove(name).ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }
}
