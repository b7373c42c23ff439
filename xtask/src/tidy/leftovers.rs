//! Nothing half-done is committed: no notes to oneself, no stubs, no tests that do not run.

use super::Violation;
use super::tree::{File, Tree};

/// Written apart, so that this file does not break its own rule.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];
const STUBS: &[&str] = &["todo", "unimplemented"];
/// Not ours to edit.
const FOREIGN: &[&str] = &["Cargo.lock", "LICENSE"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let ours = tree.files.iter().filter(|f| !FOREIGN.contains(&f.path.as_str()));
    ours.flat_map(notes).chain(tree.rust().flat_map(stubs)).chain(tree.rust().flat_map(ignored)).collect()
}

fn notes(file: &File) -> impl Iterator<Item = Violation> {
    let lines = file.text.lines().enumerate();
    let found = lines.filter_map(|(n, line)| {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        Some((n + 1, words.find(|word| NOTES.contains(word))?))
    });
    found.map(|(n, word)| Violation::new(&file.path, n, format!("`{word}`: do it, or open an issue")))
}

fn stubs(file: &File) -> impl Iterator<Item = Violation> {
    let source = file.source();
    let macros = source.idents().filter(|(at, name, _)| STUBS.contains(name) && source.is_macro(*at));
    macros.map(|(_, name, line)| Violation::new(&file.path, line, format!("`{name}!` is a stub: finish it")))
}

fn ignored(file: &File) -> impl Iterator<Item = Violation> {
    let source = file.source();
    let attributes =
        source.tokens.iter().enumerate().map(|(at, token)| (source.attribute_words(at), token.line));
    let ignoring = attributes.filter(|(words, _)| {
        words.first() == Some(&"ignore") || (words.first() == Some(&"cfg_attr") && words.contains(&"ignore"))
    });
    ignoring.map(|(_, line)| {
        Violation::new(&file.path, line, "an ignored test proves nothing: run it or delete it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    #[test]
    fn notes_to_oneself() {
        let note = format!("text\n// {}: later\n", NOTES[0]);
        assert_eq!(said(check, &[("README.md", &note)]).len(), 1);
        assert_eq!(said(check, &[("crates/a/src/lib.rs", &note.replace("text", ""))]).len(), 1);
        assert!(said(check, &[("LICENSE", &note)]).is_empty());
        assert!(said(check, &[("README.md", &format!("MY{}S", NOTES[0]))]).is_empty());
    }

    #[test]
    fn stubs_and_ignored_tests() {
        let check = |text: &str| said(check, &[("crates/a/src/lib.rs", text)]);
        assert_eq!(check("fn f() {\n todo!() }"), ["crates/a/src/lib.rs:2: `todo!` is a stub: finish it"]);
        assert_eq!(check("#[test]\n#[ignore = \"slow\"]\nfn f() {}").len(), 1);
        assert_eq!(check("#[cfg_attr(unix, ignore)] fn f() {}").len(), 1);
        assert!(check("fn ignore(todo: bool) { if todo != true {} }").is_empty());
    }
}
