//! One integration test binary per crate: each further one links the whole tree again.

use super::Violation;
use super::tree::{Tree, short};

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in &tree.members {
        let binaries: Vec<_> = package
            .targets
            .iter()
            .filter(|t| t.kind.iter().any(|k| k == "test"))
            .map(|t| t.name.as_str())
            .collect();
        if binaries.len() > 1 {
            let path = format!("crates/{}/tests", short(&package.name));
            let message = format!(
                "has {} test binaries ({}): make them modules of one",
                binaries.len(),
                binaries.join(", ")
            );
            found.push(Violation::new(&path, 1, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said_of;
    use crate::workspace::{Package, Target};

    fn tree(names: &[&str]) -> Tree {
        let target = |kind: &str, name: &str| Target { name: name.into(), kind: vec![kind.into()] };
        let mut targets: Vec<_> = names.iter().map(|name| target("test", name)).collect();
        targets.push(target("lib", "seal"));
        Tree {
            members: vec![Package { name: "cofferdam-seal".into(), targets, ..Package::default() }],
            ..Tree::default()
        }
    }

    #[test]
    fn one_is_enough() {
        assert!(said_of(check, &tree(&[])).is_empty());
        assert!(said_of(check, &tree(&["it"])).is_empty());
        let found = said_of(check, &tree(&["it", "chain"]));
        assert_eq!(found, ["crates/seal/tests:1: has 2 test binaries (it, chain): make them modules of one"]);
    }
}
