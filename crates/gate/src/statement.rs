//! A result as an in-toto Statement of the predicate `test-result`: the traces are its subjects, so that what
//! proves them leaves the host; everything that the verdict rests on is its configuration, by digest.

use crate::{GateResult, SessionVerdict};
use cofferdam_compare::Outcome;
use cofferdam_model::Digest;
use serde::{Deserialize, Serialize, Serializer};
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
        Self {
            result: result.outcome.into(),
            configuration: configuration(result, gate_json).collect(),
            passed_tests: ids(result, Outcome::Pass).map(str::to_owned).collect(),
            warned_tests: ids(result, Outcome::Review).map(str::to_owned).collect(),
            failed_tests: ids(result, Outcome::Fail).map(str::to_owned).collect(),
        }
    }
}

fn ids(result: &GateResult, outcome: Outcome) -> impl Iterator<Item = &str> {
    result.sessions.outcomes().filter(move |(_, found)| *found == outcome).map(|(id, _)| id)
}

/// The text that is signed. `gate_json` is the digest of the very bytes that are written beside the artifact. It is
/// written as it is made: held as a whole, the statement of many sessions would be the largest thing of a gate.
pub(crate) fn text(result: &GateResult, gate_json: &Digest) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Written<S: Serialize, P: Serialize> {
        #[serde(rename = "_type")]
        kind: &'static str,
        subject: S,
        predicate_type: &'static str,
        predicate: P,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Predicate<C: Serialize, P: Serialize, W: Serialize, F: Serialize> {
        result: Word,
        configuration: C,
        passed_tests: P,
        warned_tests: W,
        failed_tests: F,
    }
    let statement = Written {
        kind: STATEMENT,
        subject: Each(|| subjects(result, gate_json)),
        predicate_type: TEST_RESULT,
        predicate: Predicate {
            result: result.outcome.into(),
            configuration: Each(|| configuration(result, gate_json)),
            passed_tests: Each(|| ids(result, Outcome::Pass)),
            warned_tests: Each(|| ids(result, Outcome::Review)),
            failed_tests: Each(|| ids(result, Outcome::Fail)),
        },
    };
    let mut text = Vec::with_capacity(4096 + 512 * result.sessions.len());
    // Maps with text keys and numbers that came out of JSON: this cannot fail, and an empty payload would not verify.
    if serde_json::to_writer(&mut text, &statement).is_err() {
        text.clear();
    }
    text
}

/// A list that is there only while it is written.
struct Each<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// The traces that were made, by the hash of their last event. A statement has to be about something: where not one
/// sandbox could be made, it is about the result.
pub(crate) fn subjects<'a>(
    result: &'a GateResult,
    gate_json: &'a Digest,
) -> impl Iterator<Item = Resource> + 'a {
    let traces = result.sessions.iter().flat_map(|SessionVerdict { id, attempts, .. }| {
        attempts.into_iter().enumerate().filter_map(move |(at, attempt)| {
            let trace = attempt.trace?;
            let name = match at {
                0 => id.clone(),
                again => format!("{id}#{}", again + 1),
            };
            let note = json!({ "file": trace.name, "events": trace.events, "outcome": attempt.outcome });
            Some(Resource::new(name, &trace.head).noting(note))
        })
    });
    let mut traces = traces.peekable();
    let instead = traces.peek().is_none().then(|| Resource::new(RESULT_FILE, gate_json));
    traces.chain(instead)
}

fn configuration<'a>(result: &'a GateResult, gate_json: &'a Digest) -> impl Iterator<Item = Resource> + 'a {
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
    let (mut baselines, mut reports) = (BTreeMap::new(), BTreeSet::new());
    for session in result.sessions.iter() {
        baselines.extend(session.baselines.into_iter().map(|one| (one.name.into_boxed_str(), one.head)));
        let held = session.attempts.iter().filter_map(|one| Some((one.tier?.to_string(), one.enforcement?)));
        reports.extend(held);
    }
    let baselines =
        baselines.into_iter().map(|(name, head)| Resource::new(format!("baseline:{name}"), &head));
    let reports =
        reports.into_iter().map(|(tier, digest)| Resource::new(format!("enforcement:{tier}"), &digest));
    found.into_iter().chain(baselines).chain(reports)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::decide::tests::session;
    use crate::{Agent, Decision, Material, RunInfo, Sessions, Thresholds, TraceRef, VERSION, decide};
    use cofferdam_model::Tier;

    pub(crate) fn result(sessions: &[(&str, Outcome)]) -> GateResult {
        let digest = |byte: u8| Digest::from_bytes([byte; 32]);
        let mut sessions: Sessions = sessions
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
        let statement: Statement =
            serde_json::from_slice(&text(&result, &Digest::from_bytes([0x6a; 32]))).unwrap();
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
        let mut sessions: Vec<_> = result.sessions.iter().collect();
        sessions[0].attempts[0].trace = None;
        result.sessions = sessions.into_iter().collect();
        let subjects: Vec<_> = subjects(&result, &Digest::from_bytes([0x6a; 32])).collect();
        assert_eq!(subjects, [Resource::new(RESULT_FILE, &Digest::from_bytes([0x6a; 32]))]);
    }
}
