//! The index is a cache: new, changed, running and removed traces are seen, and no damage to it is ever an error.

use cofferdam_model::{Exit, SessionId, Tier};
use cofferdam_store::{Bundles, CatalogError, Home, Summary, TraceState};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const WATCHED: &str = "events";

struct Fixture {
    _dir: TempDir,
    home: Home,
    looks: Cell<u32>,
}

fn id(n: u64) -> SessionId {
    SessionId::new(1_000 + n, n)
}

/// A stand-in for reading a trace: the file holds its state.
fn summarise(id: &SessionId, path: &Path) -> Summary {
    let text = fs::read_to_string(path.join(WATCHED)).unwrap();
    let state = match text.trim() {
        "running" => TraceState::Running,
        "finished" => TraceState::Finished,
        _ => TraceState::Unreadable,
    };
    Summary {
        id: id.clone(),
        started_us: text.len() as u64,
        ended_us: None,
        command: vec!["echo".into(), "it's \"quoted\"".into()],
        exit: Some(Exit::Signal(9)),
        state,
        tier: Some(Tier::Process),
        workdir: Some("/work".into()),
        events: 7,
    }
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        Self { _dir: dir, home, looks: Cell::new(0) }
    }

    fn put(&self, n: u64, text: &str) {
        let dir = self.home.trace_dir(&id(n));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(WATCHED), text).unwrap();
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut cofferdam_store::Catalog<'_>) -> Result<T, CatalogError>) -> T {
        let mut catalog = self
            .home
            .catalog(self.home.bundles(WATCHED), |id, path| {
                self.looks.set(self.looks.get() + 1);
                summarise(id, path)
            })
            .unwrap();
        ask(&mut catalog).unwrap()
    }

    /// The ids listed, and how many traces had to be looked at.
    fn check(&self, expected: &[u64], looks: u32) {
        self.looks.set(0);
        let mut found: Vec<_> = self.ask(|c| c.list(100)).into_iter().map(|s| s.id).collect();
        found.sort();
        assert_eq!(found, expected.iter().map(|&n| id(n)).collect::<Vec<_>>());
        assert_eq!(self.looks.get(), looks);
    }

    fn index_files(&self) -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir(self.home.path()).unwrap().map(|e| e.unwrap().path());
        entries.filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with("index.sqlite")).collect()
    }
}

#[test]
fn only_what_is_new_changed_or_running_is_looked_at() {
    let f = Fixture::new();
    f.check(&[], 0);
    f.put(1, "finished");
    f.put(2, "running");
    f.check(&[1, 2], 2);
    f.check(&[1, 2], 1);
    f.put(2, "finished and longer");
    f.check(&[1, 2], 1);
    f.check(&[1, 2], 0);
    fs::create_dir_all(f.home.traces_dir().join(".import-1")).unwrap();
    let doomed = f.home.traces_dir().join(format!(".removed-{}", id(8)));
    fs::create_dir_all(doomed.join("blobs")).unwrap();
    fs::create_dir_all(f.home.trace_dir(&id(9))).unwrap();
    f.check(&[1, 2], 0);
    assert!(!doomed.exists(), "a removal that was cut short is finished");
    f.ask(|c| c.remove(&id(1)));
    assert!(!f.home.trace_dir(&id(1)).exists());
    f.check(&[2], 0);
}

#[test]
fn a_summary_comes_back_as_it_went_in_and_is_found_by_prefix() {
    let f = Fixture::new();
    f.put(1, "finished");
    f.put(2, "finished  ");
    let listed = f.ask(|c| c.list(1));
    assert_eq!(listed, [summarise(&id(2), &f.home.trace_dir(&id(2)))], "the newest first");
    let find = |prefix: &str| f.ask(|c| c.find(prefix, 10)).len();
    let full = id(1);
    assert_eq!((find(full.as_str()), find(&full.as_str()[..6]), find("")), (1, 2, 2));
    for none in ["%", "_", "zzz", "' OR 1=1 --", "{"] {
        assert_eq!(find(none), 0, "{none}");
    }
}

#[test]
fn a_removed_trace_is_gone_and_one_that_never_was_is_an_error() {
    let f = Fixture::new();
    f.put(1, "finished");
    let bundles = f.home.bundles(WATCHED);
    bundles.remove(&id(1)).unwrap();
    assert!(bundles.remove(&id(1)).is_err() && bundles.local(&id(1)).is_err());
    assert_eq!(fs::read_dir(f.home.traces_dir()).unwrap().count(), 0);
}

#[test]
fn a_damaged_index_is_built_again() {
    let f = Fixture::new();
    (0..50).for_each(|n| f.put(n, "finished"));
    let all: Vec<u64> = (0..50).collect();
    f.check(&all, 50);
    f.check(&all, 0);

    let index = f.home.path().join("index.sqlite");
    f.index_files().iter().for_each(|p| fs::remove_file(p).unwrap());
    f.check(&all, 50);
    f.check(&all, 0);

    f.index_files()
        .iter()
        .for_each(|p| fs::write(p, "this is not a database, and long enough to be seen as none").unwrap());
    f.check(&all, 50);
    f.check(&all, 0);

    f.index_files().iter().filter(|p| **p != index).for_each(|p| fs::remove_file(p).unwrap());
    let mut bytes = fs::read(&index).unwrap();
    bytes[4096..].fill(0x5a);
    fs::write(&index, &bytes).unwrap();
    f.check(&all, 50);
    f.check(&all, 0);

    rusqlite::Connection::open(&index).unwrap().pragma_update(None, "user_version", 999).unwrap();
    f.check(&all, 50);
    f.check(&all, 0);
}

#[test]
fn an_index_without_a_place_is_kept_in_memory() {
    let f = Fixture::new();
    f.put(1, "finished");
    fs::create_dir(f.home.path().join("index.sqlite")).unwrap();
    f.check(&[1], 1);
    f.check(&[1], 1);
}

#[test]
fn an_unreadable_place_for_traces_is_an_error_with_its_name() {
    let f = Fixture::new();
    fs::write(f.home.traces_dir(), "not a directory").unwrap();
    let mut catalog = f.home.catalog(f.home.bundles(WATCHED), summarise).unwrap();
    let error = catalog.list(1).unwrap_err().to_string();
    assert!(error.contains("traces"), "{error}");
}
