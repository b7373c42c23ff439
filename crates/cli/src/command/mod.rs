//! The commands, a file each.

pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod run;
pub(crate) mod trace;
