//! What can go wrong in a session, each with its kind: the doors translate kinds, not texts.

use cofferdam_guest::host::HostError;
use cofferdam_model::{Digest, IdError, SpecError, Tier};
use cofferdam_runtime::RuntimeError;
use cofferdam_seal::KeyError;
use cofferdam_store::{BundlesError, CatalogError, HomeError, KeyStoreError};
use cofferdam_trace::{ArchiveError, ReadError, WriteError};
use cofferdam_vault::SecretError;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    Spec(#[from] SpecError),
    #[error("{path}:{line}: {message}")]
    SpecFile { path: PathBuf, line: usize, message: String },
    #[error("cannot read {path}: {source}; check its name and its permissions")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`{path}`: {source}")]
    Module { path: PathBuf, source: cofferdam_runtime_wasm::WasmError },
    #[error(
        "`{path}` is not the module that the suite names: its SHA-256 is {found}, and `scorer.sha256` is {wanted}; look at what changed it, then name the new one"
    )]
    OtherModule { path: PathBuf, found: Digest, wanted: Digest },
    #[error("`{path}`: {source}")]
    Prices { path: PathBuf, source: cofferdam_intercept::PriceError },
    #[error("work dir {path}: {source}; choose a directory that exists with --workdir")]
    Workdir { path: PathBuf, source: io::Error },
    #[error(
        "refused: the {tier} tier is not in this build; use --isolation process, or leave --isolation out"
    )]
    NoTier { tier: Tier },
    #[error("--without {name}: no control of that name can be left out; there are {known}")]
    NoControl { name: String, known: String },
    #[error(
        "refused: a floor of {floor} is demanded and the strongest tier here is {have}; lower --floor, or use a host that has {floor}"
    )]
    Floor { floor: Tier, have: Tier },
    #[error(
        "--secret {0}: a credential is used by what leaves, and without a policy nothing does; name one with --policy"
    )]
    SecretWithoutPolicy(String),
    #[error(
        "--env {variable} and --secret {secret} both set `{variable}`: leave the first out, or a value of yours gets inside"
    )]
    SecretInEnvironment { secret: String, variable: String },
    #[error(
        "--browser: no Chromium is found in /usr/bin or /usr/local/bin; install one (`apt install chromium`) or leave --browser out"
    )]
    NoBrowser,
    #[error("{0}")]
    Rules(#[from] cofferdam_egress::RulesError),
    #[error("{0}")]
    Ca(#[from] cofferdam_egress::CaError),
    #[error("{0}")]
    Unfit(#[from] cofferdam_egress::swap::Unfit),
    #[error("{0}")]
    Image(#[from] cofferdam_image::ImageError),
    #[error(
        "refused: an image is the root of a sandbox of the process tier only; leave --isolation and --floor, or --image, out"
    )]
    ImageTier,
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
    #[error("{0}")]
    Guest(HostError),
    #[error("the command could not be started: {step}: {source}")]
    Exec { step: String, source: io::Error },
    #[error("the trace could not be written, so the run was ended: {0}")]
    Record(#[from] WriteError),
    #[error("{0}")]
    Replay(#[from] crate::replay::ReplayError),
    #[error("the trace could not be written, so the run was ended: {0}")]
    NotRecorded(#[from] cofferdam_model::NotRecorded),
    #[error(
        "the pins of the server's tools cannot be kept in {path}: {source}; make room there, or it would be met anew each time"
    )]
    Pins { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    #[error("{0}")]
    Home(#[from] HomeError),
    #[error("{0}")]
    Keys(#[from] KeyStoreError),
    #[error("{path}: {source}")]
    Key { path: PathBuf, source: KeyError },
    #[error("{0}")]
    Catalog(#[from] CatalogError),
    #[error("{0}")]
    Bundles(#[from] BundlesError),
    #[error("no trace has an id that begins with `{0}`; see `cofferdam trace ls`")]
    NoTrace(String),
    #[error(
        "no session that can be reached has the name `{0}` or an id that begins so; see `cofferdam session ls`"
    )]
    NotLive(String),
    #[error("{0}")]
    Declined(String),
    /// As a supervisor put it.
    #[error("{0}")]
    Unenforceable(String),
    #[error("{path}: {message}")]
    Operator { path: PathBuf, message: String },
    #[error("session {session} is lost: {reason}; its trace is `cofferdam trace show {session}`")]
    Lost { session: cofferdam_model::SessionId, reason: String },
    #[error(
        "`--changes ask`: nobody can be asked when a session of its own time ends; say keep or discard here, or with `cofferdam session kill`"
    )]
    NobodyToAsk,
    #[error("the supervisor could not be started: {reason}; see {log}")]
    Supervisor { reason: String, log: PathBuf },
    #[error("`{prefix}` fits {count} ids; give more of it")]
    Ambiguous { prefix: String, count: usize },
    #[error("{0}")]
    Id(#[from] IdError),
    #[error("{doing}: {source}")]
    Io { doing: &'static str, source: io::Error },
    #[error("{0}")]
    Gate(Box<crate::gate::GateError>),
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error(
        "refused: this tier gives a sandbox no doors that a policy could be enforced at; use another tier"
    )]
    NoDoors,
    #[error("the sandbox ended before it was ready; run `cofferdam doctor`")]
    NoChannel,
}

impl EngineError {
    /// Whether something was asked of a guest that no guest takes.
    pub fn is_asked_wrong(&self) -> bool {
        use HostError::{Request, TooLong, TooMany};
        matches!(self, Self::Guest(Request(_) | TooLong { .. } | TooMany))
    }

    /// Whether the host or the spec refused, as against something that broke.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NoTier { .. }
                | Self::ImageTier
                | Self::NoDoors
                | Self::Unenforceable(_)
                | Self::Floor { .. }
                | Self::Runtime(RuntimeError::Refused { .. })
        )
    }
}
