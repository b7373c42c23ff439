//! `cofferdam conflict`: what commits left out because it was changed outside as well. The inside's versions are told,
//! shown and taken.

use super::session::told;
use crate::args::ConflictCommand;
use crate::output::{Failure, Output};
use crate::story::printable;
use cofferdam_engine::Engine;
use cofferdam_model::{Bytes, ChangesDecided, Conflict};
use serde_json::json;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Left out, at most so many are told by name.
const TOLD: usize = 20;

pub(crate) fn run(home: Option<PathBuf>, command: ConflictCommand, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    match command {
        ConflictCommand::Ls => list(&engine.conflicts(), output),
        ConflictCommand::Show { name, path } => {
            let conflict = engine.conflict(&name)?;
            match path {
                Some(path) => content(&engine, &conflict, &path, output),
                None => show(&conflict, output),
            }
        }
        ConflictCommand::Diff { name, paths } => {
            let conflict = engine.conflict(&name)?;
            let found = engine.conflict_difference(&conflict, &paths)?;
            match output.json {
                true => output.value(&json!({ "conflict": conflict.name, "changes": found }))?,
                false => {
                    found.iter().try_for_each(|difference| output.data(&told(difference, output)))?;
                }
            }
            Ok(0)
        }
        ConflictCommand::Take { name, paths, to, over } => {
            let conflict = engine.conflict(&name)?;
            take(&engine, &conflict, (&paths, to.as_deref(), over), output)
        }
        ConflictCommand::Rm { names } => {
            for name in names {
                engine.forget_conflict(&engine.conflict(&name)?)?;
            }
            Ok(0)
        }
    }
}

fn list(all: &[Conflict], output: &Output) -> Result<u8, Failure> {
    if output.json {
        output.value(&all)?;
        return Ok(0);
    }
    for one in all {
        let paths = one.paths.len();
        let workdir = printable(&one.workdir.to_string());
        output.data(&format!("{:<28} {paths:>6} of {workdir}\n", one.name))?;
    }
    Ok(0)
}

fn show(conflict: &Conflict, output: &Output) -> Result<u8, Failure> {
    if output.json {
        output.value(conflict)?;
        return Ok(0);
    }
    for entry in &conflict.paths {
        let size = entry.size.map(|size| format!(", {}", Bytes(size))).unwrap_or_default();
        let path = printable(&entry.path.to_string());
        let reason = printable(&entry.reason);
        output.data(&format!("{path}  ({:04o}{size}): {reason}\n", entry.mode))?;
    }
    output.remark(format!("the versions are in {}", printable(&conflict.files.to_string())));
    output.remark(format!(
        "compare them: cofferdam conflict diff {0}; take one: cofferdam conflict take {0} PATH",
        conflict.name
    ));
    Ok(0)
}

/// The bytes as they are, but for a terminal, which obeys what it is shown.
fn content(engine: &Engine, conflict: &Conflict, path: &Path, output: &Output) -> Result<u8, Failure> {
    let mut file = engine.conflict_file(conflict, path)?;
    if !io::stdout().is_terminal() {
        io::copy(&mut file, &mut output.stream())?;
        return Ok(0);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut to = output.stream();
    for line in text.lines() {
        writeln!(to, "{}", printable(line))?;
    }
    Ok(0)
}

fn take(
    engine: &Engine,
    conflict: &Conflict,
    (paths, to, over): (&[PathBuf], Option<&Path>, bool),
    output: &Output,
) -> Result<u8, Failure> {
    let took = engine.take_conflict(conflict, paths, to, over)?;
    let name = &conflict.name;
    if output.json {
        output.value(&json!({ "conflict": name, "taken": took.taken, "occupied": took.occupied }))?;
    } else {
        for path in &took.occupied {
            output.trouble(format!(
                "not taken: {}: something stands there; see `cofferdam conflict diff {name}`, and take it with --over, or elsewhere with --to DIR",
                printable(&path.to_string())
            ));
        }
        if took.occupied.is_empty() {
            output.remark(format!("when all is settled: cofferdam conflict rm {name}"));
        }
    }
    Ok(u8::from(!took.occupied.is_empty()))
}

/// What of a commit was left out, and where the inside's versions of it are.
pub(crate) fn left_out(decided: &ChangesDecided, output: &Output) {
    for skipped in decided.skipped.iter().take(TOLD) {
        let (path, reason) = (printable(&skipped.path.to_string()), printable(&skipped.reason));
        output.remark(format!("not kept: {path}: {reason}"));
    }
    if let Some(more) = decided.skipped.len().checked_sub(TOLD).filter(|more| *more > 0) {
        output.remark(format!("and {more} more were not kept"));
    }
    if let Some(name) = &decided.aside {
        let count = decided.skipped.iter().filter(|skipped| skipped.aside).count();
        output.remark(format!(
            "the inside's versions ({count}) are set aside as {name}: `cofferdam conflict diff {name}` compares them, `cofferdam conflict take {name} PATH` takes one"
        ));
    }
}
