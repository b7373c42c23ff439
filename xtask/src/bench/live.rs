//! What it costs to begin a session that stays, with a prepared sandbox and without, and to fork one that has
//! written a lot. Samples alternate, from a released build; `session show` of the same session is the floor that
//! no question to the supervisor gets below, and `bwrap` what others take from nothing.

use super::stats::{self, Estimate, Summary};
use super::{asker, rounds, script};
use crate::command::{self, CommandError};
use fastrand::Rng;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Live {
    #[arg(long, default_value_t = 30)]
    rounds: usize,
    /// For the order of the rounds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mebibytes in the layer that is forked
    #[arg(long, default_value_t = 1024)]
    written: u64,
    #[arg(long)]
    json: bool,
    /// Measure this program instead of building one
    #[arg(long)]
    program: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LiveError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("`cofferdam {0}` printed nothing")]
    Silent(String),
    #[error("the supervisor could not be asked: {0}")]
    Asking(#[from] std::io::Error),
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    #[serde(flatten)]
    summary: Summary,
}

#[derive(Debug, Serialize)]
struct Ratio<'a> {
    name: &'a str,
    value: Option<Estimate>,
}

/// A state directory with a supervisor of its own.
pub(super) struct Place {
    cofferdam: PathBuf,
    pub(super) home: PathBuf,
    pub(super) work: PathBuf,
}

impl Place {
    pub(super) fn new(cofferdam: &Path, dir: &Path, name: &str) -> std::io::Result<Self> {
        let place = Self {
            cofferdam: cofferdam.to_owned(),
            home: dir.join(name),
            work: dir.join(format!("{name}.work")),
        };
        std::fs::create_dir_all(&place.work)?;
        Ok(place)
    }

    pub(super) fn call(&self, words: &[&str]) -> Result<String, CommandError> {
        let mut ours = Command::new(&self.cofferdam);
        ours.args(words).env("COFFERDAM_HOME", &self.home).current_dir(&self.work);
        command::stdout(&mut ours).map(|text| text.trim().to_owned())
    }

    /// How long the first of these took; the session that it names is ended after.
    pub(super) fn begins(&self, words: &[&str]) -> Result<Duration, LiveError> {
        let began = Instant::now();
        let made = self.call(words)?;
        let took = began.elapsed();
        let id = made.lines().next().ok_or_else(|| LiveError::Silent(words.join(" ")))?;
        self.call(&["session", "kill", id, "--changes", "discard"])?;
        Ok(took)
    }

    /// A session from its order to the first byte of its first command.
    fn first_byte(&self) -> Result<Duration, LiveError> {
        let began = Instant::now();
        let id = self.call(&["session", "create"])?;
        self.call(&["session", "exec", &id, "--", "echo", "x"])?;
        let took = began.elapsed();
        self.call(&["session", "kill", &id, "--changes", "discard"])?;
        Ok(took)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let lock = std::fs::read_to_string(self.home.join("live/supervisor.lock")).unwrap_or_default();
        let _ = Command::new("kill").arg(lock.trim()).status();
    }
}

const NAMES: [&str; 9] = [
    "echo, bare (floor)",
    "asked: create to first byte",
    "asked: create to first byte, prepared",
    "question to the supervisor",
    "session create",
    "session create, prepared",
    "create to first byte",
    "create to first byte, prepared",
    "session fork",
];

