//! How long a gate takes, and where the time goes: the example suite, as many sessions as asked for, replayed and judged;
//! beside it the same agents alone, and the comparison of what is stored, with the memory it needs.

mod sdk;

use super::contenders::Ground;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The example's sessions: what each reads.
const TICKETS: &[(&str, &str)] = &[
    ("where-is-it", "Where is my order C33?"),
    ("stock", "Do you still have the lamp?"),
    ("unknown-order", "What about order Z99?"),
];

/// Calls of the long session, each a request like those of the example's tools.
const LONG: usize = 20;
const LONG_AGENT: &str = "import urllib.request\nfor _ in range(LONG):\n    print(urllib.request.urlopen('http://shop.example/stock/lamp', timeout=30).read().decode())\n";

#[derive(clap::Args)]
pub(crate) struct Gate {
    #[arg(long, default_value_t = 500)]
    sessions: usize,
    /// Sessions of the comparison of what is stored already, beside that of the gate's own
    #[arg(long, default_value_t = 10_000)]
    stored: usize,
    /// Sessions of an agent that imports a large SDK, as it is and from an interpreter that is kept; 0 leaves them out
    #[arg(long, default_value_t = 40)]
    sdk: usize,
    /// Measure this program in place of a released build
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum GateError {
    #[error("`{line}` ended with {code:?}: {said}")]
    Failed { line: String, code: Option<i32>, said: String },
    #[error("the example's world did not say where it is")]
    NoWorld,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What a command cost.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Cost {
    wall_s: f64,
    /// Of it and all that it started.
    cpu_s: f64,
    most_mib: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    sessions: usize,
    at_once: usize,
    bare: Cost,
    empty: Cost,
    gate: Cost,
    /// One session of twenty tool calls.
    long: Cost,
    compared: Cost,
    stored: usize,
    compared_stored: Cost,
    sdk: Option<sdk::Report>,
}

pub(crate) fn main(args: &Gate) -> crate::Outcome {
    let root = crate::workspace::root();
    let cofferdam = match &args.program {
        Some(program) => program.canonicalize()?,
        None => crate::dist::build(&root)?,
    };
    let home = cofferdam.parent().unwrap_or(&root).to_owned();
    let dir = tempfile::Builder::new().prefix("bench.").tempdir_in(home)?;
    let stage = Stage { ground: Ground { cofferdam, dir: dir.path().to_owned() } };
    let mut report = stage.measure(args, &root.join("examples/support-agent"))?;
    if args.sdk > 0 {
        let packages = crate::workspace::metadata(&root)?.target_directory.join("bench-sdk");
        report.sdk = Some(stage.sdk(args.sdk, report.at_once, &packages)?);
    }
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{report}"),
    }
    Ok(true)
}

struct Stage {
    ground: Ground,
}

/// The example's model and shop; gone when this is.
struct World(Child, u16);

impl World {
    fn start(example: &Path) -> Result<Self, GateError> {
        let mut command = Command::new("python3");
        command.arg(example.join("world.py")).arg("0").stdout(Stdio::piped()).env("PATH", SEARCH_PATH);
        let mut child = command.spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let port = line.trim().parse().map_err(|_| GateError::NoWorld)?;
        Ok(Self(child, port))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    fn measure(&self, args: &Gate, example: &Path) -> Result<Report, GateError> {
        let at_once = thread::available_parallelism().map_or(1, Into::into);
        let work = self.ground.work();
        fs::create_dir_all(&work)?;
        let world = World::start(example)?;
        self.write_suite(example, args.sessions, world.1)?;
        eprintln!("bench: recording {} kinds of tickets, for {} sessions", TICKETS.len(), args.sessions);
        let only: Vec<String> =
            (0..TICKETS.len().min(args.sessions)).flat_map(|n| ["--only".to_owned(), id(n)]).collect();
        let words: Vec<&str> =
            ["record", "suite.toml", "-q"].into_iter().chain(only.iter().map(String::as_str)).collect();
        self.ours(&words, &[0])?;
        let baseline = work.join("baseline");
        for n in TICKETS.len()..args.sessions {
            fs::copy(trace(&baseline, n % TICKETS.len()), trace(&baseline, n))?;
        }
        eprintln!("bench: {} agents alone, {at_once} at once", args.sessions);
        let bare = self.bare(args.sessions, at_once)?;
        self.ours(&["record", "long.toml", "-q"], &[0])?;
        drop(world);
        eprintln!("bench: {} empty sandboxes, {at_once} at once", args.sessions);
        let empty = self.empty(args.sessions, at_once)?;
        eprintln!("bench: a gate of {} sessions", args.sessions);
        let gate = self.ours(&["gate", "suite.toml", "-q"], &[0])?;
        eprintln!("bench: a gate of one session with {LONG} calls");
        let long = self.ours(&["gate", "long.toml", "--out", "long-out", "-q"], &[0])?;
        eprintln!("bench: what is stored, compared");
        let compared =
            self.ours(&["compare", "baseline", "gate-out/traces", "--out", "again", "-q"], &[0])?;
        let (old, new) = (work.join("stored-old"), work.join("stored-new"));
        for dir in [&old, &new] {
            fs::create_dir_all(dir)?;
        }
        for n in 0..args.stored {
            fs::hard_link(trace(&baseline, n % args.sessions), trace(&old, n))?;
            fs::hard_link(trace(&work.join("gate-out/traces"), n % args.sessions), trace(&new, n))?;
        }
        let words = ["compare", "stored-old", "stored-new", "--out", "again", "-q"];
        let compared_stored = if args.stored > 0 { self.ours(&words, &[0])? } else { Cost::default() };
        let (sessions, stored) = (args.sessions, args.stored);
        Ok(Report {
            sessions,
            at_once,
            bare,
            empty,
            gate,
            long,
            compared,
            stored,
            compared_stored,
            sdk: None,
        })
    }

    fn write_suite(&self, example: &Path, sessions: usize, port: u16) -> io::Result<()> {
        let work = self.ground.work();
        let agent = fs::read_to_string(example.join("agent.py"))?;
        let here = format!("http://127.0.0.1:{port}");
        let near = agent.replace("http://model.example", &here).replace("http://shop.example", &here);
        fs::write(self.ground.dir.join("bare.py"), near)?;
        fs::write(work.join("agent.py"), agent)?;
        let policy = fs::read_to_string(example.join("policy.toml"))?;
        fs::write(work.join("policy.toml"), policy.replace(":8787", &format!(":{port}")))?;
        let mut suite = String::from(
            "[agent]\ncommand = [\"python3\", \"agent.py\"]\n[policy]\nfile = \"policy.toml\"\n[replay]\nmode = \"normalised\"\nfallback = \"review\"\n",
        );
        for n in 0..sessions {
            let (_, ticket) = TICKETS[n % TICKETS.len()];
            suite.push_str(&format!("[[session]]\nid = \"{}\"\ninput = {{ stdin = \"{ticket}\" }}\n", id(n)));
        }
        fs::write(work.join("suite.toml"), suite)?;
        fs::write(work.join("long.py"), LONG_AGENT.replace("LONG", &LONG.to_string()))?;
        let long = "[agent]\ncommand = [\"python3\", \"long.py\"]\n[policy]\nfile = \"policy.toml\"\n[replay]\nmode = \"normalised\"\n[baseline]\ndir = \"long-baseline\"\n[[session]]\nid = \"long\"\n";
        fs::write(work.join("long.toml"), long)
    }

    fn bare(&self, count: usize, at_once: usize) -> Result<Cost, GateError> {
        let program = self.ground.dir.join("bare.py");
        many(count, at_once, |n| {
            let mut agent = Command::new("python3");
            agent.arg(&program).env("PATH", SEARCH_PATH).stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = agent.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                io::Write::write_all(&mut stdin, TICKETS[n % TICKETS.len()].1.as_bytes())?;
            }
            child.wait().map(|status| status.success())
        })
    }

