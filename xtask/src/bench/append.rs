//! The micro-benchmark of the trace writer, which lives beside the writer: run it, and read its rates.

use crate::command::{self, CommandError};
use serde::Serialize;
use std::path::Path;

const UNIT: &str = "events/s";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Append {
    /// The bench's own lines.
    pub(crate) lines: Vec<String>,
    /// The first rate it names.
    pub(crate) events_per_second: Option<f64>,
}

pub(crate) fn measure(root: &Path) -> Result<Append, CommandError> {
    let mut cargo = command::cargo();
    cargo.current_dir(root).args(["bench", "--quiet", "--package", "cofferdam-trace", "--bench", "append"]);
    Ok(read(&command::stdout(&mut cargo)?))
}

fn read(text: &str) -> Append {
    let lines: Vec<_> =
        text.lines().map(str::trim_end).filter(|l| !l.is_empty()).map(str::to_owned).collect();
    let events_per_second = lines.iter().find_map(|line| rate(line));
    Append { lines, events_per_second }
}

/// The number before `events/s`, with or without separators for thousands.
fn rate(line: &str) -> Option<f64> {
    let (before, _) = line.split_once(UNIT)?;
    let number = before.trim_end().rsplit(|c: char| !(c.is_ascii_digit() || ",_.".contains(c))).next()?;
    number.replace([',', '_'], "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        let append = read("append\n\nwrite-through   412,345 events/s  (2.4 µs)\ndurable 900 events/s\n");
        assert_eq!(append.events_per_second, Some(412_345.0));
        assert_eq!(append.lines.len(), 3);
        assert_eq!(read("nothing").events_per_second, None);
        assert_eq!(rate("median: 1_000.5 events/s"), Some(1000.5));
    }
}
