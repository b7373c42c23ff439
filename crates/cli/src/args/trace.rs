//! `cofferdam trace`, as data.

use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

#[derive(ClapArgs)]
pub(crate) struct Trace {
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

#[derive(Subcommand)]
pub(crate) enum TraceCommand {
    /// List traces, the newest first
    Ls {
        /// At most so many
        #[arg(short = 'n', long, default_value_t = 30)]
        limit: usize,
    },
    /// Tell a session's story
    Show {
        /// An id, the beginning of one, `latest`, or a file
        trace: String,
        /// Every line of the enforcement report, and all file changes
        #[arg(long)]
        full: bool,
    },
    /// Check that nothing was changed, dropped, moved, added or cut off: exit 0, 1, or 3 for an unfinished one
    Verify {
        /// An id, the beginning of one, `latest`, or a file
        trace: String,
        /// Trust only this public key (PEM file); repeatable
        #[arg(long, value_name = "PUB")]
        key: Vec<PathBuf>,
    },
    /// Write a trace to one file, or to stdout
    Export {
        /// An id, the beginning of one, `latest`, or a directory
        trace: String,
        #[arg(long, value_enum, default_value_t = Format::Jsonl)]
        format: Format,
        /// Where to [default: stdout]
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// A collector to post the spans to, as in http://127.0.0.1:4318 (only with --format otlp)
        #[arg(long, value_name = "URL", conflicts_with = "out")]
        to: Option<String>,
    },
    /// Find events, of all traces or of one
    Query(Query),
    /// Tell what one run did that another did not, without a judgement (see `cofferdam compare`)
    Diff {
        /// An id, the beginning of one, `latest`, or a file, also of another tool's
        base: String,
        new: String,
        /// Also what differs and means nothing: ids dealt out anew, times, other notations
        #[arg(long)]
        full: bool,
    },
    /// Bring in a bundle file that `export --format bundle` wrote
    Import { file: PathBuf },
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// The events, a line each
    Jsonl,
    /// Events and payloads in one compressed file
    Bundle,
    /// Spans of OpenTelemetry, by the GenAI conventions
    Otlp,
    /// A trajectory of messages and calls (ATIF), for tools that know agents
    Atif,
}

/// All that is named must match.
#[derive(ClapArgs)]
pub(crate) struct Query {
    /// Only of this trace: an id, the beginning of one, `latest`, or a file
    #[arg(long, value_name = "TRACE")]
    pub(crate) trace: Option<String>,
    /// The beginning of a kind, as in `tool` or `egress.decided`
    #[arg(long)]
    pub(crate) kind: Option<String>,
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// As it was decided: allow, deny, review
    #[arg(long, value_name = "EFFECT", value_parser = ["allow", "deny", "review"])]
    pub(crate) decision: Option<String>,
    /// Not before this: 2026-01-31T12:00:00Z, or a span before now, as in 2h
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Before this
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Anywhere in the event, in any case
    #[arg(long)]
    pub(crate) text: Option<String>,
    /// At most so many
    #[arg(short = 'n', long, default_value_t = 100)]
    pub(crate) limit: usize,
}
