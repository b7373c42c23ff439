//! `cofferdam session`.

use super::Asked;
use clap::{Args as ClapArgs, Subcommand};
use cofferdam_model::{BoxUser, Bytes, Changes, ExecTx, Lifetime, Span};
use std::path::PathBuf;

#[derive(ClapArgs)]
pub(crate) struct Session {
    #[command(subcommand)]
    pub(crate) command: SessionCommand,
}

#[derive(Subcommand)]
pub(crate) enum SessionCommand {
    /// Make a session that stays when its commands have ended; prints its id
    Create(Box<Create>),
    /// List sessions that live, with what they use, and those that were lost
    Ls,
    /// Tell what a session is doing and what it has used
    Show {
        /// A name, an id, or the beginning of one
        session: String,
    },
    /// Run a command in a session; its input, output and exit code are the command's own
    Exec(Box<Exec>),
    /// Copy a file or a directory into a session, or a file out of it; one of the two is SESSION:PATH
    Cp {
        /// Who it is to belong to in a box: user, root [default: user]
        #[arg(long, value_name = "WHO")]
        user: Option<String>,
        from: String,
        to: String,
    },
    /// Open a transaction, within the innermost one if there is one
    Begin {
        /// A name, an id, or the beginning of one
        session: String,
    },
    /// Show what was done in the innermost transaction; without one, by the session so far
    Diff {
        /// A name, an id, or the beginning of one
        session: String,
        /// Only which files, not what changed in them
        #[arg(long)]
        brief: bool,
    },
    /// Keep what was done in the innermost transaction; without one, carry all that was done to the work dir
    Commit {
        /// A name, an id, or the beginning of one
        session: String,
        /// End whatever still runs in it
        #[arg(long)]
        force: bool,
    },
    /// Drop what was done in the innermost transaction; without one, all that was done
    Rollback {
        /// A name, an id, or the beginning of one
        session: String,
        /// End whatever still runs in it
        #[arg(long)]
        force: bool,
    },
    /// Name a session's files as they are now; nothing is copied
    Snapshot {
        /// A name, an id, or the beginning of one
        session: String,
        /// What to call it
        name: String,
        /// With its processes; refused where that cannot be had
        #[arg(long)]
        processes: bool,
    },
    /// Make a session's files what they were; what was done since is dropped
    Restore {
        /// A name, an id, or the beginning of one
        session: String,
        /// The snapshot
        name: String,
    },
    /// List snapshots, or remove one
    Snapshots {
        /// Remove this one
        #[arg(long, value_name = "NAME")]
        rm: Option<String>,
    },
    /// Write what a session, or a snapshot, has made of its work dir to one compressed file
    Archive {
        /// A session or a snapshot, by its name; a session also by its id, or the beginning of one
        session: String,
        /// The file, which is not there yet
        file: PathBuf,
    },
    /// Make a snapshot from an archive; `create --from` begins with its files
    Unarchive {
        /// What `archive` wrote
        file: PathBuf,
        /// What to call the snapshot
        name: String,
    },
    /// Make sessions that begin with the files of one; prints their ids
    Fork {
        /// A name, an id, or the beginning of one
        session: String,
        /// How many
        #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
        count: usize,
    },
    /// Stop everything in a session where it stands
    Pause {
        /// A name, an id, or the beginning of one
        session: String,
    },
    /// Let a paused session go on
    Resume {
        /// A name, an id, or the beginning of one
        session: String,
    },
    /// Give a session more time
    Extend {
        /// A name, an id, or the beginning of one
        session: String,
        /// As in 30m
        by: Span,
    },
    /// End a session, or one command of it; of one that was lost, forget it
    Kill {
        /// A name, an id, or the beginning of one
        session: String,
        /// Only this command, by its number in `show`
        #[arg(long, value_name = "N", conflicts_with = "changes")]
        exec: Option<u32>,
        /// What becomes of file changes in the work dir: keep, discard [default: as it was made]
        #[arg(long)]
        changes: Option<Changes>,
    },
    /// Print what a detached command has written
    Logs {
        /// A name, an id, or the beginning of one
        session: String,
        /// The command's number [default: the last detached one]
        exec: Option<u32>,
        /// Go on until it ends
        #[arg(short, long)]
        follow: bool,
    },
    /// Put another policy in force, for the next request and for what is under way
    Policy {
        #[command(subcommand)]
        command: SessionPolicyCommand,
    },
    /// Show other programs and paths, and let other hosts be reached, from the next command on
    Tools {
        #[command(subcommand)]
        command: SessionToolsCommand,
    },
    /// Take a credential back: what was sent with it is cut
    Revoke {
        /// A name, an id, or the beginning of one
        session: String,
        secret: String,
    },
    /// Give a credential the value that the vault holds now
    Rotate {
        /// A name, an id, or the beginning of one
        session: String,
        secret: String,
    },
    /// Bound what a session may still use, from now on; without a bound, lift the one that is set
    Cap {
        /// A name, an id, or the beginning of one
        session: String,
        /// What calls of models may cost, in dollars, as in 2.50
        #[arg(long, value_name = "DOLLARS")]
        spend: Option<String>,
        /// Tokens that models may read and write
        #[arg(long, value_name = "N")]
        tokens: Option<u64>,
        #[arg(long, value_name = "N")]
        requests: Option<u64>,
        /// Most bytes of request bodies, as in 10M
        #[arg(long, value_name = "SIZE")]
        bytes_up: Option<Bytes>,
        /// Most bytes of response bodies
        #[arg(long, value_name = "SIZE")]
        bytes_down: Option<Bytes>,
    },
    /// Let nothing out of a session (`off`), or let it out again (`on`)
    Egress {
        /// A name, an id, or the beginning of one
        session: String,
        #[arg(value_enum)]
        to: Switch,
    },
}

