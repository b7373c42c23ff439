//! One session of a suite in one sandbox: what it reads, where its output goes, and the trace it leaves.

use super::GateError;
use crate::suite::{Case, Suite};
use crate::{
    Decide, Engine, EngineError, Outcome, Pins, RecordedSession, ReplayRules, Replaying, Run, Stdio, Stop,
    Trace, nobody,
};
use cofferdam_model::ReplayMissed;
use cofferdam_trace::Held;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;

/// What came of running it.
pub(super) struct Ran {
    pub(super) outcome: Outcome,
    /// What it asked for that was never recorded, where answers were served from a recording.
    pub(super) missed: Vec<ReplayMissed>,
}

/// How it is run, but for what is run.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) suite: &'a Suite,
    pub(super) by: &'a str,
    pub(super) stop: &'a Stop,
    /// What of ours may lie in the work dir and is not for the agent.
    pub(super) hidden: &'a [&'a Path],
}

impl<'a> Way<'a> {
    fn run<'b>(self, case: &Case, decide: Decide<'b>) -> Result<Run<'b>, EngineError>
    where
        'a: 'b,
    {
        let mut spec = self.suite.spec(case);
        let workdir = &self.suite.agent.workdir;
        for path in self.hidden.iter().filter(|path| path.starts_with(workdir) && path.exists()) {
            if *path != workdir && !spec.hide.iter().any(|hidden| hidden == path) {
                spec.hide.push(path.to_path_buf());
            }
        }
        Ok(Run {
            spec,
            stdio: stdio(case)?,
            tools: None,
            tty: false,
            durable: false,
            decide,
            ask: &nobody,
            by: self.by.to_owned(),
            stop: Some(self.stop),
        })
    }

    /// Runs it in the world as the policy allows. Its output is in the trace and nowhere else.
    pub(super) fn live(self, engine: &Engine, case: &Case) -> Result<Ran, EngineError> {
        let outcome = engine.run(self.run(case, &mut |_| false)?)?;
        Ok(Ran { outcome, missed: Vec::new() })
    }

    /// Runs it with the answers that a baseline recorded, which has been verified.
    pub(super) fn replayed(
        self,
        engine: &Engine,
        case: &Case,
        rules: &ReplayRules,
        baseline: &Held,
    ) -> Result<Ran, EngineError> {
        let recorded = RecordedSession::read(baseline, false)?;
        let how =
            Replaying { rules: rules.clone(), policy: self.suite.policy.clone(), pins: Pins::default() };
        let replayed = engine.replay_only(recorded, how, self.run(case, &mut |_| false)?)?;
        Ok(Ran { outcome: replayed.outcome, missed: replayed.tally.missed })
    }
}

fn stdio(case: &Case) -> Result<Stdio, EngineError> {
    let failed = |source| EngineError::Io { doing: "prepare a session's input", source };
    let nowhere = || File::options().write(true).open("/dev/null").map_err(failed);
    let stdin = match &case.stdin {
        None => None,
        Some(bytes) => {
            let mut file = tempfile::tempfile().map_err(failed)?;
            file.write_all(bytes).and_then(|()| file.rewind()).map_err(failed)?;
            Some(file.into())
        }
    };
    Ok(Stdio { stdin, stdout: nowhere()?.into(), stderr: nowhere()?.into() })
}

/// Puts the trace of a session into one file, which appears whole.
pub(super) fn pack(engine: &Engine, outcome: &Outcome, to: &Path) -> Result<(), EngineError> {
    let failed = |source| GateError::Write { path: to.to_owned(), source };
    let dir = to.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    let trace = Trace { id: Some(outcome.session.clone()), path: outcome.trace.clone() };
    engine.export_bundle(&trace, &mut file)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).map_err(failed)?;
    file.persist(to).map_err(|error| failed(error.error))?;
    Ok(())
}
