//! JSON (and form) bodies as the policy sees them, and patterns over their fields. A body that two parsers
//! could read differently (a name twice, too large, not text) is a problem, not a guess.

use crate::glob::{GlobError, Pattern};
use crate::octets::{Octets, Writing, is_well_escaped};
use crate::problem::Problem;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};
use std::cell::Cell;
use std::fmt;

/// The longest body whose content is looked at.
pub const MAX_BODY: usize = 1 << 20;
/// The most values in one.
const MAX_VALUES: usize = 50_000;

/// Reads a body by its content type.
pub(crate) fn read(body: &[u8], content_type: Option<&str>) -> Result<Json, Problem> {
    if body.len() > MAX_BODY {
        return Err(Problem::BodyTooLong);
    }
    if body.is_empty() {
        return Ok(Json::Null);
    }
    let media = content_type.map_or("application/json", |text| text.split(';').next().unwrap_or(text).trim());
    let media = media.to_ascii_lowercase();
    if media == "application/x-www-form-urlencoded" {
        return form(body);
    }
    if media == "application/json" || (media.starts_with("application/") && media.ends_with("+json")) {
        return parse(body);
    }
    Err(Problem::BodyType)
}

/// Reads JSON in which no name stands twice.
pub fn parse(text: &[u8]) -> Result<Json, Problem> {
    let values = Cell::new(0);
    let mut reader = serde_json::Deserializer::from_slice(text);
    let json = Checked(&values).deserialize(&mut reader).map_err(|error| problem(&error))?;
    reader.end().map_err(|error| problem(&error))?;
    Ok(json)
}

/// The place and never the text: it may hold what must not be recorded.
fn problem(error: &serde_json::Error) -> Problem {
    match error.classify() {
        serde_json::error::Category::Data => Problem::BodyAmbiguous,
        _ => Problem::BodyNotJson { line: error.line(), column: error.column() },
    }
}

fn form(body: &[u8]) -> Result<Json, Problem> {
    let text = std::str::from_utf8(body).map_err(|_| Problem::BodyAmbiguous)?;
    let mut fields = Map::new();
    for (name, value) in pairs(text, &['&']) {
        let (name, value) =
            (decoded(name).ok_or(Problem::BodyAmbiguous)?, decoded(value).ok_or(Problem::BodyAmbiguous)?);
        if fields.insert(name, Json::String(value)).is_some() {
            return Err(Problem::BodyAmbiguous);
        }
    }
    Ok(Json::Object(fields))
}

/// The parameters of a query or a form, as written.
pub(crate) fn pairs<'a>(text: &'a str, separators: &'a [char]) -> impl Iterator<Item = (&'a str, &'a str)> {
    text.split(separators)
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// The parameters of a query as they are meant; nothing where one is not well escaped.
pub fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    pairs(query, &['&']).map(|(name, value)| Some((decoded(name)?, decoded(value)?))).collect()
}

/// A parameter's name or value as it is meant.
pub(crate) fn decoded(text: &str) -> Option<String> {
    if !is_well_escaped(text.as_bytes()) {
        return None;
    }
    Octets::new(text.as_bytes(), Writing::Form).text()
}

/// A path as it is meant; an escaped slash stays escaped, as it separates nothing.
pub(crate) fn decoded_path(path: &str) -> Option<String> {
    let mut text = String::with_capacity(path.len());
    for (at, piece) in path.split("%2F").flat_map(|piece| piece.split("%2f")).enumerate() {
        if at > 0 {
            text.push_str("%2F");
        }
        text.push_str(&Octets::new(piece.as_bytes(), Writing::Percent).text()?);
    }
    Some(text)
}

struct Checked<'c>(&'c Cell<usize>);

impl<'de> DeserializeSeed<'de> for Checked<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Json, D::Error> {
        self.0.set(self.0.get() + 1);
        if self.0.get() > MAX_VALUES {
            return Err(D::Error::custom("too many values"));
        }
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checked<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element_seed(Checked(self.0))? {
            found.push(item);
        }
        Ok(Json::Array(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let mut found = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if found.insert(name, fields.next_value_seed(Checked(self.0))?).is_some() {
                return Err(A::Error::custom("a name twice"));
            }
        }
        Ok(Json::Object(found))
    }
}

/// What a field may be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Want {
    Text(Pattern),
    Number(Number),
    Flag(bool),
}

impl Want {
    pub(crate) fn parse(value: &Json) -> Option<Result<Self, GlobError>> {
        match value {
            Json::String(text) => Some(Pattern::parse(text).map(Self::Text)),
            Json::Number(number) => Some(Ok(Self::Number(number.clone()))),
            Json::Bool(flag) => Some(Ok(Self::Flag(*flag))),
            _ => None,
        }
    }

