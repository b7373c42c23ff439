//! The recipe: open a session, run it, record it, decide what becomes of its changes, seal the trace. The one
//! crate that knows all layers; they do not know each other.

mod browser;
mod conflicts;
mod control;
mod course;
mod denials;
mod egress;
mod environment;
mod error;
pub mod escape;
pub mod gate;
mod heard;
mod images;
pub mod init;
mod leftovers;
mod live;
mod machine;
mod mcp;
pub mod policy;
mod record;
mod relay;
mod replay;
pub mod rpc;
mod secrets;
mod session;
mod spec_file;
mod standing;
mod step;
mod steps;
mod stop;
pub mod suite;
mod syscalls;
mod tiers;
mod toml_file;
mod tools;
mod traces;
mod trust;
mod volumes;
mod warm;

pub use browser::CDP_URL;
/// Money, as people write it.
pub use cofferdam_policy::micro_dollars;
pub use cofferdam_runtime::ChangeList;
pub use cofferdam_runtime_process::{Early, Fact, facts};
/// What a trace tells, as the doors show it.
pub use cofferdam_trace::Query;
pub use cofferdam_trace::{Exec, State, Story, Told, Verification};
/// Secrets, as the doors show them: never a value.
pub use cofferdam_vault::{Draft as SecretDraft, Entry as SecretEntry, Kept, KeyKind, PRESETS, Remark};
pub use conflicts::Took;
pub use control::Waiting;
pub use denials::Denied;
pub use error::EngineError;
pub use images::ImageAsked;
pub use live::inside;
pub use live::{Attendance, House, Leaver, LiveExec, LiveOutcome, Log, Watched};
/// What this program is to a virtual machine.
pub use machine::{count_in_machine, launch_machine};
pub use mcp::{PinnedServer, ToolServer};
pub use relay::{End, Heard, OutputStream, Piece, Stdio};
pub use replay::{
    Clock, ClockError, Pins, RecordedSession, ReplayError, ReplayRules, ReplayRulesError, Replayed,
    Replaying, Tally,
};
pub use secrets::{Ask, Secrets, nobody, placeholder_variables};
pub use session::{Decide, Outcome, Run};
pub use spec_file::load as load_spec;
pub use step::{post_json, tell_step};
pub use steps::STEPS_URL;
pub use stop::{Stop, until_signalled};
pub use syscalls::Refused;
pub use tiers::{TierFact, tiers};
pub use toml_file::parse as parse_toml;
pub use tools::declared_server;
pub use traces::Trace;

use cofferdam_store::default_home;
pub use cofferdam_store::{Home, Summary, TraceState};
use std::path::PathBuf;

/// Everything a door needs: the state directory, and what can be done with it.
pub struct Engine {
    pub(crate) home: Home,
}

impl Engine {
    /// Opens the state directory, making it if it is not there. Without a path: `$COFFERDAM_HOME`, else the
    /// user's data directory.
    pub fn open(path: Option<PathBuf>) -> Result<Self, EngineError> {
        let home = match path {
            Some(path) => Home::open(&path)?,
            None => Home::open(&default_home(|name| std::env::var_os(name))?)?,
        };
        Ok(Self { home })
    }

    pub fn home(&self) -> &Home {
        &self.home
    }
}
