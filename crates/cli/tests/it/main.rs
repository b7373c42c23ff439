//! The program as people use it: a file per subject, each run by every kind of user that there is.

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod backing;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod conflict;
#[cfg(test)]
mod copy;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod egress;
#[cfg(test)]
mod enforcement;
#[cfg(test)]
mod escape;
#[cfg(test)]
mod escape_score;
#[cfg(test)]
mod eval;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod heed;
#[cfg(test)]
mod image;
#[cfg(test)]
mod init;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod live;
#[cfg(test)]
mod machine_faults;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_http;
#[cfg(test)]
mod mcp_streams;
#[cfg(test)]
mod mcp_tools;
#[cfg(test)]
mod microvm;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod run;
#[cfg(test)]
mod sdk;
#[cfg(test)]
mod secret;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod sign;
#[cfg(test)]
mod snapshot;
#[cfg(test)]
mod ssh;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod sudo;
#[cfg(test)]
mod syscalls;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tiers;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod tx;
#[cfg(test)]
mod unified;
#[cfg(test)]
mod volume;
#[cfg(test)]
mod warm;

#[cfg(test)]
use cofferdam_testkit::{Mode, Site, for_each_mode, is_root};

#[cfg(test)]
const BINARY: &str = env!("CARGO_BIN_EXE_cofferdam");

/// Once as root, as a plain user with one id, and as a plain user with sub-ids.
#[cfg(test)]
fn each(test: impl Fn(&Site)) {
    for_each_mode(BINARY, test);
}

/// Where the kind of user makes no difference.
#[cfg(test)]
fn site() -> Site {
    Site::new(if is_root() { Mode::Root } else { Mode::Single }, BINARY)
}
