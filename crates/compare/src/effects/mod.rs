//! Which acts change the world. Who says so is asked in this order: the team (a manifest), the tool's own annotations,
//! the recorded act, its kind or HTTP method, what recorded results show, the verb in its name. Where nobody knows, an
//! act counts as changing: the wrong guess then costs a line in a report and never hides an effect.

mod learn;
mod verbs;

use cofferdam_model::{Act, ActKind, EffectOf, Run};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// How it is known what an act does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// By the team, in a manifest or suite.
    Declared,
    /// By the tool itself: MCP annotations.
    Annotated,
    /// By whoever recorded the act.
    Recorded,
    /// By what kind of act it is.
    Kind,
    /// By its HTTP method or SQL statement.
    Method,
    /// By what recorded results showed.
    Learned,
    /// By the verb in its name.
    Verb,
    Nobody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    pub effect: EffectOf,
    pub how: How,
}

impl Effect {
    /// What is not known to read counts as changing.
    pub fn changes(self) -> bool {
        self.effect != EffectOf::Reads
    }
}

/// What is known of the tools of a suite.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Effects {
    declared: BTreeMap<String, EffectOf>,
    annotated: BTreeMap<String, EffectOf>,
    learned: BTreeMap<String, EffectOf>,
}

impl Effects {
    /// What the results of these runs show of tools whose names say nothing. Only baselines belong here: a run that
    /// is judged must not teach.
    pub fn learned<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Self {
        let mut effects = Self::default();
        effects.learned = learn::from(&effects, runs);
        effects
    }

    pub fn declare(&mut self, tool: impl Into<String>, effect: EffectOf) {
        self.declared.insert(tool.into(), effect);
    }

    /// The tools of an MCP `tools/list` result. Hints of a server are its own word, so that a team's declaration
    /// goes before them.
    pub fn annotate(&mut self, listed: &Value) {
        let tools = listed.get("tools").unwrap_or(listed).as_array().into_iter().flatten();
        for tool in tools {
            let Some(name) = tool["name"].as_str() else { continue };
            let hints = &tool["annotations"];
            let effect = match (hints["readOnlyHint"].as_bool(), hints["destructiveHint"].as_bool()) {
                (Some(true), _) => EffectOf::Reads,
                (Some(false), _) | (None, Some(true)) => EffectOf::Changes,
                (None, _) => continue,
            };
            self.annotated.insert(name.to_owned(), effect);
        }
    }

    pub fn of(&self, act: &Act) -> Effect {
        let table = |table: &BTreeMap<String, EffectOf>, how| {
            table
                .get(&act.name)
                .filter(|e| **e != EffectOf::Unknown)
                .map(|effect| Effect { effect: *effect, how })
        };
        let recorded =
            (act.effect != EffectOf::Unknown).then_some(Effect { effect: act.effect, how: How::Recorded });
        table(&self.declared, How::Declared)
            .or_else(|| table(&self.annotated, How::Annotated))
            .or(recorded)
            .or_else(|| by_kind(act))
            .or_else(|| table(&self.learned, How::Learned))
            .unwrap_or_else(|| match verbs::effect(&act.name) {
                EffectOf::Unknown => Effect { effect: EffectOf::Unknown, how: How::Nobody },
                effect => Effect { effect, how: How::Verb },
            })
    }

    pub fn changes(&self, act: &Act) -> bool {
        self.of(act).changes()
    }

    /// Whether it gives the matter to a person: the world stays as it is, and so it is no effect.
    pub fn hands_over(&self, act: &Act) -> bool {
        act.kind == ActKind::Tool && !self.declared.contains_key(&act.name) && verbs::hands_over(&act.name)
    }
}

fn by_kind(act: &Act) -> Option<Effect> {
    let known = |effect, how| Some(Effect { effect, how });
    match act.kind {
        ActKind::Instructed | ActKind::Told | ActKind::Said | ActKind::Model | ActKind::Step => {
            known(EffectOf::Reads, How::Kind)
        }
        // What a program changes is recorded as acts of its own: files and requests.
        ActKind::Exec => known(EffectOf::Reads, How::Kind),
        ActKind::File => known(EffectOf::Changes, How::Kind),
        ActKind::Egress => {
            let method = act.name.split(' ').next().and_then(by_method).unwrap_or(EffectOf::Changes);
            known(method, How::Method)
        }
        ActKind::Browser => None,
        ActKind::Tool => {
            let method = act.args.get("method").and_then(Value::as_str).and_then(by_method);
            method.or_else(|| by_statement(&act.args)).and_then(|effect| known(effect, How::Method))
        }
    }
}

