//! SARIF 2.1.0: what has a place in a file. A finding of the policy stands at the policy, one of the comparison at the
//! suite; a code scanner wants to know where to show it.

use cofferdam_compare::{Outcome, Reason, Scorer};
use cofferdam_gate::{GateResult, SessionVerdict};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// What viewers take.
const MOST: usize = 5000;

pub fn sarif(result: &GateResult, out: &mut impl Write) -> io::Result<()> {
    let mut rules: BTreeMap<&str, Value> = BTreeMap::new();
    for (_, reason) in told(result) {
        rules.entry(&reason.code).or_insert_with(|| rule(reason));
    }
    let rules: Vec<Value> = rules.into_values().collect();
    let driver = json!({ "name": "cofferdam", "version": env!("CARGO_PKG_VERSION"), "rules": rules });
    let run =
        Run { column_kind: "utf16CodeUnits", results: Results(result), tool: json!({ "driver": driver }) };
    let log = Log { schema: SCHEMA, runs: [run], version: "2.1.0" };
    serde_json::to_writer_pretty(&mut *out, &log)?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    runs: [Run<'a>; 1],
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    column_kind: &'static str,
    results: Results<'a>,
    tool: Value,
}

/// Made one by one as they are written.
struct Results<'a>(&'a GateResult);

impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(told(self.0).map(|(session, reason)| finding(self.0, session, reason)))
    }
}

fn told(result: &GateResult) -> impl Iterator<Item = (&SessionVerdict, &Reason)> {
    let all = result
        .sessions
        .iter()
        .flat_map(|session| session.reasons.iter().map(move |reason| (session, reason)));
    all.filter(|(_, reason)| reason.outcome != Outcome::Pass).take(MOST)
}

fn finding(result: &GateResult, session: &SessionVerdict, reason: &Reason) -> Value {
    let file = match (&result.policy, reason.scorer) {
        (Some(policy), Scorer::Policy) => &policy.name,
        _ => &result.suite.name,
    };
    json!({
        "ruleId": reason.code,
        "level": level(reason.outcome),
        "message": { "text": format!("{}: {}", session.id, reason.text) },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(file) }, "region": { "startLine": 1 },
        }}],
        "partialFingerprints": { "session/v1": format!("{}/{}", session.id, reason.code) },
    })
}

fn rule(reason: &Reason) -> Value {
    json!({
        "id": reason.code,
        "shortDescription": { "text": reason.code.replace('-', " ") },
        "properties": { "scorer": reason.scorer },
    })
}

fn level(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Fail => "error",
        Outcome::Review => "warning",
        Outcome::Pass => "note",
    }
}

/// A path as a reference of RFC 3986.
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_references() {
        assert_eq!(super::uri("a b/ü.toml"), "a%20b/%C3%BC.toml");
    }
}
