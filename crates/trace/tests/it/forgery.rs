//! Traces by someone who knows the format as well as we do, and has not the key.

use crate::sample::{START_US, finished, id, key, limit, started, trusting, verified};
use cofferdam_model::{Digest, Event};
use cofferdam_seal::Encoder;
use cofferdam_trace::{Check, EVENTS_FILE, MAX_UNSIGNED, Options, Reader, Reason, State, Writer, verify};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn events(bundle: &Path) -> Vec<Event> {
    Reader::open(bundle).unwrap().map(|event| event.unwrap()).collect()
}

/// Numbers and chains the events anew, so that nothing but signatures can tell.
fn rechain(bundle: &Path, events: Vec<Event>) {
    let (mut text, mut encoder, mut prev) = (Vec::new(), Encoder::default(), Digest::ZERO);
    for (seq, event) in events.into_iter().enumerate() {
        let event = Event { seq: seq as u64, prev, ..event };
        prev = encoder.event(&event, &mut text).unwrap();
        text.push(b'\n');
    }
    fs::write(bundle.join(EVENTS_FILE), text).unwrap();
}

/// Changes the sample's events by `forge` and says which event is found out, why, and how many stand.
fn check(forge: impl FnOnce(&mut Vec<Event>), line: u64, kind: &str, reason: Reason) {
    let (_dir, bundle) = finished();
    let mut forged = events(&bundle);
    forge(&mut forged);
    rechain(&bundle, forged);
    let found = verified(&bundle);
    let bad = found.first_bad.unwrap();
    assert_eq!((found.state, bad.line, bad.reason), (State::Broken, line, reason));
    assert!(bad.kind.is_none_or(|k| k == kind));
}

fn index(events: &[Event], kind: &str) -> usize {
    events.iter().position(|event| event.kind == kind).unwrap()
}

#[test]
fn a_changed_event_is_found_by_the_next_signature() {
    let change = |events: &mut Vec<Event>| {
        let output = index(events, "output");
        events[output].body["bytes"] = 1.into();
    };
    check(change, 11, "checkpoint", Reason::Misplaced);
    let cover_up = |events: &mut Vec<Event>| {
        events[0].body["user"] = "eve".into();
        let text = String::from_utf8(cofferdam_seal::canonical(&events[0]).unwrap()).unwrap();
        assert!(text.contains("eve"));
        let covers = cofferdam_seal::event_hash(&events[0]).unwrap();
        events[1].body["covers"] = covers.to_string().into();
    };
    check(cover_up, 2, "checkpoint", Reason::WrongSignature);
}

#[test]
fn no_field_of_a_signature_can_be_changed() {
    let last = |events: &mut Vec<Event>| events.len() - 1;
    let wrong = |change: &dyn Fn(&mut Event), reason| {
        let forge = |events: &mut Vec<Event>| {
            let head = last(events);
            change(&mut events[head]);
        };
        check(forge, 18, "head", reason);
    };
    wrong(&|head| head.time += 1, Reason::WrongSignature);
    wrong(&|head| head.parent = Some(0), Reason::Misplaced);
    wrong(&|head| head.body["count"] = 3.into(), Reason::Misplaced);
    wrong(&|head| head.body["covers"] = Digest::ZERO.to_string().into(), Reason::Misplaced);
    wrong(&|head| head.body["signature"] = "".into(), Reason::WrongSignature);
    wrong(
        &|head| head.body["key"] = Digest::ZERO.to_string().into(),
        Reason::UnknownSigner { key: Digest::ZERO },
    );
}

#[test]
fn a_checkpoint_cannot_be_passed_off_as_a_head_nor_a_head_as_a_checkpoint() {
    let cut = |events: &mut Vec<Event>| {
        events.truncate(2);
        events[1].kind = "head".into();
    };
    check(cut, 2, "head", Reason::WrongSignature);
    let open = |events: &mut Vec<Event>| events.last_mut().unwrap().kind = "checkpoint".into();
    check(open, 18, "checkpoint", Reason::WrongSignature);
}