#[derive(Subcommand)]
pub(crate) enum SessionToolsCommand {
    /// Put another registry of tools in the place of the one it was made with
    Set {
        /// A name, an id, or the beginning of one
        session: String,
        file: PathBuf,
    },
}

#[derive(Subcommand)]
pub(crate) enum SessionPolicyCommand {
    Set {
        /// A name, an id, or the beginning of one
        session: String,
        file: PathBuf,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(ClapArgs)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// What ends it, besides `kill`: ephemeral (the end of its last command, or its TTL), persistent (its TTL),
    /// perpetual (nothing, where the operator allows it) [default: persistent]
    #[arg(long)]
    pub(crate) lifetime: Option<Lifetime>,
    /// How long it may last, as in 2h; see `extend` [default: 1h, unless the operator says otherwise]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<Span>,
    #[command(flatten)]
    pub(crate) stay: Stay,
}

/// What is asked of every session that outlasts a command.
#[derive(ClapArgs)]
pub(crate) struct Stay {
    /// Pause it when no command has run for so long, until the next one
    #[arg(long, value_name = "TIME")]
    pub(crate) idle: Option<Span>,
    /// What to call it
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Begin with the files of a snapshot of the same work dir
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) from: Option<String>,
}

#[derive(ClapArgs)]
pub(crate) struct Exec {
    /// Let it go on by itself and print its number; see `logs`
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Give the command a terminal, also where none would be chosen
    #[arg(long, overrides_with = "no_tty")]
    pub(crate) tty: bool,
    /// Give the command no terminal
    #[arg(long, overrides_with = "tty")]
    pub(crate) no_tty: bool,
    /// Longest time, as in 90s; exit code 124
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,
    /// Most bytes on stdout and stderr together
    #[arg(long, value_name = "SIZE")]
    pub(crate) output: Option<Bytes>,
    /// Set a variable, or pass the caller's on (`--env NAME`); repeatable
    #[arg(long, value_name = "K[=V]")]
    pub(crate) env: Vec<String>,
    /// Where inside [default: the work dir]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Who the command is in a box: user, root
    #[arg(long, value_name = "WHO")]
    pub(crate) user: Option<BoxUser>,
    /// Make the command a transaction of its own: auto (kept if it exits with 0), commit, rollback
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    pub(crate) tx: Option<ExecTx>,
    /// Run it in a fork of the session that ends with it and of which nothing is kept; of a machine, in a machine of its own
    #[arg(long, conflicts_with_all = ["detach", "tx"])]
    pub(crate) apart: bool,
    /// A name, an id, or the beginning of one
    pub(crate) session: String,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    pub(crate) command: Vec<String>,
}
