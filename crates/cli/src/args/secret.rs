//! `cofferdam secret`, as data.

use clap::{Args as ClapArgs, Subcommand};
use cofferdam_engine::KeyKind;

#[derive(ClapArgs)]
pub(crate) struct Secret {
    #[command(subcommand)]
    pub(crate) command: SecretCommand,
}

#[derive(Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a secret, and say where it may go
    Add(SecretAdd),
    /// List secrets; values are never shown
    Ls,
    /// Give a secret a new value
    Rotate {
        name: String,
        /// Where the value comes from, as for `add` [default: where it came from before]
        #[arg(long, value_name = "SOURCE")]
        from: Option<String>,
        /// Taken so that it can be refused without being repeated
        #[arg(hide = true)]
        value: Vec<String>,
    },
    /// Wipe a secret's value and refuse its use until it has a new one
    Revoke { name: String },
    /// Remove a secret
    Rm { name: String },
    /// Choose what the vault's key is; also for a vault that is there
    Init {
        /// file, keyring, passphrase
        #[arg(long, value_name = "KIND", default_value = "file")]
        key: KeyKind,
    },
}

#[derive(ClapArgs)]
pub(crate) struct SecretAdd {
    /// What to call it, as in `run --secret NAME`
    pub(crate) name: String,
    /// Where its value comes from: `-` (stdin), env:VAR, file:PATH, cmd:PROGRAM…, vault:PATH#FIELD [default: -]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) from: Option<String>,
    /// Read the source for every session instead of storing the value
    #[arg(long)]
    pub(crate) live: bool,
    /// A host that it may be sent to, or *.DOMAIN for all below one; repeatable
    #[arg(long = "for", value_name = "HOST", num_args = 1..)]
    pub(crate) hosts: Vec<String>,
    /// Where in a request it may stand: bearer, basic, header:NAME, query:NAME, body:PATH; or what it signs or is exchanged
    /// for: sigv4, sigv4a, azure-shared-key, hmac:FILE, jwt, oauth, github-app, postgres, ssh; repeatable [default: bearer]
    #[arg(long = "as", value_name = "PLACE", num_args = 1..)]
    pub(crate) places: Vec<String>,
    /// Hosts, places and variable of a service: github, stripe, openai, anthropic, …
    #[arg(long, value_name = "SERVICE")]
    pub(crate) preset: Option<String>,
    /// The variable in which its placeholder stands inside [default: the one of env:VAR, else the preset's, else
    /// NAME in capitals]
    #[arg(long, value_name = "VAR")]
    pub(crate) env: Option<String>,
    /// What it may sign for: SERVICE or SERVICE/REGION, as in s3/eu-west-1; repeatable [default: every service but
    /// those that give out credentials]
    #[arg(long, value_name = "SCOPE", num_args = 1..)]
    pub(crate) scope: Vec<String>,
    /// A program inside that may spend it, by its absolute path; repeatable [default: all]
    #[arg(long, value_name = "PATH")]
    pub(crate) program: Vec<String>,
    /// Taken so that it can be refused without being repeated
    #[arg(hide = true)]
    pub(crate) value: Vec<String>,
}
