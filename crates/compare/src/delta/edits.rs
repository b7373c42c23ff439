//! Differences of arguments, leaf by leaf, each with its JSON pointer. Carried out in their order they turn one value
//! into the other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Pointers are valid in both values: elements are put in and taken out behind everything else that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "edit", rename_all = "kebab-case")]
pub enum Edit {
    Set { path: String, from: Value, to: Value },
    Put { path: String, value: Value },
    Take { path: String, value: Value },
}

impl Edit {
    pub fn path(&self) -> &str {
        match self {
            Self::Set { path, .. } | Self::Put { path, .. } | Self::Take { path, .. } => path,
        }
    }
}

/// A difference that a team declares to be none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    /// The tool's name; `*` is every tool.
    pub tool: String,
    /// A JSON pointer in which `*` stands for any one segment, and a final `**` for all below.
    pub path: String,
    /// Numbers may differ by this much…
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absolute: Option<f64>,
    /// …or by this share of the larger one. With neither, anything may stand there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<f64>,
}

impl Tolerance {
    pub fn allows(&self, tool: &str, edit: &Edit) -> bool {
        if (self.tool != "*" && self.tool != tool) || !matches(&self.path, edit.path()) {
            return false;
        }
        if self.absolute.is_none() && self.relative.is_none() {
            return true;
        }
        let Edit::Set { from, to, .. } = edit else { return false };
        let (Some(a), Some(b)) = (number(from), number(to)) else { return false };
        let apart = (a - b).abs();
        let relative = self.relative.is_some_and(|share| apart <= share * a.abs().max(b.abs()));
        relative || self.absolute.is_some_and(|most| apart <= most)
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (Some("**"), _) | (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == "*" || wanted == found => {}
            _ => return false,
        }
    }
}

/// A number, also where it was written as a text.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    number.filter(|number: &f64| number.is_finite())
}

/// Deeper than this a value is one leaf.
const DEPTH: usize = 100;

pub(super) fn between(base: &Value, new: &Value) -> Vec<Edit> {
    let mut edits = Vec::new();
    compare(String::new(), base, new, &mut edits, 0);
    edits
}

fn compare(path: String, a: &Value, b: &Value, edits: &mut Vec<Edit>, depth: usize) {
    match (a, b) {
        _ if a == b => {}
        (Value::Object(old), Value::Object(new)) if depth < DEPTH => {
            for (key, value) in old {
                let path = format!("{path}/{}", escaped(key));
                match new.get(key) {
                    Some(other) => compare(path, value, other, edits, depth + 1),
                    None => edits.push(Edit::Take { path, value: value.clone() }),
                }
            }
            for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
                edits.push(Edit::Put { path: format!("{path}/{}", escaped(key)), value: value.clone() });
            }
        }
        (Value::Array(old), Value::Array(new)) if depth < DEPTH => lists(&path, old, new, edits, depth),
        _ => edits.push(Edit::Set { path, from: a.clone(), to: b.clone() }),
    }
}

fn lists(path: &str, old: &[Value], new: &[Value], edits: &mut Vec<Edit>, depth: usize) {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old_rest[..old_rest.len() - tail], &new_rest[..new_rest.len() - tail]);
    let both = old_rest.len().min(new_rest.len());
    for (at, (a, b)) in old_rest.iter().zip(new_rest).enumerate() {
        compare(format!("{path}/{}", head + at), a, b, edits, depth + 1);
    }
    for (at, value) in old_rest.iter().enumerate().skip(both).rev() {
        edits.push(Edit::Take { path: format!("{path}/{}", head + at), value: value.clone() });
    }
    for (at, value) in new_rest.iter().enumerate().skip(both) {
        edits.push(Edit::Put { path: format!("{path}/{}", head + at), value: value.clone() });
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(a: Value, b: Value, expected: &[&str]) {
        let shown = |edit: &Edit| match edit {
            Edit::Set { path, from, to } => format!("{path} {from}>{to}"),
            Edit::Put { path, value } => format!("{path} +{value}"),
            Edit::Take { path, value } => format!("{path} -{value}"),
        };
        assert_eq!(between(&a, &b).iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn differences_stand_at_their_leaves() {
        check(json!({"a": {"b": [1, 2]}}), json!({"a": {"b": [1, 3]}}), &["/a/b/1 2>3"]);
        check(json!({"a": 1}), json!({"b": 1}), &["/a -1", "/b +1"]);
        check(json!([1, 2, 3]), json!([1, 3]), &["/1 -2"]);
        check(json!([1, 3]), json!([0, 1, 3]), &["/0 +0"]);
        check(json!({"a/b~": 1}), json!({"a/b~": 2}), &["/a~1b~0 1>2"]);
        check(json!(null), json!({"a": 1}), &[" null>{\"a\":1}"]);
    }

    #[test]
    fn tolerances_are_for_what_they_name() {
        let set = |from: Value, to: Value| Edit::Set { path: "/to/0/amount".into(), from, to };
        let about = |tool: &str, path: &str, absolute, relative| Tolerance {
            tool: tool.into(),
            path: path.into(),
            absolute,
            relative,
        };
        let near = set(json!(100), json!(101));
        assert!(about("pay", "/to/*/amount", Some(1.0), None).allows("pay", &near));
        assert!(about("*", "/to/**", None, Some(0.01)).allows("pay", &near));
        assert!(!about("*", "/to/**", None, Some(0.001)).allows("pay", &near));
        assert!(!about("buy", "/to/**", None, None).allows("pay", &near));
        assert!(!about("*", "/to", None, None).allows("pay", &near));
        assert!(about("*", "/to/*/*", None, None).allows("pay", &set(json!("a"), json!("b"))));
        assert!(!about("*", "/to/*/*", Some(9.0), None).allows("pay", &set(json!("a"), json!("b"))));
    }
}
