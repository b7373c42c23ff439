//! How far a suite is: one line that changes on a terminal, a line for each session elsewhere, nothing when quiet.

use crate::output::Output;
use crate::story::{fit, printable};
use cofferdam_engine::gate::{Note, Verdict};
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

pub(crate) struct Progress {
    shown: Shown,
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Lines,
    Bar,
}

#[derive(Default)]
struct State {
    sessions: usize,
    finished: usize,
    running: Vec<String>,
    review: usize,
    fail: usize,
}

const BAR: usize = 24;

impl Progress {
    pub(crate) fn new(output: &Output) -> Self {
        let shown = match (output.quiet || output.json, io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (_, true) => Shown::Bar,
            _ => Shown::Lines,
        };
        Self { shown, state: Mutex::default() }
    }

    pub(crate) fn note(&self, note: Note) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let line = state.take(note);
        match self.shown {
            Shown::Nothing => {}
            Shown::Lines => {
                if let Some(line) = line {
                    let _ = writeln!(io::stderr().lock(), "{line}");
                }
            }
            Shown::Bar => {
                let _ = write!(io::stderr().lock(), "\r\x1b[K{}", state.bar(width()));
            }
        }
    }

    /// Gives the line back.
    pub(crate) fn end(&self) {
        if self.shown == Shown::Bar {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn width() -> usize {
    rustix::termios::tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col)).max(20)
}

impl State {
    /// What there is to say of it in a line of its own.
    fn take(&mut self, note: Note) -> Option<String> {
        match note {
            Note::Planned { sessions, finished, at_once } => {
                (self.sessions, self.finished) = (sessions, finished);
                let before =
                    if finished > 0 { format!(", {finished} finished before") } else { String::new() };
                let word = if sessions == 1 { "session" } else { "sessions" };
                Some(format!("{sessions} {word}, {at_once} at once{before}"))
            }
            Note::Started { id } => {
                self.running.push(id);
                None
            }
            Note::Again { id, attempt } => Some(format!("again   {id} (attempt {attempt})")),
            Note::Ended { id, outcome, why, took } => {
                self.running.retain(|running| *running != id);
                self.finished += 1;
                match outcome {
                    Verdict::Pass => {}
                    Verdict::Review => self.review += 1,
                    Verdict::Fail => self.fail += 1,
                }
                let why = why.filter(|_| outcome != Verdict::Pass);
                let why = why.map_or_else(String::new, |why| format!(": {}", fit(&printable(&why), 120)));
                Some(format!("{:<7} {id} ({:.1} s){why}", outcome.to_string(), took.as_secs_f64()))
            }
        }
    }

    fn bar(&self, width: usize) -> String {
        let full = (self.finished * BAR).checked_div(self.sessions).unwrap_or(0).min(BAR);
        let mut line =
            format!("[{}{}] {}/{}", "#".repeat(full), ".".repeat(BAR - full), self.finished, self.sessions);
        for (count, word) in [(self.fail, "fail"), (self.review, "review")] {
            if count > 0 {
                line.push_str(&format!(", {count} {word}"));
            }
        }
        if !self.running.is_empty() {
            line.push_str(&format!("  {}", self.running.join(" ")));
        }
        fit(&line, width.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_bar_tells_how_far_it_is() {
        let mut state = State::default();
        state.take(Note::Planned { sessions: 4, finished: 1, at_once: 2 });
        state.take(Note::Started { id: "a".into() });
        state.take(Note::Started { id: "b".into() });
        let ended = Note::Ended {
            id: "a".into(),
            outcome: Verdict::Fail,
            why: Some("it\nbroke".into()),
            took: Duration::from_millis(1500),
        };
        let line = state.take(ended).unwrap();
        assert!(line.starts_with("fail    a (1.5 s): it"), "{line}");
        assert!(!line.contains('\n'));
        assert_eq!(state.bar(80), "[############............] 2/4, 1 fail  b");
        assert!(state.bar(20).chars().count() < 20);
    }
}
