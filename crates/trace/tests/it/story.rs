//! From events to what happened.

use crate::sample::{START_US, finished, id, limit};
use cofferdam_model::{Digest, Event, Exit};
use cofferdam_trace::{Reader, Story, reduce};

fn sample() -> (Vec<Event>, Story) {
    let (_dir, bundle) = finished();
    let events: Vec<Event> = Reader::open(&bundle).unwrap().map(|event| event.unwrap()).collect();
    let story = reduce(&events);
    (events, story)
}

#[test]
fn the_sample_reads_as_it_happened() {
    let (_, story) = sample();
    let session = story.session.unwrap();
    assert_eq!((session.seq, session.time_us, session.fact.session), (0, START_US, id()));
    assert_eq!(story.enforcement.unwrap().fact.weaknesses().count(), 1);
    assert_eq!(story.execs.len(), 1);
    let exec = &story.execs[0];
    assert_eq!(exec.started.fact.argv, ["make", "test"]);
    assert_eq!(exec.outputs[0].fact.bytes, 100_000_000);
    assert_eq!(exec.exited.as_ref().unwrap().fact.exit, Exit::Code(2));
    assert_eq!((story.blocked[0].fact.times, story.limits[0].fact.seen), (3, 65));
    assert_eq!(story.changes[1].fact.path.to_string(), "README");
    assert!(story.decision.unwrap().fact.kept);
    assert_eq!(story.end.unwrap().fact.exit, Exit::Code(2));
    assert_eq!((story.events, story.signatures, story.finished), (18, 7, true));
    assert!(story.strays.is_empty() && story.unread.is_empty());
}

#[test]
fn what_it_does_not_understand_is_counted_not_dropped() {
    let (events, whole) = sample();
    let unknown = Event { kind: "of.the.future".into(), ..events[0].clone() };
    let misshapen = Event { body: 7.into(), ..events[2].clone() };
    let output = events.iter().find(|e| e.kind == "output").unwrap();
    let stray = Event { parent: Some(1), seq: 99, ..output.clone() };
    let story = reduce(events.iter().chain([&unknown, &unknown, &misshapen, &stray]));
    assert_eq!(story.unread["of.the.future"], 2);
    assert_eq!(story.unread["enforcement"], 1);
    assert_eq!(story.strays, [99]);
    assert_eq!((story.execs, story.events), (whole.execs, whole.events + 4));
}

#[test]
fn a_story_in_json_is_of_one_level_per_fact() {
    let event = Event {
        body: serde_json::to_value(limit(9)).unwrap()["body"].take(),
        hash: Digest::ZERO,
        kind: "limit".into(),
        parent: Some(1),
        prev: Digest::ZERO,
        seq: 4,
        time: 5,
    };
    let json = serde_json::to_value(reduce([&event])).unwrap();
    let expected = serde_json::json!({
        "seq": 4, "time_us": 5, "parent": 1, "limit": "pids", "allowed": 64, "seen": 9, "detail": "fork refused",
    });
    assert_eq!(json["limits"][0], expected);
}
