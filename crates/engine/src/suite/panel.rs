//! Who else is asked about a session: scorers of the suite's own, and a model as judge. What can be wrong with their
//! tables is told before anything is run.

use super::file::Wrong;
use crate::error::EngineError;
use cofferdam_compare::Outcome;
use cofferdam_model::{Bytes, Digest, Span};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

const SCORER_TIMEOUT: Span = Span(Duration::from_secs(30));
const JUDGE_TIMEOUT: Span = Span(Duration::from_secs(60));
/// Statements of one session that a judge is asked about, unless the suite says otherwise.
const QUESTIONS: usize = 10;

/// A scorer of the suite's own.
#[derive(Debug, Clone)]
pub struct ScorerSpec {
    pub name: String,
    pub how: How,
    pub timeout: Span,
    pub memory: Option<Bytes>,
    /// As far as its word goes.
    pub most: Outcome,
}

#[derive(Debug, Clone)]
pub enum How {
    /// A program, run in a sandbox from which nothing leaves.
    Command(Vec<String>),
    Http(Endpoint),
    /// A module, run in this process with nothing but its input.
    Wasm(ModuleFile),
}

/// A WebAssembly module beside the suite.
#[derive(Debug, Clone)]
pub struct ModuleFile {
    pub path: PathBuf,
    /// What the file has to be.
    pub digest: Option<Digest>,
}

/// Where a question is sent.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub url: String,
    /// A credential of the vault, which has to be for that host.
    pub secret: Option<String>,
    /// Authorities besides the system's.
    pub ca: Option<PathBuf>,
}

