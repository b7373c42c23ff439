//! Only the doors and the tools print. A library that prints has decided for its caller where words go, and
//! in this product stdout belongs to the command inside the sandbox.

use super::Violation;
use super::tree::{File, Tree};

const MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];
const MAY_PRINT: &[&str] = &["cli", "xtask", "testkit"];
/// The guest's program, unlike its library, has a stderr of its own; programs that measure tell what they found.
const PROGRAMS: &[&str] = &["crates/guest/src/main.rs", "crates/guest/src/bin/", "bench/"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust().filter(|file| !may_print(file)).flat_map(prints).collect()
}

fn may_print(file: &File) -> bool {
    let is_program = PROGRAMS.iter().any(|program| file.path.starts_with(program));
    MAY_PRINT.contains(&file.owner()) || is_program || file.is_test() || file.is_beside()
}

fn prints(file: &File) -> impl Iterator<Item = Violation> {
    let source = file.source();
    let macros =
        source.idents_outside_tests().filter(|(at, name, _)| MACROS.contains(name) && source.is_macro(*at));
    macros.map(|(_, name, line)| {
        Violation::new(
            &file.path,
            line,
            format!("`{name}!` outside of `cli`: return the words, let the door print them"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    #[test]
    fn libraries_do_not_print() {
        let text = "fn f() {\n println!(\"a\"); writeln!(w, \"b\"); /* eprintln!() */ }";
        let found = said(check, &[("crates/engine/src/lib.rs", text)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/engine/src/lib.rs:2: `println!`"), "{found:?}");
    }

    #[test]
    fn doors_tools_tests_and_build_scripts_do() {
        let text = "fn f() { eprintln!() }";
        for path in [
            "crates/cli/src/run.rs",
            "xtask/src/a.rs",
            "crates/engine/build.rs",
            "crates/guest/src/main.rs",
            "bench/a/src/main.rs",
            "crates/seal/tests/it.rs",
        ] {
            assert!(said(check, &[(path, text)]).is_empty(), "{path}");
        }
        assert!(
            said(check, &[("crates/seal/src/lib.rs", "#[cfg(test)] mod tests { fn f() { dbg!(1) } }")])
                .is_empty()
        );
    }
}
