//! Which credential is spent at a place that does not speak HTTP, where nothing is swapped: it is found by the place.

use super::Coffer;
use super::state::Entry;
use cofferdam_vault::Place;

/// Why none is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unspendable {
    #[error(
        "no credential of this session is for `{destination}`: add one with `secret add NAME --for {destination} --as {protocol}`"
    )]
    None { destination: String, protocol: Place },
    #[error("the credential `{0}` was revoked: ask for a new one")]
    Revoked(String),
    #[error("the program {} may not spend the credential `{name}`", .program.as_deref().unwrap_or("of this connection"))]
    Program { name: String, program: Option<String> },
}

impl Unspendable {
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::None { .. } => "no-credential",
            Self::Revoked(_) | Self::Program { .. } => "credential-misused",
        }
    }
}

impl Coffer {
    /// The credential for `HOST:PORT` in this protocol, if this program may spend it now.
    pub(crate) fn spendable(
        &self,
        destination: String,
        protocol: Place,
        program: Option<&str>,
    ) -> Result<Entry, Unspendable> {
        let Some(entry) = self.speaking_to(&destination, &protocol) else {
            return Err(Unspendable::None { destination, protocol });
        };
        let name = entry.name.to_string();
        let programs = &entry.credential.programs;
        if entry.revoked {
            return Err(Unspendable::Revoked(name));
        }
        let may = |program: &str| programs.iter().any(|listed| listed == program);
        if !programs.is_empty() && !program.is_some_and(may) {
            return Err(Unspendable::Program { name, program: program.map(str::to_owned) });
        }
        Ok(entry)
    }
}
