//! `cofferdam mcp`, as data.

use super::{Asked, Stay};
use clap::{Args as ClapArgs, Subcommand};
use cofferdam_model::Span;
use std::path::PathBuf;

#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
    #[command(flatten)]
    pub(crate) own: Box<Own>,
}

/// Without a command of its own: a sandbox as tools, on stdin and stdout.
#[derive(ClapArgs)]
pub(crate) struct Own {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// How long it may last, as in 2h [default: as long as its client, and the operator, let it]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<Span>,
    #[command(flatten)]
    pub(crate) stay: Stay,
}

#[derive(Subcommand)]
pub(crate) enum McpCommand {
    /// Run an MCP server in a sandbox of its own; every call is judged and recorded before the server hears of it
    Wrap(Box<Wrap>),
    /// Servers whose tools are pinned, and which tools those are
    Pins,
    /// Forget what a server's tools were: its next listing is pinned anew
    Unpin {
        /// Its address or command line, as `mcp pins` tells it
        server: String,
    },
}

#[derive(ClapArgs)]
pub(crate) struct Wrap {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Take the server's tools as they are now for what they shall be, whatever they were before
    #[arg(long)]
    pub(crate) repin: bool,
    /// Also write the trace to this file: *.jsonl for the events alone, else one bundle file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace_out: Option<PathBuf>,
    /// The server and its arguments; its client speaks to it on our stdin and stdout
    #[arg(last = true, required_unless_present = "tool", conflicts_with = "tool", value_name = "SERVER")]
    pub(crate) command: Vec<String>,
}
