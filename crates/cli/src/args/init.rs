//! `cofferdam init`, as data.

use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(ClapArgs)]
pub(crate) struct Init {
    /// The agent to set up for: claude, codex, gemini-cli, aider, goose, opencode, python, node [default: the one
    /// found here]
    pub(crate) agent: Option<String>,
    /// Also let it use this service (stripe, slack, github, …); repeatable
    #[arg(long, value_name = "SERVICE")]
    pub(crate) with: Vec<String>,
    /// Put the keys that were found into the vault, each from where it is
    #[arg(long)]
    pub(crate) add_secrets: bool,
    /// Where to write the session's description; its policy goes beside it
    #[arg(long, value_name = "FILE", default_value = "cofferdam.toml")]
    pub(crate) out: PathBuf,
    /// Replace what is there
    #[arg(long)]
    pub(crate) force: bool,
    /// The command that starts the agent, where that is not to be found out
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}
