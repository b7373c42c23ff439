//! Shows an image as a disk to a VMM, by the protocol that all of them share (NBD, fixed newstyle). Read-only, one
//! connection, over a socket that only the VMM has the other end of. What it asks for is bounded.

use crate::image::{BLOCK, Kept};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What every disk claims to be as large as. Where an image ends there are zeros, so that a machine that was copied
/// finds a disk of the same size whatever is on it.
pub(crate) const SIZE: u64 = 1 << 40;

const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE: u32 = 0x6744_6698;
/// Of one request: more is refused.
const MOST: u32 = 32 << 20;
/// Fixed newstyle, no padding.
const HANDSHAKE: u16 = 3;
/// Has flags; read-only.
const TRANSMISSION: u16 = 3;

mod option {
    pub(super) const EXPORT_NAME: u32 = 1;
    pub(super) const ABORT: u32 = 2;
    pub(super) const INFO: u32 = 6;
    pub(super) const GO: u32 = 7;
}

mod reply {
    pub(super) const ACK: u32 = 1;
    pub(super) const INFO: u32 = 3;
    pub(super) const UNSUPPORTED: u32 = 0x8000_0001;
}

mod command {
    pub(super) const READ: u16 = 0;
    pub(super) const DISCONNECT: u16 = 2;
    pub(super) const FLUSH: u16 = 3;
}

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// What is on a disk; nothing yet, for a machine that waits for its session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<Option<Kept>>>);

/// A machine's disks: of the system, of programs in the caller's home, and of the session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disks {
    pub(crate) system: Disk,
    pub(crate) programs: Disk,
    pub(crate) session: Disk,
}

impl Disk {
    pub(crate) fn put(&self, image: Kept) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(image);
    }

    /// Writes down what is on it.
    pub(crate) fn keep(&self, path: &std::path::Path) -> io::Result<()> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(image) => image.keep(path),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// What is on it, by its list; nothing for an empty one.
    pub(crate) fn digest(&self) -> io::Result<Option<String>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(Kept::digest).transpose()
    }

    /// Writes all of it to a file that is nothing but a hole.
    pub(crate) fn write(&self, to: &std::fs::File) -> io::Result<()> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(image) => image.write(to),
            None => Ok(()),
        }
    }

    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(image) => image.read(at, bytes),
            None => {
                bytes.fill(0);
                Ok(())
            }
        }
    }
}

/// Serves until the other end is closed.
pub(crate) fn serve(disk: Disk, mut stream: UnixStream) -> io::Result<()> {
    thread::Builder::new().name("vm-disk".into()).spawn(move || {
        // Who breaks the protocol is a VMM that is no longer ours; it loses its disk.
        let _ = negotiate(&mut stream).and_then(|()| transmit(&disk, &mut stream));
    })?;
    Ok(())
}

fn take<const N: usize>(stream: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0u8; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn negotiate(stream: &mut UnixStream) -> io::Result<()> {
    let mut hello = b"NBDMAGICIHAVEOPT".to_vec();
    hello.extend_from_slice(&HANDSHAKE.to_be_bytes());
    stream.write_all(&hello)?;
    let no_zeroes = u32::from_be_bytes(take(stream)?) & 2 != 0;
    loop {
        if u64::from_be_bytes(take(stream)?) != OPTION_MAGIC {
            return Err(broken("no option"));
        }
        let kind = u32::from_be_bytes(take(stream)?);
        let length = u32::from_be_bytes(take(stream)?);
        if length > 64 << 10 {
            return Err(broken("an option of that length"));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        match kind {
            option::EXPORT_NAME => {
                let mut told = SIZE.to_be_bytes().to_vec();
                told.extend_from_slice(&TRANSMISSION.to_be_bytes());
                told.resize(told.len() + if no_zeroes { 0 } else { 124 }, 0);
                return stream.write_all(&told);
            }
            option::INFO | option::GO => {
                let mut export = 0u16.to_be_bytes().to_vec();
                export.extend_from_slice(&SIZE.to_be_bytes());
                export.extend_from_slice(&TRANSMISSION.to_be_bytes());
                answer(stream, kind, reply::INFO, &export)?;
                let mut sizes = 3u16.to_be_bytes().to_vec();
                for size in [1, BLOCK as u32, MOST] {
                    sizes.extend_from_slice(&size.to_be_bytes());
                }
                answer(stream, kind, reply::INFO, &sizes)?;
                answer(stream, kind, reply::ACK, &[])?;
                if kind == option::GO {
                    return Ok(());
                }
            }
            option::ABORT => {
                answer(stream, kind, reply::ACK, &[])?;
                return Err(broken("given up"));
            }
            _ => answer(stream, kind, reply::UNSUPPORTED, &[])?,
        }
    }
}

fn answer(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = REPLY_MAGIC.to_be_bytes().to_vec();
    for number in [option, kind, data.len() as u32] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(data);
    stream.write_all(&bytes)
}

fn transmit(disk: &Disk, stream: &mut UnixStream) -> io::Result<()> {
    let mut out = Vec::new();
    loop {
        let head: [u8; 28] = take(stream)?;
        let [m0, m1, m2, m3, _, _, k0, k1, handle @ .., o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] =
            head;
        if u32::from_be_bytes([m0, m1, m2, m3]) != REQUEST {
            return Err(broken("no request"));
        }
        let at = u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        out.clear();
        out.extend_from_slice(&SIMPLE.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&handle);
        let error = match u16::from_be_bytes([k0, k1]) {
            command::READ
                if length <= MOST && at.checked_add(length.into()).is_some_and(|end| end <= SIZE) =>
            {
                out.resize(16 + length as usize, 0);
                match disk.read(at, out.get_mut(16..).unwrap_or_default()) {
                    Ok(()) => 0,
                    Err(_) => EIO,
                }
            }
            command::READ => EINVAL,
            command::FLUSH => 0,
            command::DISCONNECT => return Ok(()),
            // A write brings its bytes along, which this would have to read: there are none on a read-only disk.
            _ if length == 0 => EPERM,
            _ => return Err(broken("a write")),
        };
        if error != 0 {
            out.truncate(16);
            if let Some(place) = out.get_mut(4..8) {
                place.copy_from_slice(&error.to_be_bytes());
            }
        }
        stream.write_all(&out)?;
    }
}
