//! Recording, gating and comparing.

use clap::{Args as ClapArgs, Subcommand};
use cofferdam_engine::gate::Shard;
use std::path::PathBuf;

#[derive(ClapArgs)]
pub(crate) struct Record {
    /// The suite (see docs/suite.md)
    pub(crate) suite: PathBuf,
    /// Only this session; repeatable
    #[arg(long, value_name = "ID")]
    pub(crate) only: Vec<String>,
    /// Run every session so many times, for agents that do not always do the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) repeat: usize,
    /// Sessions at once [default: by cores and memory]
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<usize>,
}

#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Gate {
    #[command(subcommand)]
    pub(crate) command: Option<GateCommand>,
    #[command(flatten)]
    pub(crate) run: Option<GateRun>,
}

#[derive(Subcommand)]
pub(crate) enum GateCommand {
    /// Run a suite and compare it with its baseline: exit 0 pass, 1 fail, 3 review
    Run(GateRun),
    /// Make one result from those of all shards
    Merge {
        /// What `gate run --shard` wrote
        #[arg(required = true, value_name = "DIR")]
        dirs: Vec<PathBuf>,
        /// Where to write the whole
        #[arg(long, value_name = "DIR", default_value = "gate-out")]
        out: PathBuf,
        /// Private key to sign with (PEM file) [default: $COFFERDAM_GATE_KEY, else this machine's]
        #[arg(long, value_name = "KEY")]
        key: Option<PathBuf>,
    },
    /// Tell what several results of a suite say together: what the last version lost, and where it goes
    History {
        /// What `gate run` wrote, the oldest first
        #[arg(required = true, num_args = 2.., value_name = "DIR")]
        dirs: Vec<PathBuf>,
    },
    /// Let a result through, on record and signed
    Approve {
        /// What `gate run` wrote
        dir: PathBuf,
        /// Who approves
        #[arg(long, value_name = "WHO")]
        by: String,
        /// Why it may pass
        #[arg(long, value_name = "WHY")]
        why: String,
        /// Private key to sign with (PEM file) [default: $COFFERDAM_GATE_KEY, else this machine's]
        #[arg(long, value_name = "KEY")]
        key: Option<PathBuf>,
    },
}

#[derive(ClapArgs)]
pub(crate) struct GateRun {
    /// The suite (see docs/suite.md)
    pub(crate) suite: PathBuf,
    /// Where to write the result
    #[arg(long, value_name = "DIR", default_value = "gate-out")]
    pub(crate) out: PathBuf,
    /// Sessions at once [default: by cores and memory]
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<usize>,
    /// Compare with the traces of this directory, or with the suite's as of this branch, tag or commit
    #[arg(long, value_name = "DIR|REF")]
    pub(crate) baseline: Option<PathBuf>,
    /// Only this part of the suite, as in 2/4
    #[arg(long, value_name = "I/N", value_parser = shard)]
    pub(crate) shard: Option<Shard>,
    /// Only this session; repeatable
    #[arg(long, value_name = "ID")]
    pub(crate) only: Vec<String>,
    /// Run a session that does not pass so many times more
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// Do not ask the judge: take what it answered in this result of before
    #[arg(long, value_name = "DIR")]
    pub(crate) judged: Option<PathBuf>,
    /// Private key to sign with (PEM file) [default: $COFFERDAM_GATE_KEY, else this machine's]
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(ClapArgs)]
pub(crate) struct Compare {
    /// A trace, a file of another format, or a directory of them
    pub(crate) base: PathBuf,
    /// What is compared with it
    pub(crate) new: PathBuf,
    /// Rules that the new side is held to
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Trust only this public key (PEM file); repeatable
    #[arg(long, value_name = "PUB")]
    pub(crate) key: Vec<PathBuf>,
    /// Also write the reports here
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(ClapArgs)]
pub(crate) struct Verify {
    /// `gate.dsse.json`, the directory it is in, or `evidence.tar.zst`
    pub(crate) file: PathBuf,
    /// Trust only this public key (PEM file); repeatable
    #[arg(long, value_name = "PUB")]
    pub(crate) key: Vec<PathBuf>,
    /// Also demand that it passed or was approved: exit 1 or 3 if not
    #[arg(long)]
    pub(crate) passed: bool,
}

fn shard(text: &str) -> Result<Shard, String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((index, of)) if index >= 1 && index <= of => Ok(Shard { index, of }),
        _ => Err("write which part of how many, as in 2/4".into()),
    }
}
