//! What a machine of its own costs, beside QEMU driven by hand on the same kernel: from one run, in alternating rounds,
//! from a released build. Which accelerator ran is said above the table, and a number of an emulated machine is no number of
//! a microVM: it compares ours with the other side of the same run, and nothing else.

mod raw;

use super::report::{self, Goal, Judgement};
use super::rounds;
use super::stats::{self, Estimate, Summary};
use crate::command::{self, CommandError};
use fastrand::Rng;
use raw::{Machine, Raw, Running};
use serde::Serialize;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Vm {
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Rounds of boots from nothing
    #[arg(long, default_value_t = 3)]
    boots: usize,
    /// For the order of the rounds and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long)]
    json: bool,
    /// Measure this program in place of a released build
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum VmError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("nothing that was waited for came from {0}")]
    Nothing(String),
    #[error("QEMU by hand: {0}")]
    Qemu(String),
}

/// How many copies are alive together.
const COPIES: usize = 8;
const TRIPS: usize = 300;
const STREAM: usize = 32 << 20;

/// A state directory of ours, with a supervisor once sessions stay.
struct Ours {
    cofferdam: PathBuf,
    home: PathBuf,
    work: PathBuf,
}

impl Ours {
    fn new(cofferdam: &Path, dir: &Path, name: &str) -> std::io::Result<Self> {
        let (home, work) = (dir.join(name), dir.join(format!("{name}.work")));
        std::fs::create_dir_all(&work)?;
        Ok(Self { cofferdam: cofferdam.to_owned(), home, work })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut ours = Command::new(&self.cofferdam);
        ours.args(words).env("COFFERDAM_HOME", &self.home).current_dir(&self.work);
        ours
    }

    fn call(&self, words: &[&str]) -> Result<String, VmError> {
        Ok(command::stdout(&mut self.command(words))?.trim().to_owned())
    }

    /// Until a command of its own has said something.
    fn first_output(&self, words: &[&str]) -> Result<Duration, VmError> {
        let began = Instant::now();
        let mut command = self.command(words);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut said = [0; 4];
        let read = child.stdout.take().map_or(Ok(()), |mut out| out.read_exact(&mut said));
        let took = began.elapsed();
        let ended = child.wait()?;
        match read.is_ok() && &said == b"out\n" && ended.success() {
            true => Ok(took),
            false => Err(VmError::Nothing(format!("`cofferdam {}` ({ended})", words.join(" ")))),
        }
    }

    fn run(&self) -> Result<Duration, VmError> {
        self.first_output(&["run", "--isolation", "microvm", "--", "echo", "out"])
    }

    /// A session from its order to the first output of its first command.
    fn session(&self) -> Result<Duration, VmError> {
        self.fill()?;
        let began = Instant::now();
        let id = self.call(&["session", "create", "--isolation", "microvm"])?;
        self.first_output(&["session", "exec", &id, "--", "echo", "out"])?;
        let took = began.elapsed();
        self.call(&["session", "kill", &id, "--changes", "discard"])?;
        Ok(took)
    }

