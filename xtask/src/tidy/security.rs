//! Every guarantee of SECURITY.md names a test that exists. A guarantee starts at a line that begins with its
//! number (`G1`), in a heading, a list or a table, and reaches to the next one or to the next heading.
//!
//! A test is cited as `crate::module::name` or `tests/file.rs::name`. That it passes is for the test run to say.

use super::tree::{File, Tree};
use super::{Violation, markdown};

const PAGE: &str = "SECURITY.md";

struct Guarantee<'a> {
    number: usize,
    line: usize,
    /// Everything in backticks with a `::` in it.
    tests: Vec<(usize, &'a str)>,
}

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let Some(page) = tree.file(PAGE) else {
        return vec![Violation::new(PAGE, 1, "is missing: it states what is guaranteed, and by which test")];
    };
    let guarantees = guarantees(&page.text);
    let mut found = Vec::new();
    if guarantees.is_empty() {
        found.push(Violation::new(PAGE, 1, "states no guarantee (`G1`…)"));
    }
    for (guarantee, expected) in guarantees.iter().zip(1..) {
        let number = guarantee.number;
        if number != expected {
            let message = format!("G{number} stands where G{expected} should: number them without gaps");
            found.push(Violation::new(PAGE, guarantee.line, message));
        }
        if guarantee.tests.is_empty() {
            found.push(Violation::new(PAGE, guarantee.line, format!("G{number} names no test")));
        }
        let missing = guarantee.tests.iter().filter(|(_, test)| !exists(tree, test));
        found.extend(missing.map(|(line, test)| {
            Violation::new(PAGE, *line, format!("G{number} names `{test}`, and no such test exists"))
        }));
    }
    found
}

fn guarantees(text: &str) -> Vec<Guarantee<'_>> {
    let mut found: Vec<Guarantee<'_>> = Vec::new();
    let mut open = false;
    for (line, content) in markdown::prose(text) {
        if let Some(number) = number(content) {
            open = true;
            found.push(Guarantee { number, line, tests: Vec::new() });
        } else if content.starts_with('#') {
            open = false;
        }
        if let Some(guarantee) = found.last_mut().filter(|_| open) {
            let cited = markdown::code(content).filter(|span| span.contains("::"));
            guarantee.tests.extend(cited.map(|span| (line, span)));
        }
    }
    found
}

fn number(line: &str) -> Option<usize> {
    let rest = line.trim_start_matches(['#', '|', '-', '*', ' ']).strip_prefix('G')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..digits)?.parse().ok()
}

fn exists(tree: &Tree, cited: &str) -> bool {
    let Some((place, name)) = cited.rsplit_once("::") else { return false };
    let has_test = |file: &&File| file.source().functions().iter().any(|f| f.is_test && f.name == name);
    tree.rust().filter(|file| lies_in(file, place)).any(|file| has_test(&file))
}

/// Whether a file can be what `crate::module::tests` or `tests/file.rs` means. Inline modules cannot be seen
/// from here, so a module has to be found in the path only if it is no `tests` module.
fn lies_in(file: &File, place: &str) -> bool {
    if place.ends_with(".rs") {
        return file.path == place || file.path.ends_with(&format!("/{place}"));
    }
    let mut segments = place.split("::");
    let owner = segments.next().unwrap_or("").replace('_', "-");
    let parts: Vec<_> = file.path.split('/').map(|p| p.trim_end_matches(".rs")).collect();
    file.owner() == owner && segments.filter(|s| *s != "tests").all(|s| parts.contains(&s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    fn check(page: &str, expected: &[&str]) {
        let files = [
            (PAGE, page),
            ("crates/seal/src/chain.rs", "#[cfg(test)] mod tests { #[test] fn holds() {} fn helper() {} }"),
            ("crates/cli/tests/it/escape.rs", "#[test]\nfn no_way_out() {}"),
        ];
        assert_eq!(said(super::check, &files), expected, "{page}");
    }

    #[test]
    fn each_form_of_a_guarantee_is_read() {
        check(
            "### G1 · order\ntext `a` text\nHeld by `seal::chain::tests::holds`.\n## Non-goals\n`x::y`",
            &[],
        );
        check("| G1 | order | `tests/it/escape.rs::no_way_out` |\n| G2 | b | `seal::chain::holds` |", &[]);
        check("- **G1** order: `crates/cli/tests/it/escape.rs::no_way_out`", &[]);
    }

    #[test]
    fn a_guarantee_without_a_test_is_named() {
        check("# G1\ntext\n# G2 `seal::chain::tests::holds`", &["SECURITY.md:1: G1 names no test"]);
        check("nothing", &["SECURITY.md:1: states no guarantee (`G1`…)"]);
        assert_eq!(said(super::check, &[]).len(), 1);
    }

    #[test]
    fn a_test_that_does_not_exist_is_named() {
        for gone in [
            "seal::chain::tests::breaks",
            "seal::merkle::holds",
            "seal::chain::tests::helper",
            "trace::chain::holds",
        ] {
            let message = format!("SECURITY.md:2: G1 names `{gone}`, and no such test exists");
            check(&format!("# G1\n`{gone}`"), &[&message]);
        }
    }

    #[test]
    fn numbers_have_no_gaps() {
        let page = "# G1 `seal::chain::holds`\n# G3 `seal::chain::holds`";
        check(page, &["SECURITY.md:2: G3 stands where G2 should: number them without gaps"]);
    }
}
