//! Comparing what is there already: two traces, or two directories of them, ours or someone else's. Nothing is run.

use super::detail::Lookup;
use super::each::each;
use super::plan::Rules;
use super::pool::lock;
use super::side::{self, Side, Whose};
use super::{GateError, GateResult, Keys, RunInfo, SessionVerdict, judge, reports, written};
use crate::suite::Expect;
use crate::{Engine, EngineError};
use cofferdam_compare::{Outcome, Reason};
use cofferdam_gate::{Agent, Attempt, Decision, Input, Material, Thresholds, VERSION, decide};
use cofferdam_seal::{Keyring, PublicKey, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Pairs that are compared in one go: enough to keep all cores busy.
const AT_A_TIME: usize = 256;

/// How two records are compared.
#[derive(Debug, Clone)]
pub struct Comparing {
    pub base: PathBuf,
    pub new: PathBuf,
    pub policy: Option<PathBuf>,
    /// Whose traces are believed; by default those that this machine believes.
    pub keys: Vec<PathBuf>,
    pub thresholds: Thresholds,
    /// Where the reports go, if anywhere.
    pub out: Option<PathBuf>,
    pub by: String,
}

/// A record of one side: ours is read when its turn comes, so that not all of them are held at once.
enum Record {
    /// By the name of its file.
    Ours(Box<str>),
    Read(Box<Side>),
}

type Records = BTreeMap<Box<str>, Vec<Record>>;

impl Record {
    fn side(self, of: &Path, keys: &Keyring, whose: Whose) -> Result<Side, Reason> {
        match self {
            Self::Ours(name) => side::read(&file(of, &name), &name, keys, whose),
            Self::Read(side) => Ok(*side),
        }
    }
}

/// What was named is the file itself, or the directory that it lies in.
fn file(named: &Path, name: &str) -> PathBuf {
    if many(named) { named.join(name) } else { named.to_owned() }
}

impl Engine {
    pub fn compare(&self, asked: &Comparing) -> Result<GateResult, EngineError> {
        let started_us = crate::record::now_us();
        if asked.base.is_dir() != asked.new.is_dir() && !(is_trace(&asked.base) || is_trace(&asked.new)) {
            let dir = if asked.base.is_dir() { &asked.base } else { &asked.new };
            return Err(GateError::Unlike(dir.clone()).into());
        }
        let named = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let rules = asked.policy.as_deref().map(|path| Rules::read(path, named(path))).transpose()?;
        let keys = believed(self, &asked.keys)?;
        let (mut bases, mut news) = (records(&asked.base)?, records(&asked.new)?);
        // Two files are one session, whatever they are called.
        if !many(&asked.base) && !many(&asked.new) {
            let name: Box<str> = "session".into();
            bases = BTreeMap::from([(name.clone(), bases.into_values().flatten().collect())]);
            news = BTreeMap::from([(name, news.into_values().flatten().collect())]);
        }
        let mut sessions = verdicts(bases, news, &keys, rules.as_ref(), asked);
        let Decision { outcome, why, counts, rates } = decide(&mut sessions, &asked.thresholds);
        let name = asked.base.to_string_lossy().into_owned();
        let listed: String = sessions
            .iter()
            .flat_map(|s| &s.baselines)
            .map(|one| format!("{} {}\n", one.head, one.name))
            .collect();
        let result = GateResult {
            version: VERSION,
            outcome,
            why,
            counts,
            rates,
            thresholds: asked.thresholds.clone(),
            suite: Material { name, digest: digest(listed.as_bytes()) },
            policy: rules.as_ref().map(|rules| rules.material.clone()),
            agent: Agent::default(),
            sessions,
            run: RunInfo {
                by: asked.by.clone(),
                started_us,
                ended_us: crate::record::now_us(),
                shard: None,
                only: Vec::new(),
            },
        };
        if let Some(out) = &asked.out {
            std::fs::create_dir_all(out).map_err(|source| GateError::Write { path: out.clone(), source })?;
            reports::write(
                out,
                &result,
                &Lookup {
                    base: &|name| file(&asked.base, name),
                    new: &|name| file(&asked.new, name),
                    keys: &keys,
                    rules: rules.as_ref(),
                    thresholds: &asked.thresholds,
                    expect: &|_| Expect::default(),
                },
            )?;
            written::write(out, &result, &Keys::find(self, None)?)?;
        }
        Ok(result)
    }
}

/// Of every session of either side, in the order of their names; some are read at a time.
fn verdicts(
    mut bases: Records,
    mut news: Records,
    keys: &Keyring,
    rules: Option<&Rules>,
    asked: &Comparing,
) -> Vec<SessionVerdict> {
    let ids: BTreeSet<Box<str>> = bases.keys().chain(news.keys()).cloned().collect();
    let mut sessions = Vec::with_capacity(ids.len());
    let mut ids = ids.into_iter();
    loop {
        let some: Vec<_> = ids.by_ref().take(AT_A_TIME).collect();
        if some.is_empty() {
            return sessions;
        }
        let pair = |id: Box<str>| {
            let records = (bases.remove(&id).unwrap_or_default(), news.remove(&id).unwrap_or_default());
            (id, Mutex::new(records))
        };
        let pairs: Vec<_> = some.into_iter().map(pair).collect();
        sessions.extend(each(&pairs, |(id, records)| {
            let (base, new) = std::mem::take(&mut *lock(records));
            let base = base.into_iter().map(|one| one.side(&asked.base, keys, Whose::Baseline)).collect();
            let new = new.into_iter().map(|one| one.side(&asked.new, keys, Whose::New)).collect();
            verdict(id.to_string(), base, new, rules, asked)
        }));
    }
}

pub(super) fn believed(engine: &Engine, given: &[PathBuf]) -> Result<Keyring, EngineError> {
    if given.is_empty() {
        return Ok(engine.home.trusted_keys()?);
    }
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path)
            .map_err(|source| EngineError::Unreadable { path: path.clone(), source })?;
        PublicKey::from_pem(&text).map_err(|source| EngineError::Key { path: path.clone(), source })
    };
    given.iter().map(read).collect()
}

