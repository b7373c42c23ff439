//! Cargo.lock holds one version of what must not exist twice, and nothing of what `deny.toml` bans.

use super::tree::Tree;
use super::{Violation, denied};
use serde::Deserialize;

const FILE: &str = "Cargo.lock";

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
}

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let denied = match denied::read(tree) {
        Ok(denied) => denied,
        Err(violation) => return vec![violation],
    };
    let Some(file) = tree.file(FILE) else {
        return vec![Violation::new(FILE, 1, "is missing: commit it, the binary is built from it")];
    };
    let lock: Lock = match toml::from_str(&file.text) {
        Ok(lock) => lock,
        Err(error) => return vec![Violation::new(FILE, 1, error.to_string())],
    };
    let line = |name: &str| {
        let wanted = format!("name = \"{name}\"");
        file.text.lines().position(|l| l == wanted).map_or(1, |n| n + 1)
    };
    let refused = denied.bans.deny.iter().filter_map(|ban| {
        let name = ban.name.as_str();
        let versions = lock.package.iter().filter(|p| p.name == name).map(|p| p.version.as_str());
        let message = match (versions.collect::<Vec<_>>().as_slice(), ban.deny_multiple_versions) {
            ([], _) | ([_], true) => return None,
            (versions, true) => {
                format!("`{name}` is there {} times: {}", versions.len(), versions.join(", "))
            }
            (_, false) => format!("`{name}` is banned: {}", ban.reason),
        };
        Some(Violation::new(FILE, line(name), message))
    });
    refused.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    const DENY: (&str, &str) = (
        "deny.toml",
        "[licenses]\nallow = []\n[bans]\ndeny = [{ crate = \"openssl-sys\", reason = \"ring is the one\" }, { crate = \"ring\", deny-multiple-versions = true }]",
    );

    fn check(packages: &[(&str, &str)], expected: &[&str]) {
        let entry = |(name, version): &(&str, &str)| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n")
        };
        let lock: String = packages.iter().map(entry).collect();
        assert_eq!(said(super::check, &[DENY, (FILE, &lock)]), expected);
    }

    #[test]
    fn some_things_exist_once() {
        check(&[("ring", "0.17.1"), ("syn", "1.0.0"), ("syn", "2.0.0")], &[]);
        let twice = [("syn", "2.0.0"), ("ring", "0.16.0"), ("ring", "0.17.1")];
        check(&twice, &["Cargo.lock:5: `ring` is there 2 times: 0.16.0, 0.17.1"]);
    }

    #[test]
    fn some_things_never() {
        check(&[("openssl-sys", "0.9.0")], &["Cargo.lock:2: `openssl-sys` is banned: ring is the one"]);
    }

    #[test]
    fn a_lock_that_cannot_be_read_holds_nothing() {
        assert_eq!(said(super::check, &[DENY]).len(), 1);
        assert_eq!(said(super::check, &[DENY, (FILE, "[[package")]).len(), 1);
    }
}
