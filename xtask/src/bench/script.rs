//! A script that imports a large module, in a session that keeps an interpreter with it and in one that does not.

use super::live::{LiveError, Place};
use super::rounds;
use super::stats::{self, Summary};
use fastrand::Rng;
use std::path::Path;
use std::time::{Duration, Instant};

const MODULE: &str = "openai";
/// A start takes seconds.
const ROUNDS: usize = 10;
/// For the module to be imported: so many tenths of a second.
const PATIENCE: usize = 600;

/// Started anew, and copied. Nothing where the packages that tests use are not there.
pub(super) fn measured(place: &Place, root: &Path, seed: u64) -> Result<Option<[Summary; 2]>, LiveError> {
    let packages = root.join("target/test-packages");
    if !packages.join(MODULE).is_dir() {
        return Ok(None);
    }
    std::fs::write(place.work.join("imports.py"), format!("import {MODULE}\n"))?;
    std::fs::write(place.work.join("warmed.py"), format!("import sys\nprint('{MODULE}' in sys.modules)\n"))?;
    let mount = format!("{}:/packages:ro", packages.display());
    let create =
        ["session", "create", "--changes", "discard", "--mount", &mount, "--env", "PYTHONPATH=/packages"];
    let modules = format!("python:{MODULE}");
    let sessions = [place.call(&create)?, place.call(&[&create[..], &["--warm", &modules]].concat())?];
    let run =
        |session: &str, script: &str| place.call(&["session", "exec", session, "--", "python3", script]);
    let mut waited = 0;
    while waited < PATIENCE && run(&sessions[1], "warmed.py")? != "True" {
        std::thread::sleep(Duration::from_millis(100));
        waited += 1;
    }
    let plan = rounds::Plan { rounds: ROUNDS, warmup: 1, slow: Duration::MAX };
    let samples = rounds::interleave(&plan, sessions.len(), &mut Rng::with_seed(seed), |who| {
        let began = Instant::now();
        run(&sessions[who], "imports.py")?;
        Ok::<_, LiveError>(began.elapsed())
    })?;
    for session in &sessions {
        place.call(&["session", "kill", session])?;
    }
    let of = |at: usize| samples.get(at).and_then(|own| stats::summary(own));
    Ok(of(0).zip(of(1)).map(|(new, copied)| [new, copied]))
}
