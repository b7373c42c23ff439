//! Which crate may use which: the map of ARCHITECTURE.md as a table. A crate without a row is refused, and
//! so is a row without a crate, so that the table stays the truth.

use super::Violation;
use super::tree::{Tree, short};
use crate::workspace::{Dependency, Package};

/// Ground first. What is not listed may not be used.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("sys", &[]),
    ("seal", &["model"]),
    ("policy", &["model"]),
    ("vault", &["model", "seal"]),
    // It tells what it decided through a trait of `model`: it does not know that there is a trace. `seal` for the
    // digests of bodies that signatures cover.
    ("egress", &["model", "policy", "seal", "vault"]),
    ("trace", &["model", "seal"]),
    // It is handed traffic through traits of `model`: it does not know that there is a proxy.
    ("intercept", &["model", "policy", "seal"]),
    // Pure functions over reduced runs: it does not know that a trace, a sandbox or a proxy exists.
    ("compare", &["model", "policy"]),
    ("gate", &["model", "compare", "seal"]),
    // `seal` for the digest by which the page's own script is told from others.
    ("report", &["model", "compare", "gate", "seal"]),
    // `seal` for the keys it keeps.
    ("store", &["model", "seal"]),
    ("runtime", &["model"]),
    // `seal` for the digests of changed files.
    ("runtime-process", &["model", "sys", "seal", "runtime"]),
    ("guest", &["sys"]),
    // It makes a tree of files, and does not know what becomes of it. `seal` for the digests of what it takes.
    ("image", &["model", "seal"]),
    // A machine's inside is a sandbox of the process tier, and so is what stands around its VMM.
    ("inside", &["model", "sys", "runtime", "runtime-process", "guest"]),
    ("runtime-vm", &["model", "sys", "seal", "runtime", "runtime-process", "guest", "inside"]),
    // It knows modules and bytes, and nothing of sessions.
    ("runtime-wasm", &[]),
    (
        "engine",
        &[
            "model",
            "sys",
            "seal",
            "policy",
            "vault",
            "egress",
            "intercept",
            "compare",
            "gate",
            "report",
            "trace",
            "store",
            "runtime",
            "runtime-process",
            "runtime-vm",
            "runtime-wasm",
            "guest",
            "image",
        ],
    ),
    ("api", &["model"]),
    // `seal` for the digests of keys and the signatures of webhooks.
    ("server", &["model", "api", "engine", "seal"]),
    ("cli", &["model", "engine", "server"]),
    ("testkit", &[]),
    ("xtask", &[]),
];

/// Crates of ours that others may use for their tests only.
const DEV_ONLY: &[&str] = &["testkit"];

/// Outside crates that have one home, because what they do is that crate's one job.
const HOMES: &[(&str, &[&str], &str)] = &[
    ("rusqlite", &["store"], "only `store` has SQL"),
    ("ring", &["seal"], "only `seal` does cryptography"),
    ("p256", &["seal"], "only `seal` does cryptography"),
    ("wasmi", &["runtime-wasm"], "only `runtime-wasm` runs modules"),
    ("clap", &["cli", "xtask"], "only the doors read command lines"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = against(tree, MAY_USE);
    let has_crate = |name: &str| tree.members.iter().any(|p| short(&p.name) == name);
    for (name, _) in MAY_USE.iter().filter(|(name, _)| !has_crate(name)) {
        found.push(Violation::new(
            "xtask/src/tidy/edges.rs",
            1,
            format!("`{name}` has a row and no crate: delete the row"),
        ));
    }
    found
}

fn against(tree: &Tree, table: &[(&str, &[&str])]) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in &tree.members {
        let name = short(&package.name);
        let Some((_, may_use)) = table.iter().find(|(row, _)| *row == name) else {
            let message =
                format!("`{name}` has no row in the edge table: add one to xtask/src/tidy/edges.rs");
            found.push(at(tree, package, &package.name, message));
            continue;
        };
        let reasons = package.dependencies.iter().filter_map(|d| Some((d, refused(name, may_use, d)?)));
        found.extend(reasons.map(|(d, message)| at(tree, package, &d.name, message)));
    }
    found
}