#[test]
fn a_trace_that_nobody_signed_is_not_incomplete_but_broken() {
    let strip = |events: &mut Vec<Event>| {
        events.retain(|event| !["checkpoint", "head"].contains(&event.kind.as_str()));
        events.iter_mut().for_each(|event| event.parent = None);
    };
    check(strip, 1, "session.started", Reason::NothingSigned);
    let no_start = |events: &mut Vec<Event>| drop(events.remove(0));
    check(no_start, 1, "checkpoint", Reason::NoStart);
    let second = |events: &mut Vec<Event>| events.insert(2, events[0].clone());
    check(second, 3, "session.started", Reason::NoStart);
    let future = |events: &mut Vec<Event>| events[0].body["format"] = 2.into();
    check(future, 1, "session.started", Reason::UnknownFormat { format: 2 });
}

#[test]
fn what_is_added_after_the_last_signature_is_sound_but_unsigned() {
    let (_dir, bundle) = finished();
    let mut forged = events(&bundle);
    forged.pop();
    let added = forged[index(&forged, "limit")].clone();
    forged.push(added);
    rechain(&bundle, forged);
    let found = verified(&bundle);
    assert_eq!(found.state, State::Incomplete { live: false });
    assert_eq!((found.events, found.signed, found.unsigned()), (18, 17, 1));
}

#[test]
fn an_unsigned_chain_is_not_followed_for_ever() {
    let (_dir, bundle) = finished();
    let mut forged = events(&bundle);
    forged.truncate(2);
    let filler = Event { kind: "of.the.future".into(), ..forged[1].clone() };
    forged.resize(MAX_UNSIGNED as usize + 10, filler);
    rechain(&bundle, forged);
    let bad = verified(&bundle).first_bad.unwrap();
    assert_eq!((bad.reason, bad.seq), (Reason::UnsignedTooLong, MAX_UNSIGNED + 2));
}

#[test]
fn an_unknown_signer_is_never_valid() {
    let (_dir, bundle) = finished();
    let keys = trusting(2);
    let found = verify(&bundle, &Check { keys: &keys, session: Some(&id()) }).unwrap();
    let bad = found.first_bad.unwrap();
    assert_eq!((found.state, found.signed, bad.line), (State::Broken, 0, 2));
    assert_eq!(bad.reason, Reason::UnknownSigner { key: key(1).public().id() });
}

#[test]
fn one_trace_has_one_signer_even_among_trusted_ones() {
    let (_dir, bundle) = finished();
    let other = TempDir::new().unwrap();
    let mut writer = Writer::create(&other.path().join("t"), key(2), Options::default()).unwrap();
    writer.append(START_US, None, &started()).unwrap();
    writer.append(START_US, None, &limit(1)).unwrap();
    let theirs = writer.dir().to_owned();
    writer.seal(START_US).unwrap();

    let forged = [&events(&bundle)[..1], &events(&theirs)[1..]].concat();
    rechain(&theirs, forged);
    let keys = [*key(1).public(), *key(2).public()].into_iter().collect();
    let check = |bundle: &Path| verify(bundle, &Check { keys: &keys, session: None }).unwrap();
    assert_eq!(check(&theirs).state, State::Valid, "it is the same first event");

    // A head by the second key over the events of the first: both trusted, and still not one trace.
    let mut mixed = events(&bundle);
    mixed.pop();
    let (count, covers) = (mixed.len() as u64, mixed.last().unwrap().hash);
    let mark = cofferdam_seal::Mark::Head;
    let signed = key(2).attest(&cofferdam_seal::Statement { mark, count, covers, time: START_US });
    let body = serde_json::to_value(signed).unwrap();
    mixed.push(Event { body, kind: "head".into(), time: START_US, parent: None, ..mixed[0].clone() });
    rechain(&bundle, mixed);
    let reason = check(&bundle).first_bad.unwrap().reason;
    assert_eq!(reason, Reason::OtherSigner { key: key(2).public().id() });
}
