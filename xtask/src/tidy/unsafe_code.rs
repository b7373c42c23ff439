//! `unsafe` stands in the crate `sys` and nowhere else: not in tests, not in macros, not in this tool.

use super::Violation;
use super::tree::Tree;

const HOME: &str = "sys";

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let elsewhere = tree.rust().filter(|file| file.owner() != HOME);
    elsewhere
        .flat_map(|file| {
            let found = file.source().idents().filter(|(_, name, _)| *name == "unsafe");
            found.map(|(_, _, line)| {
                Violation::new(
                    &file.path,
                    line,
                    "`unsafe` outside crates/sys: move it behind a safe wrapper there",
                )
            })
        })
        .collect()
}

/// A file that does not lex would pass every rule about tokens.
pub(crate) fn lexes(tree: &Tree) -> Vec<Violation> {
    let broken = |file: &super::tree::File| {
        let error = file.source().error.as_ref()?;
        Some(Violation::new(&file.path, 1, format!("is not Rust: {error}")))
    };
    tree.rust().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    #[test]
    fn sys_may() {
        let text = "// unsafe\nfn f() { unsafe { g() } }";
        assert!(said(check, &[("crates/sys/src/lib.rs", text)]).is_empty());
        assert_eq!(said(check, &[("crates/seal/src/lib.rs", text)]).len(), 1);
    }

    #[test]
    fn words_about_it_are_no_use_of_it() {
        let text = "// unsafe\nconst S: &str = \"unsafe\"; #[allow(unsafe_code)] fn r#unsafe_() {}";
        assert!(said(check, &[("crates/seal/src/lib.rs", text)]).is_empty());
    }

    #[test]
    fn macros_and_tests_are_no_place_for_it_either() {
        let text = "macro_rules! m {\n () => { unsafe {} } }\n#[cfg(test)]\nmod t { unsafe fn f() {} }";
        let found = said(check, &[("crates/seal/src/lib.rs", text)]);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("crates/seal/src/lib.rs:2: "), "{found:?}");
    }

    #[test]
    fn what_does_not_lex_is_named() {
        assert_eq!(
            said(lexes, &[("crates/a/src/lib.rs", "fn {"), ("crates/b/src/lib.rs", "fn f() {}")]).len(),
            1
        );
    }
}
