//! The commands, a file each.

pub(crate) mod apikey;
pub(crate) mod approve;
pub(crate) mod compare;
pub(crate) mod doctor;
pub(crate) mod escape;
pub(crate) mod gate;
pub(crate) mod generate;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod machine;
pub(crate) mod mcp;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod step;
pub(crate) mod supervise;
pub(crate) mod trace;
pub(crate) mod usage;
pub(crate) mod verify;
pub(crate) mod volume;
