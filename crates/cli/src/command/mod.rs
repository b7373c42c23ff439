//! The commands, a file each.

pub(crate) mod approve;
pub(crate) mod doctor;
pub(crate) mod escape;
pub(crate) mod generate;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod policy;
pub(crate) mod probe;
pub(crate) mod run;
pub(crate) mod secret;
pub(crate) mod session;
pub(crate) mod supervise;
pub(crate) mod trace;
