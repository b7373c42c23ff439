//! `cargo xtask test`: the one command after which this repository is known to be sound. A table of steps;
//! all of them run even when one fails, so that a person fixes everything at once.

use crate::command::{self, CommandError};
use crate::{packages, venv};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::ops::AddAssign;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install nothing, only say what is missing
    #[arg(long)]
    quick: bool,
    /// Only this crate (`seal` or `cofferdam-seal`; repeatable)
    #[arg(short, long = "package", value_name = "CRATE")]
    package: Vec<String>,
}

struct Plan {
    root: PathBuf,
    install: bool,
    /// Full package names; empty means all.
    packages: Vec<String>,
}

enum Verdict {
    Passed(String),
    Failed(String),
    Skipped(String),
}

struct Step {
    name: &'static str,
    run: fn(&Plan) -> Result<Verdict, CommandError>,
    /// The others stand on it: if it fails they do not run.
    first: bool,
}

const fn step(name: &'static str, run: fn(&Plan) -> Result<Verdict, CommandError>) -> Step {
    Step { name, run, first: false }
}

const STEPS: &[Step] = &[
    Step { first: true, ..step("packages", provide) },
    Step { first: true, ..step("toolchain", toolchain) },
    step("clients", clients),
    step("fmt", fmt),
    step("clippy", clippy),
    step("tidy", tidy),
    step("tests", tests),
    step("escape", escape),
    step("deny", deny),
];

struct Done {
    name: &'static str,
    verdict: Verdict,
    took: Duration,
}

pub(crate) fn main(args: &Args) -> crate::Outcome {
    let packages = args.package.iter().map(|name| full_name(name)).collect();
    let plan = Plan { root: crate::workspace::root(), install: !args.quick, packages };
    let mut done = Vec::new();
    for step in STEPS {
        println!("\n== {}", step.name);
        let started = Instant::now();
        let verdict = (step.run)(&plan).unwrap_or_else(|error| Verdict::Failed(error.to_string()));
        let result = Done { name: step.name, verdict, took: started.elapsed() };
        println!("{result}");
        let stop = step.first && matches!(result.verdict, Verdict::Failed(_));
        done.push(result);
        if stop {
            break;
        }
    }
    println!("\n== summary");
    done.iter().for_each(|result| println!("{result}"));
    Ok(!done.iter().any(|result| matches!(result.verdict, Verdict::Failed(_))))
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, detail) = match &self.verdict {
            Verdict::Passed(detail) => ("ok", detail),
            Verdict::Failed(detail) => ("FAILED", detail),
            Verdict::Skipped(detail) => ("skipped", detail),
        };
        write!(f, "{:<9} {word:<8} {:>7.1} s  {detail}", self.name, self.took.as_secs_f64())
    }
}

fn full_name(name: &str) -> String {
    if name == "xtask" || name.starts_with("cofferdam-") {
        name.to_owned()
    } else {
        format!("cofferdam-{name}")
    }
}

impl Plan {
    fn cargo(&self, task: &str) -> Command {
        let mut cargo = command::cargo();
        cargo.current_dir(&self.root).arg(task);
        cargo
    }

    /// `--workspace` (or what this cargo task calls it), or the crates asked for.
    fn scope(&self, all: &str) -> Vec<String> {
        if self.packages.is_empty() {
            return vec![all.to_owned()];
        }
        self.packages.iter().flat_map(|name| ["--package".to_owned(), name.clone()]).collect()
    }
}

fn judge(command: &mut Command) -> Result<Verdict, CommandError> {
    let status = command::status(command)?;
    if status.success() {
        return Ok(Verdict::Passed(String::new()));
    }
    Ok(Verdict::Failed(format!("`{}` ended with {status}", command::line(command))))
}

fn provide(plan: &Plan) -> Result<Verdict, CommandError> {
    let absent = packages::provide(packages::TESTS, plan.install)?;
    let essential = absent.iter().filter(|n| n.essential).count();
    Ok(match (essential, absent.len()) {
        (0, 0) => Verdict::Passed("all there".to_owned()),
        (0, optional) => Verdict::Passed(format!("{optional} optional packages are missing")),
        (essential, _) => {
            Verdict::Failed(format!("{essential} needed packages are missing: install them as above"))
        }
    })
}

/// Without them the tests that need them fail by themselves, and say so.
fn clients(plan: &Plan) -> Result<Verdict, CommandError> {
    if !plan.packages.is_empty() && !plan.packages.iter().any(|name| name == "cofferdam-cli") {
        return Ok(Verdict::Skipped("only the tests of `cli` use them".to_owned()));
    }
    Ok(match venv::provide(&plan.root, plan.install) {
        Ok(dir) => Verdict::Passed(format!("in {}", dir.display())),
        Err(error) => Verdict::Failed(error.to_string()),
    })
}

