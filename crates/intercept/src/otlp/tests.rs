//! The two forms say the same, and neither can be made to fall over.

use super::*;
use serde_json::json;

fn sample() -> Value {
    json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [{
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "EEE19B7EC3C1B174",
        "parentSpanId": "eee19b7ec3c1b173",
        "name": "execute_tool lookup",
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": 1544712661000000000u64,
        "attributes": [
            { "key": "gen_ai.operation.name", "value": { "stringValue": "execute_tool" } },
            { "key": "gen_ai.tool.call.arguments", "value": { "stringValue": "{\"id\": 7}" } },
            { "key": "n", "value": { "intValue": "5" } },
            { "key": "list", "value": { "arrayValue": { "values": [{ "boolValue": true }] } } },
        ],
        "status": { "code": 2, "message": "no such thing" },
    }] }] }] })
}

#[test]
fn a_span_is_read_with_what_the_conventions_name() {
    let spans = from_json(sample().to_string().as_bytes()).unwrap();
    let span = &spans[0];
    assert_eq!((span.id.as_str(), span.parent.as_deref()), ("eee19b7ec3c1b174", Some("eee19b7ec3c1b173")));
    assert_eq!((span.start_us, span.end_us), (1_544_712_660_000_000, 1_544_712_661_000_000));
    assert_eq!((span.sort().as_str(), span.error.as_str()), ("execute_tool", "no such thing"));
    assert_eq!(span.input(), Some(json!({"id": 7})));
    assert_eq!(span.output(), None);
    assert_eq!(span.attributes["n"], 5);
    assert_eq!(span.attributes["list"], json!([true]));
}

#[test]
fn what_is_wrong_is_named() {
    let told = |change: fn(&mut Value)| {
        let mut sample = sample();
        change(&mut sample["resourceSpans"][0]["scopeSpans"][0]["spans"][0]);
        from_json(sample.to_string().as_bytes()).unwrap_err().to_string()
    };
    assert!(told(|span| span["spanId"] = json!("xyz")).contains("spanId"));
    assert!(told(|span| drop(span.as_object_mut().unwrap().remove("name"))).contains("`name`"));
    assert!(told(|span| span["startTimeUnixNano"] = json!("soon")).contains("nanoseconds"));
    assert!(from_json(b"{").is_err() && from_protobuf(b"\xff\xff").is_err());
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_spans_or_an_error(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        let _ = (from_protobuf(&bytes), from_json(&bytes));
    }
}
