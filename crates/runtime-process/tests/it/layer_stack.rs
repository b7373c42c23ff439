//! Transactions within transactions: random file operations, begins, commits and rollbacks, against a plain
//! directory in which the same is done. `COFFERDAM_TEST_CASES` and `COFFERDAM_TEST_SEED` run more, or others.

use crate::layer_place::{CONTENT, Ground, STAGINGS, Staging, Way, confined};
use cofferdam_runtime_process::layer::{Began, Counts, Stack, Watch, tree_hash};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone)]
enum Op {
    Write(String, u8),
    Append(String, u8),
    Mkdir(String),
    Remove(String),
    /// A directory in the place of whatever was there.
    Replace(String),
    Move(String, String),
    Symlink(String, u8),
    Chmod(String, u32),
    Attribute(String, u8),
    Truncate(String, u64),
}

#[derive(Debug, Clone)]
enum Act {
    Run(Vec<Op>),
    Begin,
    Commit,
    Rollback,
}

fn paths() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::vec(names, 1..4).prop_map(|parts| parts.join("/"))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (paths(), any::<u8>()).prop_map(|(path, n)| Op::Write(path, n)),
        2 => (paths(), any::<u8>()).prop_map(|(path, n)| Op::Append(path, n)),
        4 => paths().prop_map(Op::Mkdir),
        4 => paths().prop_map(Op::Remove),
        2 => paths().prop_map(Op::Replace),
        3 => (paths(), paths()).prop_map(|(from, to)| Op::Move(from, to)),
        1 => (paths(), any::<u8>()).prop_map(|(path, n)| Op::Symlink(path, n)),
        2 => (paths(), prop::sample::select(vec![0o600, 0o644, 0o755, 0o700])).prop_map(|(path, mode)| Op::Chmod(path, mode)),
        1 => (paths(), any::<u8>()).prop_map(|(path, n)| Op::Attribute(path, n)),
        1 => (paths(), 0..9000u64).prop_map(|(path, n)| Op::Truncate(path, n)),
    ]
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        5 => prop::collection::vec(op(), 1..8).prop_map(Act::Run),
        2 => Just(Act::Begin),
        1 => Just(Act::Commit),
        1 => Just(Act::Rollback),
    ];
    prop::collection::vec(act, 1..14)
}

/// Does it; what cannot be done is not done, here and there alike.
fn perform(at: &Path, op: &Op) -> io::Result<()> {
    match op {
        Op::Write(path, n) => write_new(&at.join(path), &format!("written {n}\n")),
        Op::Append(path, n) => {
            let path = at.join(path);
            plain(&path)?;
            OpenOptions::new().append(true).open(path)?.write_all(format!("appended {n}\n").as_bytes())
        }
        Op::Mkdir(path) => fs::create_dir_all(at.join(path)),
        Op::Remove(path) => remove(&at.join(path)),
        Op::Replace(path) => {
            remove(&at.join(path))?;
            fs::create_dir(at.join(path))
        }
        Op::Move(from, to) if !to.starts_with(from.as_str()) => {
            copy(&at.join(from), &at.join(to))?;
            remove(&at.join(from))
        }
        Op::Move(..) => Ok(()),
        Op::Symlink(path, n) => symlink(format!("target-{n}"), at.join(path)),
        Op::Chmod(path, mode) => {
            let path = at.join(path);
            if path.symlink_metadata()?.is_symlink() {
                return Ok(());
            }
            // Root may do all the same, whatever the mode of a directory.
            fs::set_permissions(path, fs::Permissions::from_mode(*mode))
        }
        Op::Attribute(path, n) => {
            let path = at.join(path);
            if path.symlink_metadata()?.is_symlink() {
                return Ok(());
            }
            Ok(rustix::fs::setxattr(path, "user.note", &[*n], XattrFlags::empty())?)
        }
        Op::Truncate(path, n) => {
            let path = at.join(path);
            plain(&path)?;
            OpenOptions::new().write(true).open(path)?.set_len(*n)
        }
    }
}

