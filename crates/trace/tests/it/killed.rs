//! `kill -9` of the writer at any moment: every event it has written is sound, and the trace is incomplete.

use crate::sample::{START_US, key, limit, started, verified};
use cofferdam_model::{BlobRef, Body, Digest, OutputCaptured, Stream};
use cofferdam_trace::{BLOBS_DIR, EVENTS_FILE, Options, ReadError, Reader, State, Writer, verify};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CHILD: &str = "COFFERDAM_TEST_TRACE_KILLED";

/// Not a test of its own: what the other one runs in a process to kill.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(bundle) = std::env::var_os(CHILD) else { return };
    let mut writer = Writer::create(Path::new(&bundle), key(1), Options::default()).unwrap();
    writer.append(START_US, None, &started()).unwrap();
    for n in 0u64.. {
        if n.is_multiple_of(16) {
            let payload: Vec<u8> = (0..20_000u64).flat_map(|i| (i * n).to_le_bytes()).collect();
            let body = output(writer.blob(&payload).unwrap());
            writer.append(START_US + n * 1000, Some(0), &body).unwrap();
        }
        writer.append(START_US + n * 1000, Some(0), &limit(n)).unwrap();
    }
}

fn output(head: BlobRef) -> Body {
    let (stream, digest) = (Stream::Stdout, Digest::ZERO);
    Body::Output(OutputCaptured { stream, bytes: head.size, digest, head: Some(head), tail: None })
}

#[test]
fn killed_at_any_moment_a_trace_is_incomplete_and_all_its_events_are_sound() {
    let dir = TempDir::new().unwrap();
    let mut most = 0;
    for round in 0..40u64 {
        let bundle = dir.path().join(round.to_string());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::child_that_appends_until_it_is_killed"])
            .env(CHILD, &bundle)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // A few are killed on their way to the first event, the others ever further after it.
        if round >= 5 {
            let patience = Instant::now() + Duration::from_secs(120);
            while fs::metadata(bundle.join(EVENTS_FILE)).map_or(0, |m| m.len()) <= round * round * 32 {
                assert!(Instant::now() < patience, "the child does not write");
                std::thread::yield_now();
            }
        } else {
            std::thread::sleep(Duration::from_millis(round * 2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        most = most.max(check(&bundle, round >= 5));
    }
    assert!(most > 100, "no child came far: {most} events");
}

fn check(bundle: &Path, begun: bool) -> u64 {
    let keys = crate::sample::trusting(1);
    match verify(bundle, &cofferdam_trace::Check { keys: &keys, session: None }) {
        Err(ReadError::NotFound(_)) if !begun => return 0,
        found => drop(found.unwrap()),
    }
    let found = verified(bundle);
    assert_eq!(found.state, State::Incomplete { live: false }, "{found:?}");
    let bytes = fs::read(bundle.join(EVENTS_FILE)).unwrap();
    assert_eq!(found.events, bytes.iter().filter(|&&b| b == b'\n').count() as u64);
    assert_eq!(found.payloads.named, found.payloads.sound);
    assert!(!begun || found.signed > 0);
    for entry in fs::read_dir(bundle.join(BLOBS_DIR)).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "zst") {
            let digest = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            let size = zstd::decode_all(&fs::read(&path).unwrap()[..]).unwrap().len() as u64;
            Reader::open(bundle).unwrap().read_blob(&BlobRef { digest, size }).unwrap();
        }
    }
    found.events
}
