//! Files stop at 500 lines before their tests, functions at 80. An exception says how far and why in
//! `xtask/tidy-exceptions.toml`, and falls with its need.

use super::Violation;
use super::tree::{File, Tree};
use serde::Deserialize;

const FILE: Size = Size { aim: 300, stop: 500 };
const FUNCTION: Size = Size { aim: 40, stop: 80 };
const EXCEPTIONS: &str = "xtask/tidy-exceptions.toml";

struct Size {
    aim: usize,
    stop: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    exception: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    path: String,
    /// Absent: the file itself.
    function: Option<String>,
    /// How long it may be: an exception is no licence to grow.
    lines: usize,
    reason: String,
}

/// A file (no function) or a function, with its length.
struct Measured<'a> {
    path: &'a str,
    function: Option<String>,
    line: usize,
    lines: usize,
}

impl Measured<'_> {
    fn size(&self) -> &'static Size {
        if self.function.is_some() { &FUNCTION } else { &FILE }
    }

    fn says(&self, wanted: &str, limit: usize) -> Violation {
        let what = self.function.as_ref().map_or("the file".to_owned(), |name| format!("`{name}`"));
        Violation::new(self.path, self.line, format!("{what} has {} lines, {wanted} {limit}", self.lines))
    }
}

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let exceptions = match exceptions(tree) {
        Ok(exceptions) => exceptions,
        Err(violation) => return vec![violation],
    };
    let too_long: Vec<_> = measured(tree).into_iter().filter(|m| m.lines > m.size().stop).collect();
    let covers = |e: &Exception, m: &Measured<'_>| e.path == m.path && e.function == m.function;
    let excused = |m: &Measured<'_>| exceptions.iter().any(|e| covers(e, m) && m.lines <= e.lines);
    let mut found: Vec<_> =
        too_long.iter().filter(|m| !excused(m)).map(|m| m.says("and the stop is", m.size().stop)).collect();
    for exception in &exceptions {
        let name = exception.function.as_deref().unwrap_or("the file");
        if exception.reason.trim().is_empty() {
            let message = format!("{}: {name}: an exception needs a reason", exception.path);
            found.push(Violation::new(EXCEPTIONS, 1, message));
        }
        if !too_long.iter().any(|m| covers(exception, m)) {
            let message = format!("{}: {name}: the exception is stale, delete it", exception.path);
            found.push(Violation::new(EXCEPTIONS, 1, message));
        }
    }
    found
}

/// What is over its aim and under its stop: worth a look, never a failure.
pub(crate) fn hints(tree: &Tree) -> Vec<Violation> {
    let worth = |m: &Measured<'_>| m.lines > m.size().aim && m.lines <= m.size().stop;
    let over = measured(tree).into_iter().filter(worth);
    over.map(|m| m.says("aim for", m.size().aim)).collect()
}

fn exceptions(tree: &Tree) -> Result<Vec<Exception>, Violation> {
    let text = tree.file(EXCEPTIONS).map_or("", |f| f.text.as_str());
    let parsed: Result<Exceptions, _> = toml::from_str(text);
    parsed.map(|e| e.exception).map_err(|e| Violation::new(EXCEPTIONS, 1, e.to_string()))
}

fn measured(tree: &Tree) -> Vec<Measured<'_>> {
    tree.rust().flat_map(|file| file_size(file).into_iter().chain(function_sizes(file))).collect()
}

/// Tests are not counted: a subject with many examples is no worse for it.
fn file_size(file: &File) -> Option<Measured<'_>> {
    let lines = file.text.lines().count() - file.source().test_lines();
    (!file.is_test()).then_some(Measured { path: &file.path, function: None, line: 1, lines })
}

fn function_sizes(file: &File) -> impl Iterator<Item = Measured<'_>> {
    let path = &file.path;
    let functions = file.source().functions().into_iter();
    functions.map(move |f| Measured { path, function: Some(f.name), line: f.line, lines: f.lines })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    const PATH: &str = "crates/a/src/lib.rs";

    fn function(lines: usize) -> String {
        format!("fn f() {{{}}}\n", "\n".repeat(lines - 1))
    }

    fn exception(body: &str) -> String {
        format!("[[exception]]\npath = \"{PATH}\"\n{body}")
    }

    #[test]
    fn long_files_are_named() {
        assert!(said(check, &[(PATH, &"//\n".repeat(500))]).is_empty());
        let found = said(check, &[(PATH, &"//\n".repeat(501))]);
        assert_eq!(found, ["crates/a/src/lib.rs:1: the file has 501 lines, and the stop is 500"]);
        assert!(said(check, &[("crates/a/tests/it.rs", &"//\n".repeat(501))]).is_empty());
    }

    #[test]
    fn tests_do_not_count() {
        let text = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "//\n".repeat(490), "//\n".repeat(100));
        assert!(said(check, &[(PATH, &text)]).is_empty());
        let hidden = format!("#[cfg(test)]\nmod tests {{}}\n{}", "//\n".repeat(501));
        assert_eq!(said(check, &[(PATH, &hidden)]).len(), 1);
    }

    #[test]
    fn long_functions_are_named() {
        assert!(said(check, &[(PATH, &function(80))]).is_empty());
        let found = said(check, &[(PATH, &format!("\n{}", function(81)))]);
        assert_eq!(found, ["crates/a/src/lib.rs:2: `f` has 81 lines, and the stop is 80"]);
    }

    #[test]
    fn an_exception_reaches_as_far_as_it_says() {
        let excused = exception("function = \"f\"\nlines = 90\nreason = \"one table\"");
        assert!(said(check, &[(PATH, &function(90)), (EXCEPTIONS, &excused)]).is_empty());
        assert_eq!(said(check, &[(PATH, &function(91)), (EXCEPTIONS, &excused)]).len(), 1);
    }

    #[test]
    fn a_stale_or_unreasoned_exception_is_an_error() {
        let stale = exception("function = \"f\"\nlines = 90\nreason = \"one table\"");
        let found = said(check, &[(PATH, &function(70)), (EXCEPTIONS, &stale)]);
        assert_eq!(
            found,
            ["xtask/tidy-exceptions.toml:1: crates/a/src/lib.rs: f: the exception is stale, delete it"]
        );
        let empty = exception("lines = 600\nreason = \" \"");
        assert_eq!(said(check, &[(PATH, &"//\n".repeat(501)), (EXCEPTIONS, &empty)]).len(), 1);
        assert_eq!(said(check, &[(EXCEPTIONS, "[[exeption]]")]).len(), 1);
    }

    #[test]
    fn hints_lie_between_aim_and_stop() {
        assert_eq!(hints(&Tree::of(&[(PATH, &"//\n".repeat(301))])).len(), 1);
        assert!(hints(&Tree::of(&[(PATH, &"//\n".repeat(501))])).is_empty());
    }
}
