//! The writer keeps its promises where nothing goes wrong, and refuses what no reader would accept.

use crate::sample::{START_US, finished, id, key, limit, started, trusting, verified, write_unfinished};
use cofferdam_model::{Body, Control, Digest, EnforcementReport, Tier};
use cofferdam_seal::{Mark, Statement};
use cofferdam_trace::{
    BLOBS_DIR, CHECKPOINT_EVENTS, Check, EVENTS_FILE, Options, Reader, Reason, State, WriteError, Writer,
    prepare, verify,
};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn kinds(bundle: &Path) -> Vec<String> {
    Reader::open(bundle).unwrap().map(|event| event.unwrap().kind).collect()
}

fn fresh(dir: &TempDir) -> Writer {
    Writer::create(&dir.path().join("t"), key(1), Options::default()).unwrap()
}

#[test]
fn a_finished_trace_is_valid_signed_to_its_end_and_its_payloads_read_back() {
    let (_dir, bundle) = finished();
    let found = verified(&bundle);
    assert_eq!((found.state, found.events, found.signed), (State::Valid, 18, 18));
    assert_eq!((found.signer, found.session), (Some(key(1).public().id()), Some(id())));
    assert_eq!((found.payloads.named, found.payloads.sound), (2, 2));

    let mut reader = Reader::open(&bundle).unwrap();
    let output = reader.find_map(|e| match e.unwrap().typed() {
        Some(Body::Output(output)) => Some(output),
        _ => None,
    });
    let output = output.unwrap();
    assert_eq!(reader.read_blob(&output.head.unwrap()).unwrap(), b"hello\n");
    assert_eq!(reader.read_blob(&output.tail.unwrap()).unwrap(), vec![b'x'; 5000]);
}

#[test]
fn durable_changes_nothing_but_when_it_reaches_the_disk() {
    let dir = TempDir::new().unwrap();
    let writer = write_unfinished(dir.path(), Options { durable: true });
    let bundle = writer.dir().to_owned();
    writer.seal(START_US + 6_000_000).unwrap();
    let (_other, plain) = finished();
    assert_eq!(fs::read(bundle.join(EVENTS_FILE)).unwrap(), fs::read(plain.join(EVENTS_FILE)).unwrap());
}

#[test]
fn signatures_come_with_the_first_event_by_count_by_time_and_when_asked() {
    let dir = TempDir::new().unwrap();
    let mut writer = fresh(&dir);
    writer.append(START_US, None, &started()).unwrap();
    assert_eq!(writer.events(), 2, "the first event is signed at once");
    for seen in 0..CHECKPOINT_EVENTS {
        writer.append(START_US, None, &limit(seen)).unwrap();
    }
    assert_eq!(writer.events(), 2 + CHECKPOINT_EVENTS + 1, "by count");
    writer.append(START_US + 999_999, None, &limit(0)).unwrap();
    writer.checkpoint_if_due(START_US + 999_999).unwrap();
    assert_eq!(kinds(writer.dir()).last().unwrap(), "limit");
    writer.checkpoint_if_due(START_US + 1_000_000).unwrap();
    assert_eq!(kinds(writer.dir()).last().unwrap(), "checkpoint", "by a timer");
    writer.append(START_US + 3_000_000, None, &limit(0)).unwrap();
    assert_eq!(kinds(writer.dir()).last().unwrap(), "checkpoint", "by time, with the event");
    let events = writer.events();
    writer.checkpoint(START_US + 3_000_000).unwrap();
    assert_eq!(writer.events(), events, "what is signed is not signed again");
    writer.append(START_US + 3_000_001, None, &limit(0)).unwrap();
    writer.checkpoint(START_US + 3_000_001).unwrap();
    assert_eq!(writer.events(), events + 2, "when asked");
    let seq = writer.append_signed(START_US + 3_000_001, None, &limit(0)).unwrap();
    assert_eq!((seq, writer.events()), (events + 2, events + 4), "together with an event");
    assert_eq!(kinds(writer.dir()).last().unwrap(), "checkpoint");
    let bundle = writer.dir().to_owned();
    writer.seal(START_US + 3_000_002).unwrap();
    assert_eq!(verified(&bundle).state, State::Valid);
}

#[test]
fn a_trace_is_live_while_its_writer_is() {
    let dir = TempDir::new().unwrap();
    let writer = write_unfinished(dir.path(), Options::default());
    let bundle = writer.dir().to_owned();
    assert_eq!(verified(&bundle).state, State::Incomplete { live: true });
    assert!(Reader::open(&bundle).unwrap().is_live());
    drop(writer);
    let found = verified(&bundle);
    assert_eq!((found.state, found.unsigned()), (State::Incomplete { live: false }, 0));
    assert!(!Reader::open(&bundle).unwrap().is_live());
}

