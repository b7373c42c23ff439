//! Runs a few instructions in a virtual machine of the kernel's own (KVM), to find out whether there is one that is
//! worth the name: a device that can be opened says nothing, and neither does a machine that can be made.

use crate::syscall::syscall;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ptr::NonNull;

const API: usize = 12;
const GET_API_VERSION: usize = 0xAE00;
const CREATE_VM: usize = 0xAE01;
const GET_VCPU_MMAP_SIZE: usize = 0xAE04;
const CREATE_VCPU: usize = 0xAE41;
const SET_USER_MEMORY_REGION: usize = 0x4020_AE46;
const RUN: usize = 0xAE80;
const SET_REGS: usize = 0x4090_AE82;
const GET_SREGS: usize = 0x8138_AE83;
const SET_SREGS: usize = 0x4138_AE84;

/// Of the structures that those are given.
const SREGS: usize = 0x138;
const REGS: usize = 0x90;

const MEMORY: usize = 0x2000;
const CODE: usize = 0x1000;
/// Where the guest says that it is done.
const PORT: u16 = 0x10;
const EXIT_IO: u32 = 2;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
    /// The guest counted to its end.
    Done,
    /// It left for this reason.
    Left(u32),
}

/// What is mapped, until it is dropped.
struct Mapped {
    at: NonNull<u8>,
    length: usize,
}

impl Mapped {
    fn own(length: usize) -> Result<Self, Errno> {
        Self::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, usize::MAX)
    }

    fn of(vcpu: &OwnedFd, length: usize) -> Result<Self, Errno> {
        Self::map(length, libc::MAP_SHARED, vcpu.as_raw_fd() as usize)
    }

    fn map(length: usize, flags: i32, of: usize) -> Result<Self, Errno> {
        let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        // SAFETY: a new mapping, at a place of the kernel's choice, that nothing else refers to.
        let at = unsafe { syscall(libc::SYS_mmap as usize, [0, length, access, flags as usize, of, 0]) }?;
        Ok(Self { at: NonNull::new(at as *mut u8).ok_or(Errno::NOMEM)?, length })
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.length) {
            return Err(Errno::INVAL);
        }
        // SAFETY: within the mapping, by the check above.
        unsafe { self.at.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn word(&self, at: usize) -> u32 {
        if at + 4 > self.length {
            return 0;
        }
        // SAFETY: within the mapping, by the check above; it need not be aligned.
        unsafe { self.at.as_ptr().add(at).cast::<u32>().read_unaligned() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody has a reference into it.
        let _ = unsafe { syscall(libc::SYS_munmap as usize, [self.at.as_ptr() as usize, self.length]) };
    }
}

/// A call whose argument is a number.
fn number(fd: &OwnedFd, request: usize, argument: usize) -> Result<usize, Errno> {
    // SAFETY: these requests take no pointer.
    unsafe { syscall(libc::SYS_ioctl as usize, [fd.as_raw_fd() as usize, request, argument]) }
}

fn structure(fd: &OwnedFd, request: usize, bytes: &mut [u8]) -> Result<(), Errno> {
    let at = bytes.as_mut_ptr() as usize;
    // SAFETY: as many bytes as the request's own number says, alive for the call.
    unsafe { syscall(libc::SYS_ioctl as usize, [fd.as_raw_fd() as usize, request, at]) }.map(drop)
}

fn opened(descriptor: usize) -> OwnedFd {
    // SAFETY: the kernel has just made it, for us alone.
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}

/// Has a guest count down from `rounds`. It may take very long where nothing but an emulator runs it: whoever calls
/// this can end the process that it is in.
pub fn count(rounds: u32) -> Result<Ran, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let kvm = rustix::fs::open("/dev/kvm", flags, Mode::empty())?;
    if number(&kvm, GET_API_VERSION, 0)? != API {
        return Err(Errno::NOSYS);
    }
    let machine = opened(number(&kvm, CREATE_VM, 0)?);
    let mut memory = Mapped::own(MEMORY)?;
    // mov ecx, rounds; dec ecx; jnz -4; out PORT, al; hlt
    let [r0, r1, r2, r3] = rounds.to_le_bytes();
    let code = [0xB9, r0, r1, r2, r3, 0x49, 0x75, 0xFD, 0xE6, PORT as u8, 0xF4];
    memory.put(CODE, &code)?;
    // Slot, flags, where the guest has it, how long, where we have it.
    let mut region = Vec::with_capacity(32);
    region.extend_from_slice(&[0; 8]);
    for part in [0, MEMORY as u64, memory.at.as_ptr() as u64] {
        region.extend_from_slice(&part.to_le_bytes());
    }
    structure(&machine, SET_USER_MEMORY_REGION, &mut region)?;
    let vcpu = opened(number(&machine, CREATE_VCPU, 0)?);
    let length = number(&kvm, GET_VCPU_MMAP_SIZE, 0)?;
    let shared = Mapped::of(&vcpu, length)?;
    enter(&vcpu)?;
    number(&vcpu, RUN, 0)?;
    // Behind eight bytes of requests; what is said of it begins with a direction and a size of a byte each.
    let (reason, port) = (shared.word(8), shared.word(32 + 2) & 0xFFFF);
    match reason {
        EXIT_IO if port == u32::from(PORT) => Ok(Ran::Done),
        other => Ok(Ran::Left(other)),
    }
}

/// Protected mode with flat segments: real mode is emulated on processors that run everything else.
fn enter(vcpu: &OwnedFd) -> Result<(), Errno> {
    let mut special = vec![0u8; SREGS];
    structure(vcpu, GET_SREGS, &mut special)?;
    // Six segments of 24 bytes: base, limit, selector, type, present, dpl, db, s, l, g, avl, unusable, padding.
    for (at, (selector, kind)) in
        [(8u16, 11u8), (16, 3), (16, 3), (16, 3), (16, 3), (16, 3)].iter().enumerate()
    {
        let mut segment = Vec::with_capacity(24);
        segment.extend_from_slice(&0u64.to_le_bytes());
        segment.extend_from_slice(&u32::MAX.to_le_bytes());
        segment.extend_from_slice(&selector.to_le_bytes());
        segment.extend_from_slice(&[*kind, 1, 0, 1, 1, 0, 1, 0, 0, 0]);
        if let Some(place) = special.get_mut(at * 24..at * 24 + 24) {
            place.copy_from_slice(&segment);
        }
    }
    // Eight segments and two tables before it.
    const CR0: usize = 8 * 24 + 2 * 16;
    if let Some(place) = special.get_mut(CR0..CR0 + 8) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(place);
        place.copy_from_slice(&(u64::from_le_bytes(bytes) | 1).to_le_bytes());
    }
    structure(vcpu, SET_SREGS, &mut special)?;
    // Sixteen registers, where it begins, and flags of which one is always set.
    let mut general = vec![0u8; REGS];
    for (at, value) in [(16, CODE as u64), (17, 2)] {
        if let Some(place) = general.get_mut(at * 8..at * 8 + 8) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
    structure(vcpu, SET_REGS, &mut general)
}

#[cfg(test)]
mod tests {
    use super::{Ran, count};

    /// A handful of instructions run even where an emulator has to run them; without a device there is a reason.
    #[test]
    fn a_guest_counts_or_there_is_a_reason() {
        match count(10) {
            Ok(ran) => assert_eq!(ran, Ran::Done),
            Err(errno) => assert_ne!(errno.raw_os_error(), 0),
        }
    }
}