fn plain(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_file() { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_file() => fs::write(path, text),
        Ok(_) => Ok(()),
        Err(_) => OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// A directory is moved by hand in both: an overlay refuses to rename one that is merged.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let meta = from.symlink_metadata()?;
    if to.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if meta.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if meta.is_file() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    fs::set_permissions(to, meta.permissions())
}

fn duplicate(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

fn furnish(work: &Path) {
    fs::create_dir_all(work.join("a/b")).unwrap();
    fs::create_dir(work.join("b")).unwrap();
    for path in ["a/a", "a/b/a", "a/b/b", "b/a", "c"] {
        fs::write(work.join(path), format!("{path} as it was\n")).unwrap();
    }
    symlink("a/a", work.join("b/c")).unwrap();
}

/// The plain directory, with a copy of it for every transaction that is open.
struct Model {
    dir: PathBuf,
    levels: usize,
}

impl Model {
    fn now(&self) -> PathBuf {
        self.dir.join(self.levels.to_string())
    }

    fn begin(&mut self) {
        let before = self.now();
        self.levels += 1;
        duplicate(&before, &self.now());
    }

    fn commit(&mut self) {
        let inner = self.now();
        self.levels -= 1;
        fs::remove_dir_all(self.now()).unwrap();
        fs::rename(inner, self.now()).unwrap();
    }

    fn rollback(&mut self) {
        fs::remove_dir_all(self.now()).unwrap();
        self.levels -= 1;
    }
}

fn hash(path: &Path, counts: Counts) -> String {
    tree_hash(path, counts).unwrap().to_string()
}

fn run(ground: &Ground, stack: &Stack, model: &Model, ops: &[Op]) {
    let inside = ground.within(&stack.layers().unwrap(), |at| {
        ops.iter().for_each(|op| drop(perform(at, op)));
        hash(at, CONTENT)
    });
    ops.iter().for_each(|op| drop(perform(&model.now(), op)));
    assert_eq!(inside, hash(&model.now(), CONTENT), "the overlay itself differs from a directory");
}

fn case(way: Way, staging: Staging, acts: &[Act], keep: bool) {
    let ground = Ground::in_memory(way, staging);
    furnish(&ground.work());
    let before = ground.hash(Counts::ALL);
    let mut model = Model { dir: ground.path("model"), levels: 0 };
    fs::create_dir(&model.dir).unwrap();
    duplicate(&ground.work(), &model.now());
    let began = Began::now();
    let mut stack = ground.stack();
    for act in acts {
        match act {
            Act::Run(ops) => run(&ground, &stack, &model, ops),
            Act::Begin if stack.depth() < 4 => {
                stack.push().unwrap();
                model.begin();
            }
            Act::Commit if stack.depth() > 0 => {
                stack.commit(Watch::default()).unwrap();
                model.commit();
            }
            Act::Rollback if stack.depth() > 0 => {
                stack.rollback().unwrap();
                model.rollback();
            }
            _ => {}
        }
        assert_eq!(stack.depth(), model.levels);
        // Whatever happens inside, the work dir is not touched.
        assert_eq!(ground.hash(Counts::ALL), before, "after {act:?}");
        // What is seen now, after the layers were merged or dropped, is what the model holds.
        let seen = ground.within(&stack.layers().unwrap(), |at| hash(at, CONTENT));
        assert_eq!(seen, hash(&model.now(), CONTENT), "after {act:?}");
    }
    while stack.depth() > 0 {
        if keep {
            stack.commit(Watch::default()).unwrap()
        } else {
            stack.rollback().unwrap()
        }
        if keep { model.commit() } else { model.rollback() }
    }
    let layer = ground.layer(began);
    let changes = ground.diff(&layer);
    let done = ground.keep(&layer, &changes);
    assert_eq!(done.skipped, []);
    assert_eq!(ground.hash(CONTENT), hash(&model.now(), CONTENT), "after the last commit: {changes:#?}");
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn random_transactions_end_as_a_plain_directory_would() {
    let Some(way) = confined("layer_stack::random_transactions_end_as_a_plain_directory_would") else {
        return;
    };
    let cases = number("COFFERDAM_TEST_CASES", 200) as u32;
    let mut seed = [0u8; 32];
    seed[..8].copy_from_slice(&number("COFFERDAM_TEST_SEED", 7).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let place = prop::sample::select(STAGINGS.to_vec());
    let outcome = runner.run(&(acts(), place, any::<bool>()), |(acts, staging, keep)| {
        case(way, staging, &acts, keep);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_rollback_gives_back_the_exact_tree() {
    let Some(way) = confined("layer_stack::a_rollback_gives_back_the_exact_tree") else { return };
    let ground = Ground::in_memory(way, Staging::Layer);
    furnish(&ground.work());
    let mut stack = ground.stack();
    let all = |stack: &Stack| ground.within(&stack.layers().unwrap(), |at| hash(at, Counts::ALL));
    ground.within(&stack.layers().unwrap(), |at| fs::write(at.join("c"), "first").unwrap());
    let before = all(&stack);
    stack.push().unwrap();
    ground.within(&stack.layers().unwrap(), |at| {
        fs::remove_dir_all(at.join("a")).unwrap();
        fs::write(at.join("c"), "second").unwrap();
        fs::create_dir(at.join("new")).unwrap();
        (0..1000).for_each(|n| fs::write(at.join(format!("new/{n}")), "x").unwrap());
    });
    assert_ne!(all(&stack), before);
    stack.rollback().unwrap();
    assert_eq!(all(&stack), before);
    stack.sweep().unwrap();
    assert_eq!(names_in(&ground.layers()), ["upper", "work"]);
    assert!(stack.rollback().is_err() && stack.commit(Watch::default()).is_err());
}

/// A merge that stops before any of its moments is completed by the next opening.
#[test]
fn an_interrupted_merge_is_completed() {
    let Some(way) = confined("layer_stack::an_interrupted_merge_is_completed") else { return };
    let scenario = || {
        let ground = Ground::in_memory(way, Staging::Layer);
        furnish(&ground.work());
        let mut stack = ground.stack();
        ground.within(&stack.layers().unwrap(), |at| {
            fs::remove_dir_all(at.join("a/b")).unwrap();
            fs::remove_file(at.join("c")).unwrap();
            fs::create_dir_all(at.join("new/x")).unwrap();
            fs::write(at.join("new/x/y"), "y").unwrap();
            fs::write(at.join("new/short-lived"), "").unwrap();
        });
        stack.push().unwrap();
        ground.within(&stack.layers().unwrap(), |at| {
            // Over a whiteout, over a directory of the layer beneath, into one, and through both to the bottom.
            fs::create_dir(at.join("a/b")).unwrap();
            fs::write(at.join("a/b/new"), "new").unwrap();
            fs::create_dir(at.join("c")).unwrap();
            fs::remove_dir_all(at.join("new/x")).unwrap();
            fs::write(at.join("new/x"), "a file now").unwrap();
            fs::remove_dir_all(at.join("b")).unwrap();
            fs::write(at.join("a/a"), "changed").unwrap();
            fs::remove_file(at.join("new/short-lived")).unwrap();
        });
        (ground, stack)
    };
    let look =
        |ground: &Ground, stack: &Stack| ground.within(&stack.layers().unwrap(), |at| hash(at, CONTENT));
    let (ground, mut stack) = scenario();
    let expected = look(&ground, &stack);
    stack.commit(Watch::default()).unwrap();
    assert_eq!(look(&ground, &stack), expected);
    // Where nothing shows from beneath there is nothing to hide: a mark would be listed as a file.
    assert_eq!(names_in(&stack.top().join("new")), ["x"]);
    let mut stopped = 0;
    for at in 0.. {
        let (ground, mut stack) = scenario();
        let count = Cell::new(0);
        let stop = |_| {
            count.set(count.get() + 1);
            if count.get() - 1 == at { Err(Errno::IO) } else { Ok(()) }
        };
        if stack.commit(Watch(Some(&stop))).is_ok() {
            break;
        }
        stopped += 1;
        let stack = ground.stack();
        assert_eq!(look(&ground, &stack), expected, "moment {at}");
        // Before the decision it is still open, after it there is only what it was merged into.
        assert_eq!(names_in(&ground.layers()).len(), if at == 0 { 3 } else { 2 }, "moment {at}");
    }
    assert!(stopped > 8, "{stopped}");
}
