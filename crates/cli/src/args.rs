//! The command line as data.

use clap::{Args as ClapArgs, Parser, Subcommand};
use cofferdam_model::{
    BoxUser, Bytes, Changes, Cores, Isolation, LayerPlace, Mount, Profile, Span, Tier, UserMode, Weakness,
};
use std::path::PathBuf;

#[derive(Parser)]
#[command(
    name = "cofferdam",
    version,
    about = "Run AI agents in sandboxes and leave a trace that can be proved",
    max_term_width = 100
)]
#[command(propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(ClapArgs)]
pub(crate) struct Global {
    /// State directory [default: $COFFERDAM_HOME, else the user's data directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Print data as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing that is not asked for
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a command in a sandbox and record it
    Run(Box<Run>),
    /// List, read, verify and move traces
    Trace(Trace),
    /// Show, renew and trust signing keys
    Key(Key),
    /// Tell what this host can enforce, and the fix for each no
    Doctor,
    /// Write a starting set-up for the agent found here
    Init(Init),
    /// Print shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    #[command(hide = true)]
    Man,
}

#[derive(ClapArgs)]
pub(crate) struct Run {
    /// Read the session's description from a file (TOML or JSON); flags override it
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: Option<PathBuf>,
    /// Kind of sandbox: auto, process, container, gvisor, microvm, wasm
    #[arg(long, value_name = "TIER")]
    pub(crate) isolation: Option<Isolation>,
    /// Refuse to run in anything weaker
    #[arg(long, value_name = "TIER")]
    pub(crate) floor: Option<Tier>,
    /// Refuse to run unless this control is in full force (see `cofferdam trace show`); repeatable
    #[arg(long, value_name = "CONTROL")]
    pub(crate) require: Vec<String>,
    /// Accept a weaker form: rlimits, no-landlock; repeatable
    #[arg(long, value_name = "WEAKNESS")]
    pub(crate) accept: Vec<Weakness>,
    /// Policy file
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// How much of a machine the inside is: run, box
    #[arg(long)]
    pub(crate) profile: Option<Profile>,
    /// Whose ids stand behind the inside's: auto, range, single
    #[arg(long, value_name = "MODE")]
    pub(crate) users: Option<UserMode>,
    /// Who the command is in a box: user, root
    #[arg(long, value_name = "WHO")]
    pub(crate) user: Option<BoxUser>,
    /// Set a variable, or pass the caller's on (`--env NAME`); repeatable
    #[arg(long, value_name = "K[=V]")]
    pub(crate) env: Vec<String>,
    /// Show a path of the host inside; read-only unless `:rw`; repeatable
    #[arg(long, value_name = "SRC:DST[:ro|rw]")]
    pub(crate) mount: Vec<Mount>,
    /// Hide a path of the work dir, beyond the built-in list; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) hide: Vec<PathBuf>,
    /// Work dir [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// Most cores, as in 1.5
    #[arg(long)]
    pub(crate) cpu: Option<Cores>,
    /// Most memory, as in 512M
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Most processes
    #[arg(long, value_name = "N")]
    pub(crate) pids: Option<u32>,
    /// Where changes to the work dir are held: memory (within --disk), disk (no limit)
    #[arg(long, value_name = "PLACE")]
    pub(crate) layer: Option<LayerPlace>,
    /// Most bytes written to files, all together [default: a quarter of memory, at most 8G]
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Bytes>,
    /// Most open files a process
    #[arg(long, value_name = "N")]
    pub(crate) files: Option<u32>,
    /// Longest time, as in 90s; exit code 124
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,
    /// Most bytes on stdout and stderr together
    #[arg(long, value_name = "SIZE")]
    pub(crate) output: Option<Bytes>,
    /// What becomes of file changes in the work dir: keep, discard, ask [default: ask on a terminal, else keep]
    #[arg(long)]
    pub(crate) changes: Option<Changes>,
    /// Let the inside make namespaces of its own (browsers, nested sandboxes); weaker, and reported
    #[arg(long)]
    pub(crate) nested: bool,
    /// Give the command a terminal, also where none would be chosen
    #[arg(long, overrides_with = "no_tty")]
    pub(crate) tty: bool,
    /// Give the command no terminal
    #[arg(long, overrides_with = "tty")]
    pub(crate) no_tty: bool,
    /// Wait for the disk whenever the trace is signed
    #[arg(long)]
    pub(crate) durable: bool,
    /// Also write the trace to this file: *.jsonl for the events alone, else one bundle file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace_out: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

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
}

#[derive(ClapArgs)]
pub(crate) struct Key {
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
}

#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Print the public key that traces are signed with
    Show,
    /// Make a new signing key; traces of the old one stay valid here
    Rotate,
    /// Believe traces signed with this public key (PEM file)
    Trust { file: PathBuf },
}

#[derive(ClapArgs)]
pub(crate) struct Init {
    /// The agent to set up for: a program's name [default: the first one found]
    pub(crate) agent: Option<String>,
    /// Where to write
    #[arg(long, value_name = "FILE", default_value = "cofferdam.toml")]
    pub(crate) out: PathBuf,
    /// Replace what is there
    #[arg(long)]
    pub(crate) force: bool,
}
