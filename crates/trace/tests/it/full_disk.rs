//! No room left: the writer says so, then and ever after, and what it has written stands.

use crate::sample::{START_US, key, limit, started, verified};
use cofferdam_trace::{EVENTS_FILE, Options, State, WriteError, Writer};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const CHILD: &str = "COFFERDAM_TEST_TRACE_FULL";

/// Fills the trace until a write fails; returns how many events it then held.
fn fill(bundle: &Path, expected: ErrorKind) -> u64 {
    let mut writer = Writer::create(bundle, key(1), Options::default()).unwrap();
    writer.append(START_US, None, &started()).unwrap();
    let failed = loop {
        match writer.append(START_US, Some(0), &limit(writer.events())) {
            Ok(_) => assert!(writer.events() < 1_000_000, "the disk never fills"),
            Err(error) => break error,
        }
    };
    let events = writer.events();
    let same = |error: WriteError| {
        assert!(
            matches!(&error, WriteError::Write { events: kept, source, .. } if *kept == events && source.kind() == expected),
            "{error}"
        );
    };
    same(failed);
    same(writer.append(START_US, None, &limit(0)).unwrap_err());
    same(writer.checkpoint(START_US).unwrap_err());
    same(writer.checkpoint_if_due(START_US).unwrap_err());
    same(writer.blob(b"").unwrap_err());
    same(writer.seal(START_US).unwrap_err());
    events
}

fn check(bundle: &Path, events: u64) {
    let found = verified(bundle);
    assert_eq!((found.state, found.torn_tail), (State::Incomplete { live: false }, false), "{found:?}");
    assert_eq!(found.events, events);
    assert!(found.signed > 0 && fs::read(bundle.join(EVENTS_FILE)).unwrap().ends_with(b"\n"));
}

/// Not a test of its own: what the next one runs under a limit on file sizes.
#[test]
fn child_that_writes_more_than_it_may() {
    let Some(bundle) = std::env::var_os(CHILD) else { return };
    let bundle = Path::new(&bundle);
    let events = fill(bundle, ErrorKind::FileTooLarge);
    check(bundle, events);
}

#[test]
fn a_write_that_stops_half_way_is_cut_off_again() {
    let dir = TempDir::new().unwrap();
    for blocks in [33, 64, 201] {
        let bundle = dir.path().join(blocks.to_string());
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "full_disk::child_that_writes_more_than_it_may"])
            .env(CHILD, &bundle)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(verified(&bundle).state, State::Incomplete { live: false });
    }
}

/// A file system of its own, gone with the value. Only root may make one.
struct Tmpfs(TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let options = format!("size={size},mode=0700");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(dir.path()).output();
        mount.ok()?.status.success().then_some(Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_ends_the_trace_and_spares_what_it_holds() {
    // Without the right to mount, the limit on file sizes above stands for it.
    let Some(small) = Tmpfs::mount("256k") else { return };
    let bundle = small.0.path().join("t");
    let events = fill(&bundle, ErrorKind::StorageFull);
    check(&bundle, events);
}

#[test]
fn a_payload_that_does_not_fit_is_an_error_and_leaves_no_half() {
    let Some(small) = Tmpfs::mount("256k") else { return };
    let bundle = small.0.path().join("t");
    let mut writer = Writer::create(&bundle, key(1), Options::default()).unwrap();
    writer.append(START_US, None, &started()).unwrap();
    let noise: Vec<u8> = (0..1u32 << 18)
        .flat_map(|i| cofferdam_seal::digest(&i.to_le_bytes()).as_bytes()[..4].to_vec())
        .collect();
    let error = writer.blob(&noise).unwrap_err();
    assert!(
        matches!(&error, WriteError::Blob { source, .. } if source.kind() == ErrorKind::StorageFull),
        "{error}"
    );
    assert_eq!(fs::read_dir(bundle.join("blobs")).unwrap().count(), 0);
    writer.append(START_US, None, &limit(1)).unwrap();
    writer.seal(START_US).unwrap();
    assert_eq!(verified(&bundle).state, State::Valid);
}
