//! `cargo xtask demo`: the main job. An example agent runs twice, without a sandbox and in one; then its trace is
//! shown, verified, damaged and verified again. A second agent spends a key that it never holds. A third is
//! recorded, changed, stopped by its gate, fixed and let through. It ends with what was seen, and fails if any of it
//! was not so, and where to look: the two results of that gate stay beside the build. Nothing else is left behind unless
//! `--keep` asks for it, and nothing of the user's is used: neither home nor variables. It runs the build that the tests
//! run, which is there minutes before a released one.

mod coffer;
mod gate;

use crate::command::{self, CommandError};
use crate::packages;
use serde::Deserialize;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep the temporary directory with the agent's work dir and all state
    #[arg(long)]
    keep: bool,
    /// Build and use the binary as it is shipped; that takes several minutes more
    #[arg(long)]
    released: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(
        "could not prepare {path}: {source}; check the free space and permissions of the temporary directory"
    )]
    Stage { path: PathBuf, source: io::Error },
    #[error("could not listen on loopback: {0}; the demonstration needs a port to be refused")]
    Listen(io::Error),
    #[error("the agent left no report in {path}: {source}; look at what was printed above")]
    NoReport { path: PathBuf, source: io::Error },
    #[error("{path} is not the agent's report: {source}; look at what was printed above")]
    Report { path: PathBuf, source: serde_json::Error },
    #[error("the programs of the demonstration could not be watched: {0}; try again")]
    Service(io::Error),
    #[error("a service of the demonstration said `{0}` and no port; look at what was printed above")]
    NoPort(String),
}

/// What the agent says it could do, in `report.json`.
#[derive(Debug, Deserialize)]
struct Report {
    key_read: bool,
    connected: bool,
}

/// The places and things of one demonstration.
struct Stage {
    dir: PathBuf,
    /// A key as a user would have it: planted, so that no real one is needed.
    key: PathBuf,
    /// A port of the host's loopback that counts who comes.
    door: TcpListener,
    python: PathBuf,
}

pub(crate) fn main(args: &Args) -> crate::Outcome {
    let root = crate::workspace::root();
    if packages::provide(packages::DEMO, true)?.iter().any(|n| n.essential) {
        return Ok(false);
    }
    let cofferdam = if args.released { crate::dist::build(&root)? } else { crate::dist::build_plain(&root)? };
    let temp = tempfile::Builder::new().prefix("cofferdam-demo.").tempdir()?;
    let example = root.join("examples/agent");
    let stage = Stage::set(temp.path(), &example)?;
    let mut seen = Vec::new();
    outside(&stage, &mut seen)?;
    inside(&stage, &cofferdam, &mut seen)?;
    trace(&stage, &cofferdam, &mut seen)?;
    coffer::show(&stage, &cofferdam, &example, &mut seen)?;
    let kept = crate::workspace::metadata(&root)?.target_directory.join("demo");
    gate::show(&stage, &cofferdam, &root.join("examples/support-agent"), &kept, &mut seen)?;
    println!("\n== what was seen");
    seen.iter().for_each(|(what, held)| println!("{} {what}", if *held { "yes " } else { "NO  " }));
    println!("\n== where to look");
    let kept = kept.strip_prefix(&root).unwrap_or(&kept);
    println!("{}  why the change was stopped", kept.join("stopped/report.html").display());
    println!(
        "{}  the fix, and what is signed of it: gate.dsse.json",
        kept.join("passed/report.html").display()
    );
    if args.keep {
        println!("{}  everything else", temp.keep().display());
    }
    Ok(seen.iter().all(|(_, held)| *held))
}

impl Stage {
    fn set(dir: &Path, example: &Path) -> Result<Self, DemoError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DemoError::Stage { path, source }
        };
        let key = dir.join("home/.ssh/id_demo");
        for copy in ["outside", "inside"] {
            let copy = dir.join(copy);
            std::fs::create_dir_all(&copy).map_err(failed(&copy))?;
            for file in ["agent.py", "notes.md"] {
                std::fs::copy(example.join(file), copy.join(file)).map_err(failed(&copy.join(file)))?;
            }
        }
        let ssh = dir.join("home/.ssh");
        std::fs::create_dir_all(&ssh).map_err(failed(&ssh))?;
        std::fs::write(&key, "not a real key, but the agent cannot know that\n").map_err(failed(&key))?;
        let door = TcpListener::bind("127.0.0.1:0").map_err(DemoError::Listen)?;
        door.set_nonblocking(true).map_err(DemoError::Listen)?;
        // A shim in someone's home would be out of reach inside.
        let system = Path::new("/usr/bin/python3");
        let python = if system.exists() { system.to_owned() } else { "python3".into() };
        Ok(Self { dir: dir.to_owned(), key, door, python })
    }

    /// The same words inside and outside.
    fn agent(&self) -> Result<Vec<String>, DemoError> {
        let address = self.door.local_addr().map_err(DemoError::Listen)?;
        let python = self.python.to_string_lossy().into_owned();
        let key = self.key.to_string_lossy().into_owned();
        Ok([&python, "agent.py", "notes.md", "--key", &key, "--connect", &address.to_string()]
            .map(str::to_owned)
            .to_vec())
    }

    /// A program without the variables of whoever runs this: keys of theirs are not the demonstration's to find.
    fn plain(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("LANG", "C.UTF-8").env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("COFFERDAM_HOME", self.dir.join("state")).env("HOME", self.dir.join("home"));
        command
    }

    fn show(&self, command: &mut Command) -> Result<Output, DemoError> {
        command.env("COFFERDAM_HOME", self.dir.join("state")).env("HOME", self.dir.join("home"));
        println!("\n$ {}", self.typed(command));
        let output = command.output();
        let output = output.map_err(|source| CommandError::Start { line: command::line(command), source })?;
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Ok(output)
    }

    /// As a person would type it, with the binary on PATH and the temporary directory in a variable.
    fn typed(&self, command: &Command) -> String {
        let program = Path::new(command.get_program());
        let folder = program.parent().map(|dir| format!("{}/", dir.display())).unwrap_or_default();
        let line = command::line(command);
        let line = line.strip_prefix(&folder).unwrap_or(&line);
        line.replace(&*self.dir.to_string_lossy(), "$DEMO")
    }

    fn visitors(&self) -> Result<usize, DemoError> {
        let mut count = 0;
        loop {
            match self.door.accept() {
                Ok(_) => count += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
                Err(error) => return Err(DemoError::Listen(error)),
            }
        }
    }

    fn report(&self, copy: &str) -> Result<Report, DemoError> {
        let path = self.dir.join(copy).join("report.json");
        let text =
            std::fs::read(&path).map_err(|source| DemoError::NoReport { path: path.clone(), source })?;
        serde_json::from_slice(&text).map_err(|source| DemoError::Report { path, source })
    }
}

