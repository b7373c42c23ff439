//! Comparing what is there already: two traces, or two directories of them, ours or someone else's. Nothing is run.

use super::detail::Lookup;
use super::each::each;
use super::plan::Rules;
use super::pool::lock;
use super::side::{self, Side, Whose};
use super::{GateError, GateResult, Keys, RunInfo, SessionVerdict, Sessions, judge, reports, written};
use crate::{Engine, EngineError};
use cofferdam_compare::{Outcome, Reason};
use cofferdam_gate::{Agent, Attempt, Decision, Input, Material, Thresholds, VERSION, decide};
use cofferdam_seal::{Hasher, Keyring, PublicKey};
use std::ffi::OsString;
use std::iter::Peekable;
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
struct Record {
    /// Of its file.
    name: Box<str>,
    /// Its place among those of the file.
    at: usize,
    /// Someone else's, which was read to know how many there are.
    read: Option<Box<Side>>,
}

/// In the order of their sessions.
type Records = Peekable<std::vec::IntoIter<Record>>;

impl Record {
    fn session(&self) -> String {
        match self.at {
            0 => session_of(&self.name),
            at => format!("{}-{}", session_of(&self.name), at + 1),
        }
    }

    fn side(self, of: &Path, keys: &Keyring, whose: Whose) -> Result<Side, Reason> {
        match self.read {
            None => side::read(&file(of, &self.name), &self.name, keys, whose),
            Some(side) => Ok(*side),
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
        let (bases, news) = (records(&asked.base)?, records(&asked.new)?);
        let mut sessions = verdicts(bases, news, &keys, rules.as_ref(), asked);
        let Decision { outcome, why, counts, rates } = decide(&mut sessions, &asked.thresholds);
        let name = asked.base.to_string_lossy().into_owned();
        let mut listed = Hasher::new();
        for one in sessions.iter().flat_map(|session| session.baselines) {
            listed.update(format!("{} {}\n", one.head, one.name).as_bytes());
        }
        let result = GateResult {
            version: VERSION,
            outcome,
            why,
            counts,
            rates,
            thresholds: asked.thresholds.clone(),
            suite: Material { name, digest: listed.finish() },
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
                    case: &|_| None,
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
) -> Sessions {
    // Two files are one session, whatever they are called.
    let is_one = !many(&asked.base) && !many(&asked.new);
    let name = |record: &Record| if is_one { "session".to_owned() } else { record.session() };
    let taken = |from: &mut Records, id: &str| -> Vec<Record> {
        std::iter::from_fn(|| from.next_if(|record| name(record) == id)).collect()
    };
    let mut pairs = std::iter::from_fn(|| {
        let id = bases.peek().map(name).into_iter().chain(news.peek().map(name)).min()?;
        let records = (taken(&mut bases, &id), taken(&mut news, &id));
        Some((id, Mutex::new(records)))
    });
    let mut sessions = Sessions::new();
    loop {
        let some: Vec<_> = pairs.by_ref().take(AT_A_TIME).collect();
        if some.is_empty() {
            return sessions;
        }
        sessions.extend(each(&some, |(id, records)| {
            let (base, new) = std::mem::take(&mut *lock(records));
            let base = base.into_iter().map(|one| one.side(&asked.base, keys, Whose::Baseline)).collect();
            let new = new.into_iter().map(|one| one.side(&asked.new, keys, Whose::New)).collect();
            verdict(id.clone(), base, new, rules, asked)
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
    let (is_dir, mut names) = (many(path), Vec::<OsString>::new());
    if is_dir {
        let entries =
            std::fs::read_dir(path).map_err(|source| GateError::Read { path: path.to_owned(), source })?;
        let other = |name: &OsString| {
            Path::new(name).extension().is_some_and(|e| e == "pem" || e == "md" || e == "toml")
        };
        let fits = |name: &OsString| !name.as_encoded_bytes().starts_with(b".") && !other(name);
        names.extend(entries.flatten().map(|entry| entry.file_name()).filter(fits));
        names.sort();
    } else {
        names.push(path.file_name().unwrap_or_default().to_owned());
    }
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let file = if is_dir { path.join(&name) } else { path.to_owned() };
        found.extend(read(&file, &name.to_string_lossy())?);
    }
    // Stable: several of one session stay in the order of their files.
    found.sort_by_cached_key(Record::session);
    if found.is_empty() {
        Err(GateError::NoTraces(path.to_owned()).into())
    } else {
        Ok(found.into_iter().peekable())
    }
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
        return Ok(vec![Record { name: name.into(), at: 0, read: None }]);
    }
    let text =
        std::fs::read_to_string(path).map_err(|source| GateError::Read { path: path.to_owned(), source })?;
    let foreign = side::foreign(path, name, &text);
    let sides = foreign.map_err(|problem| GateError::Foreign { path: path.to_owned(), problem })?;
    let record = |(at, side): (usize, Side)| Record { name: name.into(), at, read: Some(Box::new(side)) };
    Ok(sides.into_iter().enumerate().map(record).collect())
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
    // What is wrong with the baselines is wrong with every attempt that is held against them.
    let unsound = judge::outcome(&reasons);
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
        let outcome = outcome.max(unsound);
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
    // Of two directories, the two files that this is about.
    let (old, now) = match (bases.as_slice(), attempts.as_slice()) {
        ([base], [Attempt { trace: Some(trace), .. }]) => {
            (file(&asked.base, &base.trace.name), file(&asked.new, &trace.name))
        }
        _ => (asked.base.clone(), asked.new.clone()),
    };
    let reproduce =
        ["cofferdam".into(), "compare".into(), old.display().to_string(), now.display().to_string()];
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
