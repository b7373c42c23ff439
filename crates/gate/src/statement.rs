//! A result as an in-toto Statement of the predicate `test-result`: the traces are its subjects, so that what
//! proves them leaves the host; everything that the verdict rests on is its configuration, by digest.

use crate::GateResult;
use cofferdam_compare::Outcome;
use cofferdam_model::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
pub const STATEMENT: &str = "https://in-toto.io/Statement/v1";
pub const TEST_RESULT: &str = "https://in-toto.io/attestation/test-result/v0.1";

/// The name of the result among the configuration.
pub(crate) const RESULT_FILE: &str = "gate.json";

/// Strange members are carried along: verifiers ignore them, and so does what is read here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    #[serde(rename = "_type")]
    pub kind: String,
    pub subject: Vec<Resource>,
    pub predicate_type: String,
    pub predicate: Value,
}

/// A resource descriptor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    pub name: String,
    pub digest: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub annotations: Map<String, Value>,
}

impl Resource {
    pub fn new(name: impl Into<String>, digest: &Digest) -> Self {
        let digest = BTreeMap::from([("sha256".to_owned(), digest.to_string())]);
        Self { name: name.into(), digest, annotations: Map::new() }
    }

    #[must_use]
    fn noting(mut self, annotations: Value) -> Self {
        if let Value::Object(map) = annotations {
            self.annotations = map;
        }
        self
    }

    pub fn sha256(&self) -> Option<Digest> {
        self.digest.get("sha256").and_then(|text| text.parse().ok())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Word {
    Passed,
    Warned,
    Failed,
}

impl From<Outcome> for Word {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Pass => Self::Passed,
            Outcome::Review => Self::Warned,
            Outcome::Fail => Self::Failed,
        }
    }
}