/// A model that doubts.
#[derive(Debug, Clone)]
pub struct JudgeSpec {
    pub api: JudgeApi,
    pub endpoint: Endpoint,
    pub model: String,
    pub timeout: Span,
    pub questions: usize,
    /// Sent along, as `temperature`.
    pub options: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JudgeApi {
    /// `POST URL/chat/completions`, which most servers speak.
    Openai,
    /// `POST URL/messages`.
    Anthropic,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenScorer {
    name: Spanned<String>,
    command: Option<Spanned<Vec<String>>>,
    url: Option<Spanned<String>>,
    wasm: Option<Spanned<PathBuf>>,
    sha256: Option<Spanned<String>>,
    secret: Option<Spanned<String>>,
    ca: Option<Spanned<PathBuf>>,
    timeout: Option<Span>,
    memory: Option<Bytes>,
    most: Option<Outcome>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenJudge {
    api: JudgeApi,
    url: Spanned<String>,
    model: String,
    secret: Option<String>,
    ca: Option<Spanned<PathBuf>>,
    timeout: Option<Span>,
    questions: Option<usize>,
    options: Option<serde_json::Map<String, serde_json::Value>>,
}

type There<'a> = &'a dyn Fn(&Spanned<PathBuf>, &str) -> Result<PathBuf, EngineError>;

pub(super) fn scorers(
    written: Vec<WrittenScorer>,
    there: There<'_>,
    wrong: Wrong<'_>,
) -> Result<Vec<ScorerSpec>, EngineError> {
    let mut found: Vec<ScorerSpec> = Vec::with_capacity(written.len());
    for one in written {
        let at = one.name.span().start;
        let name = one.name.get_ref().clone();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 60 || !name.chars().all(fits) || name == "judge" {
            let message = "`scorer.name`: use up to 60 letters, digits, `-`, `_` and `.`, and not `judge`";
            return Err(wrong(at, message.into()));
        }
        if found.iter().any(|other| other.name == name) {
            return Err(wrong(at, format!("`scorer.name`: there is another scorer `{name}`")));
        }
        let (timeout, memory) = (one.timeout.unwrap_or(SCORER_TIMEOUT), one.memory);
        let most = one.most.unwrap_or(Outcome::Fail);
        let how = how(one, there, wrong)?;
        found.push(ScorerSpec { name, how, timeout, memory, most });
    }
    Ok(found)
}

/// Which of the three it is. What another kind has a use for is refused, since someone believes that it works.
fn how(one: WrittenScorer, there: There<'_>, wrong: Wrong<'_>) -> Result<How, EngineError> {
    let WrittenScorer { name, command, url, wasm, sha256, secret, ca, .. } = one;
    if let (Some(secret), None) = (&secret, &url) {
        let message = "`scorer.secret`: nothing leaves a command or a module, so it has no use for one";
        return Err(wrong(secret.span().start, message.into()));
    }
    if let (Some(sha256), None) = (&sha256, &wasm) {
        let message = "`scorer.sha256` is of a module: give `wasm` with it";
        return Err(wrong(sha256.span().start, message.into()));
    }
    match (command, url, wasm) {
        (Some(command), None, None) => {
            if command.get_ref().first().is_none_or(|program| program.is_empty()) {
                let message =
                    "`scorer.command` is empty: name the program, as in [\"python3\", \"score.py\"]";
                return Err(wrong(command.span().start, message.into()));
            }
            Ok(How::Command(command.into_inner()))
        }
        (None, Some(url), None) => Ok(How::Http(Endpoint {
            url: checked(url, "scorer.url", wrong)?,
            secret: secret.map(Spanned::into_inner),
            ca: ca.map(|ca| there(&ca, "scorer.ca")).transpose()?,
        })),
        (None, None, Some(wasm)) => {
            let parsed = |text: Spanned<String>| {
                let at = text.span().start;
                text.get_ref()
                    .parse::<Digest>()
                    .map_err(|error| wrong(at, format!("`scorer.sha256`: {error}")))
            };
            let digest = sha256.map(parsed).transpose()?;
            Ok(How::Wasm(ModuleFile { path: there(&wasm, "scorer.wasm")?, digest }))
        }
        _ => {
            let message =
                format!("scorer `{}`: give `command`, `url` or `wasm`, one of them", name.get_ref());
            Err(wrong(name.span().start, message))
        }
    }
}

pub(super) fn judge(
    written: WrittenJudge,
    there: There<'_>,
    wrong: Wrong<'_>,
) -> Result<JudgeSpec, EngineError> {
    let WrittenJudge { api, url, model, secret, ca, timeout, questions, options } = written;
    let url = checked(url, "judge.url", wrong)?;
    let ca = ca.map(|ca| there(&ca, "judge.ca")).transpose()?;
    let cold = || serde_json::Map::from_iter([("temperature".to_owned(), 0.into())]);
    Ok(JudgeSpec {
        api,
        endpoint: Endpoint { url: url.trim_end_matches('/').to_owned(), secret, ca },
        model,
        timeout: timeout.unwrap_or(JUDGE_TIMEOUT),
        questions: questions.unwrap_or(QUESTIONS),
        options: options.unwrap_or_else(cold),
    })
}

/// Which addresses may be asked is decided where they are; this tells what could never be one.
fn checked(url: Spanned<String>, field: &str, wrong: Wrong<'_>) -> Result<String, EngineError> {
    let text = url.get_ref();
    if text.starts_with("https://") || text.starts_with("http://") {
        return Ok(url.into_inner());
    }
    Err(wrong(
        url.span().start,
        format!("`{field}`: write an address, as in \"https://judge.example.com/v1\""),
    ))
}

impl Endpoint {
    /// The host, for whoever reads what was asked.
    pub fn host(&self) -> &str {
        let rest = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        rest.split(['/', '?']).next().unwrap_or(rest)
    }

    pub(crate) fn authorities(&self) -> Result<Option<Vec<u8>>, EngineError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| EngineError::Unreadable { path: path.clone(), source })
        };
        self.ca.as_ref().map(read).transpose()
    }
}

impl ScorerSpec {
    /// Files of the suite's directory that it is, or that its command names: what it says rests on them.
    pub fn files(&self, dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let words: Vec<PathBuf> = match &self.how {
            How::Command(words) => words.iter().map(|word| dir.join(word)).collect(),
            How::Wasm(module) => vec![module.path.clone()],
            How::Http(_) => Vec::new(),
        };
        words.into_iter().filter(|path| path.is_file())
    }
}
