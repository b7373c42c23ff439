//! A bundle in one file and back, and files that only look like one.

use crate::sample::{finished, id, key, trusting, verified};
use cofferdam_model::SessionId;
use cofferdam_trace::{
    ArchiveError, BLOBS_DIR, Check, EVENTS_FILE, MAX_ARCHIVE, Reason, State, Verification, pack, unpack,
    verify,
};
use std::fs;
use std::path::Path;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

fn packed(bundle: &Path) -> Vec<u8> {
    pack(bundle, &id(), Vec::new()).unwrap()
}

fn verified_file(bytes: &[u8]) -> Verification {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("trace.tar.zst");
    fs::write(&path, bytes).unwrap();
    verified(&path)
}

#[test]
fn a_bundle_goes_into_one_file_and_comes_back_the_same() {
    let (_dir, bundle) = finished();
    let file = packed(&bundle);
    assert_eq!(file, packed(&bundle), "equal bundles give equal files");
    assert_eq!(verified_file(&file), verified(&bundle));

    let dir = TempDir::new().unwrap();
    let traces = dir.path().join("not/there/yet");
    assert_eq!(unpack(&file[..], &traces, MAX_ARCHIVE).unwrap(), id());
    let copy = traces.join(id().as_str());
    assert_eq!(verified(&copy), verified(&bundle));
    assert_eq!(packed(&copy), file);
    assert!(matches!(unpack(&file[..], &traces, MAX_ARCHIVE), Err(ArchiveError::Exists { .. })));
    assert_eq!(fs::read_dir(&traces).unwrap().count(), 1, "nothing half-made is left");
}

#[test]
fn a_file_is_no_better_than_what_is_in_it() {
    let (_dir, bundle) = finished();
    let keys = trusting(2);
    let path = bundle.with_extension("tar.zst");
    fs::write(&path, packed(&bundle)).unwrap();
    let stranger = verify(&path, &Check { keys: &keys, session: None }).unwrap();
    assert_eq!(stranger.first_bad.unwrap().reason, Reason::UnknownSigner { key: key(1).public().id() });

    let other = SessionId::new(5, 5);
    let renamed = verified_file(&pack(&bundle, &other, Vec::new()).unwrap());
    assert_eq!(renamed.first_bad.unwrap().reason, Reason::OtherSession { found: id() });

    let blob = fs::read_dir(bundle.join(BLOBS_DIR)).unwrap().next().unwrap().unwrap().path();
    fs::write(&blob, zstd::bulk::compress(b"other", 1).unwrap()).unwrap();
    let damaged = verified_file(&packed(&bundle)).first_bad.unwrap();
    assert_eq!(damaged.kind.as_deref(), Some("output"));
    assert!(matches!(damaged.reason, Reason::PayloadDamaged { .. }));
    fs::remove_file(&blob).unwrap();
    let missing = verified_file(&packed(&bundle)).first_bad.unwrap();
    assert!(matches!(missing.reason, Reason::PayloadMissing { .. }));
}

/// A compressed stream has bits that mean nothing. A change to one of those is no change to the trace.
#[test]
fn a_file_cut_short_or_changed_anywhere_is_not_valid_or_unfolds_to_the_same() {
    let (_dir, bundle) = finished();
    let whole = packed(&bundle);
    let original = fs::read(bundle.join(EVENTS_FILE)).unwrap();
    for at in 4..whole.len() {
        assert_ne!(verified_file(&whole[..at]).state, State::Valid, "cut at {at}");
        let mut changed = whole.clone();
        changed[at] ^= 0x20;
        if verified_file(&changed).state == State::Valid {
            let traces = TempDir::new().unwrap();
            let id = unpack(&changed[..], traces.path(), MAX_ARCHIVE).unwrap();
            let unfolded = fs::read(traces.path().join(id.as_str()).join(EVENTS_FILE)).unwrap();
            assert_eq!(unfolded, original, "changed at {at}");
        }
    }
}

struct Entry {
    name: String,
    kind: EntryType,
    content: Vec<u8>,
}

fn entry(name: &str) -> Entry {
    Entry { name: name.into(), kind: EntryType::Regular, content: b"x\n".to_vec() }
}

/// Tars without the checks of a well-meaning library.
fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut tar = Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
    for Entry { name, kind, content } in entries {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, &content[..]).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[test]
fn nothing_but_a_bundle_is_unfolded_and_nothing_outside_its_place() {
    let outer = TempDir::new().unwrap();
    let traces = outer.path().join("traces");
    fs::create_dir(&traces).unwrap();
    let id = id();
    let events = || entry(&format!("{id}/{EVENTS_FILE}"));
    let blob = |digit: &str| entry(&format!("{id}/{BLOBS_DIR}/{}.zst", digit.repeat(64)));
    let of_kind = |kind, entry: Entry| Entry { kind, ..entry };
    let refused: &[&[Entry]] = &[
        &[],
        &[entry("../evil")],
        &[entry("/etc/evil")],
        &[entry(&format!("{id}/../../evil"))],
        &[events(), entry(&format!("{id}/{BLOBS_DIR}/../../../evil.zst"))],
        &[events(), entry(&format!("{id}/{BLOBS_DIR}/{}.zst", "G".repeat(64)))],
        &[events(), entry(&format!("{id}/other"))],
        &[of_kind(EntryType::Symlink, events())],
        &[of_kind(EntryType::Link, events())],
        &[of_kind(EntryType::Fifo, events())],
        &[of_kind(EntryType::Directory, entry(id.as_str()))],
        &[of_kind(EntryType::GNULongName, entry("x")), events()],
        &[of_kind(EntryType::XHeader, entry("x")), events()],
        &[of_kind(EntryType::GNUSparse, events())],
        &[events(), events()],
        &[blob("a"), events()],
        &[events(), blob("b"), blob("a")],
        &[events(), blob("a"), blob("a")],
        &[events(), entry(&format!("{}/{BLOBS_DIR}/{}.zst", SessionId::new(9, 9), "a".repeat(64)))],
    ];
    for (index, entries) in refused.iter().enumerate() {
        let file = tar(entries);
        let error = unpack(&file[..], &traces, MAX_ARCHIVE).unwrap_err();
        assert!(matches!(error, ArchiveError::Entry(_) | ArchiveError::Empty), "{index}: {error}");
        assert_eq!(verified_file(&file).state, State::Broken, "{index}");
    }
    assert_eq!(fs::read_dir(&traces).unwrap().count(), 0);
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_unfolds_without_end_is_refused() {
    let traces = TempDir::new().unwrap();
    let zeros = Entry { content: vec![0; 4 << 20], ..entry(&format!("{}/{EVENTS_FILE}", id())) };
    let bomb = tar(&[zeros]);
    assert!(bomb.len() < 10_000);
    let error = unpack(&bomb[..], traces.path(), 1 << 20).unwrap_err();
    assert!(matches!(error, ArchiveError::TooLarge(_)), "{error}");
    assert_eq!(fs::read_dir(traces.path()).unwrap().count(), 0);
}