    fn empty(&self, count: usize, at_once: usize) -> Result<Cost, GateError> {
        many(count, at_once, |_| {
            let mut run = self.command(&["-q", "run", "--", "true"]);
            run.stdin(Stdio::null()).stdout(Stdio::null()).status().map(|status| status.success())
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.ground.cofferdam);
        command.arg("--home").arg(self.ground.dir.join("state")).args(words);
        command.current_dir(self.ground.work()).env("PATH", SEARCH_PATH);
        command
    }

    fn ours(&self, words: &[&str], codes: &[i32]) -> Result<Cost, GateError> {
        let began = (Instant::now(), children_cpu());
        let mut command = self.command(words);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let watched = child.id();
        let peak = thread::spawn(move || peak(watched));
        let output = child.wait_with_output()?;
        let most_mib = peak.join().unwrap_or_default();
        let cost =
            Cost { wall_s: began.0.elapsed().as_secs_f64(), cpu_s: children_cpu() - began.1, most_mib };
        match output.status.code() {
            Some(code) if codes.contains(&code) => Ok(cost),
            code => {
                let said = [output.stdout, output.stderr].concat();
                let said = String::from_utf8_lossy(&said).chars().take(2000).collect();
                Err(GateError::Failed { line: words.join(" "), code, said })
            }
        }
    }
}

fn id(n: usize) -> String {
    format!("{}-{n:05}", TICKETS[n % TICKETS.len()].0)
}

fn trace(dir: &Path, n: usize) -> PathBuf {
    dir.join(format!("{}.1.tar.zst", id(n)))
}

fn many(
    count: usize,
    at_once: usize,
    one: impl Fn(usize) -> io::Result<bool> + Sync,
) -> Result<Cost, GateError> {
    let (next, began) = (AtomicUsize::new(0), (Instant::now(), children_cpu()));
    let work = || -> io::Result<()> {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count {
                return Ok(());
            }
            if !one(n)? {
                return Err(io::Error::other("it did not end well"));
            }
        }
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
    })?;
    Ok(Cost { wall_s: began.0.elapsed().as_secs_f64(), cpu_s: children_cpu() - began.1, most_mib: 0.0 })
}

