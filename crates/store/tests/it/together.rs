//! Several processes, each with several threads, that all find no home and make one at the same time.

use cofferdam_model::SessionId;
use cofferdam_store::{Home, Summary, TraceState};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use tempfile::TempDir;

const CHILD: &str = "COFFERDAM_TEST_STORE_HOME";
const PROCESSES: u64 = 6;
const THREADS: u64 = 4;

fn summarise(id: &SessionId, _: &Path) -> Summary {
    Summary {
        id: id.clone(),
        started_us: 1,
        ended_us: None,
        command: vec!["true".into()],
        exit: None,
        state: TraceState::Finished,
        tier: None,
        workdir: None,
        events: 1,
    }
}

/// One user of the home: opens it, takes the key, adds a trace, lists.
fn work(path: &Path, number: u64) -> String {
    let home = Home::open(path).unwrap();
    let key = home.signing_key().unwrap().public().id();
    let id = SessionId::new(number, 1);
    fs::create_dir_all(home.trace_dir(&id)).unwrap();
    fs::write(home.trace_dir(&id).join("events"), "x").unwrap();
    let mut catalog = home.catalog(home.bundles("events"), summarise).unwrap();
    assert!(catalog.list(1000).unwrap().iter().any(|summary| summary.id == id));
    key.to_string()
}

/// Not a test of its own: what the next one runs in several processes.
#[test]
fn child_that_works_in_a_shared_home() {
    let Some(value) = std::env::var_os(CHILD) else { return };
    let (number, path) = value.to_str().unwrap().split_once(' ').unwrap();
    let number: u64 = number.parse().unwrap();
    let start = Barrier::new(THREADS as usize);
    let (start, path) = (&start, Path::new(path));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                start.wait();
                println!("key={}", work(path, number * 100 + thread));
            });
        }
    });
}

#[test]
fn many_at_once_make_one_home_with_one_key() {
    for _ in 0..3 {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("a/home");
        let children: Vec<_> = (0..PROCESSES)
            .map(|number| {
                Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "together::child_that_works_in_a_shared_home", "--nocapture"])
                    .env(CHILD, format!("{number} {}", path.display()))
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut keys = BTreeSet::new();
        for child in children {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{text}");
            keys.extend(
                text.lines().filter_map(|line| line.split_once("key=")).map(|(_, key)| key.to_owned()),
            );
        }
        assert_eq!(keys.len(), 1, "{keys:?}");
        let home = Home::open(&path).unwrap();
        assert_eq!(home.trusted_keys().unwrap().iter().count(), 1);
        let mut catalog = home.catalog(home.bundles("events"), summarise).unwrap();
        assert_eq!(catalog.list(1000).unwrap().len() as u64, PROCESSES * THREADS);
    }
}