fn is_trace(path: &Path) -> bool {
    path.join(cofferdam_trace::EVENTS_FILE).is_file()
}

fn many(path: &Path) -> bool {
    path.is_dir() && !is_trace(path)
}

/// By the name of the session: `refund.2.tar.zst` is the second of `refund`.
fn records(path: &Path) -> Result<Records, EngineError> {
    let mut files = Vec::new();
    if many(path) {
        let entries =
            std::fs::read_dir(path).map_err(|source| GateError::Read { path: path.to_owned(), source })?;
        let visible =
            |path: &PathBuf| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let fits = |path: &PathBuf| path.extension().is_none_or(|e| e != "pem" && e != "md" && e != "toml");
        files.extend(entries.flatten().map(|entry| entry.path()).filter(|path| visible(path) && fits(path)));
        files.sort();
    } else {
        files.push(path.to_owned());
    }
    let mut found = Records::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (at, record) in read(&file, &name)?.into_iter().enumerate() {
            let id = match at {
                0 => session_of(&name),
                at => format!("{}-{}", session_of(&name), at + 1),
            };
            found.entry(id.into()).or_insert_with(|| Vec::with_capacity(1)).push(record);
        }
    }
    if found.is_empty() { Err(GateError::NoTraces(path.to_owned()).into()) } else { Ok(found) }
}

fn session_of(name: &str) -> String {
    let stem = name.strip_suffix(".tar.zst").unwrap_or(name);
    let stem = stem.strip_suffix(".jsonl").or_else(|| stem.strip_suffix(".json")).unwrap_or(stem);
    match stem.rsplit_once('.') {
        Some((id, number)) if !id.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => id.to_owned(),
        _ => stem.to_owned(),
    }
}

/// All that a file holds, read at once.
pub(super) fn sides(
    path: &Path,
    name: &str,
    keys: &Keyring,
    whose: Whose,
) -> Result<Vec<Result<Side, Reason>>, EngineError> {
    Ok(read(path, name)?.into_iter().map(|record| record.side(path, keys, whose)).collect())
}