/// Seconds of those that were waited for: fields 16 and 17 of our own line, in ticks.
fn children_cpu() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<f64> = after.split_whitespace().skip(13).take(2).filter_map(|t| t.parse().ok()).collect();
    ticks.iter().sum::<f64>() / 100.0
}

/// The most memory of a process, looked at until it is gone.
fn peak(pid: u32) -> f64 {
    let mut most = 0.0_f64;
    while let Ok(text) = fs::read_to_string(format!("/proc/{pid}/status")) {
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let Some(kib) = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok()) else {
            break;
        };
        most = most.max(kib / 1024.0);
        thread::sleep(std::time::Duration::from_millis(20));
    }
    most
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sessions, at_once, bare, empty, gate, long, compared, stored, compared_stored, sdk } =
            self;
        // By processor time: what others do on the machine is not in it, and waiting is nobody's work.
        let each = |cost: &Cost| cost.cpu_s * 1e3 / (*sessions).max(1) as f64;
        let line = |f: &mut fmt::Formatter<'_>, what: &str, cost: &Cost| {
            let (wall, cpu, most) = (cost.wall_s, cost.cpu_s, cost.most_mib);
            writeln!(f, "{what:<44} {wall:>7.1} s {cpu:>8.1} s cpu {most:>7.1} MiB")
        };
        writeln!(f, "{sessions} sessions of the example suite, {at_once} at once")?;
        line(f, "agents alone, against their world", bare)?;
        line(f, "sandboxes with nothing in them (`run true`)", empty)?;
        line(f, "gate: replayed, recorded, judged, reported", gate)?;
        line(f, &format!("gate of one session with {LONG} calls"), long)?;
        line(f, "compare with all reports, stored traces", compared)?;
        line(f, &format!("the same for {stored} stored traces"), compared_stored)?;
        let (agent, sandbox, all) = (each(bare), each(empty), each(gate));
        let rest = all - agent - sandbox;
        writeln!(
            f,
            "a session, ms of one core: agent {agent:.0}, sandbox {sandbox:.0}, proxy, record, comparison and reports {rest:.0}"
        )?;
        let ratio = |of: fn(&Cost) -> f64| of(gate) / of(bare).max(1e-9);
        writeln!(
            f,
            "gate to agents alone: {:.2} by the clock, {:.2} of the processor",
            ratio(|c| c.wall_s),
            ratio(|c| c.cpu_s)
        )?;
        sdk.iter().try_for_each(|sdk| sdk.fmt(f))
    }
}
