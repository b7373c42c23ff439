//! Transactions of a session: what was done in one, and what became of it.

use crate::command::conflict::left_out;
use crate::command::run::mark;
use crate::output::{Failure, Output, Paint};
use crate::story::{printable, respects};
use cofferdam_engine::Engine;
use cofferdam_model::{FileDifference, SessionId, Settled};
use serde_json::json;

pub(super) fn diff(
    engine: &Engine,
    session: &SessionId,
    brief: bool,
    output: &Output,
) -> Result<u8, Failure> {
    let found = engine.difference(session, !brief)?;
    if output.json {
        output.value(&json!({ "session": session, "changes": found }))?;
        return Ok(0);
    }
    for difference in &found {
        output.data(&told(difference, output))?;
    }
    Ok(0)
}

/// A line for the change, and the lines of the file. What the inside wrote reaches no terminal as it is.
pub(crate) fn told(difference: &FileDifference, output: &Output) -> String {
    let change = &difference.change;
    let omitted = difference.omitted.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let path = printable(&change.path.to_string());
    let head = format!("{} {path}{}{omitted}", mark(change.op), respects(change));
    let mut text = format!("{}\n", output.paint(Paint::Bold, head));
    for line in difference.diff.iter().flat_map(|diff| diff.lines()) {
        let line = line.split('\t').map(printable).collect::<Vec<_>>().join("\t");
        let line = match line.as_bytes().first() {
            Some(b'+') => output.paint(Paint::Good, line),
            Some(b'-') => output.paint(Paint::Bad, line),
            Some(b'@') => output.paint(Paint::Dim, line),
            _ => line,
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

pub(super) fn fork(
    engine: &Engine,
    session: &SessionId,
    count: usize,
    output: &Output,
) -> Result<u8, Failure> {
    let made = engine.fork_session(session, count)?;
    match output.json {
        true => output.value(&json!({ "session": session, "forks": made }))?,
        false => output.data(&made.iter().map(|id| format!("{id}\n")).collect::<String>())?,
    }
    Ok(0)
}

pub(super) fn settle(
    engine: &Engine,
    session: &SessionId,
    keep: bool,
    force: bool,
    output: &Output,
) -> Result<u8, Failure> {
    let settled = engine.settle(session, keep, force)?;
    match output.json {
        true => output.value(&settled)?,
        false => remarks(&settled, output),
    }
    Ok(0)
}

/// What a person has to know of it.
pub(super) fn remarks(settled: &Settled, output: &Output) {
    settled.host.iter().for_each(|decided| left_out(decided, output));
    let count = settled.effects.len() as u64 + settled.more;
    if count > 0 {
        output.remark(format!("files are as they were; what went outside cannot be taken back ({count}):"));
        for effect in &settled.effects {
            output.remark(format!("  {}", printable(effect)));
        }
        if settled.more > 0 {
            output.remark(format!("  and {} more: see `cofferdam trace show`", settled.more));
        }
    }
}