    fn takes(&self, value: &Json) -> bool {
        match (self, value) {
            (Self::Text(pattern), Json::String(text)) => pattern.matches_str(text),
            // 1 and 1.0 are one number to whoever reads the body.
            (Self::Number(wanted), Json::Number(number)) => {
                wanted == number || wanted.as_f64() == number.as_f64()
            }
            (Self::Flag(wanted), Json::Bool(flag)) => wanted == flag,
            _ => false,
        }
    }
}

/// A field by its path, `messages.*.role`, and what it may be; `*` is every element or field there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) path: Vec<String>,
    pub(crate) wants: Vec<Want>,
}

impl Field {
    /// None if it is no path.
    pub(crate) fn path(text: &str) -> Option<Vec<String>> {
        let names: Vec<String> = text.split('.').map(str::to_owned).collect();
        names.iter().all(|name| !name.is_empty()).then_some(names)
    }

    /// All of them must fit if `every`, else one; where there is none, nothing fits.
    pub(crate) fn matches(&self, json: &Json, every: bool) -> bool {
        self.at(&self.path, json, every)
    }

    fn at(&self, path: &[String], json: &Json, every: bool) -> bool {
        let [name, rest @ ..] = path else {
            return self.wants.iter().any(|want| want.takes(json));
        };
        let go_on = |value: &Json| self.at(rest, value, every);
        match json {
            Json::Object(fields) if name == "*" => some(fields.values(), every, go_on),
            Json::Array(items) if name == "*" => some(items.iter(), every, go_on),
            Json::Object(fields) => fields.get(name).is_some_and(go_on),
            Json::Array(items) => name.parse::<usize>().ok().and_then(|at| items.get(at)).is_some_and(go_on),
            _ => false,
        }
    }
}

fn some<'a>(
    mut values: impl ExactSizeIterator<Item = &'a Json>,
    every: bool,
    fits: impl Fn(&Json) -> bool,
) -> bool {
    if every { values.len() > 0 && values.all(fits) } else { values.any(fits) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_can_be_read_two_ways_is_refused() {
        let check = |text: &str, expected: &str| {
            let found = match parse(text.as_bytes()) {
                Ok(json) => json.to_string(),
                Err(problem) => problem.to_string(),
            };
            assert!(found.contains(expected), "{text}: {found}");
        };
        check(r#"{"a":1,"b":[true,null,"x",1.5]}"#, r#"{"a":1,"b":[true,null,"x",1.5]}"#);
        check(r#"{"a":1,"a":2}"#, "two ways");
        check(r#"{"a":{"b":1,"\u0062":2}}"#, "two ways");
        check(r#"{"a":1} x"#, "not JSON");
        check("{", "not JSON");
        check(&format!("[{}1]", "1,".repeat(60_000)), "two ways");
        check(&"[".repeat(5_000), "not JSON");
    }

    #[test]
    fn forms_are_read_as_fields() {
        let read =
            |text: &str| read(text.as_bytes(), Some("application/x-www-form-urlencoded; charset=utf-8"));
        assert_eq!(
            read("amount=50&note=a+b%21&empty").unwrap(),
            json!({"amount": "50", "note": "a b!", "empty": ""})
        );
        assert_eq!(read("a=1&%61=2"), Err(Problem::BodyAmbiguous));
        assert_eq!(read("a=%zz"), Err(Problem::BodyAmbiguous));
    }

    #[test]
    fn fields_are_found_by_path() {
        let body = json!({"model": "gpt-5", "n": 1.0, "messages": [{"role": "user"}, {"role": "system"}], "none": []});
        let check = |path: &str, want: Json, every: bool, expected: bool| {
            let field =
                Field { path: Field::path(path).unwrap(), wants: vec![Want::parse(&want).unwrap().unwrap()] };
            assert_eq!(field.matches(&body, every), expected, "{path} {want} {every}");
        };
        check("model", json!("gpt-*"), true, true);
        check("n", json!(1), true, true);
        check("messages.*.role", json!("user"), true, false);
        check("messages.*.role", json!("user"), false, true);
        check("messages.0.role", json!("user"), true, true);
        check("none.*", json!("*"), true, false);
        check("missing", json!("*"), false, false);
        check("model", json!(true), false, false);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = form(&bytes);
        }

        #[test]
        fn what_serde_writes_is_read(text in "[ -~]{0,10}", number in any::<i64>()) {
            let json = json!({"a": [text, number, {"b": null}]});
            prop_assert_eq!(parse(json.to_string().as_bytes()).unwrap(), json);
        }
    }
}
