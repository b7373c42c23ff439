//! ARCHITECTURE.md names every crate, and every path it mentions exists; so do the links of all other pages.

use super::tree::{File, Tree, short};
use super::{Violation, markdown};

const PAGE: &str = "ARCHITECTURE.md";

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let Some(page) = tree.file(PAGE) else {
        return vec![Violation::new(PAGE, 1, "is missing: it is the map of this repository")];
    };
    let mut found: Vec<_> = unnamed_crates(tree, page).chain(missing_paths(tree, page)).collect();
    let pages = tree.files.iter().filter(|f| f.path.ends_with(".md"));
    found.extend(pages.flat_map(|page| broken_links(tree, page)));
    found
}

fn unnamed_crates<'a>(tree: &'a Tree, page: &'a File) -> impl Iterator<Item = Violation> + 'a {
    let named =
        |name: &str| markdown::prose(&page.text).any(|(_, line)| markdown::code(line).any(|c| c == name));
    let names = tree.members.iter().map(|p| short(&p.name));
    names.filter(move |name| !named(name)).map(|name| {
        Violation::new(PAGE, 1, format!("does not name the crate `{name}`: add its row to the map"))
    })
}

fn missing_paths<'a>(tree: &'a Tree, page: &'a File) -> impl Iterator<Item = Violation> + 'a {
    let spans = markdown::prose(&page.text).flat_map(|(n, line)| markdown::code(line).map(move |c| (n, c)));
    spans
        .filter(|(_, span)| is_path(span) && !tree.exists(span))
        .map(|(n, span)| Violation::new(PAGE, n, format!("mentions `{span}`, which does not exist")))
}

/// A path of this repository, not one of the host's (`/proc/sys`), of a user (`~/.ssh`) or of a crate (`a::b`).
fn is_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let relative = !span.starts_with(['/', '.']) || span.starts_with(".ci") || span.starts_with(".cargo");
    span.chars().all(plain) && relative && (span.contains('/') || span.ends_with(".md"))
}

fn broken_links<'a>(tree: &'a Tree, page: &'a File) -> impl Iterator<Item = Violation> + 'a {
    let targets =
        markdown::prose(&page.text).flat_map(|(n, line)| markdown::links(line).map(move |t| (n, t)));
    targets
        .filter(|(_, target)| !tree.exists(&resolved(&page.path, target)))
        .map(|(n, target)| Violation::new(&page.path, n, format!("links to {target}, which does not exist")))
}

/// A link's target from the root, as it stands on this page.
fn resolved(page: &str, target: &str) -> String {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<_> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{said, said_of};
    use crate::workspace::Package;

    fn tree(page: &str) -> Tree {
        let mut tree = Tree::of(&[(PAGE, page), ("crates/seal/src/lib.rs", "")]);
        tree.members = vec![Package { name: "cofferdam-seal".into(), ..Package::default() }];
        tree
    }

    #[test]
    fn every_crate_is_on_the_map() {
        assert!(said_of(check, &tree("| `seal` | hashes |")).is_empty());
        assert_eq!(said_of(check, &tree("the sealing crate")).len(), 1);
        assert_eq!(said(check, &[]).len(), 1);
    }

    #[test]
    fn every_path_exists() {
        assert!(
            said_of(check, &tree("`seal` in `crates/seal/src`; hides `/proc/sys`, `~/.ssh`, `a::b/c`"))
                .is_empty()
        );
        let found = said_of(check, &tree("`seal`\nin `crates/sael` and `SECURITY.md`"));
        assert_eq!(
            found,
            [
                "ARCHITECTURE.md:2: mentions `crates/sael`, which does not exist",
                "ARCHITECTURE.md:2: mentions `SECURITY.md`, which does not exist"
            ]
        );
    }

    #[test]
    fn links_of_all_pages_lead_somewhere() {
        let good = [(PAGE, ""), ("docs/a.md", "[up](../ARCHITECTURE.md#map) [self](./a.md)")];
        assert!(said(check, &good).is_empty());
        let found = said(check, &[(PAGE, ""), ("docs/a.md", "\n[gone](b.md)")]);
        assert_eq!(found, ["docs/a.md:2: links to b.md, which does not exist"]);
    }
}