    /// Waits until the pool is full: one that is still being prepared takes a processor.
    fn fill(&self) -> Result<(), VmError> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let told: serde_json::Value = serde_json::from_str(&self.call(&["pool", "ls", "--json"])?)?;
            let kinds = told["kinds"].as_array().map_or(&[][..], Vec::as_slice);
            let ready = |kind: &serde_json::Value| kind["ready"].as_u64();
            match kinds.iter().map(ready).min() {
                Some(Some(ready)) if Some(ready) >= told["size"].as_u64() => return Ok(()),
                _ if Instant::now() > until => return Err(VmError::Nothing("the pool".into())),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn supervisor(&self) -> Option<u32> {
        std::fs::read_to_string(self.home.join("live/supervisor.lock")).ok()?.trim().parse().ok()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Some(pid) = self.supervisor() {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
    }
}

/// The time from the first byte to the last of so many.
fn from_first_to_last(from: &mut impl Read, count: usize) -> Result<Duration, VmError> {
    let mut bytes = vec![0; 1 << 16];
    from.read_exact(bytes.get_mut(..1).unwrap_or_default())?;
    let (began, mut left) = (Instant::now(), count - 1);
    while left > 0 {
        let most = left.min(bytes.len());
        match from.read(bytes.get_mut(..most).unwrap_or_default())? {
            0 => return Err(VmError::Nothing("the stream".into())),
            read => left -= read,
        }
    }
    Ok(began.elapsed())
}

/// Ours beside the other, in one unit.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    unit: &'static str,
    ours: Option<Summary>,
    raw: Option<Summary>,
    ratio: Option<Estimate>,
    #[serde(skip)]
    samples: [Vec<f64>; 2],
}

impl Row {
    fn new(name: &'static str, unit: &'static str, samples: [Vec<f64>; 2], rng: &mut Rng) -> Self {
        let [ours, raw] = &samples;
        let ratio = stats::ratio(ours, raw, rng);
        Self { name, unit, ours: stats::summary(ours), raw: stats::summary(raw), ratio, samples }
    }
}

const BOOT: &str = "cold boot to first output";
const RESTORE: &str = "restore to first output";
const ECHO: &str = "the same, both by `echo`";
const POOL: &str = "prepared to first output";
const FORK: &str = "8 copies at once";
const MEMORY: &str = "proportional, each of 8";
const TRIP: &str = "a byte there and back";
const RATE: &str = "guest to host";

pub(crate) fn main(args: &Vm) -> crate::Outcome {
    let cofferdam = match &args.program {
        Some(program) => program.canonicalize()?,
        None => crate::dist::build(&crate::workspace::root())?,
    };
    // Beside the build; what QEMU by hand has for memory is memory, as ours is.
    let dir = tempfile::Builder::new()
        .prefix("bench-vm.")
        .tempdir_in(cofferdam.parent().unwrap_or(Path::new(".")))?;
    let memory = tempfile::Builder::new().prefix("bench-vm.").tempdir_in("/dev/shm")?;
    let host = super::host();
    let ours = Ours::new(&cofferdam, dir.path(), "ours")?;
    eprintln!("bench: the first machine of each side");
    ours.run()?;
    let raw = Raw::new(Machine::of(&ours.home)?, &memory.path().join("raw"))?;
    let mut rng = Rng::with_seed(args.seed);
    let rows = measure(args, &ours, &raw, dir.path(), &mut rng)?;
    let goals = goals(&rows, &mut rng);
    let machine = raw.machine();
    let accelerator = match machine.accelerator.as_str() {
        "kvm" => "KVM",
        _ => "TCG: emulated, no figure of a microVM's speed",
    };
    if args.json {
        let all = serde_json::json!({
            "accelerator": machine.accelerator, "vmm": machine.vmm, "guest": machine.kernel, "host": host,
            "rounds": args.rounds, "boots": args.boots, "seed": args.seed, "rows": rows, "goals": goals,
        });
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(true);
    }
    println!("kernel {}, {} cores, load {}, as {}", host.kernel, host.cores, host.load, host.user);
    println!("{accelerator}\nQEMU {}, guest Linux {}", machine.vmm, machine.kernel);
    println!("{} rounds in random order ({} boots), seed {}\n", args.rounds, args.boots, args.seed);
    println!("{:<25} {:>4} {:>14} {:>14} {:>19}", "median ± MAD", "", "ours", "by hand", "ratio (95 %)");
    rows.iter().for_each(|row| println!("{}", line(row)));
    println!();
    goals.iter().for_each(|goal| println!("{goal}"));
    Ok(true)
}

fn line(row: &Row) -> String {
    let digits = match row.ours.or(row.raw).map_or(0.0, |side| side.median) {
        median if median < 10.0 => 3,
        median if median < 1000.0 => 1,
        _ => 0,
    };
    let side = |summary: &Option<Summary>| {
        summary
            .map_or("-".into(), |Summary { median, mad, .. }| format!("{median:.digits$} ± {mad:.digits$}"))
    };
    let ratio = row
        .ratio
        .map_or(String::new(), |Estimate { value, low, high }| format!("{value:.2} ({low:.2}-{high:.2})"));
    let (ours, raw) = (side(&row.ours), side(&row.raw));
    let line = format!("{:<25} {:>4} {ours:>14} {raw:>14} {ratio:>19}", row.name, row.unit);
    line.trim_end().to_owned()
}

fn goals(rows: &[Row], rng: &mut Rng) -> Vec<Goal> {
    let row = |name: &str| rows.iter().find(|row| row.name == name);
    let own = |name: &str, rng: &mut Rng| row(name).and_then(|row| stats::middle(&row.samples[0], rng));
    let above = |row: Option<&Row>, bound: f64| match row.and_then(|row| row.ratio) {
        Some(ratio) if ratio.low >= bound => Judgement::Holds,
        Some(ratio) if ratio.high < bound => Judgement::DoesNotHold,
        Some(_) => Judgement::CannotTell,
        None => Judgement::NotMeasured,
    };
    let ratio = |name: &str| row(name).and_then(|row| row.ratio);
    let goal = |goal, judgement| Goal { goal, judgement };
    vec![
        goal("a restore takes at most 1.25 x QEMU by hand", report::at_most(1.25, ratio(RESTORE))),
        goal("a prepared session answers within 50 ms", report::at_most(50.0, own(POOL, rng))),
        goal("a byte there and back takes at most 1 ms", report::at_most(1.0, own(TRIP, rng))),
        goal("the channel carries at least 0.7 x the raw port", above(row(RATE), 0.7)),
    ]
}

fn measure(args: &Vm, ours: &Ours, raw: &Raw, dir: &Path, rng: &mut Rng) -> Result<Vec<Row>, VmError> {
    let plan = |rounds, warmup| rounds::Plan { rounds, warmup, slow: Duration::MAX };
    let two = |samples: Vec<Vec<f64>>| -> [Vec<f64>; 2] {
        let mut samples = samples.into_iter();
        [samples.next().unwrap_or_default(), samples.next().unwrap_or_default()]
    };
    let mut rows = Vec::new();
    eprintln!("bench: boots, {} rounds", args.boots);
    let mut number = 0;
    let boots = rounds::interleave(&plan(args.boots, 0), 2, rng, |who| match who {
        // The first run of a new state directory boots one.
        0 => {
            number += 1;
            Ours::new(&ours.cofferdam, dir, &format!("boot{number}"))?.run()
        }
        _ => raw.boot("boot.ram").map(|(_, took)| took),
    })?;
    rows.push(Row::new(BOOT, "ms", two(boots), rng));

    eprintln!("bench: restores, {} rounds", args.rounds);
    // By hand twice: as little as a command can be, and what ours runs, by which what that costs is told from what ours adds.
    let restores = rounds::interleave(&plan(args.rounds, 2), 3, rng, |who| match who {
        0 => ours.run(),
        1 => raw.restore("copy").map(|(_, took)| took),
        _ => raw.restore_to_echo("copy"),
    })?;
    let echo = [0, 2].map(|at: usize| restores.get(at).cloned().unwrap_or_default());
    rows.push(Row::new(RESTORE, "ms", two(restores), rng));
    rows.push(Row::new(ECHO, "ms", echo, rng));

    eprintln!("bench: prepared ones, {} rounds", args.rounds);
    ours.call(&["pool", "set", "2"])?;
    let id = ours.call(&["session", "create", "--isolation", "microvm"])?;
    ours.call(&["session", "kill", &id, "--changes", "discard"])?;
    let prepared = rounds::interleave(&plan(args.rounds, 2), 2, rng, |who| match who {
        0 => ours.session(),
        _ => {
            let mut waiting = raw.prepare("copy")?;
            let began = Instant::now();
            waiting.go_on()?;
            waiting.command()?;
            Ok(began.elapsed())
        }
    })?;
    rows.push(Row::new(POOL, "ms", two(prepared), rng));
    ours.call(&["pool", "set", "0"])?;
    rows.extend(together(args, ours, raw, rng)?);
    rows.extend(channel(ours, raw, rng)?);
    Ok(rows)
}

/// Copies that are alive at the same time. Ours are forks of a session, with the snapshot that a fork takes first; the
/// other's begin with what is there already.
fn together(args: &Vm, ours: &Ours, raw: &Raw, rng: &mut Rng) -> Result<Vec<Row>, VmError> {
    let rounds = args.rounds.div_ceil(5);
    eprintln!("bench: {COPIES} copies, {rounds} rounds");
    let id = ours.call(&["session", "create", "--isolation", "microvm"])?;
    ours.first_output(&["session", "exec", &id, "--", "echo", "out"])?;
    let (mut times, mut sizes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..rounds {
        let before = vmms(ours.supervisor());
        let began = Instant::now();
        let forks = ours.call(&["session", "fork", &id, "-n", &COPIES.to_string()])?;
        times[0].push(began.elapsed().as_secs_f64() * 1e3);
        let forks: Vec<&str> = forks.lines().collect();
        for fork in &forks {
            ours.first_output(&["session", "exec", fork, "--", "echo", "out"])?;
        }
        let own = vmms(ours.supervisor()).into_iter().filter(|pid| !before.contains(pid));
        sizes[0].extend(own.filter_map(proportional));
        for fork in forks {
            ours.call(&["session", "kill", fork, "--changes", "discard"])?;
        }
        let began = Instant::now();
        let copies = std::thread::scope(|scope| -> Result<Vec<Running>, VmError> {
            let one = |number: usize| raw.restore(&format!("copy{number}")).map(|(copy, _)| copy);
            let all: Vec<_> = (0..COPIES).map(|number| scope.spawn(move || one(number))).collect();
            let gone = || Err(VmError::Nothing("a copy".into()));
            all.into_iter().map(|copy| copy.join().unwrap_or_else(|_| gone())).collect()
        })?;
        times[1].push(began.elapsed().as_secs_f64() * 1e3);
        sizes[1].extend(copies.iter().filter_map(|copy| proportional(copy.pid())));
    }
    ours.call(&["session", "kill", &id, "--changes", "discard"])?;
    Ok(vec![Row::new(FORK, "ms", times, rng), Row::new(MEMORY, "MiB", sizes, rng)])
}

/// What a process has of memory, shared parts by how many share them, in MiB.
fn proportional(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

/// The VMMs below a process.
fn vmms(top: Option<u32>) -> Vec<u32> {
    let Some(top) = top else { return Vec::new() };
    let above = |pid: u32| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
    };
    let is_vmm = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("qemu"))
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_vmm)
        .filter(|pid| std::iter::successors(above(*pid), |pid| above(*pid)).any(|pid| pid == top))
        .collect()
}