/// rustfmt and clippy belong to rustup's default profile, not to its minimal one.
fn toolchain(plan: &Plan) -> Result<Verdict, CommandError> {
    let has = |task: &str| plan.cargo(task).arg("--version").output().is_ok_and(|o| o.status.success());
    if has("fmt") && has("clippy") {
        return Ok(Verdict::Passed("rustfmt and clippy are there".to_owned()));
    }
    let mut rustup = Command::new("rustup");
    rustup.current_dir(&plan.root).args(["component", "add", "rustfmt", "clippy"]);
    if !plan.install || command::find("rustup").is_none() {
        return Ok(Verdict::Failed(format!("rustfmt or clippy is missing: {}", command::line(&rustup))));
    }
    judge(&mut rustup)
}

fn fmt(plan: &Plan) -> Result<Verdict, CommandError> {
    judge(plan.cargo("fmt").args(plan.scope("--all")).args(["--", "--check"]))
}

fn clippy(plan: &Plan) -> Result<Verdict, CommandError> {
    let scope = plan.scope("--workspace");
    judge(plan.cargo("clippy").args(scope).args(["--all-targets", "--", "-D", "warnings"]))
}

fn tidy(_: &Plan) -> Result<Verdict, CommandError> {
    Ok(match crate::tidy::main(&crate::tidy::Args { hints: false }) {
        Ok(true) => Verdict::Passed(String::new()),
        Ok(false) => Verdict::Failed("see the lines above".to_owned()),
        Err(error) => Verdict::Failed(error.to_string()),
    })
}

/// Streams cargo's own words and adds up what its test binaries say at their end.
fn tests(plan: &Plan) -> Result<Verdict, CommandError> {
    let mut cargo = plan.cargo("test");
    cargo.args(plan.scope("--workspace")).arg("--no-fail-fast").stdout(Stdio::piped());
    if let Ok(dir) = venv::provide(&plan.root, false) {
        cargo.env(venv::VARIABLE, dir);
    }
    let line = command::line(&cargo);
    let failed = |source| CommandError::Start { line: line.clone(), source };
    let mut child = cargo.spawn().map_err(failed)?;
    let mut counts = Counts::default();
    let mut shown = std::io::stdout();
    if let Some(stdout) = child.stdout.take() {
        for bytes in BufReader::new(stdout).split(b'\n') {
            let text = String::from_utf8_lossy(&bytes.map_err(failed)?).into_owned();
            writeln!(shown, "{text}").map_err(failed)?;
            counts += Counts::read(&text).unwrap_or_default();
        }
    }
    let status = child.wait().map_err(failed)?;
    let detail = counts.to_string();
    Ok(match (status.success(), counts.passed) {
        (true, 0) => Verdict::Failed("no test ran".to_owned()),
        (true, _) => Verdict::Passed(detail),
        (false, _) => Verdict::Failed(detail),
    })
}

/// The escape score, against its floor.
fn escape(plan: &Plan) -> Result<Verdict, CommandError> {
    if !plan.packages.is_empty() && !plan.packages.iter().any(|name| name == "cofferdam-cli") {
        return Ok(Verdict::Skipped("only with the crate cli".to_owned()));
    }
    Ok(match crate::escape::check(&plan.root) {
        Ok(Ok(score)) => Verdict::Passed(score),
        Ok(Err(wrong)) => {
            wrong.iter().for_each(|line| println!("  {line}"));
            Verdict::Failed("the score is not its floor: see the lines above".to_owned())
        }
        Err(error) => Verdict::Failed(error.to_string()),
    })
}

fn deny(plan: &Plan) -> Result<Verdict, CommandError> {
    if command::find("cargo-deny").is_none() {
        let reason = "cargo-deny is not installed; tidy has checked licences, duplicates and bans";
        return Ok(Verdict::Skipped(reason.to_owned()));
    }
    judge(plan.cargo("deny").args(["--offline", "check", "bans", "licenses", "sources"]))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    binaries: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    /// The closing line of a test binary: `test result: ok. 5 passed; 0 failed; 1 ignored; …`.
    fn read(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let of = |word: &str| {
            let part = counts.split("; ").find_map(|part| part.strip_suffix(word));
            part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        Some(Self { binaries: 1, passed: of("passed"), failed: of("failed"), ignored: of("ignored") })
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.binaries += other.binaries;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { binaries, passed, failed, ignored } = self;
        write!(f, "{passed} passed, {failed} failed, {ignored} ignored in {binaries} test binaries")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let mut sum = Counts::default();
        for line in [
            "running 5 tests",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            sum += Counts::read(line).unwrap_or_default();
        }
        assert_eq!(sum, Counts { binaries: 2, passed: 7, failed: 3, ignored: 1 });
        assert_eq!(sum.to_string(), "7 passed, 3 failed, 1 ignored in 2 test binaries");
    }

    #[test]
    fn crates_go_by_their_folder_or_their_full_name() {
        assert_eq!(full_name("seal"), "cofferdam-seal");
        assert_eq!(full_name("cofferdam-seal"), "cofferdam-seal");
        assert_eq!(full_name("xtask"), "xtask");
    }
}
