//! An agent that imports a large SDK: alone, through the gate, and as scripts of one session that keeps an interpreter with
//! the SDK imported. The last is what a copy costs; sessions of a gate cannot have it, since each has its own sandbox.

use super::{Cost, GateError, SEARCH_PATH, Stage, many};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Pinned; with all that it needs.
const PACKAGE: &str = "openai==2.14.0";
const AGENT: &str = "import openai\nprint(openai.__version__)\n";
/// For an interpreter to have imported it.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize)]
pub(super) struct Report {
    sessions: usize,
    bare: Cost,
    gate: Cost,
    warm: Cost,
}

impl Stage {
    pub(super) fn sdk(&self, sessions: usize, at_once: usize, packages: &Path) -> Result<Report, GateError> {
        install(packages)?;
        let work = self.ground.work();
        let inside = work.join("sdk");
        let copied = Command::new("cp").args(["-rT"]).args([packages, &inside]).status()?;
        if !copied.success() {
            return Err(GateError::Failed { line: "cp".into(), code: copied.code(), said: String::new() });
        }
        fs::write(work.join("sdk.py"), AGENT)?;
        let paths = format!("PYTHONPATH = \"{}\"", inside.display());
        let mut suite = format!(
            "[agent]\ncommand = [\"python3\", \"sdk.py\"]\nenv = {{ {paths} }}\n[policy]\nfile = \"policy.toml\"\n[replay]\nmode = \"normalised\"\n[baseline]\ndir = \"sdk-baseline\"\n"
        );
        (0..sessions).for_each(|n| suite.push_str(&format!("[[session]]\nid = \"s{n:04}\"\n")));
        fs::write(work.join("sdk.toml"), suite)?;
        eprintln!("bench: {sessions} agents that import {PACKAGE}, alone and through the gate");
        let bare = many(sessions, at_once, |_| {
            let mut agent = Command::new("python3");
            agent.arg(work.join("sdk.py")).env_clear().env("PATH", SEARCH_PATH).env("PYTHONPATH", &inside);
            agent.stdin(Stdio::null()).stdout(Stdio::null()).status().map(|status| status.success())
        })?;
        self.ours(&["record", "sdk.toml", "-q"], &[0])?;
        let gate = self.ours(&["gate", "sdk.toml", "--out", "sdk-out", "-q"], &[0])?;
        eprintln!("bench: {sessions} scripts of one session that keeps it imported");
        let warm = self.warm(sessions, at_once, &inside)?;
        Ok(Report { sessions, bare, gate, warm })
    }

    fn warm(&self, sessions: usize, at_once: usize, inside: &Path) -> Result<Cost, GateError> {
        let paths = format!("PYTHONPATH={}", inside.display());
        let words = ["session", "create", "--warm", "python:openai", "--changes", "discard", "--env", &paths];
        let made = self.command(&words).stdin(Stdio::null()).output()?;
        let id = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        let script = || self.command(&["session", "exec", &id, "--", "python3", "sdk.py"]);
        // A copy takes a fraction of what a new interpreter does, and that is how one is told.
        let (began, mut first) = (Instant::now(), Duration::MAX);
        let done = loop {
            let asked = Instant::now();
            let good = script().stdin(Stdio::null()).stdout(Stdio::null()).status()?.success();
            let took = asked.elapsed();
            if !good || took < first / 2 && first != Duration::MAX || began.elapsed() > PATIENCE {
                break good;
            }
            first = first.min(took);
            thread::sleep(Duration::from_millis(200));
        };
        let cost = many(sessions, at_once, |_| {
            let mut script = script();
            script.stdin(Stdio::null()).stdout(Stdio::null()).status().map(|status| status.success())
        });
        self.command(&["session", "kill", &id]).stdout(Stdio::null()).status()?;
        match done {
            true => cost,
            false => Err(GateError::Failed { line: "session exec".into(), code: None, said: id }),
        }
    }
}

fn install(packages: &Path) -> Result<(), GateError> {
    let stamp = packages.join("installed");
    if fs::read(&stamp).is_ok_and(|installed| installed == PACKAGE.as_bytes()) {
        return Ok(());
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--target"]);
    let done = pip.arg(packages).arg(PACKAGE).env("PATH", SEARCH_PATH).output()?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).chars().take(2000).collect();
        return Err(GateError::Failed {
            line: format!("pip install {PACKAGE}"),
            code: done.status.code(),
            said,
        });
    }
    Ok(fs::write(stamp, PACKAGE)?)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sessions, bare, gate, warm } = self;
        let each = |cost: &Cost| cost.wall_s * 1e3 / (*sessions).max(1) as f64;
        writeln!(f, "{sessions} agents that import {PACKAGE}, by the clock")?;
        writeln!(f, "  alone {:.1} s, {:.0} ms each", bare.wall_s, each(bare))?;
        let ratio = gate.wall_s / bare.wall_s.max(1e-9);
        writeln!(
            f,
            "  through the gate {:.1} s, {:.0} ms each: {ratio:.2} of alone",
            gate.wall_s,
            each(gate)
        )?;
        let (wall, of) = (warm.wall_s, warm.wall_s / bare.wall_s.max(1e-9));
        writeln!(
            f,
            "  as copies of an interpreter that one session keeps {wall:.1} s, {:.0} ms each: {of:.2}",
            each(warm)
        )
    }
}
