//! SARIF 2.1.0: what has a place in a file. A finding of the policy is one of its rule, at the line where that stands; one
//! of the comparison stands at its session in the suite. A code scanner wants to know where to show it, and what to do about it.

use cofferdam_compare::{Outcome, Reason, Scorer};
use cofferdam_gate::{GateResult, SessionVerdict};
use cofferdam_model::Verdict;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// What viewers take.
const MOST: usize = 5000;

/// A rule of the policy, as its file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    pub id: String,
    pub reason: String,
    pub effect: Verdict,
    pub line: usize,
}

/// Where things stand in the files that people write, as far as that is known.
pub struct Sources<'a> {
    pub policy: &'a [PolicyRule],
    /// The line of a session in the suite.
    pub session: &'a dyn Fn(&str) -> Option<usize>,
}

pub fn sarif(result: &GateResult, sources: &Sources<'_>, out: &mut impl Write) -> io::Result<()> {
    let policy: BTreeMap<&str, &PolicyRule> =
        sources.policy.iter().map(|rule| (rule.id.as_str(), rule)).collect();
    let mut rules: BTreeMap<String, Value> = BTreeMap::new();
    for reason in told(result, |_, reason| reason.clone()) {
        let described = || match &reason.rule {
            Some(rule) => of_policy(rule, policy.get(rule.as_str()).copied(), result),
            None => of_ours(&reason),
        };
        rules.entry(id(&reason)).or_insert_with(described);
    }
    let (ids, rules): (Vec<String>, Vec<Value>) = rules.into_iter().unzip();
    let driver = json!({ "name": "cofferdam", "version": env!("CARGO_PKG_VERSION"), "rules": rules });
    let results = Results { result, policy: &policy, session: sources.session, ids: &ids };
    let run = Run { column_kind: "utf16CodeUnits", results, tool: json!({ "driver": driver }) };
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
struct Results<'a> {
    result: &'a GateResult,
    policy: &'a BTreeMap<&'a str, &'a PolicyRule>,
    session: &'a dyn Fn(&str) -> Option<usize>,
    /// Of the described rules, in order.
    ids: &'a [String],
}

impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(told(self.result, |session, reason| self.finding(session, reason)))
    }
}

impl Results<'_> {
    fn finding(&self, session: &SessionVerdict, reason: &Reason) -> Value {
        let rule = reason.rule.as_deref().and_then(|rule| self.policy.get(rule));
        let (file, line) = match (&self.result.policy, reason.scorer) {
            (Some(policy), Scorer::Policy) => (&policy.name, rule.map_or(1, |rule| rule.line)),
            _ => (&self.result.suite.name, (self.session)(&session.id).unwrap_or(1)),
        };
        let id = id(reason);
        json!({
            "ruleIndex": self.ids.binary_search(&id).map_or(-1, |at| at as i64),
            "level": level(reason.outcome),
            "message": { "text": format!("{}: {}", session.id, reason.text) },
            "locations": [{ "physicalLocation": {
                "artifactLocation": { "uri": uri(file) }, "region": { "startLine": line },
            }}],
            "partialFingerprints": { "session/v1": format!("{}/{id}", session.id) },
            "properties": { "code": reason.code, "session": session.id, "reproduce": session.reproduce.join(" ") },
            "ruleId": id,
        })
    }
}

/// Something of each finding, in the order of the sessions.
fn told<T>(result: &GateResult, of: impl Fn(&SessionVerdict, &Reason) -> T) -> impl Iterator<Item = T> {
    let all = result.sessions.iter().flat_map(move |session| {
        let told = session.reasons.iter().filter(|reason| reason.outcome != Outcome::Pass);
        told.map(|reason| of(&session, reason)).collect::<Vec<_>>()
    });
    all.take(MOST)
}

/// A rule of the policy is a rule here; of what no rule speaks, the kind of the finding is.
fn id(reason: &Reason) -> String {
    match &reason.rule {
        Some(rule) => format!("policy/{rule}"),
        None => reason.code.clone(),
    }
}

fn of_policy(id: &str, rule: Option<&PolicyRule>, result: &GateResult) -> Value {
    let file = result.policy.as_ref().map_or("the policy", |policy| policy.name.as_str());
    let Some(PolicyRule { reason, effect, line, .. }) = rule else {
        let text = format!("rule `{id}` of {file}");
        return json!({
            "id": format!("policy/{id}"),
            "name": id,
            "shortDescription": { "text": text },
            "help": { "text": format!("Look the rule up in {file}. {MEND_OR_CHANGE}") },
            "properties": { "scorer": Scorer::Policy, "tags": ["policy"] },
        });
    };
    let (does, level) = match effect {
        Verdict::Deny => ("denies", "error"),
        Verdict::Review => ("holds for a person", "warning"),
        Verdict::Allow => ("allows", "note"),
    };
    let full = format!("The rule `{id}` on line {line} of {file} {does} this: {reason}");
    json!({
        "id": format!("policy/{id}"),
        "name": id,
        "shortDescription": { "text": reason },
        "fullDescription": { "text": full },
        "help": {
            "text": format!("{full}. {MEND_OR_CHANGE}"),
            "markdown": format!("Rule `{id}`, line {line} of `{file}`.\n\n{MEND_OR_CHANGE}"),
        },
        "defaultConfiguration": { "level": level },
        "properties": { "scorer": Scorer::Policy, "effect": effect, "line": line, "tags": ["policy"] },
    })
}

const MEND_OR_CHANGE: &str = "If the agent should not do this, mend the agent. If it should, change the rule, try it with `cofferdam policy check`, and run the gate again.";

fn of_ours(reason: &Reason) -> Value {
    json!({
        "id": reason.code,
        "shortDescription": { "text": reason.code.replace('-', " ") },
        "help": { "text": help(reason.scorer) },
        "properties": { "scorer": reason.scorer, "tags": [reason.scorer] },
    })
}

/// What to do next.
fn help(scorer: Scorer) -> &'static str {
    match scorer {
        Scorer::Trace => {
            "The record or the baseline is not as it should be: the message says what, and what to do about it."
        }
        Scorer::Policy => {
            "No rule of the policy speaks of this. If the agent should do it, add a rule: `cofferdam policy explain` writes one. If not, mend the agent."
        }
        Scorer::Diff => {
            "Look at both runs side by side in report.html. If the new one is right, record it: `cofferdam record SUITE --only SESSION`. If not, mend the agent."
        }
        Scorer::Claims | Scorer::Groundedness => {
            "Look in report.html at what the agent says beside what it read. If it is right, say so with `cofferdam gate approve`; if not, mend the agent."
        }
        Scorer::Custom => {
            "The suite asks for this, in `expect` or by a scorer: mend the agent, or change the suite."
        }
    }
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
