//! Where it happens: the upstream, the proxies as processes of ours, and the client that is run against them.
//! Whatever was started ends with it.

use super::EgressError;
use super::peers::Contender;
use crate::command;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

#[derive(Debug, thiserror::Error)]
pub(crate) enum FieldError {
    #[error("could not start `{line}`: {source}")]
    Start { line: String, source: io::Error },
    #[error("`{line}` ended before it said where it listens")]
    Silent { line: String },
    #[error("could not write `{path}`: {source}; check the disk")]
    Write { path: PathBuf, source: io::Error },
    #[error("could not speak to a process of the bench: {0}")]
    Pipe(#[from] io::Error),
}

pub(crate) struct Field {
    pub(crate) dir: PathBuf,
    programs: PathBuf,
    realtime: bool,
    pub(crate) upstream: String,
    processes: Vec<Process>,
}

/// A process that runs until it is dropped.
pub(crate) struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    pub(crate) fn tell(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.stdin, "{line}")?;
        self.stdin.flush()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Field {
    pub(crate) fn new(dir: &Path, programs: PathBuf, realtime: bool) -> Result<Self, FieldError> {
        let (dir, upstream) = (dir.to_owned(), String::new());
        let mut field = Self { dir, programs, realtime, upstream, processes: Vec::new() };
        let mut upstream = field.start(field.program("upstream").arg(&field.dir))?;
        field.upstream = listens(&mut upstream, "upstream")?;
        field.processes.push(upstream);
        Ok(field)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, FieldError> {
        let path = self.file(name);
        std::fs::write(&path, text).map_err(|source| FieldError::Write { path: path.clone(), source })?;
        Ok(path)
    }

    /// One of the bench's own programs.
    pub(crate) fn program(&self, name: &str) -> Command {
        self.command(&self.programs.join(name))
    }

    pub(crate) fn command(&self, program: &Path) -> Command {
        if !self.realtime {
            return Command::new(program);
        }
        let mut command = Command::new("chrt");
        command.args(["--fifo", "10"]).arg(program);
        command
    }

    pub(crate) fn start(&self, command: &mut Command) -> Result<Process, FieldError> {
        let line = command::line(command);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.map_err(|source| FieldError::Start { line: line.clone(), source })?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok(Process { child, stdin, stdout: BufReader::new(stdout) }),
            _ => Err(FieldError::Silent { line }),
        }
    }

    /// Keeps a process until the end, and says which it is.
    pub(crate) fn keep(&mut self, process: Process) -> u32 {
        let id = process.id();
        self.processes.push(process);
        id
    }

    /// Our proxy under a policy, with a trace of its own; the address it listens on.
    pub(crate) fn ours(&self, name: &str, policy: &str) -> Result<(Process, String), FieldError> {
        let policy = self.write(&format!("{name}.toml"), &policy.replace("UPSTREAM", &self.upstream))?;
        let mut command = self.program("ours");
        command.arg(&self.dir).arg(self.file(&format!("trace-{name}"))).arg(policy);
        let mut process = self.start(&mut command)?;
        let address = listens(&mut process, "ours")?;
        Ok((process, address))
    }

    /// The client against one of them, as it would be started.
    pub(crate) fn client(&self, contender: &Contender, what: &[&str]) -> Command {
        let mut command = self.program("load");
        command.args(["--upstream", &self.upstream]).args(contender.arguments());
        command.args(what);
        command
    }

    /// What the client saw.
    pub(crate) fn measure(&self, contender: &Contender, what: &[&str]) -> Result<Value, EgressError> {
        let mut command = self.client(contender, what);
        let text = command::stdout(&mut command)?;
        serde_json::from_str(&text)
            .map_err(|_| EgressError::NoNumber { line: command::line(&command), text: text.clone() })
    }
}

/// The first line of a process that serves.
pub(crate) fn listens(process: &mut Process, name: &str) -> Result<String, FieldError> {
    let line = process.line()?;
    if line.is_empty() { Err(FieldError::Silent { line: name.to_owned() }) } else { Ok(line) }
}
