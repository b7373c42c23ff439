//! Which events of a trace are about something: by tool, model, host, decision, time, kind and text. A pure function
//! of an event; what is not named matches anything, and all that is named must match.

use cofferdam_model::Event;
use serde_json::Value;

/// What is looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// The beginning of a kind: `tool`, `egress.decided`.
    pub kind: Option<String>,
    pub tool: Option<String>,
    pub model: Option<String>,
    /// A host, also as a part of a server's address.
    pub host: Option<String>,
    /// `allow`, `deny` or `review`, as it was decided.
    pub decision: Option<String>,
    /// Microseconds since the Unix epoch, the first included and the second not.
    pub since_us: Option<u64>,
    pub until_us: Option<u64>,
    /// Anywhere in the event, in any case.
    pub text: Option<String>,
}

impl Query {
    pub fn matches(&self, event: &Event) -> bool {
        let text = |name: &str| event.body.get(name).and_then(Value::as_str);
        let is = |wanted: &Option<String>, found: &[Option<&str>]| {
            wanted.as_deref().is_none_or(|wanted| found.iter().flatten().any(|found| *found == wanted))
        };
        let tool = [text("tool"), if event.kind.starts_with("tool.") { text("name") } else { None }];
        let host = |wanted: &str| {
            text("host") == Some(wanted)
                || ["server", "destination", "name"]
                    .iter()
                    .any(|field| text(field).is_some_and(|found| names_host(found, wanted)))
        };
        self.kind.as_deref().is_none_or(|kind| event.kind.starts_with(kind))
            && is(&self.tool, &tool)
            && is(&self.model, &[text("model"), text("answered_by")])
            && self.host.as_deref().is_none_or(host)
            && is(&self.decision, &[text("effect")])
            && self.since_us.is_none_or(|since| event.time >= since)
            && self.until_us.is_none_or(|until| event.time < until)
            && self.text.as_deref().is_none_or(|wanted| holds(&event.body, &wanted.to_lowercase()))
    }
}

/// `https://host:443/path`, `host:443` or the host alone.
fn names_host(address: &str, host: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', ' ']).next().unwrap_or(rest);
    authority == host || authority.rsplit_once(':').is_some_and(|(name, _)| name == host)
}

/// Whether a text, a name or a number in it holds this, which is in lower case.
fn holds(value: &Value, wanted: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(wanted);
    match value {
        Value::String(text) => has(text),
        Value::Array(all) => all.iter().any(|value| holds(value, wanted)),
        Value::Object(map) => map.iter().any(|(name, value)| has(name) || holds(value, wanted)),
        Value::Number(number) => has(&number.to_string()),
        Value::Null | Value::Bool(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::Digest;
    use serde_json::json;

    #[track_caller]
    fn check(query: Query, kind: &str, body: Value, expected: bool) {
        let event = Event {
            body,
            hash: Digest::ZERO,
            kind: kind.into(),
            parent: None,
            prev: Digest::ZERO,
            seq: 1,
            time: 500,
        };
        assert_eq!(query.matches(&event), expected, "{query:?} {event:?}");
    }

    #[test]
    fn all_that_is_named_must_match() {
        let some = |text: &str| Some(text.to_owned());
        let call = || json!({"tool": "refund", "effect": "deny", "server": "https://mcp.example:443/x", "arguments": {"text": "{\"To\":7}"}});
        check(Query::default(), "tool.called", call(), true);
        check(Query { tool: some("refund"), ..Query::default() }, "tool.called", call(), true);
        check(Query { tool: some("ref"), ..Query::default() }, "tool.called", call(), false);
        check(Query { host: some("mcp.example"), ..Query::default() }, "tool.called", call(), true);
        check(Query { host: some("example"), ..Query::default() }, "tool.called", call(), false);
        check(
            Query { decision: some("deny"), kind: some("tool"), ..Query::default() },
            "tool.called",
            call(),
            true,
        );
        check(Query { decision: some("allow"), ..Query::default() }, "tool.called", call(), false);
        check(Query { text: some("\"TO\""), ..Query::default() }, "tool.called", call(), true);
        check(Query { text: some("absent"), ..Query::default() }, "tool.called", call(), false);
        check(
            Query { model: some("gpt"), ..Query::default() },
            "model.called",
            json!({"model": "gpt"}),
            true,
        );
        check(Query { since_us: Some(500), until_us: Some(501), ..Query::default() }, "x", json!({}), true);
        check(Query { until_us: Some(500), ..Query::default() }, "x", json!({}), false);
        check(
            Query { tool: some("lookup"), ..Query::default() },
            "tool.changed",
            json!({"name": "lookup"}),
            true,
        );
        check(
            Query { tool: some("plan"), ..Query::default() },
            "step.started",
            json!({"name": "plan"}),
            false,
        );
    }
}
