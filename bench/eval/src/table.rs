//! The table that is printed: Markdown, so that it can go into docs/accuracy.md as it is.

use std::fmt;

/// One number with what it was counted over.
pub struct Row {
    pub what: String,
    pub value: f64,
    /// The 95 % interval.
    pub interval: (f64, f64),
    pub n: usize,
    /// As the issue states it: `≥ 0.99`; empty where a number is only told.
    pub goal: String,
}

#[derive(Default)]
pub struct Table {
    pub rows: Vec<Row>,
    /// How it was split and what is left out: printed under the table.
    pub notes: Vec<String>,
}

impl Table {
    pub fn row(&mut self, what: impl Into<String>, value: f64, interval: (f64, f64), n: usize, goal: &str) {
        self.rows.push(Row { what: what.into(), value, interval, n, goal: goal.into() });
    }

    /// A share with its Wilson interval.
    pub fn share(&mut self, what: impl Into<String>, hits: usize, n: usize, goal: &str) {
        let value = if n == 0 { f64::NAN } else { hits as f64 / n as f64 };
        self.row(what, value, crate::stats::wilson(hits, n), n, goal);
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | value | 95 % interval | n | goal |\n|---|---|---|---|---|")?;
        for row in &self.rows {
            let Row { what, value, interval: (low, high), n, goal } = row;
            writeln!(f, "| {what} | {value:.4} | {low:.4} – {high:.4} | {n} | {goal} |")?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n{note}\n"))?;
        writeln!(f)
    }
}