pub(crate) fn main(args: &Live) -> crate::Outcome {
    let cofferdam = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => crate::dist::build(&crate::workspace::root())?,
    };
    // Beside the build, not in the temporary directory: that is memory on many machines.
    let dir = tempfile::Builder::new()
        .prefix("bench-live.")
        .tempdir_in(cofferdam.parent().unwrap_or(Path::new(".")))?;
    let (cold, warm) =
        (Place::new(&cofferdam, dir.path(), "cold")?, Place::new(&cofferdam, dir.path(), "warm")?);
    cold.call(&["session", "create", "--name", "kept", "--layer", "disk"])?;
    let fill = format!("dd if=/dev/zero of=written bs=1M count={} 2> /dev/null", args.written);
    cold.call(&["session", "exec", "kept", "--", "sh", "-c", &fill])?;
    warm.call(&["pool", "set", "4"])?;
    let samples = sampled(args, &cold, &warm)?;
    // A row of prepared ones that were not there would be one of ones made from nothing.
    let pool: serde_json::Value = serde_json::from_str(&warm.call(&["pool", "ls", "--json"])?)?;
    let imports = script::measured(&cold, &crate::workspace::root(), args.seed)?;
    let row = |(name, own): (&'static str, &Vec<f64>)| Some(Row { name, summary: stats::summary(own)? });
    let names = NAMES.into_iter().chain(["bwrap, from nothing"]);
    let rows: Vec<Row> = names.zip(&samples).filter_map(row).collect();
    let mut rng = Rng::with_seed(args.seed);
    let mut ratio = |of: usize, to: usize| stats::ratio(samples.get(of)?, samples.get(to)?, &mut rng);
    let ratios = [
        ("prepared, asked / bare echo (goal: at most 2)", ratio(2, 0)),
        ("bwrap / prepared, asked (goal: at least 4)", ratio(9, 2)),
        ("from nothing, asked / prepared, asked", ratio(1, 2)),
    ];
    if args.json {
        let ratios: Vec<_> = ratios.iter().map(|(name, value)| Ratio { name, value: *value }).collect();
        println!(
            "{}",
            serde_json::to_string_pretty(
                &serde_json::json!({ "rows": rows, "ratios": ratios, "pool": pool, "imports": imports })
            )?
        );
    } else {
        println!("{} rounds, {} MiB in the layer that is forked, milliseconds", args.rounds, args.written);
        for Row { name, summary: Summary { median, p95, mad, .. } } in &rows {
            println!("{name:<38} {median:>7.2} {p95:>7.2} {mad:>6.2}");
        }
        for (name, Estimate { value, low, high }) in ratios.iter().filter_map(|(n, r)| Some((n, (*r)?))) {
            println!("{name:<46} {value:>6.2} ({low:.2}–{high:.2})");
        }
        if let Some([new, copied]) = imports {
            let times = new.median / copied.median;
            println!(
                "a script that imports a large module, new {:.0}, copied from one that is warm {:.0}: {times:.1} times as fast",
                new.median, copied.median
            );
        }
        println!(
            "prepared ones that were claimed: {}, that were not there: {}",
            pool["claimed"], pool["missed"]
        );
    }
    Ok(true)
}

fn sampled(args: &Live, cold: &Place, warm: &Place) -> Result<Vec<Vec<f64>>, LiveError> {
    let plan = rounds::Plan { rounds: args.rounds, warmup: 2, slow: Duration::MAX };
    let peers = usize::from(command::find("bwrap").is_some());
    eprintln!("bench: sessions that stay, {} rounds", args.rounds);
    rounds::interleave(&plan, NAMES.len() + peers, &mut Rng::with_seed(args.seed), |who| match who {
        0 => Ok(asker::bare()?),
        1 => Ok(asker::first_byte(&cold.home, &cold.work)?),
        2 => Ok(asker::first_byte(&warm.home, &warm.work)?),
        3 => {
            let began = Instant::now();
            cold.call(&["session", "show", "kept"])?;
            Ok(began.elapsed())
        }
        4 => cold.begins(&["session", "create"]),
        5 => warm.begins(&["session", "create"]),
        6 => cold.first_byte(),
        7 => warm.first_byte(),
        8 => cold.begins(&["session", "fork", "kept"]),
        _ => {
            let began = Instant::now();
            let mut peer = Command::new("bwrap");
            peer.args(["--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "echo", "x"]);
            command::stdout(&mut peer)?;
            Ok(began.elapsed())
        }
    })
}
