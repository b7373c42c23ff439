//! What the tools do: all of it by the session's own socket, as `cofferdam session` does it.

use super::output::Shown;
use super::stop::Stop;
use cofferdam_api::mcp::{Begin, Call, Depth, Diff, Differences, Ran, Run, Settle};
use cofferdam_engine::{Engine, EngineError, LiveExec, LiveOutcome, Stdio};
use cofferdam_model::{ChangeOp, Exit, FileDifference, SessionId, Span};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So much text of differences is in one answer, and so many of them.
const TEXTS: usize = 128 << 10;
const CHANGES: usize = 2000;

/// The session that tools work in.
pub struct ToolSandbox<'e> {
    pub(super) engine: &'e Engine,
    pub(super) session: SessionId,
    /// Where the work dir stands inside.
    pub(super) workdir: PathBuf,
    /// Whether what is done may reach the work dir of the host.
    keeps: bool,
    /// One change of layers at a time.
    changing: Mutex<()>,
    plain_shell: AtomicBool,
}

/// Why a call came to nothing, for the model to read.
pub(super) struct Fault(pub(super) String);

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        Self(error.to_string())
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// What a call came to: as text, and as data.
pub(super) struct Done {
    pub(super) text: String,
    pub(super) data: Value,
}

impl Done {
    pub(super) fn of(text: impl Into<String>, data: &impl Serialize) -> Result<Self, Fault> {
        let data = serde_json::to_value(data).map_err(|error| Fault(error.to_string()))?;
        Ok(Self { text: text.into(), data })
    }

    pub(super) fn told(self) -> Value {
        json!({
            "content": [{ "type": "text", "text": self.text }],
            "structuredContent": self.data,
            "isError": false,
            "resultType": "complete",
        })
    }
}

impl<'e> ToolSandbox<'e> {
    pub fn new(engine: &'e Engine, session: SessionId, workdir: PathBuf, keeps: bool) -> Self {
        let plain_shell = AtomicBool::new(false);
        Self { engine, session, workdir, keeps, changing: Mutex::default(), plain_shell }
    }

    pub(super) fn perform(&self, call: Call, stop: &Stop) -> Result<Done, Fault> {
        let layers = || self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        match call {
            Call::Run(asked) => self.run(&asked, stop),
            Call::ReadFile(asked) => self.read_file(&asked),
            Call::WriteFile(asked) => self.write_file(&asked),
            Call::Diff(asked) => self.diff(&asked),
            Call::Begin(Begin {}) => {
                let _alone = layers();
                self.engine.begin_transaction(&self.session)?;
                let depth = self.depth()?;
                let told = Depth { depth, effects: Vec::new(), conflicts: Vec::new() };
                Done::of(format!("transaction {depth} is open"), &told)
            }
            Call::Commit(Settle { force }) => {
                let _alone = layers();
                if !self.keeps && self.depth()? == 0 {
                    let text = "the work dir of the host is not to be changed (--changes discard), and no transaction is open";
                    return Err(Fault(text.into()));
                }
                self.settle(true, force)
            }
            Call::Rollback(Settle { force }) => {
                let _alone = layers();
                self.settle(false, force)
            }
        }
    }

    fn depth(&self) -> Result<u64, Fault> {
        Ok(self.engine.session(&self.session)?.transactions as u64)
    }

    fn run(&self, asked: &Run, stop: &Stop) -> Result<Done, Fault> {
        if asked.command.contains('\0') || asked.cwd.as_ref().is_some_and(|cwd| cwd.contains('\0')) {
            return Err(Fault("`command` and `cwd` have no NUL in them".into()));
        }
        if asked.timeout.is_some_and(|seconds| !(1..=86400).contains(&seconds)) {
            return Err(Fault("`timeout`: from 1 to 86400 seconds".into()));
        }
        if !self.plain_shell.load(Ordering::Relaxed) {
            let (outcome, done) = self.shell("bash", asked, stop)?;
            if outcome.exit != Exit::NotFound {
                return done;
            }
            self.plain_shell.store(true, Ordering::Relaxed);
        }
        self.shell("sh", asked, stop)?.1
    }