impl From<Word> for Outcome {
    fn from(word: Word) -> Self {
        match word {
            Word::Passed => Self::Pass,
            Word::Warned => Self::Review,
            Word::Failed => Self::Fail,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestResult {
    pub result: Word,
    pub configuration: Vec<Resource>,
    #[serde(default)]
    pub passed_tests: Vec<String>,
    #[serde(default)]
    pub warned_tests: Vec<String>,
    #[serde(default)]
    pub failed_tests: Vec<String>,
}

impl TestResult {
    pub fn of(result: &GateResult, gate_json: &Digest) -> Self {
        let ids = |outcome: Outcome| {
            let these = result.sessions.iter().filter(|session| session.outcome == outcome);
            these.map(|session| session.id.clone()).collect()
        };
        Self {
            result: result.outcome.into(),
            configuration: configuration(result, gate_json),
            passed_tests: ids(Outcome::Pass),
            warned_tests: ids(Outcome::Review),
            failed_tests: ids(Outcome::Fail),
        }
    }
}

impl Statement {
    /// `gate_json` is the digest of the very bytes that are written beside the artifact.
    pub fn of(result: &GateResult, gate_json: &Digest) -> Self {
        let mut subject = subjects(result);
        // A statement has to be about something: where not one sandbox could be made, it is about the result.
        if subject.is_empty() {
            subject.push(Resource::new(RESULT_FILE, gate_json));
        }
        Self {
            kind: STATEMENT.into(),
            subject,
            predicate_type: TEST_RESULT.into(),
            predicate: json!(TestResult::of(result, gate_json)),
        }
    }
}

/// The traces that were made, by the hash of their last event.
fn subjects(result: &GateResult) -> Vec<Resource> {
    let mut found = Vec::new();
    for session in &result.sessions {
        for (index, attempt) in session.attempts.iter().enumerate() {
            let Some(trace) = &attempt.trace else { continue };
            let name = match index {
                0 => session.id.clone(),
                again => format!("{}#{}", session.id, again + 1),
            };
            let note = json!({ "file": trace.name, "events": trace.events, "outcome": attempt.outcome });
            found.push(Resource::new(name, &trace.head).noting(note));
        }
    }
    found
}

fn configuration(result: &GateResult, gate_json: &Digest) -> Vec<Resource> {
    let told = json!({
        "outcome": result.outcome, "why": result.why, "thresholds": result.thresholds, "counts": result.counts,
        "by": result.run.by,
    });
    let mut found = vec![
        Resource::new(RESULT_FILE, gate_json).noting(told),
        Resource::new(format!("suite:{}", result.suite.name), &result.suite.digest),
    ];
    found
        .extend(result.policy.as_ref().map(|one| Resource::new(format!("policy:{}", one.name), &one.digest)));
    if let Some(commit) = &result.agent.commit {
        let digest = BTreeMap::from([("gitCommit".to_owned(), commit.clone())]);
        let agent = Resource { name: "agent".into(), digest, annotations: Map::new() };
        let note = json!({ "command": result.agent.command, "modified": result.agent.modified });
        found.push(agent.noting(note));
    }
    let baselines: BTreeMap<&str, Digest> =
        result.sessions.iter().flat_map(|s| &s.baselines).map(|one| (one.name.as_str(), one.head)).collect();
    found.extend(baselines.iter().map(|(name, head)| Resource::new(format!("baseline:{name}"), head)));
    let attempts = result.sessions.iter().flat_map(|session| &session.attempts);
    let reports: BTreeSet<_> = attempts
        .filter_map(|attempt| Some((attempt.tier.map(|tier| tier.to_string())?, attempt.enforcement?)))
        .collect();
    found.extend(reports.iter().map(|(tier, digest)| Resource::new(format!("enforcement:{tier}"), digest)));
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::decide::tests::session;
    use crate::{Agent, Decision, Material, RunInfo, Thresholds, TraceRef, VERSION, decide};
    use cofferdam_model::Tier;

    pub(crate) fn result(sessions: &[(&str, Outcome)]) -> GateResult {
        let digest = |byte: u8| Digest::from_bytes([byte; 32]);
        let mut sessions: Vec<_> = sessions
            .iter()
            .enumerate()
            .map(|(at, (id, outcome))| {
                let mut one = session(id, &[*outcome]);
                let trace = |name: String, byte: u8| TraceRef {
                    name,
                    session: None,
                    head: digest(byte),
                    events: 9,
                    signer: None,
                };
                one.attempts[0].trace = Some(trace(format!("traces/{id}.trace"), at as u8));
                one.attempts[0].tier = Some(Tier::Process);
                one.attempts[0].enforcement = Some(digest(0xee));
                one.baselines = vec![trace(format!("baseline/{id}.trace"), 0x80 + at as u8)];
                one
            })
            .collect();
        let thresholds = Thresholds::default();
        let Decision { outcome, why, counts, rates } = decide(&mut sessions, &thresholds);
        GateResult {
            version: VERSION,
            outcome,
            why,
            counts,
            rates,
            thresholds,
            suite: Material { name: "suite.toml".into(), digest: digest(0x51) },
            policy: Some(Material { name: "policy.toml".into(), digest: digest(0x52) }),
            agent: Agent { command: vec!["agent".into()], commit: Some("c".repeat(40)), modified: false },
            sessions,
            run: RunInfo { by: "cofferdam 0".into(), started_us: 1, ended_us: 2, shard: None, only: vec![] },
        }
    }

    #[test]
    fn a_statement_names_everything_that_the_verdict_rests_on() {
        let result = result(&[("a", Outcome::Pass), ("b", Outcome::Review), ("c", Outcome::Fail)]);
        let statement = Statement::of(&result, &Digest::from_bytes([0x6a; 32]));
        let names = |list: &[Resource]| list.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&statement.subject), ["a", "b", "c"]);
        let predicate: TestResult = serde_json::from_value(statement.predicate).unwrap();
        assert_eq!(predicate.result, Word::Failed);
        assert_eq!(predicate.passed_tests, ["a"]);
        assert_eq!(predicate.warned_tests, ["b"]);
        assert_eq!(predicate.failed_tests, ["c"]);
        assert_eq!(
            names(&predicate.configuration),
            [
                "gate.json",
                "suite:suite.toml",
                "policy:policy.toml",
                "agent",
                "baseline:baseline/a.trace",
                "baseline:baseline/b.trace",
                "baseline:baseline/c.trace",
                "enforcement:process",
            ]
        );
    }

    #[test]
    fn without_a_trace_it_is_about_the_result() {
        let mut result = result(&[("a", Outcome::Review)]);
        result.sessions[0].attempts[0].trace = None;
        let statement = Statement::of(&result, &Digest::from_bytes([0x6a; 32]));
        assert_eq!(statement.subject.len(), 1);
        assert_eq!(statement.subject[0].name, RESULT_FILE);
    }
}