fn read(path: &Path, name: &str) -> Result<Vec<Record>, EngineError> {
    if path.is_dir() || name.ends_with(".tar.zst") || is_events(path) {
        return Ok(vec![Record::Ours(name.into())]);
    }
    let text =
        std::fs::read_to_string(path).map_err(|source| GateError::Read { path: path.to_owned(), source })?;
    let foreign = side::foreign(path, name, &text);
    let sides = foreign.map_err(|problem| GateError::Foreign { path: path.to_owned(), problem })?;
    Ok(sides.into_iter().map(|side| Record::Read(Box::new(side))).collect())
}

/// Whether it is a bare file of our own events.
fn is_events(path: &Path) -> bool {
    use std::io::BufRead;
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut line = Vec::new();
    let mut start = std::io::BufReader::new(std::io::Read::take(file, 1 << 20));
    start.read_until(b'\n', &mut line).is_ok()
        && serde_json::from_slice::<cofferdam_model::Event>(&line)
            .is_ok_and(|event| event.kind == "session.started")
}

fn verdict(
    id: String,
    base: Vec<Result<Side, Reason>>,
    new: Vec<Result<Side, Reason>>,
    rules: Option<&Rules>,
    asked: &Comparing,
) -> SessionVerdict {
    let (mut bases, mut reasons) = (Vec::new(), Vec::new());
    for side in base {
        match side {
            Ok(side) => bases.push(side),
            Err(reason) => reasons.push(reason),
        }
    }
    if bases.is_empty() && reasons.is_empty() {
        reasons.push(side::reason(
            "baseline-missing",
            Outcome::Review,
            format!("the base has no trace of `{id}`"),
        ));
    }
    let mut attempts = Vec::new();
    let mut worst: Option<(Outcome, f64, Vec<Reason>, _)> = None;
    for side in new {
        let (outcome, score, found, side) = match side {
            Err(reason) => (reason.outcome, 0.0, vec![reason], None),
            Ok(side) => {
                let seen = judge::Seen { bases: &bases, rules, thresholds: &asked.thresholds };
                let verdict = seen.judge(&side, Vec::new()).verdict;
                (verdict.outcome, verdict.score, verdict.reasons, Some(side))
            }
        };
        let measures = side.as_ref().map(|side| judge::measures(&side.run));
        let (trace, exit) = side.map_or((None, None), |side| (Some(side.trace), side.exit));
        attempts.push(Attempt { outcome, trace, exit, tier: None, enforcement: None, wall_us: 0 });
        if worst.as_ref().is_none_or(|(before, ..)| outcome > *before) {
            worst = Some((outcome, score, found, measures));
        }
    }
    if attempts.is_empty() {
        reasons.push(side::reason(
            "session-missing",
            Outcome::Review,
            format!("the new side has no trace of `{id}`"),
        ));
    }
    let (told, score, new) = match worst {
        Some((outcome, score, found, measures)) => {
            reasons.extend(found);
            (attempts.iter().position(|one| one.outcome == outcome).unwrap_or(0), score, measures)
        }
        None => (0, 0.0, None),
    };
    cofferdam_compare::reason::in_order(&mut reasons);
    let runs: Vec<_> = bases.iter().map(|side| &side.run).collect();
    let reproduce = [
        "cofferdam".into(),
        "compare".into(),
        asked.base.display().to_string(),
        asked.new.display().to_string(),
    ];
    SessionVerdict {
        outcome: judge::outcome(&reasons),
        score,
        reasons,
        input: Input::default(),
        baselines: bases.iter().map(|side| side.trace.clone()).collect(),
        attempts,
        told,
        base: judge::mean(&runs),
        new,
        scores: Vec::new(),
        asked: None,
        reproduce: reproduce.to_vec(),
        id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_tells_its_session() {
        let check = |name: &str, expected: &str| assert_eq!(session_of(name), expected);
        check("refund.1.tar.zst", "refund");
        check("refund.tar.zst", "refund");
        check("a.b.12.tar.zst", "a.b");
        check("run.json", "run");
        check("run.3.jsonl", "run");
        check("v1.2", "v1");
        check("7", "7");
    }
}
