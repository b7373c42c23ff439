//! The flags of `cofferdam replay`.

use clap::Args as ClapArgs;
use cofferdam_engine::Clock;
use cofferdam_model::{Changes, Fallback, Matching, Speed};
use std::path::PathBuf;

#[derive(ClapArgs)]
pub(crate) struct Replay {
    /// An id, the beginning of one, `latest`, a trace's directory, or a bundle file
    pub(crate) trace: String,
    /// When a request is the recorded one: strict (every byte), normalised (but for what is volatile)
    /// [default: normalised]
    #[arg(long, value_parser = matching)]
    pub(crate) mode: Option<Matching>,
    /// What becomes of a request that was not recorded: error, review (exit code 3) [default: error]
    #[arg(long, value_parser = fallback, conflicts_with = "live_fallback")]
    pub(crate) fallback: Option<Fallback>,
    /// Send what was not recorded, with real credentials, by the policy of --policy
    #[arg(long, requires = "policy")]
    pub(crate) live_fallback: bool,
    /// How fast answers come: full, recorded [default: full]
    #[arg(long, value_parser = speed)]
    pub(crate) speed: Option<Speed>,
    /// A TOML file with a table [replay]: what is volatile, what counts, what may repeat; flags override it
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// Judge requests by this policy, not by the recorded one
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The value of a variable that the run had, or the caller's (`--env NAME`): a trace holds none; repeatable
    #[arg(long, value_name = "K[=V]")]
    pub(crate) env: Vec<String>,
    /// Work dir [default: the recorded one]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// What becomes of file changes in the work dir: keep, discard, ask
    #[arg(long, default_value = "discard")]
    pub(crate) changes: Changes,
    /// Let Python and Node see a time that stands: fixed:2026-01-01T00:00:00Z, or `recorded`, the run's own start
    #[arg(long, value_name = "TIME")]
    pub(crate) clock: Option<Clock>,
    /// Let Python and Node draw the same chance every time
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Trust only this public key (PEM file); repeatable
    #[arg(long, value_name = "PUB")]
    pub(crate) key: Vec<PathBuf>,
    /// Replay a trace that has no end, as far as it goes
    #[arg(long)]
    pub(crate) allow_incomplete: bool,
    /// Also write the new trace to this file: *.jsonl for the events alone, else one bundle file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace_out: Option<PathBuf>,
}

fn word<T: serde::de::DeserializeOwned>(text: &str, allowed: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|_| format!("write {allowed}"))
}

fn matching(text: &str) -> Result<Matching, String> {
    word(text, "strict or normalised")
}

fn fallback(text: &str) -> Result<Fallback, String> {
    match word(text, "error or review")? {
        Fallback::Live => Err("say that with --live-fallback".to_owned()),
        other => Ok(other),
    }
}

fn speed(text: &str) -> Result<Speed, String> {
    word(text, "full or recorded")
}
