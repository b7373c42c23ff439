//! `cargo xtask bench egress`: our proxy and others between the same client and the same upstream, through
//! CONNECT and an intercepted TLS, in one interleaved run. The programs that are only for this lie in
//! `bench/egress`, a workspace of its own, so that no peer enters the product's lock file.

mod field;
mod measures;
mod peers;
mod report;

use super::{host, rounds};
use crate::command::{self, CommandError};
use fastrand::Rng;
use field::{Field, FieldError};
use measures::Samples;
use report::Report;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Egress {
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// For the order of the rounds and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long)]
    json: bool,
    /// Install the peers first (squid-openssl by apt, mitmproxy by pip beside the build)
    #[arg(long)]
    install_peers: bool,
    /// Give everything that is measured the real-time scheduler, where other work would blur the numbers
    #[arg(long)]
    realtime: bool,
}

#[derive(Debug, thiserror::Error)]
enum EgressError {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("`{line}` printed `{text}` in place of numbers")]
    NoNumber { line: String, text: String },
}

pub(crate) fn main(args: &Egress) -> crate::Outcome {
    let root = crate::workspace::root();
    let target = crate::workspace::metadata(&root)?.target_directory;
    if args.install_peers {
        peers::install(&target)?;
    }
    let programs = build(&root, &target)?;
    let dir = tempfile::Builder::new().prefix("bench-egress.").tempdir_in(&target)?;
    let mut field = Field::new(dir.path(), programs, args.realtime)?;
    let policy = std::fs::read_to_string(root.join("bench/egress/policy.toml"))?;
    let contenders = peers::all(&mut field, &policy, &target)?;
    let mut rng = Rng::with_seed(args.seed);
    let plan = rounds::Plan { rounds: args.rounds, warmup: 1, slow: Duration::MAX };
    let able: Vec<_> = contenders.iter().filter(|c| c.refusal().is_none()).collect();
    eprintln!("bench: requests, tunnels, events and transfers, {} rounds", args.rounds);
    let mut samples = vec![Samples::default(); able.len()];
    let mut runs = 0;
    rounds::interleave(&plan, able.len(), &mut rng, |who| {
        // The warm-up is the first round, and is thrown away.
        let keep = runs >= able.len() * plan.warmup;
        runs += 1;
        let seen = measures::all(&field, able[who])?;
        if keep {
            samples[who].add(seen);
        }
        Ok::<_, EgressError>(Duration::ZERO)
    })?;
    eprintln!("bench: idle tunnels, a gigabyte, revocation");
    for (contender, samples) in able.iter().zip(&mut samples) {
        samples.add(measures::memory(&field, contender)?);
    }
    let revoked = (0..args.rounds.min(5))
        .map(|n| measures::revocation(&mut field, &policy, n))
        .collect::<Result<Vec<_>, _>>()?;
    let rows = contenders
        .iter()
        .map(|c| {
            let at = able.iter().position(|a| a.name == c.name);
            report::Row::new(c, at.and_then(|at| samples.get(at)))
        })
        .collect();
    let report = Report { host: host(), rounds: args.rounds, realtime: args.realtime, rows, revoked };
    match args.json {
        true => println!("{}", report.json(&mut rng)?),
        false => print!("{}", report.text(&mut rng)),
    }
    Ok(true)
}

/// The client, the upstream, ours and the peer that is a library: all built as the product is.
fn build(root: &Path, target: &Path) -> Result<PathBuf, CommandError> {
    let mut cargo = command::cargo();
    cargo.current_dir(root.join("bench/egress")).args(["build", "--release", "--locked"]);
    cargo.arg("--target-dir").arg(target.join("bench-egress"));
    let status = command::status(&mut cargo)?;
    if !status.success() {
        return Err(CommandError::Failed { line: command::line(&cargo), status, stderr: String::new() });
    }
    Ok(target.join("bench-egress/release"))
}
