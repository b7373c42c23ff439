//! JSON that every parser reads alike: no name twice, however it is written. Servers are written in languages
//! that take the first of two names, the last, or one in another case; what we judge must be what they do.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// A value in which no object has two members of one name.
pub(crate) struct Strict(pub(crate) Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reading).map(Self)
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(value)) = from.next_element()? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, Strict(value))) = from.next_entry::<String, Strict>()? {
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a name stands twice in an object"));
            }
        }
        Ok(Value::Object(all))
    }
}

/// Whether no object in it has two names that differ by case only.
pub(crate) fn is_certain(value: &Value) -> bool {
    match value {
        Value::Array(all) => all.iter().all(is_certain),
        Value::Object(map) => {
            let mut folded: Vec<String> = map.keys().map(|name| name.to_lowercase()).collect();
            folded.sort_unstable();
            folded.windows(2).all(|pair| pair[0] != pair[1]) && map.values().all(is_certain)
        }
        _ => true,
    }
}

/// One text for equal values, whatever the order of their members.
pub(crate) fn sorted(value: &Value) -> String {
    match value {
        Value::Array(all) => format!("[{}]", all.iter().map(sorted).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            let members = members
                .iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), sorted(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_twice_is_no_json_of_ours() {
        let read = |text: &str| serde_json::from_str::<Strict>(text).map(|strict| strict.0).ok();
        assert_eq!(
            read(r#"{"a":[1,-2,0.5,null,true,"x"]}"#),
            Some(json!({"a": [1, -2, 0.5, null, true, "x"]}))
        );
        assert_eq!(read(r#"{"a":1,"a":2}"#), None);
        assert_eq!(read(r#"{"a":{"b":1,"\u0062":2}}"#), None);
        assert_eq!(read("{} {}"), None);
    }

    #[test]
    fn names_that_differ_by_case_are_in_doubt() {
        assert!(is_certain(&json!({"a": [{"b": 1}], "c": 2})));
        assert!(!is_certain(&json!({"a": [{"amount": 1, "Amount": 2}]})));
    }

    proptest::proptest! {
        #[test]
        fn the_order_of_members_makes_no_difference(names in proptest::collection::btree_map("[a-z]{1,3}", 0..9i64, 0..8)) {
            let forward: Map<String, Value> = names.iter().map(|(n, v)| (n.clone(), (*v).into())).collect();
            let backward: Map<String, Value> = names.iter().rev().map(|(n, v)| (n.clone(), (*v).into())).collect();
            let (one, other) = (sorted(&Value::Object(forward.clone())), sorted(&Value::Object(backward)));
            proptest::prop_assert_eq!(&one, &other);
            proptest::prop_assert_eq!(serde_json::from_str::<Value>(&one).unwrap(), Value::Object(forward));
        }
    }
}
