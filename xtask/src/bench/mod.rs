//! `cargo xtask bench`: ours and its peers on this machine, in one interleaved run, from a released build.
//! It prints what it saw; it never fails because a number is bad, for a busy machine is no bug.

mod api;
mod append;
mod asker;
mod chunks;
mod compare;
mod contenders;
mod create;
mod egress;
mod gate;
mod live;
mod memory;
mod oci;
mod output;
mod replay;
mod report;
mod rounds;
mod script;
mod sql;
mod ssh;
mod stats;
mod tx;
mod vm;

use crate::{command, packages};
use contenders::{Contender, Ground, YARDSTICK};
use fastrand::Rng;
use report::{Host, Output, Report, Row};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// How long `true` takes from the command line to its exit code, and what the supervisor costs
    Start(Start),
    /// What keeping and dropping 1,000 changed files costs, beside `cp -a`
    Tx(tx::Tx),
    /// What a session that stays costs to begin, with a prepared sandbox and without, and to fork
    #[command(aliases = ["fork", "pool"])]
    Live(live::Live),
    /// How many sessions a second can be made, many at a time, beside the kernel alone, and what those that rest hold
    #[command(alias = "many")]
    Create(create::Create),
    /// What a program waits for that uses the service through E2B's SDK, and what many sessions take
    Api(api::Api),
    /// How long runs take to compare, beside agentevals on the same pairs
    Compare(compare::Compare),
    /// How long a gate of 500 sessions takes beside the agents alone, and comparing what is stored
    Gate(gate::Gate),
    /// What our proxy costs beside others, and what a body, a stream and an idle tunnel cost
    Egress(egress::Egress),
    /// What a replayed session costs beyond the agent's own work, and how long 500 of them take
    Replay(replay::Replay),
    /// What a round trip to a database costs through the proxy
    Sql(sql::Sql),
    /// What a clone over SSH costs through the proxy
    Ssh(ssh::Ssh),
    /// What a machine of its own costs, beside QEMU driven by hand on the same kernel
    Vm(vm::Vm),
}

#[derive(clap::Args)]
pub(crate) struct Start {
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    #[arg(long, default_value_t = 10)]
    warmup: usize,
    /// Rounds of the 100 MB print
    #[arg(long, default_value_t = 7)]
    output_rounds: usize,
    /// For the order of the rounds and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only starts: no memory, no 100 MB print, no append
    #[arg(long)]
    only_starts: bool,
    #[arg(long)]
    json: bool,
    /// Install the peers first (apt, and srt by npm)
    #[arg(long)]
    install_peers: bool,
    /// Measure this program instead of building one
    #[arg(long)]
    program: Option<PathBuf>,
}

pub(crate) fn main(bench: &Bench) -> crate::Outcome {
    let args = match bench {
        Bench::Start(args) => args,
        Bench::Tx(args) => return tx::main(args),
        Bench::Create(args) => return create::main(args),
        Bench::Api(args) => return api::main(args),
        Bench::Live(args) => return live::main(args),
        Bench::Compare(args) => return compare::main(args),
        Bench::Gate(args) => return gate::main(args),
        Bench::Egress(args) => return egress::main(args),
        Bench::Replay(args) => return replay::main(args),
        Bench::Sql(args) => return sql::main(args),
        Bench::Ssh(args) => return ssh::main(args),
        Bench::Vm(args) => return vm::main(args),
    };
    if args.install_peers {
        install_peers()?;
    }
    let root = crate::workspace::root();
    let cofferdam = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => crate::dist::build(&root)?,
    };
    // Beside the build, not in the temporary directory: that is memory on many machines, and free to sync.
    let home = cofferdam.parent().unwrap_or(&root);
    let dir = tempfile::Builder::new().prefix("bench.").tempdir_in(home)?;
    let ground = Ground { cofferdam, dir: dir.path().to_owned() };
    std::fs::create_dir_all(ground.work())?;
    let report = measure(args, &ground, &root)?;
    if args.json {
        println!("{}", report.json()?)
    } else {
        print!("{report}")
    }
    Ok(true)
}

