//! A small but complete trace to work on.

use cofferdam_model::{
    BlockedAttempt, Body, ChangeOp, ChangesDecided, Control, Digest, EnforcementReport, ExecExited,
    ExecStarted, Exit, FileChange, FileKind, LimitHit, OutputCaptured, SessionEnded, SessionId, SessionSpec,
    SessionStarted, State, Stream, Tier, Usage,
};
use cofferdam_seal::{Keyring, SigningKey, digest};
use cofferdam_trace::{Check, FORMAT, Options, Verification, Writer, verify};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

pub(crate) const START_US: u64 = 1_700_000_000_000_000;

pub(crate) fn key(seed: u8) -> Arc<SigningKey> {
    Arc::new(SigningKey::from_seed(&[seed; 32]).unwrap())
}

pub(crate) fn trusting(seed: u8) -> Keyring {
    [*key(seed).public()].into_iter().collect()
}

pub(crate) fn id() -> SessionId {
    SessionId::new(START_US / 1000, 7)
}

pub(crate) fn started() -> Body {
    Body::SessionStarted(Box::new(SessionStarted {
        session: id(),
        by: "cofferdam 0.1.0".into(),
        format: FORMAT,
        spec: SessionSpec { command: vec!["make".into(), "test".into()], ..Default::default() },
        workdir: "/work".into(),
        user: "ada".into(),
        host: "engine".into(),
    }))
}

pub(crate) fn limit(seen: u64) -> Body {
    Body::Limit(LimitHit { limit: "pids".into(), allowed: 64, seen, detail: "fork refused".into() })
}

pub(crate) fn usage() -> Usage {
    Usage { wall_us: 1_500_000, user_us: 900_000, system_us: 20_000, peak_memory: 8 << 20 }
}

fn report() -> Body {
    let control = |name: &str, state| Control {
        name: name.into(),
        state,
        detail: "as the kernel tells it".into(),
        value: serde_json::json!({ "inode": 4_026_531_840u64 }),
    };
    Body::Enforcement(Box::new(EnforcementReport {
        tier: Tier::Process,
        kernel: "6.18".into(),
        controls: vec![control("namespace.net", State::Enforced), control("landlock", State::Absent)],
    }))
}

/// What happens in the sample, with the index of each one's parent; payloads come from the writer.
fn events(writer: &mut Writer) -> Vec<(Option<u64>, Body)> {
    let (head, tail) = (writer.blob(b"hello\n").unwrap(), writer.blob(&[b'x'; 5000]).unwrap());
    let exec = Some(3);
    let change = |path: &str, op| {
        let (kind, content) = (FileKind::File, Some(digest(b"content")));
        Body::FileChanged(FileChange {
            op,
            kind,
            path: path.into(),
            from: None,
            changed: Vec::new(),
            mode: Some(0o644),
            size: Some(7),
            digest: content,
        })
    };
    vec![
        (None, report()),
        (
            None,
            Body::ExecStarted(ExecStarted {
                argv: vec!["make".into(), "test".into()],
                env: vec!["PATH".into()],
                cwd: "/work".into(),
                tty: false,
                user: "ada".into(),
                own: false,
                by: None,
            }),
        ),
        (
            exec,
            Body::Blocked(BlockedAttempt {
                argv: Vec::new(),
                syscall: "ptrace".into(),
                args: vec![16, u64::MAX],
                pid: 4,
                program: "gdb".into(),
                reason: "no process may trace another".into(),
                times: 3,
            }),
        ),
        (exec, limit(65)),
        (
            exec,
            Body::Output(OutputCaptured {
                stream: Stream::Stdout,
                bytes: 100_000_000,
                digest: Digest::from_bytes([9; 32]),
                head: Some(head),
                tail: Some(tail),
            }),
        ),
        (exec, Body::ExecExited(ExecExited { exit: Exit::Code(2), usage: usage() })),
        (None, change("src/naïve name.rs", ChangeOp::Created)),
        (None, change("README", ChangeOp::Modified)),
        (
            None,
            Body::ChangesDecided(ChangesDecided {
                kept: true,
                by: "default".into(),
                created: 1,
                modified: 1,
                renamed: 0,
                deleted: 0,
                skipped: Vec::new(),
                aside: None,
            }),
        ),
        (None, Body::SessionEnded(SessionEnded { exit: Exit::Code(2), usage: usage(), error: None })),
    ]
}

/// Writes the sample into `parent/<id>`, without its head. Half a second passes between two events.
pub(crate) fn write_unfinished(parent: &Path, options: Options) -> Writer {
    let mut writer = Writer::create(&parent.join(id().as_str()), key(1), options).unwrap();
    writer.append(START_US, None, &started()).unwrap();
    for (index, (parent, body)) in events(&mut writer).into_iter().enumerate() {
        writer.append(START_US + 500_000 * (index as u64 + 1), parent, &body).unwrap();
    }
    writer
}

/// The sample in a directory of its own.
pub(crate) fn finished() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let writer = write_unfinished(dir.path(), Options::default());
    let bundle = writer.dir().to_owned();
    writer.seal(START_US + 6_000_000).unwrap();
    (dir, bundle)
}

pub(crate) fn verified(path: &Path) -> Verification {
    verify(path, &Check { keys: &trusting(1), session: None }).unwrap()
}
