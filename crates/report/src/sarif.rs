//! SARIF 2.1.0: what has a place in a file. A finding of the policy stands at the policy, one of the comparison at the
//! suite; a code scanner wants to know where to show it.

use cofferdam_compare::{Outcome, Reason, Scorer};
use cofferdam_gate::GateResult;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// What viewers take.
const MOST: usize = 5000;

pub fn sarif(result: &GateResult) -> String {
    let told = result.sessions.iter().flat_map(|session| {
        let grave = session.reasons.iter().filter(|reason| reason.outcome != Outcome::Pass);
        grave.map(move |reason| (session, reason))
    });
    let mut rules: BTreeMap<&str, Value> = BTreeMap::new();
    let mut results = Vec::new();
    for (session, reason) in told.take(MOST) {
        rules.entry(&reason.code).or_insert_with(|| rule(reason));
        let file = match (&result.policy, reason.scorer) {
            (Some(policy), Scorer::Policy) => &policy.name,
            _ => &result.suite.name,
        };
        results.push(json!({
            "ruleId": reason.code,
            "level": level(reason.outcome),
            "message": { "text": format!("{}: {}", session.id, reason.text) },
            "locations": [{ "physicalLocation": {
                "artifactLocation": { "uri": uri(file) }, "region": { "startLine": 1 },
            }}],
            "partialFingerprints": { "session/v1": format!("{}/{}", session.id, reason.code) },
        }));
    }
    let rules: Vec<Value> = rules.into_values().collect();
    let driver = json!({ "name": "cofferdam", "version": env!("CARGO_PKG_VERSION"), "rules": rules });
    let run = json!({ "tool": { "driver": driver }, "columnKind": "utf16CodeUnits", "results": results });
    let log = json!({ "$schema": SCHEMA, "version": "2.1.0", "runs": [run] });
    format!("{log:#}\n")
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
