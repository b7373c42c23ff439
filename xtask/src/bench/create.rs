//! How many sessions a second can be made, used once and ended, many at a time, beside a program that has the kernel
//! make the same and does nothing else; and what many that rest hold besides their own processes.

use super::asker;
use super::live::{LiveError, Place};
use super::memory::kib;
use super::rounds;
use super::stats::{self, Estimate, Summary};
use crate::command;
use fastrand::Rng;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FLOOR: &str = include_str!("create/floor.c");
/// The share of the floor's rate that is aimed at, and what one that rests may hold.
const SHARE: f64 = 0.6;
const HELD: f64 = 1024.0;

#[derive(clap::Args)]
pub(crate) struct Create {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// For the order of the rounds and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sessions in each sample
    #[arg(long, default_value_t = 320)]
    count: usize,
    /// So many at a time
    #[arg(long, default_value_t = 32)]
    at_once: usize,
    /// Sessions that are paused, to be weighed
    #[arg(long, default_value_t = 200)]
    paused: usize,
    #[arg(long)]
    json: bool,
    /// Measure this program instead of building one
    #[arg(long)]
    program: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    /// Of how long the whole sample took, in milliseconds.
    #[serde(flatten)]
    summary: Summary,
    per_second: f64,
    /// Its rate by that of the floor that has groups too.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_floor: Option<Estimate>,
}

/// Kibibytes, each by the number of those that rest.
#[derive(Debug, Clone, Copy, Serialize)]
struct Weight {
    resting: usize,
    /// What the supervisor has come to hold.
    supervisor: f64,
    /// What the kernel has: slabs, page tables, stacks, per-processor memory.
    kernel: f64,
    /// Files in memory: scratch space, roots.
    files: f64,
    /// Their own processes, for comparison.
    processes: f64,
}

impl Weight {
    fn beyond(&self) -> f64 {
        self.supervisor + self.kernel + self.files
    }
}

#[derive(Debug, Serialize)]
struct Report {
    count: usize,
    at_once: usize,
    rows: Vec<Row>,
    parked: Weight,
    paused: Weight,
}

const NAMES: [&str; 4] = ["floor without groups", "floor", "session", "session, some prepared"];

pub(crate) fn main(args: &Create) -> crate::Outcome {
    let cofferdam = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => crate::dist::build(&crate::workspace::root())?,
    };
    let beside = cofferdam.parent().unwrap_or(Path::new("."));
    let dir = tempfile::Builder::new().prefix("bench-create.").tempdir_in(beside)?;
    let floor = compile(dir.path())?;
    let groups = groups();
    if groups.is_empty() {
        eprintln!("bench: no control groups for this user; the floor makes none either");
    }
    let samples = {
        let (cold, warm) =
            (Place::new(&cofferdam, dir.path(), "cold")?, Place::new(&cofferdam, dir.path(), "warm")?);
        cold.begins(&["session", "create"])?;
        warm.call(&["pool", "set", &args.at_once.min(64).to_string()])?;
        let plan = rounds::Plan { rounds: args.rounds, warmup: 1, slow: Duration::MAX };
        eprintln!("bench: {} sessions, {} at a time, {} rounds", args.count, args.at_once, args.rounds);
        let mut rng = Rng::with_seed(args.seed);
        rounds::interleave(&plan, NAMES.len(), &mut rng, |who| match who {
            0 => bare(args, &floor, &cold.work, &[]),
            1 => bare(args, &floor, &cold.work, &groups),
            2 => asked(args, &cold),
            _ => asked(args, &warm),
        })?
    };
    let mut rng = Rng::with_seed(args.seed);
    let row = |(at, name): (usize, &&'static str)| {
        let own = samples.get(at)?;
        let summary = stats::summary(own)?;
        let per_second = args.count as f64 * 1e3 / summary.median;
        // Rates are to each other as the times the other way round.
        let to_floor = (at >= 2).then(|| stats::ratio(samples.get(1)?, own, &mut rng)).flatten();
        Some(Row { name, summary, per_second, to_floor })
    };
    let rows = NAMES.iter().enumerate().filter_map(row).collect();
    let (parked, paused) = weigh(args, &cofferdam, dir.path())?;
    let report = Report { count: args.count, at_once: args.at_once, rows, parked, paused };
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{report}"),
    }
    Ok(true)
}

fn compile(dir: &Path) -> Result<PathBuf, LiveError> {
    let (source, program) = (dir.join("floor.c"), dir.join("floor"));
    fs::write(&source, FLOOR)?;
    command::stdout(Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(&source))?;
    Ok(program)
}

/// Where a session here has its groups: one of version 2, or one for each controller of version 1.
fn groups() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    if !command::is_root() {
        return Vec::new();
    }
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let used = ["memory", "pids", "freezer", "cpuacct"].map(|name| root.join(name));
    used.into_iter().filter(|dir| dir.is_dir()).collect()
}

fn bare(args: &Create, floor: &Path, work: &Path, groups: &[PathBuf]) -> Result<Duration, LiveError> {
    let mut program = Command::new(floor);
    program.args([args.count.to_string(), args.at_once.to_string()]).arg(work).args(groups);
    let text = command::stdout(&mut program)?;
    let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| LiveError::Silent("floor".into()))
}

