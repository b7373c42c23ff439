//! Steps as they are posted, and what is on record of them.

use super::*;
use cofferdam_model::{BlobRef, Digest};
use cofferdam_policy::Policy;

#[derive(Default)]
struct Notes(Mutex<Vec<(Option<u64>, Value)>>);

impl Record for Notes {
    fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded> {
        let mut notes = self.0.lock().unwrap();
        notes.push((parent, serde_json::to_value(body).unwrap()));
        Ok(notes.len() as u64 - 1)
    }

    fn keep(&self, bytes: &[u8]) -> Result<BlobRef, NotRecorded> {
        Ok(BlobRef { digest: Digest::ZERO, size: bytes.len() as u64 })
    }
}

fn steps(rules: Option<&str>) -> (Arc<Notes>, Steps) {
    let notes = Arc::new(Notes::default());
    let policy = rules.map(|rules| Arc::new(Policy::parse(rules).unwrap()));
    (notes.clone(), Steps::new(notes, Arc::new(move || policy.clone())))
}

fn post(steps: &Steps, path: &str, content_type: &str, body: &[u8]) -> Next {
    let request = OwnRequest {
        method: "POST",
        path,
        prefix: "",
        host: None,
        origin: None,
        content_type: Some(content_type),
        content_encoding: None,
        body,
    };
    steps.take(&request).unwrap()
}

#[track_caller]
fn tell(steps: &Steps, body: Value) -> (u16, Value) {
    match post(steps, "/v1/steps", "application/json", body.to_string().as_bytes()) {
        Next::Answer(response) => (response.status, serde_json::from_slice(&response.body).unwrap()),
        Next::Hold(held) => panic!("{held:?}"),
    }
}

#[test]
fn steps_stand_in_each_other_and_end_once() {
    let (notes, steps) = steps(None);
    let (status, outer) = tell(&steps, json!({"event": "start", "name": "plan", "input": {"goal": 0.5}}));
    assert_eq!((status, &outer["id"]), (201, &json!("step-1")));
    let inner = json!({"event": "start", "name": "look", "id": "mine", "parent": "step-1"});
    assert_eq!(tell(&steps, inner.clone()), (201, json!({"id": "mine"})));
    assert_eq!(tell(&steps, inner).0, 409);
    assert_eq!(tell(&steps, json!({"event": "replan", "name": "give up", "parent": "mine"})).0, 200);
    assert_eq!(tell(&steps, json!({"event": "end", "id": "mine", "output": [1], "error": "late"})).0, 200);
    assert_eq!(tell(&steps, json!({"event": "end", "id": "mine"})).0, 409);
    assert_eq!(tell(&steps, json!({"event": "end", "id": "nobody"})).0, 404);
    let notes = notes.0.lock().unwrap();
    let told: Vec<_> = notes.iter().map(|(parent, note)| (*parent, note["kind"].as_str().unwrap())).collect();
    let expected = [
        (None, "step.started"),
        (Some(0), "step.started"),
        (Some(1), "step.replanned"),
        (Some(1), "step.ended"),
    ];
    assert_eq!(told, expected);
    assert_eq!(notes[0].1["body"]["input"], json!({"text": "{\"goal\":0.5}"}));
}

#[test]
fn what_is_wrong_is_named_by_its_field() {
    let (notes, steps) = steps(None);
    for (body, field) in [
        (json!([]), "body"),
        (json!({}), "event"),
        (json!({"event": "stop"}), "event"),
        (json!({"event": "start"}), "name"),
        (json!({"event": "start", "name": 3}), "name"),
        (json!({"event": "start", "name": "x".repeat(300)}), "name"),
        (json!({"event": "start", "name": "x", "parent": "nobody"}), "parent"),
        (json!({"event": "start", "name": "x", "colour": "red"}), "body"),
        (json!({"event": "end"}), "id"),
    ] {
        let (status, answer) = tell(&steps, body.clone());
        assert_eq!((status, &answer["error"]["field"]), (400, &json!(field)), "{body}");
    }
    assert!(notes.0.lock().unwrap().is_empty());
}

