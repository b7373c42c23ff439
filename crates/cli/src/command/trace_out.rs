//! `--trace-out FILE`: opened before anything runs, so that a place that cannot be written to is told in time.

use crate::output::Failure;
use cofferdam_engine::{Engine, Outcome, Trace};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub(crate) struct TraceOut {
    path: PathBuf,
    file: File,
    /// Made by us, and of no use to anybody until it is written.
    empty: bool,
}

impl TraceOut {
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Option<Self>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let opened = match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => Ok((file, true)),
            // What is there stays as it is until there is something to take its place.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                File::options().write(true).open(&path).map(|file| (file, false))
            }
            Err(error) => Err(error),
        };
        let (file, empty) = opened.map_err(|error| unwritable("--trace-out ", &path, &error))?;
        Ok(Some(Self { path, file, empty }))
    }

    pub(crate) fn write(mut self, engine: &Engine, outcome: &Outcome) -> Result<(), Failure> {
        let trace = Trace { id: Some(outcome.session.clone()), path: outcome.trace.clone() };
        self.empty = false;
        if self.file.metadata()?.is_file() {
            self.file.set_len(0).map_err(|error| unwritable("--trace-out ", &self.path, &error))?;
        }
        match self.path.extension().is_some_and(|extension| extension == "jsonl") {
            true => Ok(engine.export_events(&trace, &mut self.file)?),
            false => Ok(engine.export_bundle(&trace, &self.file)?),
        }
    }
}

impl Drop for TraceOut {
    fn drop(&mut self) {
        if self.empty {
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(crate) fn unwritable(option: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Usage(format!(
        "{option}{}: cannot be written: {error}; name a file in a directory of yours",
        path.display()
    ))
}
