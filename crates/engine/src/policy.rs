//! Policy files: reads them and hands the text to `policy`, which does no I/O.

use crate::error::EngineError;
use cofferdam_egress::Rules;
pub use cofferdam_policy::{
    ConditionError, Decision, Effect, Explanation, Expression, ExpressionError, Finding, InputSchema, Kind,
    Policy, PolicyError, PolicyErrors, Request, RequestError, Severity, Tried,
};
use std::path::Path;
use std::sync::Arc;

/// The text of a policy file.
pub fn read(path: &Path) -> Result<String, EngineError> {
    std::fs::read_to_string(path).map_err(|source| EngineError::Unreadable { path: path.to_owned(), source })
}

/// A policy as the egress layer puts it in force, with the files that it names read from beside it; over a floor that
/// it can only narrow.
pub fn rules(path: &Path, floor: Option<&Policy>) -> Result<Rules, EngineError> {
    let beside = path.parent().unwrap_or(Path::new(""));
    let own = load(path)?;
    let policy = match floor {
        Some(floor) => Policy::layer(floor, &own),
        None => own,
    };
    Ok(Rules::new(Arc::new(policy), &|file| std::fs::read(beside.join(file)))?)
}

/// A policy that is to be used: a mistake in it is an error that names the first and where to see the rest.
pub fn load(path: &Path) -> Result<Policy, EngineError> {
    parse(&read(path)?, path)
}

/// A policy's text, which is known by this path.
pub(crate) fn parse(text: &str, path: &Path) -> Result<Policy, EngineError> {
    Policy::parse(text).map_err(|PolicyErrors(errors)| {
        let first = errors.first();
        let line = first.map_or(1, |error| error.spot.line);
        let what = first.map_or_else(String::new, PolicyError::message);
        let more = match errors.len() {
            0 | 1 => String::new(),
            count => format!("; {} more: see `cofferdam policy check`", count - 1),
        };
        EngineError::SpecFile { path: path.to_owned(), line, message: format!("{what}{more}") }
    })
}
