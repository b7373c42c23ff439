//! The command line as data.

mod gate;
mod init;
mod kept;
mod mcp;
mod replay;
mod secret;
mod serve;
mod session;
mod step;
mod trace;

pub(crate) use gate::{Compare, Gate, GateCommand, GateRun, Record, Verify};
pub(crate) use init::Init;
pub(crate) use kept::{ConflictCommand, ImageCommand, ImageImport, PoolCommand, VolumeCommand};
pub(crate) use mcp::{Mcp, McpCommand, Own, Wrap};
pub(crate) use replay::Replay;
pub(crate) use secret::{Secret, SecretAdd, SecretCommand};
pub(crate) use serve::{ApikeyCommand, Serve, TenantCommand};
pub(crate) use session::{
    Create, Exec, Session, SessionCommand, SessionPolicyCommand, SessionToolsCommand, Stay, Switch,
};
pub(crate) use step::{Step, StepCommand};
pub(crate) use trace::{Format, Query, Trace, TraceCommand};

use clap::{Args as ClapArgs, Parser, Subcommand};
use cofferdam_model::{
    BoxUser, Bytes, Changes, Cores, Isolation, LayerPlace, Mount, Profile, Span, Syscalls, Tier, UserMode,
    VolumeMount, Warm, Weakness,
};
use std::ffi::OsString;
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

/// The command line without all commands but one.
#[derive(Parser)]
#[command(name = "cofferdam", version, disable_help_subcommand = true)]
struct Short {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: ShortCommand,
}

#[derive(Subcommand)]
enum ShortCommand {
    Run(Box<Run>),
}

/// Reads the command line. `run` starts a sandbox in a few milliseconds, and describing every other command takes
/// a good part of one: they are described only where they may be meant, and for every error. Describing the flags of
/// `run` takes a fifth of one, so that without any nothing is described.
pub(crate) fn parse() -> Result<Args, clap::Error> {
    if let Some(args) = bare(std::env::args_os().skip(1)) {
        return Ok(args);
    }
    // Whatever the short one reads, the whole one reads in the same way.
    if std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "run")
        && let Ok(Short { global, command: ShortCommand::Run(run) }) = Short::try_parse()
    {
        return Ok(Args { global, command: Command::Run(run) });
    }
    Args::try_parse()
}

/// `run -- CMD…` and `run --durable -- CMD…`. Whatever this reads, the whole one reads in the same way.
fn bare(mut words: impl Iterator<Item = OsString>) -> Option<Args> {
    if words.next()? != "run" {
        return None;
    }
    let mut asked = Asked::default();
    let mut word = words.next()?;
    if word == "--durable" {
        asked.durable = true;
        word = words.next()?;
    }
    if word != "--" {
        return None;
    }
    let command = words.map(|word| word.into_string().ok()).collect::<Option<_>>()?;
    let run = Run { asked, tty: false, no_tty: false, trace_out: None, command };
    Some(Args { global: Global::default(), command: Command::Run(Box::new(run)) })
}

#[derive(ClapArgs, Default)]
#[cfg_attr(test, derive(Debug))]
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
    /// Run one recorded session again, from its recorded responses
    Replay(Box<Replay>),
    /// List, read, verify and move traces
    Trace(Trace),
    /// Show, renew and trust signing keys
    Key(Key),
    /// Keep secrets that the inside uses and never sees
    Secret(Secret),
    /// Check, explain and test policy files
    Policy(Policy),
    /// Answer requests that wait for a person
    Approve(Approve),
    /// Make, see, use and change sessions that live
    Session(Session),
    /// See and take what a commit left out, because it was changed outside as well
    Conflict {
        #[command(subcommand)]
        command: ConflictCommand,
    },
    /// Be an MCP server whose tools are a sandbox; or put one that is there into a sandbox
    Mcp(Mcp),
    /// Run a suite and store its traces as the baseline
    Record(Record),
    /// Run a suite, compare it with its baseline, and say pass, fail or review
    Gate(Box<Gate>),
    /// Compare two traces, or two directories of them, without running anything
    Compare(Compare),
    /// Check a gate's signed result
    Verify(Verify),
    /// Tell of a workflow's steps, inside a session
    Step(Step),
    /// Keep sandboxes prepared, so that a session begins sooner
    Pool {
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// Take in, list and remove images for the roots of sandboxes
    Image {
        #[command(subcommand)]
        command: ImageCommand,
    },
    /// Make, list and remove directories that sessions share and that outlive them
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Tell what sessions that stay have used, in all or second by second
    Usage {
        /// Only this one, second by second: an id, the beginning of one, or the name of one that lives
        session: Option<String>,
    },
    /// Serve sandboxes to programs: E2B's SDKs, and REST
    Serve(Serve),
    /// Make, list and revoke the keys of the service
    Apikey {
        #[command(subcommand)]
        command: ApikeyCommand,
    },
    /// Tell of the tenants of the service
    Tenant {
        #[command(subcommand)]
        command: TenantCommand,
    },
    /// Compute an expression over JSON that keeps to a schema; it can do nothing else
    Eval(Eval),
    /// Tell what this host can enforce, and the fix for each no
    Doctor,
    /// Try to get out of a sandbox in every way we know, and tell what was blocked
    Escape(Escape),
    /// Write a starting set-up for the agent found here
    Init(Init),
    /// Hold sessions that stay; started by `session create`
    #[command(hide = true)]
    Supervise,
    /// Run a guest on /dev/kvm, to see whether it runs; started by us
    #[command(hide = true)]
    VmCount { rounds: u32 },
    /// Start a VMM in the sandbox around it; started by us
    #[command(hide = true)]
    VmLaunch { meeting: PathBuf },
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or that of one command, as in `man session exec`
    Man { command: Vec<String> },
    /// What `escape` runs, inside and outside
    #[command(hide = true)]
    Probe {
        #[command(subcommand)]
        command: ProbeCommand,
    },
}

