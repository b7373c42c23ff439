//! `cofferdam record`: run a suite and store its traces as the baseline.

use crate::args::Record;
use crate::command::run::BY;
use crate::output::{Failure, Output};
use crate::progress::Progress;
use crate::story::printable;
use cofferdam_engine::gate::Recording;
use cofferdam_engine::{Engine, Stop, suite, until_signalled};
use serde_json::json;
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, args: Record, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    let suite = suite::load(&args.suite)?;
    let Record { only, repeat, concurrency, .. } = args;
    let asked = Recording { only, repeat, at_once: concurrency, by: BY.into() };
    let (stop, progress) = (Stop::new()?, Progress::new(output));
    let recorded =
        until_signalled(&stop, || engine.record_suite(&suite, &asked, &stop, &|note| progress.note(note)))?;
    progress.end();
    let recorded = recorded?;
    if output.json {
        let pairs = |list: &[(String, String)]| {
            list.iter().map(|(id, text)| json!({ "session": id, "why": text })).collect::<Vec<_>>()
        };
        output.value(&json!({
            "baseline": recorded.dir, "files": recorded.files, "stopped": recorded.stopped,
            "failed": pairs(&recorded.failed), "remarks": pairs(&recorded.remarks), "key": recorded.key,
        }))?;
    } else {
        for (id, text) in &recorded.failed {
            output.trouble(format!("{id}: not recorded: {}", printable(text)));
        }
        for (id, text) in &recorded.remarks {
            output.remark(format!("{id}: {}", printable(text)));
        }
        match recorded.stopped {
            true => output.remark("stopped; nothing was replaced"),
            false => output.remark(format!("{} traces in {}", recorded.files.len(), recorded.dir.display())),
        }
        if let Some(key) = &recorded.key {
            let name = key.strip_prefix(suite.dir()).unwrap_or(key).display();
            output.remark(format!(
                "so that other machines believe this baseline, add to {}:\n\n[baseline]\nkeys = [\"{name}\"]\n",
                suite.name
            ));
        }
    }
    match (recorded.stopped, recorded.failed.is_empty()) {
        (true, _) => Ok(130),
        (_, true) => Ok(0),
        _ => Ok(1),
    }
}
