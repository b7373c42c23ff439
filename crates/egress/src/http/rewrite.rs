//! What the policy changes in a request that it allowed, before credentials are put in.

use super::decide::Question;
use crate::front::framing::Malformed;
use crate::rescue::Failure;
use crate::rules::Rules;
use bytes::Bytes;
use cofferdam_policy::Change;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use serde_json::{Map, Value};

/// The changes that apply. Copied out of the policy, because the request they were matched against is what
/// they change; nearly always there are none.
pub(crate) struct Changes(Vec<(Change<String>, Change<String>, Change<Value>)>);

impl Changes {
    pub(crate) fn of(rules: &Rules, question: &Question<'_>) -> Self {
        let all = rules.policy().rewrites(question.http());
        Self(
            all.map(|rewrite| (rewrite.headers.clone(), rewrite.query.clone(), rewrite.json.clone()))
                .collect(),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn want_body(&self) -> bool {
        self.0.iter().any(|(_, _, json)| !json.is_empty())
    }

    pub(crate) fn head(&self, head: &mut Parts) -> Result<(), Failure> {
        for (fields, parameters, _) in &self.0 {
            headers(fields, head)?;
            query(parameters, head)?;
        }
        Ok(())
    }

    /// The changed body; one that is not a JSON object is refused, since the change was meant to hold.
    pub(crate) fn body(&self, body: Bytes) -> Result<Bytes, Failure> {
        if !self.want_body() {
            return Ok(body);
        }
        let mut json: Map<String, Value> = serde_json::from_slice(&body).map_err(|_| Failure::NotJson)?;
        for (_, _, change) in &self.0 {
            change.remove.iter().for_each(|path| remove(&mut json, path));
            change.set.iter().for_each(|(path, value)| set(&mut json, path, value.clone()));
        }
        Ok(Bytes::from(serde_json::to_vec(&json).map_err(|_| Failure::NotJson)?))
    }
}

fn headers(change: &Change<String>, head: &mut Parts) -> Result<(), Failure> {
    for name in &change.remove {
        head.headers.remove(name.as_str());
    }
    for (name, value) in &change.set {
        let bad = || Failure::Malformed(Malformed::Syntax);
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        head.headers.insert(name, HeaderValue::from_str(value).map_err(|_| bad())?);
    }
    Ok(())
}

fn query(change: &Change<String>, head: &mut Parts) -> Result<(), Failure> {
    if change.is_empty() {
        return Ok(());
    }
    let is_named =
        |part: &str, name: &str| part.split('=').next().is_some_and(|found| decoded(found) == name);
    let is_changed = |part: &&str| {
        change.remove.iter().chain(change.set.iter().map(|(name, _)| name)).any(|name| is_named(part, name))
    };
    let kept =
        head.uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty() && !is_changed(part));
    let set = change.set.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    let parts: Vec<String> = kept.map(str::to_owned).chain(set).collect();
    let path = head.uri.path();
    let text = if parts.is_empty() { path.to_owned() } else { format!("{path}?{}", parts.join("&")) };
    let path: PathAndQuery = text.parse().map_err(|_| Failure::Malformed(Malformed::Target))?;
    head.uri = Uri::from(path);
    Ok(())
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = || u8::from_str_radix(text.get(at + 1..at + 3)?, 16).ok();
        match (bytes[at], escape()) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (b'+', _) => {
                out.push(b' ');
                at += 1;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn set(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            object.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert(Value::Null);
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

fn remove(object: &mut Map<String, Value>, path: &str) {
    match path.split_once('.') {
        None => {
            object.remove(path);
        }
        Some((first, rest)) => {
            if let Some(Value::Object(inner)) = object.get_mut(first) {
                remove(inner, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_bodies_are_changed_by_name() {
        let change = Change { set: vec![("b".into(), "x y".into())], remove: vec!["a".into()] };
        let check = |uri: &str, expected: &str| {
            let mut head = http::Request::builder().uri(uri).body(()).unwrap().into_parts().0;
            query(&change, &mut head).unwrap();
            assert_eq!(head.uri.to_string(), expected);
        };
        check("/p", "/p?b=x%20y");
        check("/p?a=1&b=2&c=3&%61=4", "/p?c=3&b=x%20y");
        let mut json = serde_json::json!({ "a": { "b": 1, "c": 2 }, "d": 3 });
        let object = json.as_object_mut().unwrap();
        remove(object, "a.b");
        set(object, "a.e", 4.into());
        set(object, "d.f", 5.into());
        assert_eq!(json, serde_json::json!({ "a": { "c": 2, "e": 4 }, "d": { "f": 5 } }));
    }
}
