//! The service and its keys.

use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

#[derive(ClapArgs)]
pub(crate) struct Serve {
    /// Address and port; port 0 takes a free one [default: 127.0.0.1:7300]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Everything else, as TOML: see docs/serve.md
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum ApikeyCommand {
    /// Make a key and print it, this once
    Create {
        /// Whose key it is
        #[arg(long, default_value = "default")]
        tenant: String,
        /// What it is for
        #[arg(long, default_value = "")]
        name: String,
        /// The administrator's: all tenants, and what only an operator may do
        #[arg(long)]
        admin: bool,
    },
    /// List keys, never their values
    Ls,
    /// Make a key invalid, at once and for ever
    Revoke {
        /// Its id, or the beginning that `ls` shows
        key: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum TenantCommand {
    /// List tenants, and how many keys each has
    Ls,
}