    fn shell(
        &self,
        shell: &str,
        asked: &Run,
        stop: &Stop,
    ) -> Result<(LiveOutcome, Result<Done, Fault>), Fault> {
        let exec = LiveExec {
            argv: vec![shell.into(), "-c".into(), asked.command.clone()],
            cwd: asked.cwd.as_ref().map(|cwd| self.workdir.join(cwd)),
            timeout: asked.timeout.map(|seconds| Span(Duration::from_secs(seconds.into()))),
            ..LiveExec::default()
        };
        let (stdout, out) = io::pipe()?;
        let (stderr, err) = io::pipe()?;
        let (stdin, input) = match &asked.stdin {
            Some(_) => io::pipe().map(|(theirs, ours)| (Some(theirs.into()), Some(ours)))?,
            None => (None, None),
        };
        let stdio = Stdio { stdin, stdout: out.into(), stderr: err.into() };
        let watched = self.engine.start_live(&self.session, exec, &stdio)?;
        // Theirs alone from here on: when they are closed, all has been read.
        drop(stdio);
        stop.runs(watched.leaver()?);
        let (outcome, stdout, stderr) = std::thread::scope(|scope| {
            let stderr = scope.spawn(|| Shown::read(stderr));
            if let (Some(mut input), Some(text)) = (input, &asked.stdin) {
                // One that does not read it all has what it wanted.
                scope.spawn(move || drop(input.write_all(text.as_bytes())));
            }
            let stdout = Shown::read(stdout);
            (watched.wait(), stdout, stderr.join().unwrap_or_default())
        });
        let outcome = outcome.map_err(|error| match &asked.cwd {
            Some(cwd) => Fault(format!("{error} (`cwd`: {cwd})")),
            None => error.into(),
        })?;
        let done = ran(&outcome, stdout, stderr);
        Ok((outcome, done))
    }

    fn diff(&self, asked: &Diff) -> Result<Done, Fault> {
        let mut found = self.engine.difference(&self.session, !asked.brief)?;
        let truncated = found.len() > CHANGES;
        found.truncate(CHANGES);
        let mut room = TEXTS;
        for difference in &mut found {
            match difference.diff.as_ref().map(String::len) {
                Some(size) if size > room => {
                    difference.diff = None;
                    difference.omitted = Some("too much text for one answer: see `read_file`".into());
                }
                size => room -= size.unwrap_or(0),
            }
        }
        let object = |one| match serde_json::to_value(one) {
            Ok(Value::Object(object)) => Some(object),
            _ => None,
        };
        let text = match found.is_empty() {
            true => "nothing was changed".to_owned(),
            false => found.iter().map(told).collect(),
        };
        Done::of(text, &Differences { changes: found.iter().filter_map(object).collect(), truncated })
    }

    fn settle(&self, keep: bool, force: bool) -> Result<Done, Fault> {
        let settled = self.engine.settle(&self.session, keep, force)?;
        let skipped = settled.host.iter().flat_map(|host| &host.skipped);
        let conflicts: Vec<_> = skipped.map(|one| format!("{}: {}", one.path, one.reason)).collect();
        let mut text = match (keep, &settled.host) {
            (true, Some(host)) => format!(
                "in the work dir of the host: {} created, {} modified, {} renamed, {} deleted",
                host.created, host.modified, host.renamed, host.deleted
            ),
            (true, None) => format!("kept; {} transactions are open around it", settled.depth),
            (false, _) => "files are as they were".to_owned(),
        };
        conflicts.iter().for_each(|one| text.push_str(&format!("\nnot kept: {one}")));
        for effect in &settled.effects {
            text.push_str(&format!("\ncannot be taken back: {effect}"));
        }
        if settled.more > 0 {
            text.push_str(&format!("\nand {} more went outside", settled.more));
        }
        Done::of(text, &Depth { depth: settled.depth as u64, effects: settled.effects, conflicts })
    }
}

fn ran(outcome: &LiveOutcome, stdout: Shown, stderr: Shown) -> Result<Done, Fault> {
    let ran = Ran {
        exit_code: outcome.exit.code(),
        truncated: stdout.is_cut() || stderr.is_cut(),
        stdout: stdout.text(),
        stderr: stderr.text(),
        reason: outcome.reason.clone(),
    };
    let mut text = ran.stdout.clone();
    for part in [&ran.stderr, ran.reason.as_ref().unwrap_or(&String::new())] {
        if !text.is_empty() && !text.ends_with('\n') && !part.is_empty() {
            text.push('\n');
        }
        text.push_str(part);
    }
    if ran.exit_code != 0 || text.is_empty() {
        let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        text.push_str(&format!("{line}[exit code {}]", ran.exit_code));
    }
    Done::of(text, &ran)
}

fn told(difference: &FileDifference) -> String {
    let change = &difference.change;
    let omitted = difference.omitted.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let text = difference.diff.as_deref().unwrap_or_default();
    let op = match change.op {
        ChangeOp::Created => "created",
        ChangeOp::Modified => "modified",
        ChangeOp::Renamed => "renamed",
        ChangeOp::Deleted => "deleted",
    };
    format!("{op} {}{omitted}\n{text}", change.path)
}