fn measure(args: &Start, ground: &Ground, root: &Path) -> Result<Report, Box<dyn std::error::Error>> {
    let mut rng = Rng::with_seed(args.seed);
    let host = host();
    let contenders = contenders::all(ground)?;
    eprintln!("bench: starts, {} rounds", args.rounds);
    let start = starts(args, ground, &contenders, &mut rng)?;
    let runs = contenders.iter().any(|c| c.name == contenders::OURS && c.refusal().is_none());
    let mut report = Report {
        host,
        rounds: args.rounds,
        seed: args.seed,
        start,
        memory: None,
        output: None,
        append: None,
    };
    if args.only_starts {
        return Ok(report);
    }
    if runs {
        eprintln!("bench: memory");
        report.memory = memory::measure(ground)?;
        eprintln!("bench: 100 MB printed, {} rounds", args.output_rounds);
        report.output = print_output(args, ground, &mut rng)?;
    }
    eprintln!("bench: trace append");
    report.append = Some(append::measure(root)?);
    Ok(report)
}

fn starts(
    args: &Start,
    ground: &Ground,
    contenders: &[Contender],
    rng: &mut Rng,
) -> Result<Vec<Row>, contenders::ContenderError> {
    let plan =
        rounds::Plan { rounds: args.rounds, warmup: args.warmup.max(1), slow: Duration::from_millis(100) };
    let able: Vec<_> = contenders.iter().filter(|c| c.refusal().is_none()).collect();
    let run = |who: usize| able.get(who).map_or(Ok(Duration::ZERO), |c| c.time(ground));
    let samples = rounds::interleave(&plan, able.len(), rng, run)?;
    let of = |name: &str| able.iter().position(|c| c.name == name).and_then(|at| samples.get(at));
    let yardstick = of(YARDSTICK);
    let row = |c: &Contender| {
        let own = of(c.name);
        let to_yardstick = own.zip(yardstick).and_then(|(own, theirs)| stats::ratio(own, theirs, rng));
        Row {
            name: c.name,
            command: c.line(),
            summary: own.and_then(|samples| stats::summary(samples)),
            to_yardstick: to_yardstick.filter(|_| c.name != YARDSTICK),
            refusal: c.refusal().map(str::to_owned),
        }
    };
    Ok(contenders.iter().map(row).collect())
}

fn print_output(args: &Start, ground: &Ground, rng: &mut Rng) -> Result<Option<Output>, output::OutputError> {
    let lines = [output::bare(), output::ours(ground)];
    let plan = rounds::Plan { rounds: args.output_rounds, warmup: 1, slow: Duration::MAX };
    let run = |who: usize| lines.get(who).map_or(Ok(Duration::ZERO), |argv| output::time(ground, argv));
    let samples = rounds::interleave(&plan, lines.len(), rng, run)?;
    let [bare, ours] = samples.as_slice() else { return Ok(None) };
    let all = (stats::summary(bare), stats::summary(ours), stats::ratio(ours, bare, rng));
    Ok(match all {
        (Some(bare), Some(ours), Some(ratio)) => Some(Output { bare, ours, ratio }),
        _ => None,
    })
}

fn install_peers() -> Result<(), command::CommandError> {
    packages::provide(packages::PEERS, true)?;
    if command::find("srt").is_none() && command::find("npm").is_some() {
        command::status(Command::new("npm").args(["install", "--global", "@anthropic-ai/sandbox-runtime"]))?;
    }
    Ok(())
}

fn host() -> Host {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Host {
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
        load: read("/proc/loadavg").split(' ').next().unwrap_or("").to_owned(),
        user: if command::is_root() { "root" } else { "a plain user" },
    }
}