#[derive(ClapArgs)]
pub(crate) struct Eval {
    /// CEL over the variable `input`, as in `input.items.filter(n, n > 1)`
    #[arg(value_name = "EXPR")]
    pub(crate) expression: String,
    /// What the input must look like: a file with a JSON Schema
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: PathBuf,
    /// The input, as JSON [default: stdin]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
}

#[derive(ClapArgs)]
pub(crate) struct Escape {
    /// Only this tier; repeatable [default: every one that works here and is not emulated]
    #[arg(long, value_name = "TIER")]
    pub(crate) tier: Vec<Tier>,
    /// Say what is tried and what should stop it, and try nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Only this check, or all of a scenario; repeatable
    #[arg(long, value_name = "ID")]
    pub(crate) check: Vec<String>,
    /// Leave a control out, to see what only it holds; repeatable
    #[arg(long, value_name = "CONTROL")]
    pub(crate) without: Vec<String>,
}

#[derive(Subcommand)]
pub(crate) enum ProbeCommand {
    /// Make these attempts, each in a process of its own
    All { facts: String, ids: Vec<String> },
    /// Make one attempt in this process
    One {
        facts: String,
        id: String,
        #[arg(long = "in", value_enum, default_value_t = Surroundings::AsIs)]
        surroundings: Surroundings,
    },
    /// Keep a secret until the input ends
    Hold,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Surroundings {
    AsIs,
    Apart,
    World,
}

impl Command {
    /// Whether its exit code is that of a command inside.
    pub(crate) fn passes_code_through(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Replay(_)
                | Self::Mcp(Mcp { command: Some(McpCommand::Wrap(_)), .. })
                | Self::Session(Session { command: SessionCommand::Exec(_) })
        )
    }
}

#[derive(ClapArgs)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Give the command a terminal, also where none would be chosen
    #[arg(long, overrides_with = "no_tty")]
    pub(crate) tty: bool,
    /// Give the command no terminal
    #[arg(long, overrides_with = "tty")]
    pub(crate) no_tty: bool,
    /// Also write the trace to this file: *.jsonl for the events alone, else one bundle file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace_out: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// What a session is asked to be.
