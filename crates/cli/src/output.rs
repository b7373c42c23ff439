//! What is printed, and how: data on stdout, everything else on stderr, colour only for people.

use crate::args::Global;
use cofferdam_engine::EngineError;
use cofferdam_server::ServeError;
use serde::Serialize;
use serde_json::json;
use std::fmt;
use std::io::{self, IsTerminal, Write};

pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    colour: bool,
}

/// Something of ours that went wrong, with the kind that decides the exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    Engine(EngineError),
    Usage(String),
    Io(io::Error),
    /// Of the service.
    Serve(ServeError),
}

impl Failure {
    /// 2 for usage, configuration and internal errors; 4 for refusals.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Engine(error) | Self::Serve(ServeError::Engine(error)) if error.is_refusal() => 4,
            _ => 2,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Engine(error) | Self::Serve(ServeError::Engine(error)) if error.is_refusal() => "refused",
            Self::Usage(_) => "usage",
            _ => "error",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Usage(text) => f.write_str(text),
            Self::Io(error) => error.fmt(f),
            Self::Serve(error) => error.fmt(f),
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        Self::Serve(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Paint {
    Bold,
    Dim,
    Good,
    Bad,
    Care,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = !plain && !global.json && io::stdout().is_terminal();
        Self { json: global.json, quiet: global.quiet, verbose: global.verbose, colour }
    }

    /// For a command line that could not be read, by a program.
    pub(crate) fn for_programs() -> Self {
        Self { json: true, quiet: false, verbose: false, colour: false }
    }

    pub(crate) fn paint(&self, paint: Paint, text: impl fmt::Display) -> String {
        let code = match paint {
            Paint::Bold => "1",
            Paint::Dim => "2",
            Paint::Good => "32",
            Paint::Bad => "31",
            Paint::Care => "33",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Data for the caller. A reader that has left is no failure.
    pub(crate) fn data(&self, text: &str) -> Result<(), Failure> {
        match io::stdout().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// The same, for what is written piece by piece.
    pub(crate) fn stream(&self) -> impl Write {
        Stream(io::stdout().lock())
    }

    pub(crate) fn value(&self, value: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(value).map_err(|error| Failure::Io(error.into()))?;
        text.push('\n');
        self.data(&text)
    }

    /// A remark of ours beside the command's own output.
    pub(crate) fn remark(&self, text: impl fmt::Display) {
        if !self.quiet {
            let _ = writeln!(io::stderr().lock(), "cofferdam: {text}");
        }
    }

    /// A part of what was asked for that went wrong, told also when quiet.
    pub(crate) fn trouble(&self, text: impl fmt::Display) {
        let _ = writeln!(io::stderr().lock(), "cofferdam: {text}");
    }

    /// Data about a run: on stderr, because stdout is the command's own.
    pub(crate) fn aside(&self, value: &impl Serialize) {
        if let Ok(text) = serde_json::to_string(value) {
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }

    pub(crate) fn failure(&self, failure: &Failure, code: u8) {
        if self.json {
            self.aside(
                &json!({ "error": { "kind": failure.kind(), "message": failure.to_string() }, "exit": code }),
            );
        } else {
            let _ = writeln!(io::stderr().lock(), "cofferdam: {failure}");
        }
    }
}

struct Stream(io::StdoutLock<'static>);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}
