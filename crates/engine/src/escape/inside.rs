//! Makes attempts inside a sandbox of a tier: one session without a policy, one with.

use super::check::{Check, Finding, Setting};
use super::stage::{CREDENTIAL, Stage};
use super::table::ROAD;
use crate::environment::Caller;
use crate::error::EngineError;
use crate::relay::Stdio;
use crate::secrets::nobody;
use crate::session::Run;
use crate::tiers;
use cofferdam_model::{Changes, Limits, Mount, SessionSpec, Span, Tier};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where our own program stands inside.
const PROGRAM: &str = "/.cofferdam/probe";
/// For all attempts of a session together.
const PATIENCE: Duration = Duration::from_secs(600);

/// What each of these attempts came to, with these controls left out.
pub(super) fn attempt(
    stage: &Stage,
    tier: Tier,
    without: &[String],
    checks: &[&'static Check],
) -> Result<BTreeMap<String, Finding>, EngineError> {
    let mut found = BTreeMap::new();
    for setting in [Setting::Alone, Setting::Policy] {
        let these: Vec<&Check> = checks.iter().copied().filter(|check| check.setting == setting).collect();
        if these.is_empty() {
            continue;
        }
        match session(stage, tier, without, setting, &these) {
            Ok(of_setting) => found.extend(of_setting),
            // A weakened profile that is refused lets nothing run, so nothing got out.
            Err(error) if !without.is_empty() && error.is_refusal() => {
                found.extend(
                    these.iter().map(|check| (check.id.to_owned(), Finding::blocked(error.to_string()))),
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn session(
    stage: &Stage,
    tier: Tier,
    without: &[String],
    setting: Setting,
    checks: &[&Check],
) -> Result<BTreeMap<String, Finding>, EngineError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let work = stage.work_dir(&format!("work-{}", NEXT.fetch_add(1, Ordering::Relaxed)))?;
    let said = run(stage, tier, without, spec(stage, setting, &work, checks)?)?;
    let found: Vec<(String, Finding)> = serde_json::from_slice(&said).unwrap_or_default();
    let mut found: BTreeMap<String, Finding> = found.into_iter().collect();
    for check in checks {
        // Only of an attempt that was made can it be seen what is left.
        if let (Some(look), Some(finding)) = (check.after, found.get_mut(check.id)) {
            *finding = look(&stage.facts, &work);
        }
    }
    Ok(found)
}

fn spec(stage: &Stage, setting: Setting, work: &Path, checks: &[&Check]) -> Result<SessionSpec, EngineError> {
    let facts = serde_json::to_string(&stage.facts).map_err(|error| EngineError::Io {
        doing: "write down what attempts are told",
        source: error.into(),
    })?;
    let mut command = [PROGRAM, "probe", "all", &facts].map(str::to_owned).to_vec();
    command.extend(checks.iter().map(|check| check.id.to_owned()));
    let shown = |source: &Path, target: PathBuf| Mount { source: source.to_owned(), target, writable: false };
    let with_policy = setting == Setting::Policy;
    if with_policy {
        command.push(ROAD.to_owned());
    }
    Ok(SessionSpec {
        command,
        workdir: Some(work.to_owned()),
        mounts: vec![
            shown(&stage.program, PROGRAM.into()),
            shown(&stage.facts.shown, stage.facts.shown.clone()),
        ],
        policy: with_policy.then(|| stage.policy()),
        secrets: if with_policy { vec![CREDENTIAL.into()] } else { Vec::new() },
        limits: Limits { timeout: Some(Span(PATIENCE)), ..Limits::default() },
        changes: Changes::Keep,
        ..SessionSpec::default()
    })
}

/// What the command said on its output.
fn run(stage: &Stage, tier: Tier, without: &[String], spec: SessionSpec) -> Result<Vec<u8>, EngineError> {
    let failed = |source: io::Error| EngineError::Io { doing: "listen to the attempts", source };
    let backend = tiers::backend(stage.engine.home.path(), tier, without)?;
    let (mut out, stdout) = io::pipe().map_err(failed)?;
    let stderr = std::fs::File::options().write(true).open("/dev/null").map_err(failed)?;
    let reader = std::thread::Builder::new().name("attempts".into()).spawn(move || {
        let mut said = Vec::new();
        out.read_to_end(&mut said).map(|_| said)
    });
    let reader = reader.map_err(failed)?;
    let run = Run {
        spec,
        stdio: Stdio { stdin: None, stdout: stdout.into(), stderr: stderr.into() },
        tty: false,
        durable: false,
        decide: &mut |_| false,
        ask: &nobody,
        by: "cofferdam escape".into(),
        stop: None,
        tools: None,
    };
    run.spec.check()?;
    let mut variables = Caller::of_this_process();
    variables.insert("HOME".into(), stage.facts.home.to_string_lossy().into_owned());
    let ended = stage.engine.run_in(run, backend, Caller::Asker(variables));
    let said = reader.join().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())).map_err(failed);
    ended?;
    said
}
