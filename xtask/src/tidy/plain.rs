//! Who may name the type that holds a plain secret. The fewer files can, the fewer have to be read to know where
//! one goes; and a type that cannot be shown, copied or written cannot leak by accident.

use super::Violation;
use super::tree::{File, Tree};

const TYPE: &str = "Plain";
const HOME: &str = "crates/vault/src/plain.rs";
/// `egress` puts values into requests; one joint of the engine takes a new one from the vault for it.
const MAY_NAME: &[&str] = &["crates/vault/", "crates/egress/", "crates/engine/src/control/serve.rs"];
const FORBIDDEN: &[&str] = &["Debug", "Display", "Clone", "Copy", "Serialize", "Deserialize"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust().flat_map(|file| if file.path == HOME { traits(file) } else { names(file) }).collect()
}

fn names(file: &File) -> Vec<Violation> {
    if !file.path.starts_with("crates/") || MAY_NAME.iter().any(|place| file.path.starts_with(place)) {
        return Vec::new();
    }
    let source = file.source();
    // Only where the vault is in use can the word mean this type.
    if !source.idents_outside_tests().any(|(_, name, _)| name == "cofferdam_vault") {
        return Vec::new();
    }
    let found = source.idents_outside_tests().filter(|(_, name, _)| *name == TYPE);
    found
        .map(|(.., line)| {
            let message = "names the type of a plain secret: let `egress` handle it, or add this file to the rule and say why";
            Violation::new(&file.path, line, message.to_owned())
        })
        .collect()
}

fn traits(file: &File) -> Vec<Violation> {
    let source = file.source();
    let found = source.idents_outside_tests().filter(|(_, name, _)| FORBIDDEN.contains(name));
    found
        .map(|(_, name, line)| {
            let message = format!("`{name}` where a plain secret is defined: it must not be shown or copied");
            Violation::new(&file.path, line, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    #[test]
    fn the_type_has_few_friends() {
        let text = "use cofferdam_vault::Plain;\nfn f(p: Plain) {}";
        assert_eq!(said(check, &[("crates/engine/src/secrets.rs", text)]).len(), 2);
        for path in ["crates/egress/src/swap/coffer.rs", "crates/engine/src/control/serve.rs"] {
            assert!(said(check, &[(path, text)]).is_empty(), "{path}");
        }
        let other = "enum Paint { Plain }";
        assert!(said(check, &[("crates/cli/src/output.rs", other)]).is_empty());
    }

    #[test]
    fn it_cannot_be_shown() {
        let text = "#[derive(Debug)]\npub struct Plain(Vec<u8>);";
        assert_eq!(said(check, &[("crates/vault/src/plain.rs", text)]).len(), 1);
        assert!(said(check, &[("crates/vault/src/plain.rs", "pub struct Plain(Vec<u8>);")]).is_empty());
    }
}
