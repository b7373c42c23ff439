//! Every module opens with what it is for and what it refuses to do.

use super::Violation;
use super::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let in_src = |path: &str| path.split('/').any(|part| part == "src");
    let silent =
        |text: &str| !text.lines().find(|line| !line.is_empty()).is_some_and(|line| line.starts_with("//! "));
    let modules = tree.rust().filter(|f| in_src(&f.path) && !f.is_test());
    modules
        .filter(|f| silent(&f.text))
        .map(|f| {
            Violation::new(
                &f.path,
                1,
                "does not open with `//!`: say what it is for and what it refuses to do",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    #[test]
    fn the_first_line_says_what_it_is_for() {
        assert!(said(check, &[("crates/a/src/lib.rs", "//! Hashes.\n")]).is_empty());
        assert!(said(check, &[("crates/a/tests/it.rs", "fn f() {}")]).is_empty());
        for silent in ["", "use a;\n//! Late.", "//!", "// Hashes."] {
            assert_eq!(said(check, &[("crates/a/src/lib.rs", silent)]).len(), 1, "{silent}");
        }
    }
}
