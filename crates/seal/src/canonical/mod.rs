//! One text per value: JSON in the form of RFC 8785 (no white space, members sorted by the UTF-16 units of
//! their names, shortest escapes), so that equal values have equal digests in any language.
//!
//! It refuses what has more than one text or loses something on the way: floating-point numbers, integers
//! beyond 2^53 - 1, members that appear twice, and nesting that a reader would not follow.

mod error;
mod object;
mod serializer;

pub use error::{CanonicalError, Problem};

use object::Member;
use serde::Serialize;
use serializer::Canonical;

/// Traces are read back by parsers with a limit on nesting; what is written stays well under it.
pub const MAX_DEPTH: usize = 64;

/// The largest magnitude at which every JSON reader still tells neighbours apart.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Working space kept between calls, so that a hot path does not allocate.
#[derive(Default)]
pub struct Scratch {
    members: Vec<Member>,
    reordered: Vec<u8>,
}

/// The canonical bytes of a value.
pub fn canonical<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    let mut out = Vec::new();
    append_canonical(value, &mut out, &mut Scratch::default())?;
    Ok(out)
}

/// Appends the canonical bytes of a value; on an error `out` is as it was.
pub fn append_canonical<T: Serialize + ?Sized>(
    value: &T,
    out: &mut Vec<u8>,
    scratch: &mut Scratch,
) -> Result<(), CanonicalError> {
    let start = out.len();
    scratch.members.clear();
    value.serialize(&mut Canonical::new(out, scratch)).inspect_err(|_| out.truncate(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::collections::{BTreeMap, HashMap};

    fn check(value: impl Serialize, expected: &str) {
        assert_eq!(String::from_utf8(canonical(&value).unwrap()).unwrap(), expected);
    }

    fn refused(value: impl Serialize, expected: &str) {
        assert_eq!(canonical(&value).unwrap_err().to_string(), expected);
    }

    #[test]
    fn members_are_sorted_at_every_level() {
        check(
            json!({"b": {"z": 1, "a": [true, null]}, "a": "x"}),
            r#"{"a":"x","b":{"a":[true,null],"z":1}}"#,
        );
        check(HashMap::from([("b", 1), ("a", 2), ("", 3)]), r#"{"":3,"a":2,"b":1}"#);
        check(BTreeMap::<String, u8>::new(), "{}");
        check(Vec::<u8>::new(), "[]");
    }

    #[test]
    fn the_order_is_that_of_utf16() {
        // U+1F600 is written with surrogates (D83D…), which sort before U+FB33, unlike their UTF-8 bytes.
        let map = BTreeMap::from([("\u{fb33}", 1), ("\u{1f600}", 2), ("\u{20ac}", 3), ("1", 4), ("\r", 5)]);
        check(map, "{\"\\r\":5,\"1\":4,\"\u{20ac}\":3,\"\u{1f600}\":2,\"\u{fb33}\":1}");
        check(BTreeMap::from([("\"", 1), ("!", 2), ("#", 3)]), r##"{"!":2,"\"":1,"#":3}"##);
    }

    #[test]
    fn strings_take_the_shortest_escapes() {
        check("\u{8}\t\n\u{c}\r\"\\/\u{1}\u{7f}é", "\"\\b\\t\\n\\f\\r\\\"\\\\/\\u0001\u{7f}é\"");
    }

    #[test]
    fn every_shape_of_serde() {
        #[derive(Serialize)]
        enum Shape {
            Unit,
            New(u8),
            Tuple(u8, u8),
            Struct { b: i8, a: Option<char> },
        }
        check(Shape::Unit, r#""Unit""#);
        check(Shape::New(1), r#"{"New":1}"#);
        check(Shape::Tuple(1, 2), r#"{"Tuple":[1,2]}"#);
        check(Shape::Struct { b: -1, a: Some('x') }, r#"{"Struct":{"a":"x","b":-1}}"#);
        check((1, (), None::<u8>), "[1,null,null]");
    }

    #[test]
    fn what_has_no_single_text_is_refused_by_name() {
        refused(json!({"a": [{"b": 1}, {"b": 0.5}]}), &format!("`a[1].b`: {}", Problem::Float));
        refused(1.0, &Problem::Float.to_string());
        check(json!([MAX_INTEGER, -(MAX_INTEGER as i64)]), "[9007199254740991,-9007199254740991]");
        refused(json!({"n": MAX_INTEGER + 1}), &format!("`n`: {}", Problem::Integer(1 << 53)));
        refused(json!([i64::MIN]), &format!("`[0]`: {}", Problem::Integer(i64::MIN.into())));
        refused(BTreeMap::from([(1, 2)]), &Problem::Key.to_string());
    }

    #[test]
    fn a_member_may_appear_once() {
        #[derive(Serialize)]
        struct Twice {
            a: u8,
            #[serde(rename = "b")]
            first: u8,
            #[serde(flatten)]
            rest: BTreeMap<String, u8>,
        }
        let twice = Twice { a: 1, first: 2, rest: BTreeMap::from([("b".to_owned(), 3)]) };
        refused(twice, &Problem::Duplicate("b".into()).to_string());
    }

    #[test]
    fn nesting_ends_before_a_reader_does() {
        let nest = |depth| (0..depth).fold(Value::from(1), |inner, _| Value::Array(vec![inner]));
        assert!(canonical(&nest(MAX_DEPTH)).is_ok());
        assert_eq!(canonical(&nest(MAX_DEPTH + 1)).unwrap_err().problem(), &Problem::Depth);
    }

    #[test]
    fn a_refused_value_leaves_nothing_behind() {
        let (mut out, mut scratch) = (b"kept".to_vec(), Scratch::default());
        assert!(append_canonical(&json!({"b": 1, "a": {"y": 1, "x": 1.5}}), &mut out, &mut scratch).is_err());
        assert_eq!(out, b"kept");
        append_canonical(&json!({"b": 1, "a": 2}), &mut out, &mut scratch).unwrap();
        assert_eq!(out, br#"kept{"a":2,"b":1}"#);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-(MAX_INTEGER as i64)..=MAX_INTEGER as i64).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_bytes_read_back_as_the_value_and_are_their_own_canonical_form(value in values()) {
            let bytes = canonical(&value).unwrap();
            let back: Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert_eq!(&back, &value);
            prop_assert_eq!(canonical(&back).unwrap(), bytes);
        }
    }
}