#[test]
fn an_empty_trace_is_incomplete_and_says_nothing() {
    let dir = TempDir::new().unwrap();
    let bundle = fresh(&dir).dir().to_owned();
    let found = verified(&bundle);
    assert_eq!((found.state, found.events, found.signed), (State::Incomplete { live: false }, 0, 0));
}

#[test]
fn what_no_reader_would_accept_is_refused_and_leaves_the_writer_usable() {
    let dir = TempDir::new().unwrap();
    let mut writer = fresh(&dir);
    assert!(matches!(writer.append(START_US, None, &limit(1)), Err(WriteError::Order("limit"))));
    writer.append(START_US, None, &started()).unwrap();
    let signed = key(1).attest(&Statement { mark: Mark::Head, count: 2, covers: Digest::ZERO, time: 0 });
    let value = serde_json::json!({ "load": 0.5 });
    let control =
        Control { name: "cpu".into(), state: cofferdam_model::State::Off, detail: String::new(), value };
    let float = EnforcementReport { tier: Tier::Process, kernel: String::new(), controls: vec![control] };
    let Body::Limit(mut long) = limit(1) else { unreachable!() };
    long.detail = "x".repeat(1 << 20);

    let mut refused = |parent, body: &Body| writer.append(START_US, parent, body).unwrap_err();
    assert!(matches!(refused(None, &started()), WriteError::Order("session.started")));
    assert!(matches!(refused(None, &Body::Head(signed)), WriteError::Reserved("head")));
    assert!(matches!(refused(Some(2), &limit(1)), WriteError::Parent(2)));
    assert!(matches!(refused(None, &Body::Limit(long)), WriteError::TooLarge { kind: "limit", .. }));
    let error = refused(None, &Body::Enforcement(Box::new(float)));
    assert!(
        matches!(&error, WriteError::Form { source, .. } if source.path() == "body.controls[0].value.load")
    );

    writer.append(START_US, Some(0), &limit(1)).unwrap();
    let bundle = writer.dir().to_owned();
    writer.seal(START_US).unwrap();
    assert_eq!(verified(&bundle).state, State::Valid);
}

#[test]
fn one_session_one_trace() {
    let (dir, bundle) = finished();
    let again = Writer::create(&bundle, key(1), Options::default());
    assert!(matches!(again, Err(WriteError::Exists(path)) if path == bundle));
    let deep = dir.path().join("not/yet/there");
    assert!(Writer::create(&deep, key(1), Options::default()).is_ok());
}

#[test]
fn a_trace_asked_for_by_name_is_of_that_session() {
    let (_dir, bundle) = finished();
    let keys = trusting(1);
    let (ours, other) = (id(), cofferdam_model::SessionId::new(1, 1));
    let check = |session| verify(&bundle, &Check { keys: &keys, session: Some(session) }).unwrap();
    assert_eq!(check(&ours).state, State::Valid);
    assert_eq!(check(&other).first_bad.unwrap().reason, Reason::OtherSession { found: ours });
}

#[test]
fn equal_payloads_are_stored_once_and_none_is_ever_half_there() {
    let dir = TempDir::new().unwrap();
    let mut writer = fresh(&dir);
    let first = writer.blob(b"same").unwrap();
    assert_eq!(writer.blob(b"same").unwrap(), first);
    assert_eq!(writer.blob(b"").unwrap().size, 0);
    let names: Vec<_> =
        fs::read_dir(writer.dir().join(BLOBS_DIR)).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let too_large = vec![0; (64 << 20) + 1];
    assert!(matches!(writer.blob(&too_large), Err(WriteError::BlobTooLarge(_))));
}

#[test]
fn a_bundle_made_ahead_is_taken_once() {
    let dir = TempDir::new().unwrap();
    let (making, spare) = (dir.path().join("making"), dir.path().join(".next"));
    let take = |name: &str| {
        Writer::create_from(&spare, &dir.path().join(name), key(1), Options::default())
            .and_then(|mut writer| writer.append(START_US, None, &started()))
    };
    prepare(&making, &spare).unwrap();
    prepare(&making, &spare).unwrap();
    assert!(spare.join(EVENTS_FILE).is_file() && !making.exists());
    take("one").unwrap();
    assert!(!spare.exists(), "it was moved, not copied");
    take("two").unwrap();
    for name in ["one", "two"] {
        assert_eq!(kinds(&dir.path().join(name)), ["session.started", "checkpoint"]);
    }
    prepare(&making, &spare).unwrap();
    assert!(matches!(take("one"), Err(WriteError::Exists(_))), "a trace is never replaced");
    fs::write(spare.join(EVENTS_FILE), "planted\n").unwrap();
    assert!(matches!(take("three"), Err(WriteError::Exists(_))), "nor continued");
}