/// A client of ours that passes bytes to a command in the machine and back.
struct Cat(Child);

impl Drop for Cat {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cat {
    fn round_trip(&mut self) -> Result<Duration, VmError> {
        let (Some(to), Some(from)) = (&mut self.0.stdin, &mut self.0.stdout) else {
            return Err(VmError::Nothing("a pipe".into()));
        };
        let began = Instant::now();
        to.write_all(b"e")?;
        from.read_exact(&mut [0])?;
        Ok(began.elapsed())
    }
}

/// Bytes to a command in the machine and back, through all of ours; and through the bare port.
fn channel(ours: &Ours, raw: &Raw, rng: &mut Rng) -> Result<Vec<Row>, VmError> {
    eprintln!("bench: the channel, {TRIPS} round trips");
    let id = ours.call(&["session", "create", "--isolation", "microvm"])?;
    let (mut bare, _) = raw.restore("copy")?;
    let mut client = ours.command(&["session", "exec", &id, "--", "cat"]);
    let mut cat = Cat(client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    for _ in 0..20 {
        cat.round_trip()?;
        bare.round_trip()?;
    }
    let (mut trips, mut rates) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..TRIPS {
        trips[0].push(cat.round_trip()?.as_secs_f64() * 1e3);
        trips[1].push(bare.round_trip()?.as_secs_f64() * 1e3);
    }
    drop(cat);
    let rate = |took: Duration| STREAM as f64 / 1e6 / took.as_secs_f64();
    for _ in 0..5 {
        let count = STREAM.to_string();
        let mut client = ours.command(&["session", "exec", &id, "--", "head", "-c", &count, "/dev/zero"]);
        let mut client = Cat(client.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
        let out = client.0.stdout.as_mut().ok_or_else(|| VmError::Nothing("a pipe".into()))?;
        rates[0].push(rate(from_first_to_last(out, STREAM)?));
        rates[1].push(rate(bare.stream(STREAM)?));
    }
    ours.call(&["session", "kill", &id, "--changes", "discard"])?;
    Ok(vec![Row::new(TRIP, "ms", trips, rng), Row::new(RATE, "MB/s", rates, rng)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, unit: &'static str, ours: &[f64], raw: &[f64]) -> Row {
        Row::new(name, unit, [ours.to_vec(), raw.to_vec()], &mut Rng::with_seed(1))
    }

    #[test]
    fn a_line_fits_80_columns() {
        let check = |row: Row, expected: &str| {
            let text = line(&row);
            assert_eq!(text, expected);
            assert!(text.chars().count() <= 80);
        };
        check(
            row(BOOT, "ms", &[24_294.0, 23_294.0, 25_294.0], &[3851.4, 3851.4, 3851.4]),
            "cold boot to first output   ms   24294 ± 1000       3851 ± 0    6.31 (6.05-6.57)",
        );
        check(
            row(TRIP, "ms", &[0.5, 0.5], &[0.25, 0.25]),
            "a byte there and back       ms  0.500 ± 0.000  0.250 ± 0.000    2.00 (2.00-2.00)",
        );
        check(
            row(RATE, "MB/s", &[], &[100.0]),
            "guest to host             MB/s              -    100.0 ± 0.0",
        );
    }

    #[test]
    fn goals_are_judged_by_the_side_that_they_are_about() {
        let rows = [
            row(RESTORE, "ms", &[100.0; 5], &[90.0; 5]),
            row(POOL, "ms", &[80.0; 5], &[20.0; 5]),
            row(RATE, "MB/s", &[80.0; 5], &[100.0; 5]),
        ];
        let judged: Vec<Judgement> =
            goals(&rows, &mut Rng::with_seed(1)).into_iter().map(|goal| goal.judgement).collect();
        let expected = [Judgement::Holds, Judgement::DoesNotHold, Judgement::NotMeasured, Judgement::Holds];
        assert_eq!(judged, expected);
        let rows = [row(RATE, "MB/s", &[60.0; 5], &[100.0; 5])];
        let last = goals(&rows, &mut Rng::with_seed(1)).pop().map(|goal| goal.judgement);
        assert_eq!(last, Some(Judgement::DoesNotHold));
    }

    #[test]
    fn bytes_are_timed_from_the_first_to_the_last() {
        assert!(from_first_to_last(&mut [0; 200_000].as_slice(), 200_000).is_ok());
        assert!(from_first_to_last(&mut [0; 10].as_slice(), 11).is_err());
    }
}
