//! The only crate with `unsafe`: small safe wrappers around the kernel calls that the rest is built from.
//!
//! What a sandbox needs is written down as data (`boot::Op`) and performed by whoever implements
//! `boot::Kernel`: the real one here, or a double that records, so that the layout of a sandbox is tested
//! without privileges. Nothing here decides policy.
//!
//! Without the feature `std` only what the guest needs is built, and nothing of it enters libc.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
pub mod blockfile;
#[cfg(feature = "std")]
pub mod boot;
#[cfg(feature = "std")]
pub mod capability;
#[cfg(feature = "std")]
pub mod door;
#[cfg(feature = "std")]
pub mod dump;
#[cfg(feature = "std")]
pub mod idmap;
#[cfg(feature = "std")]
pub mod image;
#[cfg(feature = "std")]
pub mod keyring;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
pub mod kvm;
#[cfg(feature = "std")]
pub mod machine;
#[cfg(feature = "std")]
pub mod memory;
#[cfg(feature = "std")]
pub mod netlink;
#[cfg(feature = "std")]
pub mod probe;
#[cfg(feature = "std")]
pub mod seccomp;

#[cfg(feature = "std")]
mod ballast;
#[cfg(feature = "std")]
mod clone;
#[cfg(feature = "std")]
mod graft;
#[cfg(feature = "std")]
mod mounts;
#[cfg(feature = "std")]
mod raw;

pub mod descriptor;
#[cfg(all(target_arch = "x86_64", any(test, all(not(feature = "std"), target_feature = "crt-static"))))]
pub mod freestanding;
pub mod landlock;
pub mod late;
pub mod reap;
pub mod schedule;
pub mod signal;
pub mod spawn;
pub mod terminal;

mod syscall;

pub use rustix::io::Errno;
