//! Bytes from anyone: a reader answers or refuses; it does not panic, hang or grow.

use crate::sample::{finished, trusting};
use cofferdam_trace::{
    Check, EVENTS_FILE, MAX_ARCHIVE, MAX_EVENT, ReadError, Reader, Reason, State, reduce, unpack, verify,
};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn read_all(path: &Path) {
    let events: Vec<_> = Reader::open(path).unwrap().map_while(Result::ok).collect();
    let _ = reduce(&events);
}

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x");
    fs::write(&path, bytes).unwrap();
    read_all(&path);
    let keys = trusting(1);
    let found = verify(&path, &Check { keys: &keys, session: None }).unwrap();
    prop_assert_ne!(found.state, State::Valid);
    let _ = unpack(bytes, dir.path(), MAX_ARCHIVE);
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        check(&bytes)?;
    }

    #[test]
    fn almost_events(lines in prop::collection::vec("\\{\"(body|hash|kind|seq)\":(\\{\\}|\"[0-9a-f]{64}\"|[0-9.eE+-]{1,20}|null)\\}", 0..20)) {
        check(lines.join("\n").as_bytes())?;
    }

    #[test]
    fn almost_archives(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        check(&[&[0x28, 0xb5, 0x2f, 0xfd], &bytes[..]].concat())?;
        check(&zstd::encode_all(&bytes[..], 1).unwrap())?;
    }
}

#[test]
fn a_line_without_end_is_not_held_in_memory() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(EVENTS_FILE);
    fs::write(&path, vec![b'['; MAX_EVENT * 3]).unwrap();
    assert!(matches!(Reader::open(&path).unwrap().next(), Some(Err(ReadError::TooLong { line: 1, .. }))));
    let keys = trusting(1);
    let found = verify(&path, &Check { keys: &keys, session: None }).unwrap();
    assert_eq!(found.first_bad.unwrap().reason, Reason::TooLong);
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(EVENTS_FILE);
    let deep = format!("{{\"body\":{}\n", "[".repeat(MAX_EVENT / 2));
    fs::write(&path, deep).unwrap();
    assert!(matches!(Reader::open(&path).unwrap().next(), Some(Err(ReadError::NotAnEvent { line: 1, .. }))));
}

#[test]
fn a_pipe_in_place_of_the_events_does_not_block() {
    let (_dir, bundle) = finished();
    let events = bundle.join(EVENTS_FILE);
    fs::remove_file(&events).unwrap();
    assert!(matches!(Reader::open(&bundle), Err(ReadError::NotFound(_))));
    assert!(Command::new("mkfifo").arg(&events).status().unwrap().success());
    assert!(matches!(Reader::open(&bundle), Err(ReadError::NotAFile(_))));
}