#[test]
fn a_step_is_held_to_the_rules_about_it() {
    let rules = r#"
[[rule]]
id = "deploys"
reason = "a person starts a deploy"
effect = "review"
step = "deploy-*"

[[rule]]
id = "never"
reason = "not here"
effect = "deny"
step = "wipe"
"#;
    let (notes, steps) = steps(Some(rules));
    assert_eq!(tell(&steps, json!({"event": "start", "name": "think"})).0, 201);
    let (status, answer) = tell(&steps, json!({"event": "start", "name": "wipe"}));
    assert!(status == 403 && answer["error"]["message"].as_str().unwrap().contains("rule never"), "{answer}");
    for (answer, status) in [(Answer::Denied, 403), (Answer::TimedOut, 403), (Answer::Allowed, 201)] {
        let next = post(&steps, "/v1/steps", "", br#"{"event":"start","name":"deploy-eu","id":"d"}"#);
        let Next::Hold(held) = next else { panic!("{next:?}") };
        assert_eq!(tell(&steps, json!({"event": "end", "id": "d"})).0, 404);
        assert_eq!(steps.answered(&held, answer, "uid 1", 9).unwrap().status, status);
    }
    assert_eq!(tell(&steps, json!({"event": "end", "id": "d"})).0, 200);
    let effects: Vec<Value> = notes
        .0
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, n)| n["kind"] == "step.started")
        .map(|(_, n)| n["body"]["effect"].clone())
        .collect();
    assert_eq!(effects, ["allow", "deny", "review", "review", "review"]);
}

#[test]
fn spans_are_steps_with_parents_first() {
    let (notes, steps) = steps(None);
    let span = |id: u64, parent: u64, start: u64| json!({ "spanId": format!("{id:016x}"), "parentSpanId": format!("{parent:016x}"), "name": format!("s{id}"), "startTimeUnixNano": start });
    // A child before its parent, and two that are each other's.
    let spans = json!([span(2, 1, 1000), span(1, 0, 5000), span(8, 9, 1), span(9, 8, 2)]);
    let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] }).to_string();
    let Next::Answer(answer) = post(&steps, "/v1/traces", "application/json", body.as_bytes()) else {
        panic!()
    };
    assert_eq!(answer.status, 200);
    let notes = notes.0.lock().unwrap();
    let place = |name: &str| notes.iter().position(|(_, note)| note["body"]["name"] == name).unwrap();
    assert_eq!(notes[place("s2")].0, Some(place("s1") as u64));
    assert_eq!(notes.len(), 8);
    drop(notes);
    for (kind, body, status) in [
        ("application/json", &b"{\"resourceSpans\":3}"[..], 400),
        ("text/plain", b"", 415),
        ("application/x-protobuf", b"\xff", 400),
    ] {
        let Next::Answer(answer) = post(&steps, "/v1/traces", kind, body) else { panic!() };
        assert_eq!(answer.status, status, "{kind}");
    }
}

#[test]
fn a_flood_is_told_to_wait() {
    let (_, steps) = steps(None);
    let statuses: Vec<u16> =
        (0..12_000).map(|_| tell(&steps, json!({"event": "start", "name": "x"})).0).collect();
    assert!(statuses.iter().filter(|status| **status == 201).count() <= MOST_STEPS);
    assert!(statuses.contains(&429));
}

proptest::proptest! {
    #[test]
    fn any_bytes_get_an_answer(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), at in 0..3usize) {
        let (_, steps) = steps(None);
        let path = ["/v1/steps", "/v1/traces", "/x"][at];
        let Next::Answer(answer) = post(&steps, path, "application/json", &bytes) else { return Ok(()) };
        proptest::prop_assert!(answer.status >= 200);
    }
}
