//! Real little places, users and processes for the end-to-end tests: a state directory, a home and a work dir
//! that belong to the user a test runs as, and runs that are ended whatever becomes of the test.
//!
//! It asserts nothing about the product; where something that tests stand on is missing, it says what to
//! install and fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "only tests use this crate, and a test ends by panicking"
)]

mod attempt;
mod database;
mod image;
mod leftovers;
mod mode;
mod plain;
mod process;
mod server;
mod site;
mod sshd;
mod store;
mod wait;

pub use attempt::{Verdict, attempt, attempt_outside};
pub use database::{DATABASE, DATABASE_HOST, Database};
pub use image::{Image, Registry};
pub use leftovers::{groups_of, mounts_below, processes_with};
pub use mode::{Mode, for_each_mode, is_root, modes, needs_root};
pub use process::{Done, PATIENCE, Running, finish};
pub use server::{Server, packages};
pub use site::{Call, SEARCH_PATH, Site, program};
pub use sshd::{SSH_HOST, Sshd};
pub use store::{ACCESS_POINT, Stores};
pub use wait::eventually;