fn by_method(word: &str) -> Option<EffectOf> {
    match word.to_ascii_uppercase().as_str() {
        "GET" | "HEAD" | "OPTIONS" | "TRACE" => Some(EffectOf::Reads),
        "POST" | "PUT" | "PATCH" | "DELETE" | "CONNECT" => Some(EffectOf::Changes),
        _ => None,
    }
}

fn by_statement(args: &Value) -> Option<EffectOf> {
    let text = ["sql", "query", "statement"].iter().find_map(|key| args.get(*key)?.as_str())?;
    let mut words = text.split_whitespace();
    let first = words.next()?.to_ascii_uppercase();
    match first.as_str() {
        "INSERT" | "REPLACE" | "TRUNCATE" | "ALTER" if words.next().is_some() => Some(EffectOf::Changes),
        "UPDATE" if text.to_ascii_uppercase().contains(" SET ") => Some(EffectOf::Changes),
        "DELETE" | "MERGE" if text.to_ascii_uppercase().contains(" FROM ") => Some(EffectOf::Changes),
        "DROP" | "CREATE" if words.any(|word| word.eq_ignore_ascii_case("TABLE")) => Some(EffectOf::Changes),
        // A second statement may hide behind the first.
        "SELECT" if text.to_ascii_uppercase().contains(" FROM ") && !text.contains(';') => {
            Some(EffectOf::Reads)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::Status;
    use serde_json::json;

    fn act(kind: ActKind, name: &str, args: Value) -> Act {
        Act {
            at: 0,
            within: None,
            kind,
            name: name.into(),
            args,
            text: String::new(),
            status: Status::Ok,
            effect: EffectOf::Unknown,
            decided: None,
        }
    }

    fn check(kind: ActKind, name: &str, args: Value, expected: EffectOf, how: How) {
        assert_eq!(Effects::default().of(&act(kind, name, args)), Effect { effect: expected, how }, "{name}");
    }

    #[test]
    fn kinds_methods_and_statements_tell() {
        check(ActKind::Egress, "GET api.example.com/v1", Value::Null, EffectOf::Reads, How::Method);
        check(ActKind::Egress, "POST api.example.com/v1", Value::Null, EffectOf::Changes, How::Method);
        check(ActKind::Egress, "tls api.example.com", Value::Null, EffectOf::Changes, How::Method);
        check(ActKind::File, "created a.txt", Value::Null, EffectOf::Changes, How::Kind);
        check(ActKind::Tool, "http", json!({"method": "get"}), EffectOf::Reads, How::Method);
        check(ActKind::Tool, "db", json!({"sql": "SELECT a FROM b"}), EffectOf::Reads, How::Method);
        check(
            ActKind::Tool,
            "db",
            json!({"sql": "SELECT a FROM b; DROP TABLE b"}),
            EffectOf::Unknown,
            How::Nobody,
        );
        check(ActKind::Tool, "db", json!({"sql": "delete  from b"}), EffectOf::Changes, How::Method);
        check(ActKind::Tool, "read_file", json!({"path": "a"}), EffectOf::Reads, How::Verb);
    }

    #[test]
    fn the_team_goes_before_the_tool_and_the_tool_before_its_name() {
        let mut effects = Effects::default();
        let read = act(ActKind::Tool, "get_token", Value::Null);
        effects.annotate(&json!({"tools": [{"name": "get_token", "annotations": {"readOnlyHint": false}}]}));
        assert_eq!(effects.of(&read).how, How::Annotated);
        assert!(effects.changes(&read));
        effects.declare("get_token", EffectOf::Reads);
        assert!(!effects.changes(&read));
        assert!(effects.changes(&act(ActKind::Tool, "frobnicate", Value::Null)), "nobody knows");
    }
}
