//! Recording a suite: every session runs once or several times as it is, and its traces become what later runs are
//! compared with.

use super::baseline::{self, MOST};
use super::session::is_everyones;
use super::{GateError, Note, Verdict, Watch, attempt, plan, pool};
use crate::suite::{Case, Suite};
use crate::{Engine, EngineError, Outcome, Stop};
use cofferdam_model::Exit;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// How a suite is recorded.
#[derive(Debug, Clone)]
pub struct Recording {
    pub only: Vec<String>,
    /// How often each session is run.
    pub repeat: usize,
    pub at_once: Option<usize>,
    pub by: String,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Recorded {
    pub dir: PathBuf,
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// Sessions that have no new baseline, and why.
    pub failed: Vec<(String, String)>,
    /// Sessions that were recorded although they ended badly.
    pub remarks: Vec<(String, String)>,
    pub stopped: bool,
    /// The public key that a fresh clone has to believe, where the suite does not name it yet.
    pub key: Option<PathBuf>,
}

impl Engine {
    pub fn record_suite(
        &self,
        suite: &Suite,
        asked: &Recording,
        stop: &Stop,
        watch: Watch<'_>,
    ) -> Result<Recorded, EngineError> {
        let cases = plan::cases(suite, &asked.only, None)?;
        let repeat = asked.repeat.clamp(1, MOST);
        let jobs: Vec<(&Case, usize)> =
            cases.iter().flat_map(|case| (1..=repeat).map(|time| (*case, time))).collect();
        let at_once = asked.at_once.unwrap_or_else(|| plan::at_once(suite)).clamp(1, jobs.len());
        watch(Note::Planned { sessions: jobs.len(), finished: 0, at_once });
        let next = AtomicUsize::new(0);
        let way = attempt::Way { suite, by: &asked.by, stop, hidden: &[] };
        let ran: Mutex<Vec<(usize, Result<Outcome, EngineError>)>> = Mutex::default();
        let work = || {
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::SeqCst)).filter(|_| !stop.is_raised())
            {
                let (case, _) = job;
                watch(Note::Started { id: case.id.clone() });
                let began = Instant::now();
                let outcome = way.live(self, case).map(|ran| ran.outcome);
                let verdict = if outcome.is_ok() { Verdict::Pass } else { Verdict::Fail };
                let why = outcome.as_ref().err().map(ToString::to_string);
                watch(Note::Ended { id: case.id.clone(), outcome: verdict, why, took: began.elapsed() });
                let at = jobs.iter().position(|other| std::ptr::eq(other, job)).unwrap_or_default();
                pool::lock(&ran).push((at, outcome));
            }
        };
        std::thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(work))));
        let mut recorded = Recorded { dir: suite.baseline.dir.clone(), ..Recorded::default() };
        recorded.stopped = stop.is_raised();
        if recorded.stopped {
            return Ok(recorded);
        }
        let mut ran = std::mem::take(&mut *pool::lock(&ran));
        ran.sort_by_key(|(at, _)| *at);
        let mut ran = ran.into_iter().map(|(_, outcome)| outcome);
        for case in cases {
            let outcomes: Vec<_> = ran.by_ref().take(repeat).collect();
            self.keep(suite, case, outcomes, &mut recorded)?;
        }
        if !recorded.files.is_empty() {
            recorded.key = self.publish(suite)?;
        }
        Ok(recorded)
    }

    /// Replaces the baselines of a session, all of them or none.
    fn keep(
        &self,
        suite: &Suite,
        case: &Case,
        outcomes: Vec<Result<Outcome, EngineError>>,
        recorded: &mut Recorded,
    ) -> Result<(), EngineError> {
        let mut good = Vec::new();
        for outcome in outcomes {
            let why = match outcome {
                Ok(Outcome { exit: Exit::TimedOut, .. }) => {
                    "it was still running when its time was over".to_owned()
                }
                Ok(Outcome { exit: Exit::NotFound, program, .. }) => {
                    format!("`{program}` was not found in the sandbox")
                }
                Ok(Outcome { exit: Exit::NotExecutable, program, .. }) => {
                    format!("`{program}` cannot be executed")
                }
                Ok(outcome) => {
                    good.push(outcome);
                    continue;
                }
                Err(error) if is_everyones(&error) => return Err(error),
                Err(error) => error.to_string(),
            };
            recorded.failed.push((case.id.clone(), why));
            return Ok(());
        }
        if let Some(bad) = good.iter().find(|outcome| outcome.exit.code() != 0) {
            let text = format!("it ended with code {}; that is the baseline now", bad.exit.code());
            recorded.remarks.push((case.id.clone(), text));
        }
        let before = baseline::files(&suite.baseline.dir, &case.id);
        for (at, outcome) in good.iter().enumerate() {
            let path = baseline::file(&suite.baseline.dir, &case.id, at + 1);
            attempt::pack(self, outcome, &path)?;
            recorded.files.push(path);
        }
        for old in before.iter().skip(good.len()) {
            std::fs::remove_file(old).map_err(|source| GateError::Write { path: old.clone(), source })?;
        }
        Ok(())
    }

    /// Puts our public key beside the baselines, unless the suite already believes it.
    fn publish(&self, suite: &Suite) -> Result<Option<PathBuf>, EngineError> {
        let ours = self.public_key()?;
        let path = suite.baseline.dir.join(crate::suite::SIGNER);
        let named = suite.baseline.names_signer;
        let known = |path: &PathBuf| {
            std::fs::read_to_string(path).is_ok_and(|text| text.contains(ours.to_pem().trim()))
        };
        if suite.baseline.keys.iter().any(known) {
            return Ok(None);
        }
        super::written::replace(&path, ours.to_pem().as_bytes())?;
        Ok((!named).then_some(path))
    }
}
