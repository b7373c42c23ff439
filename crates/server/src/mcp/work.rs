//! What the tools do: all of it by the session's own socket, as `cofferdam session` does it.

use super::output::Shown;
use super::stop::Stop;
use super::told::{Done, Fault, begun, differences, may_run, ran, settled};
use cofferdam_api::mcp::{Begin, Call, Diff, Run, Settle};
use cofferdam_engine::{Engine, LiveExec, LiveOutcome, Stdio};
use cofferdam_model::{Exit, SessionId, Span};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
                begun(self.depth()?)
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
        may_run(asked)?;
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
        let done = ran(outcome.exit.code(), outcome.reason.clone(), stdout, stderr);
        Ok((outcome, done))
    }

    fn diff(&self, asked: &Diff) -> Result<Done, Fault> {
        differences(self.engine.difference(&self.session, !asked.brief)?)
    }

    fn settle(&self, keep: bool, force: bool) -> Result<Done, Fault> {
        settled(keep, self.engine.settle(&self.session, keep, force)?)
    }
}
