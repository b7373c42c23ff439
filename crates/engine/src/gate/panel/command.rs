//! A program as scorer: in a sandbox like any session's, with the suite's directory to read and nothing that leaves.
//! What it changes is dropped.

use super::MOST;
use crate::gate::plan::Plan;
use crate::suite::ScorerSpec;
use crate::{Engine, EngineError, Run, Stdio, Stop, nobody};
use cofferdam_compare::custom::Failure;
use cofferdam_model::{Bytes, Changes, Exit, Limits, SessionSpec};
use std::fs::File;
use std::io::{Read, Seek, Write};

/// On standard error: enough to see what went wrong.
const WORDS: u64 = 2000;

pub(super) fn ask(
    engine: &Engine,
    plan: &Plan<'_>,
    spec: &ScorerSpec,
    words: &[String],
    (question, stop): (&[u8], &Stop),
) -> Result<Vec<u8>, Failure> {
    let failed = |error: EngineError| Failure::NotAsked(error.to_string());
    let agent = &plan.suite.agent;
    let session = SessionSpec {
        command: words.to_vec(),
        workdir: Some(plan.suite.dir().to_owned()),
        isolation: agent.isolation,
        floor: agent.floor,
        require: agent.require.clone(),
        accept: agent.accept.clone(),
        limits: Limits {
            timeout: Some(spec.timeout),
            memory: spec.memory,
            output: Some(Bytes(MOST + WORDS)),
            ..Limits::default()
        },
        changes: Changes::Discard,
        ..SessionSpec::default()
    };
    let (stdio, mut out, mut err) = pipes(question).map_err(|error| Failure::NotAsked(error.to_string()))?;
    let run = Run {
        spec: session,
        stdio,
        tools: None,
        tty: false,
        durable: false,
        decide: &mut |_| false,
        ask: &nobody,
        by: plan.options.by.clone(),
        stop: Some(stop),
    };
    let outcome = engine.run(run).map_err(failed)?;
    let told = |file: &mut File, most: u64| {
        let mut bytes = Vec::new();
        let read = file.rewind().and_then(|()| file.take(most).read_to_end(&mut bytes));
        read.map(|_| bytes).map_err(|error| Failure::NotAsked(error.to_string()))
    };
    let broke = |how: String, err: &mut File| {
        let words = told(err, WORDS).unwrap_or_default();
        Failure::Broke { how, words: String::from_utf8_lossy(&words).into_owned() }
    };
    match outcome.exit {
        Exit::Code(0) => {
            let answer = told(&mut out, MOST + 1)?;
            if answer.len() as u64 > MOST { Err(Failure::TooLong(MOST)) } else { Ok(answer) }
        }
        Exit::TimedOut => Err(Failure::Late(spec.timeout.0.as_secs())),
        Exit::LimitReached => Err(broke("went beyond a limit".into(), &mut err)),
        Exit::NotFound => Err(broke(format!("was not found: is `{}` installed?", words[0]), &mut err)),
        Exit::NotExecutable => Err(broke("cannot be executed".into(), &mut err)),
        Exit::Code(code) => Err(broke(format!("ended with code {code}"), &mut err)),
        Exit::Signal(signal) => Err(broke(format!("was ended by signal {signal}"), &mut err)),
    }
}

/// The question to be read, and files for what is said.
fn pipes(question: &[u8]) -> std::io::Result<(Stdio, File, File)> {
    let mut asked = tempfile::tempfile()?;
    asked.write_all(question)?;
    asked.rewind()?;
    let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let (stdout, stderr) = (out.try_clone()?, err.try_clone()?);
    Ok((Stdio { stdin: Some(asked.into()), stdout: stdout.into(), stderr: stderr.into() }, out, err))
}
