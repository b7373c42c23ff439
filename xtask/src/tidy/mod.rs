//! `cargo xtask tidy`: the invariants of ARCHITECTURE.md as code. A rule is one small file with a pure
//! function from the tree to its violations; it reads nothing itself and repairs nothing.

mod architecture;
mod changelog;
mod denied;
mod edges;
mod leftovers;
mod licences;
mod lints;
mod lockfile;
mod markdown;
mod module_docs;
mod names;
mod plain;
mod printing;
mod purity;
mod security;
mod sizes;
mod source;
mod test_binaries;
mod tree;
mod unsafe_code;

use std::fmt;
use std::time::Instant;
use tree::Tree;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also list files and functions over the size they should aim for (never a failure)
    #[arg(long)]
    pub(crate) hints: bool,
}

/// One rule: a name to cite, and a check.
struct Rule {
    name: &'static str,
    check: fn(&Tree) -> Vec<Violation>,
}

const RULES: &[Rule] = &[
    Rule { name: "lexes", check: unsafe_code::lexes },
    Rule { name: "edges", check: edges::check },
    Rule { name: "unsafe", check: unsafe_code::check },
    Rule { name: "lints", check: lints::check },
    Rule { name: "sizes", check: sizes::check },
    Rule { name: "architecture", check: architecture::check },
    Rule { name: "security", check: security::check },
    Rule { name: "printing", check: printing::check },
    Rule { name: "purity", check: purity::check },
    Rule { name: "names", check: names::check },
    Rule { name: "plain", check: plain::check },
    Rule { name: "leftovers", check: leftovers::check },
    Rule { name: "module-docs", check: module_docs::check },
    Rule { name: "test-binaries", check: test_binaries::check },
    Rule { name: "changelog", check: changelog::check },
    Rule { name: "lockfile", check: lockfile::check },
    Rule { name: "licences", check: licences::check },
];

/// Where a rule is broken, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }

    fn cited<'a>(&'a self, rule: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| write!(f, "{}:{}: {rule}: {}", self.path, self.line, self.message))
    }
}

pub(crate) fn main(args: &Args) -> crate::Outcome {
    let started = Instant::now();
    let tree = Tree::load(&crate::workspace::root())?;
    let mut broken = 0;
    for rule in RULES {
        let mut violations = (rule.check)(&tree);
        violations.sort();
        broken += violations.len();
        for violation in &violations {
            println!("{}", violation.cited(rule.name));
        }
    }
    let hints = sizes::hints(&tree);
    if args.hints {
        hints.iter().for_each(|hint| println!("{}", hint.cited("hint")));
    }
    println!(
        "tidy: {broken} violations, {} hints, {} rules over {} files in {:.2} s",
        hints.len(),
        RULES.len(),
        tree.files.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(broken == 0)
}

/// For the rules' own tests: what a check says about a tree of a few files, one line per violation.
#[cfg(test)]
fn said(check: fn(&Tree) -> Vec<Violation>, files: &[(&str, &str)]) -> Vec<String> {
    said_of(check, &Tree::of(files))
}

#[cfg(test)]
fn said_of(check: fn(&Tree) -> Vec<Violation>, tree: &Tree) -> Vec<String> {
    check(tree).iter().map(|v| format!("{}:{}: {}", v.path, v.line, v.message)).collect()
}
