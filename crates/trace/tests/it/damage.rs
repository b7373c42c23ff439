//! A finished trace, damaged in every way: it is never valid, and the first bad event is never after the damage.

use crate::sample::{START_US, finished, key, limit, started, verified};
use cofferdam_trace::{BLOBS_DIR, EVENTS_FILE, Options, Reason, State, Writer};
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use tempfile::TempDir;

/// One bundle for all cases of this file; each case gets an events file of its own.
static SAMPLE: LazyLock<(TempDir, PathBuf, Vec<u8>)> = LazyLock::new(|| {
    let (dir, bundle) = finished();
    let events = fs::read(bundle.join(EVENTS_FILE)).unwrap();
    (dir, bundle, events)
});

#[derive(Debug, Clone)]
enum Damage {
    Flip { at: usize, mask: u8 },
    Insert { at: usize, byte: u8 },
    Remove { at: usize, len: usize },
    Truncate { at: usize },
    DropLine { line: usize },
    DuplicateLine { line: usize, to: usize },
    SwapLines { a: usize, b: usize },
}

fn damages() -> impl Strategy<Value = Damage> {
    let events = &SAMPLE.2;
    let (bytes, lines) = (0..events.len(), 0..split(events).len());
    prop_oneof![
        4 => (bytes.clone(), 1..=u8::MAX).prop_map(|(at, mask)| Damage::Flip { at, mask }),
        2 => (bytes.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert { at, byte }),
        1 => (bytes.clone(), 1..900usize).prop_map(|(at, len)| Damage::Remove { at, len }),
        1 => bytes.prop_map(|at| Damage::Truncate { at }),
        1 => lines.clone().prop_map(|line| Damage::DropLine { line }),
        1 => (lines.clone(), lines.clone()).prop_map(|(line, to)| Damage::DuplicateLine { line, to }),
        1 => (lines.clone(), lines).prop_map(|(a, b)| Damage::SwapLines { a, b }),
    ]
}

fn split(events: &[u8]) -> Vec<&[u8]> {
    events.split_inclusive(|&b| b == b'\n').collect()
}

/// The damaged bytes.
fn inflict(damage: &Damage, events: &[u8]) -> Vec<u8> {
    let mut bytes = events.to_vec();
    let mut lines = split(events);
    match *damage {
        Damage::Flip { at, mask } => bytes[at] ^= mask,
        Damage::Insert { at, byte } => bytes.insert(at, byte),
        Damage::Remove { at, len } => drop(bytes.drain(at..bytes.len().min(at + len))),
        Damage::Truncate { at } => bytes.truncate(at),
        Damage::DropLine { line } => {
            lines.remove(line);
            bytes = lines.concat();
        }
        Damage::DuplicateLine { line, to } => {
            lines.insert(to, lines[line]);
            bytes = lines.concat();
        }
        Damage::SwapLines { a, b } => {
            lines.swap(a, b);
            bytes = lines.concat();
        }
    }
    bytes
}

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (_, _, whole) = &*SAMPLE;
    let Some(first) = (0..whole.len().max(bytes.len())).find(|&i| whole.get(i) != bytes.get(i)) else {
        return Ok(());
    };
    let damaged_line = 1 + whole.iter().take(first).filter(|&&b| b == b'\n').count() as u64;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(EVENTS_FILE);
    fs::write(&path, bytes).unwrap();
    let found = verified(&path);
    prop_assert_ne!(found.state, State::Valid);
    match found.first_bad {
        Some(bad) => prop_assert!(bad.line <= damaged_line, "{:?} in line {}", bad, damaged_line),
        // Cut short is the one damage that leaves nothing bad behind.
        None => prop_assert_eq!(found.state, State::Incomplete { live: false }),
    }
    prop_assert!(found.events < damaged_line, "{} events before line {}", found.events, damaged_line);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn a_damaged_trace_is_never_valid_and_the_damage_is_named(damage in damages()) {
        check(&inflict(&damage, &SAMPLE.2))?;
    }
}

#[test]
fn cut_at_any_byte_it_is_incomplete_and_every_whole_event_is_sound() {
    let dir = TempDir::new().unwrap();
    let mut writer = Writer::create(&dir.path().join("t"), key(1), Options::default()).unwrap();
    writer.append(START_US, None, &started()).unwrap();
    writer.append(START_US, Some(0), &limit(1)).unwrap();
    let events = writer.dir().join(EVENTS_FILE);
    writer.seal(START_US).unwrap();
    let whole = fs::read(events).unwrap();
    let path = dir.path().join(EVENTS_FILE);
    fs::write(&path, &whole).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for at in (0..whole.len()).rev() {
        file.set_len(at as u64).unwrap();
        let found = verified(&path);
        let lines = whole[..at].iter().filter(|&&b| b == b'\n').count() as u64;
        assert_eq!(found.events, lines, "cut at {at}");
        assert_eq!(found.torn_tail, at > 0 && whole[at - 1] != b'\n', "cut at {at}");
        // The writer puts the first event and its signature out in one go: one without the other is not its.
        let expected = if at > 0 && lines < 2 { State::Broken } else { State::Incomplete { live: false } };
        assert_eq!(found.state, expected, "cut at {at}");
    }
}

#[test]
fn a_changed_or_missing_payload_is_named_by_the_event_that_has_it() {
    let (_dir, bundle) = finished();
    let blobs = bundle.join(BLOBS_DIR);
    let path = fs::read_dir(&blobs).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&path).unwrap();
    let check = |damage: &dyn Fn(), missing: bool| {
        damage();
        let found = verified(&bundle);
        let bad = found.first_bad.unwrap();
        assert_eq!((found.state, bad.kind.as_deref()), (State::Broken, Some("output")));
        assert_eq!(matches!(bad.reason, Reason::PayloadMissing { .. }), missing, "{bad:?}");
        assert_eq!((found.payloads.missing, found.payloads.damaged), (missing.into(), (!missing).into()));
        fs::write(&path, &whole).unwrap();
        assert_eq!(verified(&bundle).state, State::Valid);
    };
    check(&|| fs::remove_file(&path).unwrap(), true);
    check(&|| fs::write(&path, b"").unwrap(), false);
    check(&|| fs::write(&path, &whole[..whole.len() - 1]).unwrap(), false);
    check(&|| fs::write(&path, zstd::bulk::compress(b"other", 1).unwrap()).unwrap(), false);
    check(&|| fs::write(&path, zstd::bulk::compress(&vec![0; 32 << 20], 1).unwrap()).unwrap(), false);
    let padding = [&whole[..], &vec![0; 1 << 20]].concat();
    check(&|| fs::write(&path, &padding).unwrap(), false);
}