/// Why this dependency is not allowed.
fn refused(name: &str, may_use: &[&str], dependency: &Dependency) -> Option<String> {
    let other = short(&dependency.name);
    if let Some((_, homes, why)) = HOMES.iter().find(|(home, ..)| *home == dependency.name) {
        return (!homes.contains(&name)).then(|| format!("`{name}` may not use `{other}`: {why}"));
    }
    if other == dependency.name {
        return None;
    }
    if DEV_ONLY.contains(&other) {
        return (!dependency.is_dev()).then(|| format!("`{other}` is for tests: make it a dev-dependency"));
    }
    let message = || {
        format!("`{name}` may not use `{other}`: let the engine join them, or change the table and say why")
    };
    (!may_use.contains(&other)).then(message)
}

fn at(tree: &Tree, package: &Package, needle: &str, message: String) -> Violation {
    let folder = short(&package.name);
    let path =
        if folder == "xtask" { "xtask/Cargo.toml".to_owned() } else { format!("crates/{folder}/Cargo.toml") };
    let starts = |line: &str| line.strip_prefix(needle).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    let line = tree.file(&path).and_then(|f| f.text.lines().position(starts)).map_or(1, |n| n + 1);
    Violation::new(&path, line, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[(&str, Option<&str>)]) -> Package {
        let dependency = |(name, kind): &(&str, Option<&str>)| Dependency {
            name: (*name).to_owned(),
            kind: kind.map(str::to_owned),
        };
        Package {
            name: format!("cofferdam-{name}"),
            dependencies: uses.iter().map(dependency).collect(),
            ..Package::default()
        }
    }

    fn check(name: &str, uses: &[(&str, Option<&str>)], expected: &[&str]) {
        let members = vec![package(name, uses)];
        let tree = Tree { members, ..Tree::default() };
        let found: Vec<_> = against(&tree, MAY_USE).into_iter().map(|v| v.message).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        found.iter().zip(expected).for_each(|(found, part)| assert!(found.contains(part), "{found}"));
    }

    #[test]
    fn layers_meet_only_where_the_table_says() {
        check("trace", &[("cofferdam-model", None), ("cofferdam-seal", None), ("serde", None)], &[]);
        check("trace", &[("cofferdam-store", None)], &["`trace` may not use `store`"]);
        check("runtime-process", &[("cofferdam-guest", None)], &["`runtime-process` may not use `guest`"]);
        check("seal", &[("cofferdam-runtime", Some("dev"))], &["`seal` may not use `runtime`"]);
    }

    #[test]
    fn the_testkit_is_for_tests() {
        check("cli", &[("cofferdam-testkit", Some("dev"))], &[]);
        check("cli", &[("cofferdam-testkit", None)], &["make it a dev-dependency"]);
    }

    #[test]
    fn outside_crates_have_a_home() {
        check("store", &[("rusqlite", None)], &[]);
        check("engine", &[("rusqlite", None)], &["only `store` has SQL"]);
        check("engine", &[("rusqlite", Some("dev"))], &["only `store` has SQL"]);
    }

    #[test]
    fn a_new_crate_needs_a_row_and_a_row_a_crate() {
        check("unheard-of", &[], &["has no row"]);
        let found = super::check(&Tree::default());
        assert_eq!(found.len(), MAY_USE.len());
    }

    #[test]
    fn the_line_of_the_dependency_is_named() {
        let mut tree =
            Tree::of(&[("crates/trace/Cargo.toml", "[dependencies]\ncofferdam-store.workspace = true\n")]);
        tree.members = vec![package("trace", &[("cofferdam-store", None)])];
        assert_eq!(against(&tree, MAY_USE)[0].line, 2);
    }
}
