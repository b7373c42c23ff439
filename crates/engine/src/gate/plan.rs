//! What is to be done: found out, and refused if it cannot be, before anything is run.

use super::panel::Panel;
use super::recorded::Recorded;
use super::{GateError, Shard, version};
use crate::suite::{Case, Suite};
use crate::toml_file::nearest;
use crate::{Engine, EngineError};
use cofferdam_gate::{Agent, Material};
use cofferdam_model::{ActKind, Digest};
use cofferdam_policy::{Policy, RuleName};
use cofferdam_report::PolicyRule;
use cofferdam_seal::{Keyring, PublicKey};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where results go unless told.
pub(super) const OUT_SUFFIX: &str = "gate-out/";

/// How a suite is run.
#[derive(Debug, Clone)]
pub struct Options {
    pub out: PathBuf,
    /// At most so many sessions at once; by cores and memory if it is not said.
    pub at_once: Option<usize>,
    /// Another directory of baselines than the suite's, or the suite's as they were at a commit.
    pub baseline: Option<PathBuf>,
    pub shard: Option<Shard>,
    pub only: Vec<String>,
    /// So many times more is a session run that does not pass.
    pub retries: u32,
    /// A directory with what the judge answered before: it is not asked again.
    pub judged: Option<PathBuf>,
    /// A private key to sign with.
    pub key: Option<PathBuf>,
    /// The writer's name and version.
    pub by: String,
}

/// The rules that runs are held to.
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    pub(crate) material: Material,
    /// Kinds of acts of which no rule speaks: a policy for what leaves does not forbid every tool. What leaves is held
    /// to it in any case.
    pub(crate) silent: Vec<ActKind>,
}

pub struct Plan<'a> {
    pub(crate) suite: &'a Suite,
    pub(crate) options: &'a Options,
    pub(crate) cases: Vec<&'a Case>,
    pub(crate) baseline: Recorded,
    pub(crate) panel: Panel,
    /// Where everything of ours is written, as an absolute path.
    pub(crate) out: PathBuf,
    pub(crate) believed: Keyring,
    pub(crate) policy: Option<Rules>,
    pub(crate) agent: Agent,
    pub(crate) at_once: usize,
    /// Of everything but the session that decides its verdict; nothing where that cannot be told.
    pub(crate) inputs: Option<Digest>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(engine: &Engine, suite: &'a Suite, options: &'a Options) -> Result<Self, EngineError> {
        let cases = cases(suite, &options.only, options.shard)?;
        let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let baseline = Recorded::find(suite, options.baseline.as_deref())?;
        let out = whole(&options.out);
        let panel = Panel::new(engine, suite, options.judged.as_deref())?;
        let named =
            |path: &Path| path.strip_prefix(suite.dir()).unwrap_or(path).to_string_lossy().into_owned();
        let policy = suite.policy.as_deref().map(|path| Rules::read(path, named(path))).transpose()?;
        let agent = version::agent(suite);
        let fingerprint = version::fingerprint(&suite.agent.workdir, &[baseline.dir(), &out]);
        let inputs = fingerprint.map(|files| {
            let policy = policy.as_ref().map(|policy| policy.material.digest);
            let judged = &options.judged;
            let told = format!(
                "{} {files} {:?} {policy:?} {agent:?} {} {judged:?}",
                suite.digest, options.retries, options.by
            );
            cofferdam_seal::digest(told.as_bytes())
        });
        let at_once = options.at_once.unwrap_or_else(|| at_once(suite)).clamp(1, cases.len());
        let believed = believed(engine, suite)?;
        Ok(Self { suite, options, cases, baseline, panel, out, believed, policy, agent, at_once, inputs })
    }
}

pub(super) fn cases<'a>(
    suite: &'a Suite,
    only: &[String],
    shard: Option<Shard>,
) -> Result<Vec<&'a Case>, GateError> {
    for id in only {
        if !suite.sessions.iter().any(|case| case.id == *id) {
            let near =
                nearest(id, &mut suite.sessions.iter().map(|case| case.id.as_str())).map(str::to_owned);
            return Err(GateError::NoSession { id: id.clone(), near });
        }
    }
    if let Some(Shard { index, of }) = shard
        && (index == 0 || index > of)
    {
        return Err(GateError::Shard { index, of });
    }
    // In turn, so that sessions that are alike and stand together are shared out.
    let mine = |at: usize| shard.is_none_or(|Shard { index, of }| at % of as usize == index as usize - 1);
    let picked = |case: &Case| only.is_empty() || only.contains(&case.id);
    let dealt = suite.sessions.iter().enumerate().filter(|(at, case)| mine(*at) && picked(case));
    let cases: Vec<_> = dealt.map(|(_, case)| case).collect();
    match (cases.is_empty(), shard) {
        (true, Some(Shard { index, of })) => {
            Err(GateError::EmptyShard { index, of, sessions: suite.sessions.len() })
        }
        _ => Ok(cases),
    }
}

impl Rules {
    /// `name` is how the file is called in results.
    pub(crate) fn read(path: &Path, name: String) -> Result<Self, EngineError> {
        let (policy, text) = (crate::policy::load(path)?, crate::policy::read(path)?);
        let digest = cofferdam_seal::digest(text.as_bytes());
        let tables: toml::Table = toml::from_str(&text).unwrap_or_default();
        let rules = tables.get("rule").and_then(toml::Value::as_array).into_iter().flatten();
        let keys: BTreeSet<&str> =
            rules.filter_map(toml::Value::as_table).flat_map(toml::Table::keys).map(String::as_str).collect();
        let subjects = [("tool", ActKind::Tool), ("exec", ActKind::Exec), ("file", ActKind::File)];
        let subjects = subjects.into_iter().chain([("browser", ActKind::Browser), ("step", ActKind::Step)]);
        let silent = subjects.filter(|(key, _)| !keys.contains(key)).map(|(_, kind)| kind).collect();
        Ok(Self { policy, material: Material { name, digest }, silent })
    }

    /// As reports show them.
    pub(crate) fn described(&self) -> Vec<PolicyRule> {
        let described = |rule: &Arc<RuleName>| PolicyRule {
            id: rule.id.clone(),
            reason: rule.reason.clone(),
            effect: rule.effect.into(),
            line: rule.line,
        };
        self.policy.rules().map(described).collect()
    }
}

/// The suite's keys, and those that this machine believes anyway.
pub(super) fn believed(engine: &Engine, suite: &Suite) -> Result<Keyring, EngineError> {
    let mut ring = engine.home.trusted_keys()?;
    for path in &suite.baseline.keys {
        let text = std::fs::read_to_string(path)
            .map_err(|source| EngineError::Unreadable { path: path.clone(), source })?;
        ring.add(
            PublicKey::from_pem(&text).map_err(|source| EngineError::Key { path: path.clone(), source })?,
        );
    }
    Ok(ring)
}

/// Replayed sessions compute; live ones mostly wait. Either way all of them have to fit into memory.
pub(super) fn at_once(suite: &Suite) -> usize {
    const USUAL: u64 = 256 << 20;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if suite.replay.is_some() { cores } else { cores * 4 };
    let each = suite.limits.memory.map_or(USUAL, |bytes| bytes.0.max(1));
    let fit = available_memory().map_or(wanted, |free| usize::try_from(free / each).unwrap_or(wanted));
    wanted.min(fit).max(1)
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}
