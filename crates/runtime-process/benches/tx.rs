//! One sample of what a transaction on files costs, for `cargo xtask bench tx`, which repeats, mixes and compares:
//! `tx NAME DIR` makes its own ground in DIR and prints milliseconds. Plain timing, no thresholds.

use cofferdam_runtime::ChangeList;
use cofferdam_runtime_process::layer::{Began, Desk, Layer, Stack, Watch, commit, diff};
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

type Sample = Result<f64, Box<dyn Error>>;

const DIRS: usize = 10;
const FILES: usize = 100;
/// What an agent edits is mostly small.
const BYTES: usize = 3000;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo says `--bench` to every one.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let [name, dir] = args.as_slice() else { return Ok(()) };
    // Left for the caller to remove after the last sample: ext4 looks twice at every inode that was freed in the
    // last minutes, and each sample would pay for the one before.
    let ground = tempfile::Builder::new().prefix("tx.").tempdir_in(dir)?.keep();
    let sample = measure(name, &ground)?;
    writeln!(io::stdout(), "{sample}")?;
    Ok(())
}

fn measure(name: &str, at: &Path) -> Sample {
    match name {
        "rollback" => rollback(at),
        "diff" => ours(&Ground::make(at, true, None)?, |layer, _, _| {
            diff(layer, &layer.workdir_path)?;
            Ok(())
        }),
        "commit modified" => kept(&Ground::make(at, true, None)?),
        "commit created" => kept(&Ground::make(at, false, None)?),
        "commit modified, layer in memory" => kept(&Ground::make(at, true, Some(&memory()?))?),
        "commit created, layer in memory" => kept(&Ground::make(at, false, Some(&memory()?))?),
        "cp -a over" => copied(&Ground::make(at, true, None)?),
        "cp -a new" => copied(&Ground::make(at, false, None)?),
        "cp -a over, from memory" => copied(&Ground::make(at, true, Some(&memory()?))?),
        "cp -a new, from memory" => copied(&Ground::make(at, false, Some(&memory()?))?),
        other => Err(format!("there is no sample named `{other}`").into()),
    }
}

fn fill(at: &Path, word: &str) -> io::Result<()> {
    for dir in 0..DIRS {
        fs::create_dir_all(at.join(dir.to_string()))?;
        for file in 0..FILES {
            let text = format!("{word} {dir} {file}\n").repeat(BYTES / 12);
            fs::write(at.join(format!("{dir}/{file}")), text)?;
        }
    }
    Ok(())
}

fn memory() -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("cofferdam-tx.").tempdir_in("/dev/shm")
}

struct Ground {
    work: PathBuf,
    session: PathBuf,
    upper: PathBuf,
    began: Began,
}

impl Ground {
    /// A work dir and a layer of a thousand files, modified or new in directories that are there. All of it is on
    /// the disk before the clock starts, for ours and for others.
    fn make(at: &Path, modified: bool, memory: Option<&tempfile::TempDir>) -> io::Result<Self> {
        let (work, session) = (at.join("work"), at.join("session"));
        let upper = memory.map_or(session.join("upper"), |dir| dir.path().join("upper"));
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        for dir in 0..DIRS {
            fs::create_dir(work.join(dir.to_string()))?;
        }
        if modified {
            fill(&work, "before")?;
        }
        rustix::fs::sync();
        let began = Began::now();
        fill(&upper, "after")?;
        rustix::fs::sync();
        Ok(Self { work, session, upper, began })
    }
}

fn ours(
    ground: &Ground,
    act: impl FnOnce(&Layer, &ChangeList, &Path) -> Result<(), Box<dyn Error>>,
) -> Sample {
    let open = |path: &Path| fs::File::open(path).map(Into::into);
    let layer = Layer {
        upper: open(&ground.upper)?,
        workdir: open(&ground.work)?,
        workdir_path: ground.work.clone(),
        planted: Default::default(),
        began: ground.began,
        owner: None,
        inside: None,
        by_root: rustix::process::geteuid().is_root(),
        linked: false,
        in_use: false,
    };
    let changes = diff(&layer, &layer.workdir_path)?;
    let begin = Instant::now();
    act(&layer, &changes, &ground.session)?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

fn kept(ground: &Ground) -> Sample {
    ours(ground, |layer, changes, session| {
        let done = commit(
            layer,
            changes,
            Desk { session, conflicts: &session.with_extension("aside") },
            Watch::default(),
        )?;
        match (done.applied, done.skipped.as_slice()) {
            (1000, []) => Ok(()),
            other => Err(format!("not what was to be kept: {other:?}").into()),
        }
    })
}

fn copied(ground: &Ground) -> Sample {
    let mut cp = Command::new("cp");
    cp.arg("-a").arg(ground.upper.join(".")).arg(&ground.work);
    let begin = Instant::now();
    let done = cp.status()?;
    let took = begin.elapsed().as_secs_f64() * 1e3;
    if done.success() { Ok(took) } else { Err("cp failed".into()) }
}

fn rollback(at: &Path) -> Sample {
    let work = at.join("work");
    fs::create_dir(&work)?;
    let by_root = rustix::process::geteuid().is_root();
    let mut stack =
        Stack::open(&at.join("layers"), std::slice::from_ref(&work), by_root, None, Watch::default())?;
    stack.push()?;
    fill(&stack.top(), "after")?;
    rustix::fs::sync();
    let begin = Instant::now();
    stack.rollback()?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}