type Seen = Vec<(&'static str, bool)>;

/// The control: without it, "refused" inside could just mean "not there".
fn outside(stage: &Stage, seen: &mut Seen) -> Result<(), DemoError> {
    println!("\n== the agent without a sandbox");
    let agent = stage.agent()?;
    let (program, args) = agent.split_first().map_or(("true", &[][..]), |(p, a)| (p.as_str(), a));
    stage.show(Command::new(program).args(args).current_dir(stage.dir.join("outside")))?;
    let report = stage.report("outside")?;
    seen.push(("without a sandbox the agent reads the key", report.key_read));
    seen.push(("without a sandbox the agent connects", report.connected && stage.visitors()? == 1));
    Ok(())
}

fn inside(stage: &Stage, cofferdam: &Path, seen: &mut Seen) -> Result<(), DemoError> {
    println!("\n== the same agent in a sandbox");
    let mut run = Command::new(cofferdam);
    run.args(["run", "--changes", "keep", "--trace-out"]).arg(stage.dir.join("trace"));
    let output = stage.show(run.arg("--").args(stage.agent()?).current_dir(stage.dir.join("inside")))?;
    let report = stage.report("inside")?;
    seen.push(("in the sandbox the agent does its work, and its files are kept", output.status.success()));
    seen.push(("in the sandbox the key is out of reach", !report.key_read));
    seen.push(("in the sandbox the network is out of reach", !report.connected && stage.visitors()? == 0));
    Ok(())
}

fn trace(stage: &Stage, cofferdam: &Path, seen: &mut Seen) -> Result<(), DemoError> {
    println!("\n== its trace");
    let ask = |args: &[&str]| stage.show(Command::new(cofferdam).arg("trace").args(args));
    seen.push(("the trace can be shown", ask(&["show", "latest"])?.status.success()));
    seen.push((
        "the trace is sound, and signed by this machine's key",
        ask(&["verify", "latest"])?.status.success(),
    ));
    let exported = stage.dir.join("trace");
    damage(&exported).map_err(|source| DemoError::Stage { path: exported.clone(), source })?;
    let verdict = ask(&["verify", &exported.to_string_lossy()])?;
    seen.push(("one changed byte is found", verdict.status.code() == Some(1)));
    Ok(())
}

/// Changes one byte in the middle of a trace, be it a file or a directory of files.
fn damage(trace: &Path) -> io::Result<()> {
    let mut largest = trace.to_owned();
    if trace.is_dir() {
        let size = |path: &PathBuf| path.metadata().map_or(0, |m| if m.is_file() { m.len() } else { 0 });
        let files = std::fs::read_dir(trace)?.filter_map(|entry| Some(entry.ok()?.path()));
        largest = files.max_by_key(size).unwrap_or(largest);
    }
    let mut bytes = std::fs::read(&largest)?;
    let middle = bytes.len() / 2;
    bytes.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 1);
    std::fs::write(largest, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(dir: &Path) -> Stage {
        Stage::set(dir, &crate::workspace::root().join("examples/agent")).unwrap()
    }

    #[test]
    fn the_control_shows_what_the_sandbox_must_prevent() {
        let dir = tempfile::tempdir().unwrap();
        let mut seen = Vec::new();
        outside(&stage(dir.path()), &mut seen).unwrap();
        assert!(seen.len() == 2 && seen.iter().all(|(_, held)| *held), "{seen:?}");
        assert!(dir.path().join("outside/summary.md").exists());
    }

    #[test]
    fn an_agent_that_finds_nothing_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let stage = stage(dir.path());
        std::fs::remove_file(&stage.key).unwrap();
        let mut agent = stage.agent().unwrap();
        *agent.last_mut().unwrap() = "127.0.0.1:1".into();
        stage.show(Command::new(&agent[0]).args(&agent[1..]).current_dir(dir.path().join("inside"))).unwrap();
        let report = stage.report("inside").unwrap();
        assert!(!report.key_read && !report.connected);
    }

    #[test]
    fn damage_is_one_byte() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("events"), "abcd").unwrap();
        std::fs::write(dir.path().join("key"), "k").unwrap();
        damage(dir.path()).unwrap();
        assert_eq!(std::fs::read(dir.path().join("events")).unwrap(), b"abbd");
    }
}
