//! Which messages do something, and so are judged. What only tells (lists, pings, progress, log lines) passes.

use super::json::is_certain;
use super::message::Malformed;
use serde_json::{Map, Value};

/// What a request is, as a policy sees it.
#[derive(Debug, PartialEq)]
pub(super) enum Subject<'m> {
    /// It tells or asks what there is.
    Passes,
    ListsTools,
    /// A tool, or a method that is judged as one of its name.
    Calls {
        name: &'m str,
        args: Value,
    },
}

/// Of a tool or a method; a longer one is no name.
pub(super) const LONGEST_NAME: usize = 128;

/// Methods that change nothing and give nothing away but what a server chooses to offer.
const PASSES: &[&str] = &[
    "initialize",
    "ping",
    "logging/setLevel",
    "completion/complete",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/unsubscribe",
    "roots/list",
    "server/discover",
    "subscriptions/listen",
    // What a call that was let go has come to.
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
];

impl<'m> Subject<'m> {
    pub(super) fn of(method: &'m str, params: &'m Value) -> Result<Self, Malformed> {
        if method.len() > LONGEST_NAME {
            return Err(Malformed::LongName);
        }
        match method {
            "tools/list" => Ok(Self::ListsTools),
            "tools/call" => called(params),
            _ if PASSES.contains(&method) => Ok(Self::Passes),
            _ if !is_certain(params) => Err(Malformed::Ambiguous),
            // `resources/read`, `prompts/get`, a server's `sampling/createMessage` or `elicitation/create`, and
            // whatever is not known yet.
            _ => Ok(Self::Calls { name: method, args: params.clone() }),
        }
    }
}

fn called(params: &Value) -> Result<Subject<'_>, Malformed> {
    let Value::Object(params) = params else { return Err(Malformed::Params) };
    exactly(params, &["name", "arguments", "_meta", "task", "inputResponses", "requestState"])?;
    let Some(name) = params.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
        return Err(Malformed::Member("params without name".into()));
    };
    if name.len() > LONGEST_NAME {
        return Err(Malformed::LongName);
    }
    let args = match params.get("arguments") {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(args @ Value::Object(_)) if is_certain(args) => args.clone(),
        Some(Value::Object(_)) => return Err(Malformed::Ambiguous),
        Some(_) => return Err(Malformed::Params),
    };
    Ok(Subject::Calls { name, args })
}

/// No member that a reader who ignores case takes for another.
fn exactly(map: &Map<String, Value>, known: &[&str]) -> Result<(), Malformed> {
    let wrong = |name: &&String| {
        known.iter().any(|known| name.eq_ignore_ascii_case(known) && name.as_str() != *known)
    };
    match map.keys().find(wrong) {
        Some(name) => Err(Malformed::Member(name.chars().take(40).collect())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(method: &str, params: Value, expected: Option<(&str, Value)>) {
        match (Subject::of(method, &params), expected) {
            (Ok(Subject::Calls { name, args }), Some(expected)) => assert_eq!((name, args), expected),
            (Ok(Subject::Passes | Subject::ListsTools), None) => {}
            (other, _) => panic!("{method} {params}: {other:?}"),
        }
    }

    #[test]
    fn what_does_something_is_judged() {
        check("tools/call", json!({"name": "t", "arguments": {"a": 1}}), Some(("t", json!({"a": 1}))));
        check("tools/call", json!({"name": "t"}), Some(("t", json!({}))));
        check(
            "resources/read",
            json!({"uri": "file:///x"}),
            Some(("resources/read", json!({"uri": "file:///x"}))),
        );
        check("of/the/future", json!({}), Some(("of/the/future", json!({}))));
        check("ping", Value::Null, None);
        check("tools/list", Value::Null, None);
    }

    #[test]
    fn what_two_servers_would_read_differently_is_not() {
        for params in [
            json!({"Name": "t"}),
            json!({"name": "t", "Arguments": {}}),
            json!({"name": "t", "arguments": {"amount": 1, "Amount": 9}}),
            json!({"name": 3}),
            json!({"name": "t", "arguments": [1]}),
            json!([]),
        ] {
            assert!(Subject::of("tools/call", &params).is_err(), "{params}");
        }
    }
}