#[derive(ClapArgs, Default)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Asked {
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
    /// Accept a weaker form: rlimits, no-landlock, no-capture; repeatable
    #[arg(long, value_name = "WEAKNESS")]
    pub(crate) accept: Vec<Weakness>,
    /// Rules for everything that is to leave (see `cofferdam policy`); without them nothing does
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The registry of tools: only the programs that it names exist inside, and what leaves is theirs
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Only this tool of the registry
    #[arg(long, value_name = "NAME", requires = "tools")]
    pub(crate) tool: Option<String>,
    /// A credential of the vault that the session may use: inside there is a placeholder; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Vec<String>,
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
    /// Show a named volume inside, which keeps what is written (see `cofferdam volume`); repeatable
    #[arg(long, value_name = "NAME:DST[:rw|ro]")]
    pub(crate) volume: Vec<VolumeMount>,
    /// Hide a path of the work dir, beyond the built-in list; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) hide: Vec<PathBuf>,
    /// Have an image for the root, in the place of the host's directories (see `cofferdam image`)
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Work dir [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// Where the work dir stands inside [default: at its own path]
    #[arg(long, value_name = "PATH")]
    pub(crate) workdir_at: Option<PathBuf>,
    /// Most cores, as in 1.5
    #[arg(long)]
    pub(crate) cpu: Option<Cores>,
    /// Weight where processors are short, from 1 to 10000, beside everybody's 100
    #[arg(long, value_name = "N")]
    pub(crate) cpu_share: Option<u32>,
    /// Most memory, as in 512M
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Most processes
    #[arg(long, value_name = "N")]
    pub(crate) pids: Option<u32>,
    /// Where changes to the work dir are held: memory (within --disk), disk (within --disk and --inodes if given, as root)
    #[arg(long, value_name = "PLACE")]
    pub(crate) layer: Option<LayerPlace>,
    /// Most bytes written to files, all together [default: a quarter of memory, at most 8G]
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Bytes>,
    /// Most files and directories, where `--disk` counts their bytes [default: one for every 4 KiB of it]
    #[arg(long, value_name = "N")]
    pub(crate) inodes: Option<u64>,
    /// Most open files a process
    #[arg(long, value_name = "N")]
    pub(crate) files: Option<u32>,
    /// Longest time of a command, as in 90s; exit code 124
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
    /// Let commands in a box ask for others as its root, by a `sudo` of its own; for sessions that stay
    #[arg(long)]
    pub(crate) sudo: bool,
    /// Which system calls are put on record: surface (what is refused), all (also what is let through and does
    /// something: programs, files, addresses)
    #[arg(long, value_name = "WHICH")]
    pub(crate) syscalls: Option<Syscalls>,
    /// Have a browser inside, driven by COFFERDAM_CDP_URL: what is asked of it is judged and recorded
    #[arg(long)]
    pub(crate) browser: bool,
    /// Have the endpoint for workflow steps (COFFERDAM_STEPS_URL) without a policy too
    #[arg(long)]
    pub(crate) steps: bool,
    /// Keep a Python interpreter with these modules imported, which `python3 SCRIPT.py` is copied from (sessions that
    /// stay)
    #[arg(long, value_name = "python:MODULES")]
    pub(crate) warm: Option<Warm>,
    /// Wait for the disk whenever the trace is signed
    #[arg(long)]
    pub(crate) durable: bool,
}

#[derive(ClapArgs)]
pub(crate) struct Approve {
    #[command(subcommand)]
    pub(crate) command: ApproveCommand,
}

#[derive(Subcommand)]
pub(crate) enum ApproveCommand {
    /// List what waits, of all running sessions
    Ls,
    /// Let a request go
    Allow {
        /// As `ls` shows it: SESSION.NUMBER
        id: String,
    },
    /// Refuse a request
    Deny {
        /// As `ls` shows it: SESSION.NUMBER
        id: String,
    },
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
pub(crate) struct Policy {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Find mistakes, rules that never decide and examples that fail: exit 0, or 1 for an error
    Check { file: PathBuf },
    /// Say which rule fires for a request and why; for a denial, the rule that would allow it
    Explain(Explain),
    /// Run the examples that the file carries: exit 0, or 1 if one fails
    Test { file: PathBuf },
}

#[derive(ClapArgs)]
pub(crate) struct Explain {
    pub(crate) file: PathBuf,
    /// `GET https://host/path`, `tool NAME JSON`, `exec WORDS`, `file read PATH`, `browser ACTION URL`, `step NAME`,
    /// `sql HOST/DATABASE STATEMENT`, `ssh USER@HOST COMMAND`
    #[arg(required = true, value_name = "REQUEST")]
    pub(crate) request: Vec<String>,
    /// A header of the request; repeatable
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// The body of the request, or @FILE
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// The program that asks, by its path inside
    #[arg(long, value_name = "PATH")]
    pub(crate) program: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(args: &Args) -> String {
        let Command::Run(run) = &args.command else { return "another command".into() };
        format!("{:?} {run:?}", args.global)
    }

    #[test]
    fn what_is_asked_for_most_is_read_without_a_description() {
        let check = |line: &[&str], expected: bool| {
            assert_eq!(bare(line.iter().map(OsString::from)).is_some(), expected, "{line:?}");
        };
        check(&["run", "--", "true"], true);
        check(&["run", "--durable", "--", "sh", "-c", "--"], true);
        check(&["run", "--quiet", "--", "true"], false);
        check(&["run", "--durable", "--durable", "--", "true"], false);
        check(&["run", "true"], false);
        check(&["trace", "--", "true"], false);
    }

    proptest! {
        #[test]
        fn what_is_read_without_a_description_is_read_so_with_it(
            words in prop::collection::vec(
                prop::sample::select(vec!["run", "--durable", "--", "--json", "true", "-c", "", "--memory=1M", "ü"]), 0..7
            )
        ) {
            let words: Vec<OsString> = std::iter::once("run").chain(words).map(OsString::from).collect();
            if let Some(read) = bare(words.iter().cloned()) {
                let line = std::iter::once(OsString::from("cofferdam")).chain(words);
                let whole = Args::try_parse_from(line).map_err(|error| TestCaseError::fail(error.to_string()))?;
                prop_assert_eq!(told(&read), told(&whole));
            }
        }
    }
}
