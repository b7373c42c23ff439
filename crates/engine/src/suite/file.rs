//! The file of a suite: its schema, and everything that can be wrong with it without running anything.

use super::panel::{self, WrittenJudge, WrittenScorer};
use super::{Agent, Baseline, Case, Expect, Suite};
use crate::error::EngineError;
use crate::toml_file::{line_of, mistake, parse};
use cofferdam_compare::Outcome;
use cofferdam_compare::delta::{Options, Tolerance};
use cofferdam_gate::Thresholds;
use cofferdam_intercept::replay::Rules as ReplayRules;
use cofferdam_model::{Isolation, Limits, Mount, Span, Tier, Weakness};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// An agent that hangs ends some time.
pub(super) const TIMEOUT: Span = Span(Duration::from_secs(600));
/// More than this of input, or of sessions, is a mistake of whatever wrote the file.
const MAX_INPUT: u64 = 16 << 20;
const MAX_SESSIONS: usize = 100_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    agent: WrittenAgent,
    policy: Option<WrittenPolicy>,
    #[serde(default)]
    secret: Vec<WrittenSecret>,
    replay: Option<ReplayRules>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    thresholds: WrittenThresholds,
    #[serde(default)]
    tolerance: Vec<Tolerance>,
    #[serde(default)]
    baseline: WrittenBaseline,
    #[serde(default)]
    scorer: Vec<WrittenScorer>,
    judge: Option<WrittenJudge>,
    #[serde(default)]
    session: Vec<WrittenSession>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAgent {
    command: Spanned<Vec<String>>,
    #[serde(default)]
    workdir: PathBuf,
    image: Option<Spanned<String>>,
    warm: Option<Spanned<toml::Value>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    isolation: Isolation,
    floor: Option<Tier>,
    #[serde(default)]
    require: Vec<String>,
    #[serde(default)]
    accept: Vec<Weakness>,
    #[serde(default)]
    mounts: Vec<Mount>,
    #[serde(default)]
    browser: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPolicy {
    file: Spanned<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSecret {
    name: String,
}

/// Those of the comparison, each of which has a default of its own.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WrittenThresholds {
    fail_at: Option<Distance>,
    review_at: Option<Distance>,
    answers_missing: Option<Portion>,
    tokens_ratio: Option<Times>,
    time_ratio: Option<Times>,
    trials: Option<Portion>,
    failed: Option<usize>,
    review: Option<Portion>,
    contradicted: Option<Outcome>,
    unsupported: Option<Outcome>,
}

impl WrittenThresholds {
    fn with(self, tolerances: Vec<Tolerance>) -> Thresholds {
        let usual = Thresholds::default();
        Thresholds {
            fail_at: self.fail_at.map_or(usual.fail_at, |number| number.0),
            review_at: self.review_at.map_or(usual.review_at, |number| number.0),
            answers_missing: self.answers_missing.map_or(usual.answers_missing, |number| number.0),
            tokens_ratio: self.tokens_ratio.map(|number| number.0).or(usual.tokens_ratio),
            time_ratio: self.time_ratio.map(|number| number.0).or(usual.time_ratio),
            trials: self.trials.map_or(usual.trials, |number| number.0),
            failed: self.failed.unwrap_or(usual.failed),
            review: self.review.map_or(usual.review, |number| number.0),
            contradicted: self.contradicted.unwrap_or(usual.contradicted),
            unsupported: self.unsupported.unwrap_or(usual.unsupported),
            options: Options { tolerances },
        }
    }
}

/// Numbers that mean something: a share of 5 or a distance that is no number would never be reached, and whatever an agent
/// does would pass.
macro_rules! number {
    ($name:ident, $fits:expr, $belongs:literal) => {
        #[derive(Deserialize, Clone, Copy)]
        #[serde(try_from = "f64")]
        struct $name(f64);

        impl TryFrom<f64> for $name {
            type Error = String;

            fn try_from(number: f64) -> Result<Self, String> {
                let fits: fn(f64) -> bool = $fits;
                if fits(number) { Ok(Self(number)) } else { Err(format!("{number} is not {}", $belongs)) }
            }
        }
    };
}
number!(Portion, |n| (0.0..=1.0).contains(&n), "a share: write a number from 0 to 1, as in 0.05 for 5 %");
number!(Distance, |n| n >= 0.0 && n.is_finite(), "a distance: write a number from 0 on, as in 0.5");
number!(Times, |n| n > 0.0 && n.is_finite(), "so many times: write a number above 0, as in 2.0");

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WrittenBaseline {
    dir: Option<PathBuf>,
    keys: Vec<Spanned<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSession {
    id: Spanned<String>,
    #[serde(default)]
    input: WrittenInput,
    #[serde(default)]
    env: BTreeMap<String, String>,
    timeout: Option<Span>,
    #[serde(default)]
    expect: Expect,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WrittenInput {
    args: Vec<String>,
    stdin: Option<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
}

pub fn load(path: &Path) -> Result<Suite, EngineError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| EngineError::Unreadable { path, source }
    };
    let text = std::fs::read_to_string(path).map_err(unreadable(path))?;
    let path = path.canonicalize().map_err(unreadable(path))?;
    read(&path, &text)
}

/// `path` is absolute: what the file names, it names from where it lies.
fn read(path: &Path, text: &str) -> Result<Suite, EngineError> {
    let shown = Path::new(path.file_name().unwrap_or(path.as_os_str()));
    let dir = path.parent().unwrap_or(Path::new("/"));
    let wrong = |at: usize, message: String| mistake(shown, line_of(text, at), message);
    let Written {
        agent,
        policy,
        secret,
        replay,
        limits,
        thresholds,
        tolerance,
        baseline,
        scorer,
        judge,
        session,
    } = parse(shown, text)?;
    if session.is_empty() {
        let message = "the suite has no sessions: add one, as in [[session]] with id = \"greets\"";
        return Err(wrong(text.len(), message.into()));
    }
    if session.len() > MAX_SESSIONS {
        return Err(wrong(
            0,
            format!("the suite has {} sessions, and the most is {MAX_SESSIONS}", session.len()),
        ));
    }
    let there = |path: &Spanned<PathBuf>, field: &str| {
        let full = dir.join(path.get_ref());
        match full.is_file() {
            true => Ok(full),
            false => {
                let message =
                    format!("`{field}`: there is no file `{}` beside the suite", path.get_ref().display());
                Err(wrong(path.span().start, message))
            }
        }
    };
    let agent = checked(agent, dir, &wrong)?;
    if replay.is_some() && policy.is_none() {
        let message = "`replay`: without [policy] nothing leaves the sandbox, so there is nothing to answer; name one with file = \"policy.toml\"";
        return Err(wrong(text.find("[replay]").unwrap_or(0), message.into()));
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut sessions = Vec::with_capacity(session.len());
    for written in session {
        let line = line_of(text, written.id.span().start);
        let case = case(written, line, &|path| there(path, "input.file"), &wrong)?;
        if let Some(first) = seen.insert(case.id.clone(), line) {
            let message = format!("`id`: `{}` is already the id of the session on line {first}", case.id);
            return Err(mistake(shown, line, message));
        }
        sessions.push(case);
    }
    Ok(Suite {
        name: shown.to_string_lossy().into_owned(),
        digest: cofferdam_seal::digest(text.as_bytes()),
        agent,
        policy: policy.map(|policy| there(&policy.file, "policy.file")).transpose()?,
        secrets: secret.into_iter().map(|secret| secret.name).collect(),
        replay,
        limits,
        thresholds: thresholds.with(tolerance),
        baseline: kept(baseline, dir, &there)?,
        scorers: panel::scorers(scorer, &there, &wrong)?,
        judge: judge.map(|judge| panel::judge(judge, &there, &wrong)).transpose()?,
        sessions,
        path: path.to_owned(),
    })
}

type There<'a> = &'a dyn Fn(&Spanned<PathBuf>, &str) -> Result<PathBuf, EngineError>;

fn kept(written: WrittenBaseline, dir: &Path, there: There<'_>) -> Result<Baseline, EngineError> {
    let base = dir.join(written.dir.unwrap_or_else(|| "baseline".into()));
    let is_signer = |key: &Spanned<PathBuf>| dir.join(key.get_ref()) == base.join(super::SIGNER);
    let names_signer = written.keys.iter().any(is_signer);
    // What was not recorded yet has no key either.
    let wanted = written.keys.iter().filter(|key| !is_signer(key) || base.join(super::SIGNER).exists());
    let keys = wanted.map(|key| there(key, "baseline.keys")).collect::<Result<_, _>>()?;
    Ok(Baseline { dir: base, keys, names_signer })
}

pub(super) type Wrong<'a> = &'a dyn Fn(usize, String) -> EngineError;

fn checked(agent: WrittenAgent, dir: &Path, wrong: Wrong<'_>) -> Result<Agent, EngineError> {
    if let Some(image) = &agent.image {
        let message =
            "`agent.image`: suites run programs of the host only; install the agent there and leave it out";
        return Err(wrong(image.span().start, message.into()));
    }
    if let Some(warm) = &agent.warm {
        let message = "`agent.warm`: every session has a sandbox of its own, and an interpreter cannot be copied from one sandbox \
                       into another; leave it out (docs/suite.md says what it would take)";
        return Err(wrong(warm.span().start, message.into()));
    }
    if agent.command.get_ref().first().is_none_or(|program| program.is_empty()) {
        let message = "`agent.command` is empty: name the program to run, as in [\"python3\", \"agent.py\"]";
        return Err(wrong(agent.command.span().start, message.into()));
    }
    let WrittenAgent { command, workdir, env, isolation, floor, require, accept, mounts, browser, .. } =
        agent;
    let workdir = dir.join(workdir);
    let workdir = workdir.canonicalize().map_err(|source| EngineError::Workdir { path: workdir, source })?;
    Ok(Agent {
        command: command.into_inner(),
        workdir,
        env,
        isolation,
        floor,
        require,
        accept,
        mounts,
        browser,
    })
}

fn case(
    written: WrittenSession,
    line: usize,
    there: &dyn Fn(&Spanned<PathBuf>) -> Result<PathBuf, EngineError>,
    wrong: Wrong<'_>,
) -> Result<Case, EngineError> {
    let WrittenSession { id, input, env, timeout, expect } = written;
    // It is the name of files, and of a command's argument.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let text = id.get_ref();
    if text.is_empty() || text.len() > 100 || !text.chars().all(fits) || text.starts_with(['-', '.']) {
        let told: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
        let message = format!(
            "`id`: `{told}` is not an id: use up to 100 letters, digits, `-`, `_` and `.`, a letter or digit first"
        );
        return Err(wrong(id.span().start, message));
    }
    let stdin = match (&input.stdin, &input.file) {
        (Some(_), Some(file)) => {
            let message = "`input`: `stdin` and `file` are both what the agent reads; write one of them";
            return Err(wrong(file.span().start, message.into()));
        }
        (Some(text), None) => Some(text.get_ref().clone().into_bytes()),
        (None, Some(file)) => Some(read_input(&there(file)?, file, wrong)?),
        (None, None) => None,
    };
    Ok(Case {
        line,
        args: input.args,
        stdin,
        file: input.file.map(|file| file.into_inner().to_string_lossy().into_owned()),
        env,
        timeout,
        expect,
        id: id.into_inner(),
    })
}

fn read_input(path: &Path, written: &Spanned<PathBuf>, wrong: Wrong<'_>) -> Result<Vec<u8>, EngineError> {
    let unreadable = |source| EngineError::Unreadable { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_INPUT {
        let message =
            format!("`input.file`: `{}` has {size} bytes, and the most is {MAX_INPUT}", path.display());
        return Err(wrong(written.span().start, message));
    }
    std::fs::read(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AGENT: &str = "[agent]\ncommand = [\"true\"]\n";

    fn read_in(dir: &Path, text: &str) -> Result<Suite, EngineError> {
        read(&dir.canonicalize().unwrap().join("suite.toml"), text)
    }

    fn check(text: &str, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let error = read_in(dir.path(), text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn mistakes_are_named_with_line_field_and_what_was_meant() {
        let with = |rest: &str| format!("{AGENT}{rest}");
        let session = "[[session]]\nid = \"a\"\n";
        check(&with("[[sesion]]\nid = \"a\"\n"), "suite.toml:3: unknown field `sesion`");
        check(&with("[[sesion]]\nid = \"a\"\n"), "did you mean `session`?");
        check(&with(&format!("{session}imput = {{}}\n")), "suite.toml:5: unknown field `imput`");
        check(&with(&format!("[thresholds]\nfaild = 1\n{session}")), "suite.toml:4: unknown field `faild`");
        check(&with(&format!("[thresholds]\nfailed = 1\n{session}[replay]\n")), "`replay`: without [policy]");
        check(
            &with(&format!("[thresholds]\nfailed = \"lots\"\n{session}")),
            "suite.toml:4: `failed`: invalid type: string \"lots\", expected a whole number from 0 on",
        );
        let threshold = |line: &str| with(&format!("[thresholds]\n{line}\n{session}"));
        check(
            &threshold("review = 5"),
            "suite.toml:4: `review`: 5 is not a share: write a number from 0 to 1",
        );
        check(&threshold("trials = -0.1"), "suite.toml:4: `trials`: -0.1 is not a share");
        check(&threshold("fail_at = nan"), "suite.toml:4: `fail_at`: NaN is not a distance");
        check(&threshold("time_ratio = 0"), "suite.toml:4: `time_ratio`: 0 is not so many times");
        check(&with(&format!("[replay]\nmode = \"strct\"\n{session}")), "did you mean `strict`?");
        check(
            &with(&format!("[policy]\nfile = \"p.toml\"\n{session}")),
            "suite.toml:4: `policy.file`: there is no file `p.toml`",
        );
        check(
            &with(&format!("[baseline]\nkeys = [\"k.pem\"]\n{session}")),
            "suite.toml:4: `baseline.keys`: there is no file",
        );
        check(
            &with(&format!("{session}\n{session}")),
            "suite.toml:7: `id`: `a` is already the id of the session on line 4",
        );
        check(&with("[[session]]\nid = \"../a\"\n"), "suite.toml:4: `id`: `../a` is not an id");
        check(
            &with(&format!("{session}input = {{ stdin = \"x\", file = \"y\" }}\n")),
            "suite.toml:5: `input`: `stdin` and `file`",
        );
        check(&with(&format!("{session}input = {{ file = \"y\" }}\n")), "`input.file`: there is no file `y`");
        check(&with(&format!("{session}timeout = \"soon\"\n")), "suite.toml:5: `timeout`: `soon`");
        check(AGENT, "the suite has no sessions");
        check("[agent]\ncommand = []\n[[session]]\nid = \"a\"\n", "suite.toml:2: `agent.command` is empty");
        check(
            &with(&format!("image = \"python:3\"\n{session}")),
            "suite.toml:3: `agent.image`: suites run programs of the host only",
        );
        check(
            &with(&format!("warm = [\"openai\"]\n{session}")),
            "suite.toml:3: `agent.warm`: every session has a sandbox of its own",
        );
        check("", "missing field `agent`");
    }

    #[test]
    fn a_good_file_is_read_and_its_sessions_start_alike() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("in.txt"), "hello").unwrap();
        std::fs::create_dir(dir.path().join("baseline")).unwrap();
        let text = format!(
            "{AGENT}env = {{ A = \"1\" }}\n[limits]\nmemory = \"1G\"\n[[session]]\nid = \"a\"\ninput = {{ file = \"in.txt\", args = [\"-x\"] }}\nenv = {{ B = \"2\" }}\n[[session]]\nid = \"b\"\ntimeout = \"5s\"\n"
        );
        let suite = read_in(dir.path(), &text).unwrap();
        let (first, second) = (&suite.sessions[0], &suite.sessions[1]);
        let spec = suite.spec(first);
        assert_eq!(spec.command, ["true", "-x"]);
        assert_eq!(
            spec.env.into_iter().collect::<Vec<_>>(),
            [("A".into(), "1".into()), ("B".into(), "2".into())]
        );
        assert_eq!((spec.limits.timeout, spec.changes), (Some(TIMEOUT), cofferdam_model::Changes::Discard));
        assert_eq!(spec.hide, std::slice::from_ref(&suite.baseline.dir));
        assert_eq!(first.input().stdin, "hello");
        assert_eq!(suite.spec(second).limits.timeout, Some(Span(Duration::from_secs(5))));
        assert_eq!(second.stdin, None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_suite_or_an_error(text in ".*", key in "[a-z.]{1,12}", value in "\"?[a-z0-9{}\\[\\]=]{0,12}\"?") {
            let dir = Path::new("/");
            let _ = read(&dir.join("suite.toml"), &text);
            let _ = read(&dir.join("suite.toml"), &format!("{AGENT}[[session]]\nid = \"a\"\n{key} = {value}\n"));
        }
    }
}
