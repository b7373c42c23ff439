//! Suites: which agent, under which rules, and the sessions it is judged by. The file is read whole or refused with
//! the line, the field and the word that was probably meant; nothing is run from a suite that has a mistake.

mod file;
mod panel;

pub use file::load;
pub use panel::{Endpoint, How, JudgeApi, JudgeSpec, ModuleFile, ScorerSpec};

use cofferdam_gate::{Input, Material, Thresholds};
use cofferdam_intercept::replay::Rules as ReplayRules;
use cofferdam_model::{Changes, Digest, Isolation, Limits, Mount, SessionSpec, Tier, Weakness};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A suite, with every path made absolute.
#[derive(Debug, Clone)]
pub struct Suite {
    pub path: PathBuf,
    pub name: String,
    /// Of the file's bytes.
    pub digest: Digest,
    pub agent: Agent,
    pub policy: Option<PathBuf>,
    pub secrets: Vec<String>,
    /// Whether and how recorded answers are served in the world's place.
    pub replay: Option<ReplayRules>,
    pub limits: Limits,
    pub thresholds: Thresholds,
    pub baseline: Baseline,
    /// Who else is asked about each session.
    pub scorers: Vec<ScorerSpec>,
    pub judge: Option<JudgeSpec>,
    pub sessions: Vec<Case>,
}

#[derive(Debug, Clone)]
pub struct Agent {
    pub command: Vec<String>,
    pub workdir: PathBuf,
    pub env: BTreeMap<String, String>,
    pub isolation: Isolation,
    pub floor: Option<Tier>,
    pub require: Vec<String>,
    pub accept: Vec<Weakness>,
    pub mounts: Vec<Mount>,
    /// Whether each session has a browser of its own.
    pub browser: bool,
}

/// Where the recorded traces lie, and whose are believed besides those that this machine believes.
#[derive(Debug, Clone)]
pub struct Baseline {
    pub dir: PathBuf,
    pub keys: Vec<PathBuf>,
    /// Whether the key that `record` writes is named: it need not be there before the first recording.
    pub names_signer: bool,
}

/// The public key of whoever recorded, among the baselines.
pub(crate) const SIGNER: &str = "signer.pem";

/// One session to run.
#[derive(Debug, Clone)]
pub struct Case {
    pub id: String,
    pub line: usize,
    pub args: Vec<String>,
    /// Everything that the agent can read on its standard input.
    pub stdin: Option<Vec<u8>>,
    /// Where that came from, as it was written.
    pub file: Option<String>,
    pub env: BTreeMap<String, String>,
    pub timeout: Option<cofferdam_model::Span>,
    pub expect: Expect,
}

/// What must hold of the new run, whatever the baseline did.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    pub exit: Option<i32>,
    /// Texts that the output has.
    pub says: Vec<String>,
    /// Texts that it has not.
    pub never_says: Vec<String>,
    /// Tools (or requests) that are called.
    pub calls: Vec<String>,
    /// And that are not.
    pub never_calls: Vec<String>,
}

/// How much of an input is told; the digest covers all of it.
const TOLD: usize = 2000;

impl Suite {
    pub fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    pub fn material(&self) -> Material {
        Material { name: self.name.clone(), digest: self.digest }
    }

    /// What a session of this case is. Changes to files are dropped: every session starts from the same ones.
    pub fn spec(&self, case: &Case) -> SessionSpec {
        let Agent { command, workdir, env, isolation, floor, require, accept, mounts, browser } = &self.agent;
        let mut limits = self.limits.clone();
        limits.timeout = case.timeout.or(limits.timeout).or(Some(file::TIMEOUT));
        // The answers are no business of whoever is asked.
        let hide = [&self.baseline.dir, &self.path];
        let hide =
            hide.into_iter().filter(|path| path.starts_with(workdir) && *path != workdir && path.exists());
        SessionSpec {
            command: command.iter().chain(&case.args).cloned().collect(),
            workdir: Some(workdir.clone()),
            isolation: *isolation,
            floor: *floor,
            env: env.iter().chain(&case.env).map(|(name, value)| (name.clone(), value.clone())).collect(),
            mounts: mounts.clone(),
            browser: *browser,
            policy: self.policy.clone(),
            secrets: self.secrets.clone(),
            hide: hide.cloned().collect(),
            limits,
            changes: Changes::Discard,
            require: require.clone(),
            accept: accept.clone(),
            ..SessionSpec::default()
        }
    }

    pub fn ids(&self) -> Vec<String> {
        self.sessions.iter().map(|case| case.id.clone()).collect()
    }
}

impl Case {
    pub fn input(&self) -> Input {
        let text = self.stdin.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        Input {
            args: self.args.clone(),
            stdin: text.chars().take(TOLD).collect(),
            digest: self.stdin.as_deref().map(cofferdam_seal::digest),
            file: self.file.clone(),
        }
    }
}
