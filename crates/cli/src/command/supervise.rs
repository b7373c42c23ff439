//! `cofferdam supervise`: the process that holds a user's sessions. People have no need to call it: `session create`
//! does. Its output is the log.

use crate::output::Failure;
use cofferdam_engine::Engine;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) fn run(home: Option<PathBuf>) -> Result<u8, Failure> {
    Engine::open(home)?.supervise(Arc::new(|line| {
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let _ = writeln!(std::io::stderr().lock(), "{time} {line}");
    }))?;
    Ok(0)
}