/// So many threads of one program that asks, each for its share, one after the other.
fn asked(args: &Create, place: &Place) -> Result<Duration, LiveError> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let asker = |number: usize| {
            let own = (number..args.count).step_by(args.at_once);
            own.map(|_| asker::first_byte(&place.home, &place.work)).try_for_each(|took| took.map(drop))
        };
        let threads: Vec<_> = (0..args.at_once).map(|number| scope.spawn(move || asker(number))).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, std::io::Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread that asked has failed")))
        };
        threads.into_iter().try_for_each(ended)
    })?;
    Ok(began.elapsed())
}

/// What prepared ones and paused ones hold.
fn weigh(args: &Create, cofferdam: &Path, dir: &Path) -> Result<(Weight, Weight), LiveError> {
    let place = Place::new(cofferdam, dir, "resting")?;
    // A kind is known once it was asked for.
    place.begins(&["session", "create"])?;
    let before = Held::look(&place)?;
    let parked = 64;
    place.call(&["pool", "set", &parked.to_string()])?;
    place.begins(&["session", "create"])?;
    eprintln!("bench: {parked} that are prepared, {} that are paused", args.paused);
    let until = Instant::now() + Duration::from_secs(60);
    while ready(&place)? < parked && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    settle();
    let first = Held::look(&place)?.since(before, parked);
    place.call(&["pool", "set", "0"])?;
    settle();
    let before = Held::look(&place)?;
    for _ in 0..args.paused {
        let id = place.call(&["session", "create"])?;
        place.call(&["session", "exec", &id, "--", "true"])?;
        place.call(&["session", "pause", &id])?;
    }
    settle();
    Ok((first, Held::look(&place)?.since(before, args.paused)))
}

/// The kernel takes back what has ended a little later.
fn settle() {
    std::thread::sleep(Duration::from_secs(2));
}

fn ready(place: &Place) -> Result<usize, LiveError> {
    let pool: serde_json::Value = serde_json::from_str(&place.call(&["pool", "ls", "--json"])?)
        .map_err(|error| LiveError::Asking(error.into()))?;
    let kinds = pool["kinds"].as_array().cloned().unwrap_or_default();
    Ok(kinds.iter().filter_map(|kind| kind["ready"].as_u64()).sum::<u64>() as usize)
}

/// Kibibytes.
#[derive(Clone, Copy)]
struct Held {
    supervisor: f64,
    kernel: f64,
    files: f64,
    processes: f64,
}

impl Held {
    fn look(place: &Place) -> Result<Self, LiveError> {
        let lock = fs::read_to_string(place.home.join("live/supervisor.lock"))?;
        let pid = lock.trim();
        let machine = fs::read_to_string("/proc/meminfo")?;
        let of = |name: &str| kib(&machine, name).unwrap_or(0.0);
        Ok(Self {
            supervisor: proportional(pid),
            kernel: of("Slab:") + of("PageTables:") + of("KernelStack:") + of("Percpu:"),
            files: of("Shmem:"),
            processes: below(pid).iter().filter(|own| !shares(own, pid)).map(|pid| proportional(pid)).sum(),
        })
    }

    fn since(self, before: Self, count: usize) -> Weight {
        let each = |now: f64, then: f64| (now - then) / count.max(1) as f64;
        Weight {
            resting: count,
            supervisor: each(self.supervisor, before.supervisor),
            kernel: each(self.kernel, before.kernel),
            files: each(self.files, before.files),
            processes: each(self.processes, before.processes),
        }
    }
}

fn proportional(pid: &str) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    kib(&rollup, "Pss:").unwrap_or(0.0)
}

/// Whether it still is the supervisor's program: those who make a sandbox, or wait to bind one, work in its memory, which is
/// counted once.
fn shares(pid: &str, supervisor: &str) -> bool {
    let program = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
    program(pid) == program(supervisor)
}

/// All that descend from it.
fn below(pid: &str) -> Vec<String> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            found.push(child.to_owned());
            found.extend(below(child));
        }
    }
    found
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} made, used once and ended, {} at a time", self.count, self.at_once)?;
        for Row { name, per_second, to_floor, summary } in &self.rows {
            write!(f, "{name:<24} {per_second:>6.0} a second, {:>6.0} ms in all", summary.median)?;
            if let Some(Estimate { value, low, high }) = to_floor {
                let judged = match (*low >= SHARE, *high >= SHARE) {
                    (true, _) => "holds",
                    (false, false) => "does not hold",
                    _ => "cannot tell",
                };
                write!(f, ", {value:.2} ({low:.2} to {high:.2}) of the floor (goal: {SHARE}: {judged})")?;
            }
            writeln!(f)?;
        }
        for (what, weight) in [("prepared", &self.parked), ("paused", &self.paused)] {
            let Weight { resting, supervisor, kernel, files, processes } = weight;
            let judged = if weight.beyond() <= HELD { "holds" } else { "does not hold" };
            writeln!(
                f,
                "{resting} that are {what}: {:.0} KiB each beyond their own processes (goal: {HELD:.0}: {judged}): \
                 supervisor {supervisor:.0}, kernel {kernel:.0}, files in memory {files:.0}; their processes {processes:.0}",
                weight.beyond()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_holds_is_what_was_added_by_their_number() {
        let held = |n: f64| Held { supervisor: n, kernel: 2.0 * n, files: 0.0, processes: 4.0 * n };
        let weight = held(300.0).since(held(100.0), 2);
        assert_eq!((weight.beyond(), weight.processes), (300.0, 400.0));
        assert_eq!(kib("Slab:   12 kB\nPss: 7 kB\n", "Pss:"), Some(7.0));
    }
}
