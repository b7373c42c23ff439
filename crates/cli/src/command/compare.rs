//! `cofferdam compare`: two traces, or two directories of them. Nothing is run.

use crate::args::Compare;
use crate::command::gate::report;
use crate::command::run::BY;
use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use cofferdam_engine::gate::{Comparing, Thresholds};
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, args: Compare, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    let Compare { base, new, policy, key, out } = args;
    // A name that is no file may be a trace of this machine's.
    let found = |path: PathBuf| match path.to_str().filter(|_| !path.exists()) {
        Some(name) => engine.find_trace(name).map(|trace| trace.path),
        None => Ok(path),
    };
    let asked = Comparing {
        base: found(base)?,
        new: found(new)?,
        policy,
        keys: key,
        thresholds: Thresholds::default(),
        out,
        by: BY.into(),
    };
    report(&engine.compare(&asked)?, asked.out.as_deref(), output)
}
