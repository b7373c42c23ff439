//! Hosts that are reached over SSH. To the client we are the host, with a key of the session that the inside was told of;
//! to the host we are the client, with a key that the inside does not have. In between there are commands: each is parsed,
//! judged and on record before the host hears of it, and what goes on is written anew from what was parsed.
//!
//! It carries nothing else: no shell, no terminal, no subsystem, no forwarding of ports, agents or displays.

mod channel;
mod inside;
mod judge;
mod known;
mod negotiate;
mod outside;
mod pipe;
mod transport;

pub(crate) use judge::again;
pub use known::KnownHosts;

use crate::rescue::Failure;
use crate::session::Session;
use crate::swap::Unspendable;
use crate::swap::state::Entry;
use cofferdam_model::Via;
use cofferdam_policy::CommandError;
use cofferdam_seal::ssh::SshKeyError;
use cofferdam_vault::Place;
use std::sync::Arc;
use thiserror::Error;
use transport::TransportError;

/// At one time in one session; each may hold a few megabytes.
pub(crate) const MOST_CONNECTIONS: usize = 256;
/// What every client says first.
pub(crate) const FIRST: &[u8] = b"SSH-";

/// Why something is not carried, or breaks off.
#[derive(Debug, Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Credential(#[from] Unspendable),
    #[error("the value of the credential `{name}` is no key that can be used: {source}")]
    Key { name: String, source: SshKeyError },
    #[error("{0} is not carried over SSH here: give the command to run, as in `ssh HOST COMMAND`")]
    NotCarried(String),
    #[error("the command cannot be judged: {0}")]
    Command(#[from] CommandError),
    #[error("too much is asked for at once on one connection: wait until something has ended")]
    TooMany,
    #[error("too many connections over SSH are open in this session: close some")]
    Busy,
    #[error("the client's side: {0}")]
    Client(TransportError),
    #[error("no agreement in time")]
    Late,
    #[error(
        "`{place}` shows the host key {kind} {print}, and nobody has said that it is its own: compare it with what its operator publishes; then write it into the policy, as [[known_host]] with host = \"{host}\"{port} and key = \"{print}\""
    )]
    UnknownHost { place: String, host: Arc<str>, port: String, kind: String, print: String },
    #[error(
        "`{place}` shows the host key {kind} {print}, and is known by {known}: somebody may stand in between, so it is not spoken to; if its key was changed, change it in the policy or in the file of known hosts"
    )]
    ChangedHost { place: String, kind: String, print: String, known: String },
    #[error("`{place}` shows the host key {print}, which was taken back (@revoked)")]
    RevokedHost { place: String, print: String },
    #[error(
        "`{host}` does not accept the key of `{name}` for the user `{user}`: is its public half known there?"
    )]
    NotAccepted { host: Arc<str>, name: String, user: String },
    #[error("`{0}` runs no command for this key")]
    NoCommand(Arc<str>),
    #[error("`{host}`: {source}")]
    Server { host: Arc<str>, source: TransportError },
}

impl Refused {
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Credential(why) => why.cause(),
            Self::Key { .. } => "credential-unfit",
            Self::NotCarried(_) | Self::TooMany | Self::Busy => "not-carried",
            Self::Command(_) => "command",
            Self::Client(_) | Self::Late => "message",
            Self::UnknownHost { .. } => "host-key-unknown",
            Self::ChangedHost { .. } | Self::RevokedHost { .. } => "host-key-changed",
            Self::NotAccepted { .. } | Self::NoCommand(_) | Self::Server { .. } => "upstream",
        }
    }

    /// Whether somebody seems to stand in between.
    pub(crate) fn is_other_host(&self) -> bool {
        matches!(self, Self::ChangedHost { .. } | Self::RevokedHost { .. })
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Ssh(Box::new(refused))
    }
}

/// A stream to a host.
pub(crate) struct Visit {
    pub(crate) session: Arc<Session>,
    pub(crate) via: Via,
    pub(crate) program: Option<Arc<str>>,
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Visit {
    fn destination(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    fn from(&self) -> (Via, Option<&str>) {
        (self.via, self.program.as_deref())
    }

    /// The credential for this place, if it may be spent here and now.
    fn credential(&self) -> Result<Entry, Failure> {
        let (coffer, program) = (&self.session.coffer, self.program.as_deref());
        Ok(coffer.spendable(self.destination(), Place::Ssh, program).map_err(Refused::Credential)?)
    }
}

fn random(bytes: &mut [u8]) -> Option<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()).ok()?;
        rest = rest.get_mut(count..)?;
    }
    Some(())
}
