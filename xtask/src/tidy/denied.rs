//! The lists of `deny.toml` that are held on every run, without cargo-deny: one table for two tools.

use super::Violation;
use super::tree::Tree;
use serde::Deserialize;

const FILE: &str = "deny.toml";

#[derive(Debug, Deserialize)]
pub(crate) struct Denied {
    pub(crate) licenses: Licenses,
    pub(crate) bans: Bans,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Licenses {
    pub(crate) allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Bans {
    pub(crate) deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Ban {
    #[serde(rename = "crate")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) reason: String,
    /// One version is welcome, two are not.
    #[serde(default)]
    pub(crate) deny_multiple_versions: bool,
}

pub(crate) fn read(tree: &Tree) -> Result<Denied, Violation> {
    let text = tree.file(FILE).map_or("", |f| f.text.as_str());
    toml::from_str(text).map_err(|error| {
        let first = error.to_string().lines().next().unwrap_or_default().to_owned();
        Violation::new(FILE, 1, format!("lacks what tidy holds: {first}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_read() {
        let text = "[licenses]\nallow = [\"MIT\"]\n[bans]\nwildcards = \"deny\"\ndeny = [{ crate = \"a\", reason = \"b\" }, { crate = \"c\", deny-multiple-versions = true }]";
        let denied = read(&Tree::of(&[(FILE, text)])).unwrap();
        assert_eq!(denied.licenses.allow, ["MIT"]);
        assert_eq!(
            denied.bans.deny.iter().map(|b| b.deny_multiple_versions).collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!(denied.bans.deny[0].reason, "b");
    }

    #[test]
    fn a_missing_list_is_no_empty_list() {
        assert!(read(&Tree::of(&[])).is_err());
        assert!(read(&Tree::of(&[(FILE, "[licenses]\nallow = []")])).is_err());
    }
}
