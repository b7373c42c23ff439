//! What the guest does itself: files, watching them, ports.

use super::harness::Guest;
use cofferdam_guest::host::ExecId;
use cofferdam_guest::wire::{Change, Entry, FileKind, Outcome, Said, Task, Why, Work};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Records, and the bytes after them.
fn parse(mut output: &[u8], records: usize) -> (Vec<Said>, Vec<u8>) {
    let mut all = Vec::new();
    while all.len() < records
        && let Some((said, count)) = Said::read(output).unwrap()
    {
        all.push(said);
        output = &output[count..];
    }
    (all, output.to_vec())
}

impl Guest {
    fn begin(&mut self, work: Work) -> ExecId {
        let id = self.client.task(&Task { user: None, owner: None, work }).unwrap();
        self.seen.insert(id, Default::default());
        id
    }

    fn task(&mut self, work: Work) -> Vec<Said> {
        let id = self.begin(work);
        let seen = self.finish(id);
        let (records, rest) = parse(&seen.stdout, usize::MAX);
        assert!(rest.is_empty(), "{rest:?}");
        records
    }

    fn entry(&mut self, work: Work) -> Entry {
        match self.task(work).as_slice() {
            [Said::Entry(entry)] => entry.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn failure(&mut self, work: Work) -> (Why, i32) {
        match self.task(work).as_slice() {
            [Said::Failed { why, errno }] => (*why, i32::from(*errno)),
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, path: &Path, content: &[u8]) -> Vec<Said> {
        let id = self.begin(Work::Write { path: bytes(path), mode: None, notes: None });
        self.feed(id, content);
        parse(&self.finish(id).stdout, usize::MAX).0
    }

    fn read(&mut self, path: &Path, from: u64, most: Option<u64>) -> (Said, Vec<u8>) {
        let id = self.begin(Work::Read { path: bytes(path), from, most });
        let seen = self.finish(id);
        assert_eq!(seen.outcome(), Outcome::Code(0));
        let (mut first, rest) = parse(&seen.stdout, 1);
        (first.remove(0), rest)
    }
}

const ENOENT: i32 = 2;

#[test]
fn files_are_told_made_moved_and_removed() {
    let (mut guest, dir) = (Guest::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| bytes(&dir.path().join(name));
    let made = guest.entry(Work::MakeDir { path: at("a/b/c") });
    assert_eq!((made.kind, made.mode), (FileKind::Directory, 0o755));
    assert_eq!(guest.failure(Work::MakeDir { path: at("a/b/c") }), (Why::Kernel, 17));
    std::fs::write(dir.path().join("a/file"), "hello").unwrap();
    std::fs::set_permissions(dir.path().join("a/file"), PermissionsExt::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("file", dir.path().join("a/link")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("a/lost")).unwrap();
    assert_eq!(guest.failure(Work::MakeDir { path: at("a/file") }).0, Why::NotDirectory);
    assert_eq!(guest.failure(Work::MakeDir { path: at("a/file/x") }).0, Why::NotDirectory);
    let link = guest.entry(Work::Stat { path: at("a/link") });
    assert_eq!((link.kind, link.size, link.mode), (FileKind::File, 5, 0o640));
    let real = dir.path().canonicalize().unwrap();
    assert_eq!(link.target, Some(bytes(&real.join("a/file"))));
    let lost = guest.entry(Work::Stat { path: at("a/lost") });
    assert_eq!((lost.kind, lost.target), (FileKind::Link, Some(b"nowhere".to_vec())));
    let moved = guest.entry(Work::Move { from: at("a/file"), to: at("new/place/file") });
    assert_eq!(moved.kind, FileKind::File);
    assert_eq!(guest.failure(Work::Move { from: at("a/file"), to: at("x") }), (Why::Kernel, ENOENT));
    assert_eq!(guest.failure(Work::Stat { path: at("a/file") }), (Why::Kernel, ENOENT));
    assert_eq!(guest.task(Work::Remove { path: at("a") }), [Said::Done]);
    assert_eq!(guest.task(Work::Remove { path: at("a") }), [Said::Done]);
    assert!(!dir.path().join("a").exists() && dir.path().join("new/place/file").exists());
}

#[test]
fn a_list_is_a_walk_that_follows_no_links() {
    let (mut guest, dir) = (Guest::start(), tempfile::tempdir().unwrap());
    for name in ["b/x/deep", "a"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join("b/file"), "").unwrap();
    std::os::unix::fs::symlink("/", dir.path().join("c")).unwrap();
    let mut names = |depth| -> Vec<String> {
        let all = guest.task(Work::List { path: bytes(dir.path()), depth });
        assert_eq!(all.last(), Some(&Said::Done));
        let name = |said: &Said| match said {
            Said::Entry(entry) => Some(String::from_utf8(entry.name.clone()).unwrap()),
            _ => None,
        };
        all.iter().filter_map(name).collect()
    };
    assert_eq!(names(0), ["a", "b", "c"]);
    assert_eq!(names(1), ["a", "b", "c"]);
    assert_eq!(names(2), ["a", "b", "b/file", "b/x", "c"]);
    assert_eq!(names(9), ["a", "b", "b/file", "b/x", "b/x/deep", "c"]);
    let path = bytes(&dir.path().join("b/file"));
    assert_eq!(guest.failure(Work::List { path, depth: 1 }).0, Why::NotDirectory);
}

#[test]
fn bytes_go_in_and_out_whole_or_in_part() {
    let (mut guest, dir) = (Guest::start(), tempfile::tempdir().unwrap());
    let all: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = dir.path().join("sub/file");
    let Some(Said::Entry(entry)) = guest.write(&file, &all).pop() else { panic!("not written") };
    assert_eq!((entry.size, entry.mode), (all.len() as u64, 0o644));
    let (said, found) = guest.read(&file, 0, None);
    assert!(matches!(said, Said::Entry(entry) if entry.size == all.len() as u64));
    assert!(found == all, "{} bytes", found.len());
    assert_eq!(guest.read(&file, 10, Some(20)).1, all[10..30]);
    assert_eq!(guest.read(&file, 2_999_990, Some(50)).1, all[2_999_990..]);
    assert!(guest.read(&file, 9_999_999, None).1.is_empty());
    guest.write(&dir.path().join("empty"), b"");
    assert!(guest.read(&dir.path().join("empty"), 0, None).1.is_empty());
    assert_eq!(
        guest.failure(Work::Read { path: bytes(dir.path()), from: 0, most: None }).0,
        Why::IsDirectory
    );
    assert_eq!(
        guest.failure(Work::Read { path: b"/dev/null".to_vec(), from: 0, most: None }).0,
        Why::Special
    );
}

#[test]
fn a_write_is_whole_or_not_at_all_and_keeps_what_a_file_is() {
    let (mut guest, dir) = (Guest::start(), tempfile::tempdir().unwrap());
    let file = dir.path().join("file");
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
    // Half of it, and then nobody comes back.
    let id = guest.begin(Work::Write { path: bytes(&file), mode: None, notes: None });
    assert_eq!(guest.client.input(id, b"half"), 4);
    guest.until(id, |seen| seen.pid.is_some());
    guest.client.signal(id, Signal::KILL.as_raw() as u8, cofferdam_guest::wire::Target::Group).unwrap();
    guest.finish(id);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
    guest.write(&dir.path().join("link"), b"new");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    assert!(dir.path().join("link").is_symlink());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o755);
    // Whoever knows it by another name sees the new content too.
    std::fs::hard_link(&file, dir.path().join("other")).unwrap();
    guest.write(&file, b"newer");
    assert_eq!(std::fs::read_to_string(dir.path().join("other")).unwrap(), "newer");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn notes_are_kept_with_a_file() {
    let (mut guest, dir) = (Guest::start(), tempfile::tempdir().unwrap());
    let path = bytes(&dir.path().join("file"));
    let mut write = |notes: &[(&[u8], &[u8])]| {
        let notes = notes.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let id = guest.begin(Work::Write { path: path.clone(), mode: Some(0o600), notes: Some(notes) });
        guest.feed(id, b"x");
        match parse(&guest.finish(id).stdout, 1).0.remove(0) {
            Said::Entry(entry) => Some((entry.notes, entry.mode)),
            // A file system without them.
            Said::Failed { .. } => None,
            other => panic!("{other:?}"),
        }
    };
    let Some((notes, mode)) = write(&[(b"a", b"1"), (b"b", b"2")]) else { return };
    assert_eq!((notes.len(), mode), (2, 0o600));
    let (notes, _) = write(&[(b"c", b"3")]).unwrap();
    assert_eq!(notes, [(b"c".to_vec(), b"3".to_vec())]);
}

#[test]
fn changes_are_told_as_they_happen() {
    let (mut guest, dir) = (Guest::start(), tempfile::tempdir().unwrap());
    let path = bytes(dir.path());
    let id = guest.begin(Work::Watch { path, recursive: true, entries: true });
    let count = |said: &[u8]| parse(said, usize::MAX).0.len();
    guest.until(id, |seen| count(&seen.stdout) == 1);
    guest.write(&dir.path().join("file"), b"content");
    let seen = guest.until(id, |seen| count(&seen.stdout) >= 4);
    let said = parse(&seen.stdout, usize::MAX).0;
    let changes: Vec<Change> = said[1..]
        .iter()
        .map(|said| match said {
            Said::Changed { change, name, entry } => {
                assert_eq!(name, b"file");
                assert!(entry.is_some());
                *change
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(changes, [Change::Created, Change::Attributes, Change::Written]);
    std::fs::create_dir_all(dir.path().join("one/two")).unwrap();
    std::fs::write(dir.path().join("one/two/three"), "").unwrap();
    let has = |said: &[u8], kind: Change, wanted: &[u8]| {
        parse(said, usize::MAX).0.iter().any(
            |said| matches!(said, Said::Changed { change, name, .. } if *change == kind && name == wanted),
        )
    };
    guest.until(id, |seen| has(&seen.stdout, Change::Created, b"one/two/three"));
    std::fs::rename(dir.path().join("file"), dir.path().join("one/file")).unwrap();
    std::fs::remove_file(dir.path().join("one/file")).unwrap();
    guest.until(id, |seen| {
        has(&seen.stdout, Change::Renamed, b"file") && has(&seen.stdout, Change::Removed, b"one/file")
    });
    guest.client.end_input(id);
    guest.finish(id);
}

#[test]
fn ports_are_found_and_reached() {
    let mut guest = Guest::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let ports = guest.task(Work::Ports);
    assert!(ports.contains(&Said::Port { port, everywhere: false }), "{ports:?}");
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let id = guest.begin(Work::Connect { port });
    let content: Vec<u8> = (0..500_000).map(|n| (n % 251) as u8).collect();
    guest.feed(id, &content);
    let seen = guest.finish(id);
    let (said, rest) = parse(&seen.stdout, 1);
    assert_eq!(said, [Said::Done]);
    assert!(rest == content, "{} bytes came back", rest.len());
    echo.join().unwrap();
    assert_eq!(guest.failure(Work::Connect { port }), (Why::Kernel, 111));
}

#[test]
fn accounts_and_space() {
    let mut guest = Guest::start();
    let found = guest.task(Work::Account { name: b"root".to_vec() });
    assert!(matches!(found.as_slice(), [Said::Account(root)] if root.uid == 0), "{found:?}");
    assert_eq!(guest.failure(Work::Account { name: b"no such user".to_vec() }).0, Why::NoAccount);
    let space = guest.task(Work::Space { path: b"/".to_vec() });
    assert!(matches!(space.as_slice(), [Said::Space { total, free }] if total >= free), "{space:?}");
}

#[test]
fn a_path_with_a_nul_is_none() {
    let mut guest = Guest::start();
    let work = Work::Stat { path: b"/a\0b".to_vec() };
    assert!(guest.client.task(&Task { user: None, owner: None, work }).is_err());
    assert_eq!(guest.task(Work::Remove { path: b"/no/such/thing".to_vec() }), [Said::Done]);
}

/// A task has none of the guest's other descriptors: the channel and every command's streams are among them.
#[test]
fn a_task_holds_nothing_of_the_others() {
    let mut guest = Guest::start();
    let dir = tempfile::tempdir().unwrap();
    let id = guest.begin(Work::Watch { path: bytes(dir.path()), recursive: false, entries: false });
    let seen = guest.until(id, |seen| !seen.stdout.is_empty());
    let fds = std::fs::read_dir(format!("/proc/{}/fd", seen.pid.unwrap()));
    // Only root may look: it is not dumpable.
    if let Ok(fds) = fds {
        let names: Vec<_> = fds.map(|fd| fd.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names.len(), 4, "{names:?}: its three and the watch");
    }
}
