//! The folder listing is the map: no module is named after nothing, and a crate lies in the folder of its name.

use super::Violation;
use super::tree::{File, Tree, short};

const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "type", "types", "manager", "managers", "misc"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found: Vec<_> = tree.rust().flat_map(|f| by_path(f).into_iter().chain(inline(f))).collect();
    for package in &tree.members {
        let folder = package.manifest_path.parent().and_then(|dir| dir.file_name());
        if folder.is_some_and(|folder| folder != short(&package.name)) {
            let path = package.manifest_path.to_string_lossy();
            found.push(Violation::new(
                &path,
                1,
                format!("`{}` does not lie in the folder of its name", package.name),
            ));
        }
    }
    found
}

fn by_path(file: &File) -> Option<Violation> {
    let mut parts = file.path.split('/').map(|part| part.trim_end_matches(".rs"));
    let name = parts.find(|part| EMPTY_NAMES.contains(part))?;
    Some(refused(file, 1, name))
}

fn inline(file: &File) -> impl Iterator<Item = Violation> {
    let source = file.source();
    let modules = source.idents().filter(|(_, word, _)| *word == "mod");
    let named = modules.filter_map(|(at, _, line)| Some((source.ident(at + 1)?, line)));
    named.filter(|(name, _)| EMPTY_NAMES.contains(name)).map(|(name, line)| refused(file, line, name))
}

fn refused(file: &File, line: usize, name: &str) -> Violation {
    Violation::new(
        &file.path,
        line,
        format!("a module named `{name}` says nothing: name it after what it does"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{said, said_of};
    use crate::workspace::Package;

    #[test]
    fn names_that_say_nothing() {
        assert!(said(check, &[("crates/a/src/chain.rs", "mod digest {}")]).is_empty());
        assert_eq!(said(check, &[("crates/a/src/utils.rs", "")]).len(), 1);
        assert_eq!(said(check, &[("crates/a/tests/common/mod.rs", "")]).len(), 1);
        let found = said(check, &[("crates/a/src/lib.rs", "//! mod types\nmod helpers {}")]);
        assert_eq!(
            found,
            ["crates/a/src/lib.rs:2: a module named `helpers` says nothing: name it after what it does"]
        );
    }

    #[test]
    fn a_crate_lies_in_the_folder_of_its_name() {
        let tree = |folder: &str| Tree {
            members: vec![Package {
                name: "cofferdam-seal".into(),
                manifest_path: format!("/r/crates/{folder}/Cargo.toml").into(),
                ..Package::default()
            }],
            ..Tree::default()
        };
        assert!(said_of(check, &tree("seal")).is_empty());
        assert_eq!(said_of(check, &tree("hash")).len(), 1);
    }
}
