//! Pure crates do no I/O, read no clock and draw no randomness: time, keys and chance come as arguments, so
//! that the same input always gives the same bytes. Their tests may do as they like.

use super::Violation;
use super::source::Source;
use super::tree::{File, Tree, short};

const PURE: &[&str] = &["model", "seal", "policy", "compare", "gate"];

/// Paths that reach out, and what each reaches.
const REACHING: &[(&[&str], &str)] = &[
    (&["std", "fs"], "the file system"),
    (&["std", "net"], "the network"),
    (&["std", "os", "unix", "net"], "the network"),
    (&["std", "process"], "processes"),
    (&["std", "env"], "the environment"),
    (&["std", "io", "stdin"], "stdin"),
    (&["std", "io", "stdout"], "stdout"),
    (&["std", "io", "stderr"], "stderr"),
    (&["std", "thread", "sleep"], "the clock"),
    (&["std", "time", "*"], "the clock"),
    (&["ring", "rand"], "randomness"),
    (&["SystemRandom", "new"], "randomness"),
    (&["Nonces", "new"], "randomness"),
];

/// A type that callers make and hand in, which has to have a name.
const HANDED_IN: &[&str] = &["ring", "rand", "SystemRandom"];

/// Types that are a clock, however they were imported.
const CLOCKS: &[&str] = &["SystemTime", "Instant"];

/// Crates whose use is reaching out.
const CRATES: &[&str] =
    &["rand", "rand_core", "fastrand", "getrandom", "rustix", "libc", "nix", "tokio", "tempfile"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let files = tree.rust().filter(|f| PURE.contains(&f.owner()) && !f.is_test() && !f.is_beside());
    files.flat_map(reaches).chain(dependencies(tree)).collect()
}

fn reaches(file: &File) -> Vec<Violation> {
    let says = |line: usize, what: &str, path: &[&str]| {
        let path = path.join("::");
        Violation::new(
            &file.path,
            line,
            format!("a pure crate reaches {what} with `{path}`: take it as an argument"),
        )
    };
    let mut found = Vec::new();
    for (path, line) in paths(file.source()) {
        let by_table = REACHING.iter().find(|(prefix, _)| path.starts_with(prefix) && path != HANDED_IN);
        if let Some((_, what)) = by_table {
            found.push(says(line, what, &path));
        } else if path.iter().any(|segment| CLOCKS.contains(segment)) {
            found.push(says(line, "the clock", &path));
        } else if path.len() > 1 && path.first().is_some_and(|first| CRATES.contains(first)) {
            found.push(says(line, "out", &path));
        }
    }
    found
}

fn dependencies(tree: &Tree) -> impl Iterator<Item = Violation> {
    let pure = tree.members.iter().filter(|p| PURE.contains(&short(&p.name)));
    pure.flat_map(|package| {
        let reaching =
            package.dependencies.iter().filter(|d| !d.is_dev() && CRATES.contains(&d.name.as_str()));
        reaching.map(|d| {
            let path = format!("crates/{}/Cargo.toml", short(&package.name));
            Violation::new(&path, 1, format!("a pure crate may not depend on `{}`", d.name))
        })
    })
}

type Named<'a> = (Vec<&'a str>, usize);

/// All paths named outside of tests, with `use a::{b, c::d}` written out.
fn paths(source: &Source) -> Vec<Named<'_>> {
    let mut found = Vec::new();
    let mut done = 0;
    for (at, ..) in source.idents_outside_tests() {
        if at >= done {
            done = follow(source, at, Vec::new(), &mut found);
        }
    }
    found
}

/// Reads the path that starts here, and says where it ends.
fn follow<'a>(source: &'a Source, start: usize, mut path: Vec<&'a str>, found: &mut Vec<Named<'a>>) -> usize {
    let line = source.tokens.get(start).map_or(0, |t| t.line);
    let mut at = start;
    while let Some(name) = source.ident(at) {
        path.push(name);
        let Some(next) = source.after_path_separator(at) else { break };
        if let Some((members, end)) = source.members(next) {
            for member in members {
                follow(source, member, path.clone(), found);
            }
            return end;
        }
        if source.is_star(next) {
            path.push("*");
        }
        at = next;
    }
    if !path.is_empty() {
        found.push((path, line));
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{said, said_of};
    use crate::workspace::{Dependency, Package};

    fn check(text: &str, expected: &[&str]) {
        let found = said(super::check, &[("crates/seal/src/lib.rs", text)]);
        assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
        found.iter().zip(expected).for_each(|(found, part)| assert!(found.contains(part), "{found}"));
    }

    #[test]
    fn reaching_out_is_named() {
        check("use std::fs;", &["the file system with `std::fs`"]);
        check(
            "fn f() {\n std::fs::read(p) }",
            &["lib.rs:2: a pure crate reaches the file system with `std::fs::read`"],
        );
        check("use std::{fmt, net::TcpStream, process};", &["the network", "processes"]);
        check("use std::time::{Duration, Instant};", &["the clock with `std::time::Instant`"]);
        check("use std::time; fn f() { time::SystemTime::now() }", &["the clock"]);
        check("use std::time::*;", &["the clock"]);
        check("fn f() { rand::random() }", &["reaches out with `rand::random`"]);
        check("use ring::{digest, rand::SecureRandom};", &["randomness"]);
        check("use ring::rand::SystemRandom; fn f() { SystemRandom::new() }", &["randomness"]);
    }

    #[test]
    fn plain_data_is_not() {
        check("use std::time::Duration; use std::io::Write; fn f(rand: u8) -> u8 { rand }", &[]);
        check("// std::fs\nconst S: &str = \"std::fs\";", &[]);
        check("#[cfg(test)] mod tests { use std::fs; }", &[]);
        check("use ring::{digest, rand::SystemRandom}; fn f(from: &SystemRandom) {}", &[]);
        assert!(said(super::check, &[("crates/engine/src/lib.rs", "use std::fs;")]).is_empty());
    }

    #[test]
    fn dependencies_count_too() {
        let dependency =
            |kind: Option<&str>| Dependency { name: "rustix".into(), kind: kind.map(str::to_owned) };
        let tree = |kind| Tree {
            members: vec![Package {
                name: "cofferdam-seal".into(),
                dependencies: vec![dependency(kind)],
                ..Package::default()
            }],
            ..Tree::default()
        };
        assert_eq!(said_of(super::check, &tree(None)).len(), 1);
        assert!(said_of(super::check, &tree(Some("dev"))).is_empty());
    }
}
