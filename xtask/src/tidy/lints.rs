//! Every crate has the workspace's lints: by taking them, or by repeating them beside lints of its own. `sys`
//! alone lacks one, because `unsafe_code` is forbidden in the others and `forbid` cannot be lifted. The programs
//! of `bench/` are nobody's part: they measure, print, and may stop at the first surprise.

use super::Violation;
use super::tree::{Tree, short};
use toml::{Table, Value};

const LIFTED: (&str, &str) = ("sys", "unsafe_code");

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let workspace = tree.file("Cargo.toml").and_then(|f| f.text.parse::<Table>().ok());
    let Some(wanted) = workspace.as_ref().and_then(|t| t.get("workspace")?.get("lints")?.as_table()) else {
        return vec![Violation::new(
            "Cargo.toml",
            1,
            "has no `[workspace.lints]`: they are part of the invariants",
        )];
    };
    let manifests =
        tree.files.iter().filter(|f| f.path.ends_with("/Cargo.toml") && !f.path.starts_with("bench/"));
    let lacking = manifests.filter_map(|file| {
        let manifest: Table = file.text.parse().ok()?;
        let name = short(manifest.get("package")?.get("name")?.as_str()?);
        let lints = manifest.get("lints");
        let takes = lints.and_then(|l| l.get("workspace")).and_then(Value::as_bool) == Some(true);
        let missing = if takes { Vec::new() } else { missing(name, wanted, lints) };
        (!missing.is_empty()).then(|| {
            Violation::new(&file.path, 1, format!("lacks lints of the workspace: {}", missing.join(", ")))
        })
    });
    lacking.collect()
}

/// The lints of the workspace that this table leaves out or changes.
fn missing<'a>(name: &str, wanted: &'a Table, lints: Option<&Value>) -> Vec<&'a str> {
    let tools = wanted.iter().filter_map(|(tool, table)| Some((tool, table.as_table()?)));
    let all = tools.flat_map(|(tool, table)| table.iter().map(move |(lint, level)| (tool, lint, level)));
    let differs = |tool: &str, lint: &str, level: &Value| {
        lints.and_then(|l| l.get(tool)?.get(lint)) != Some(level) && (name, lint) != LIFTED
    };
    all.filter(|(tool, lint, level)| differs(tool, lint, level)).map(|(_, lint, _)| lint.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use crate::tidy::said;

    const WORKSPACE: (&str, &str) =
        ("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nunused_must_use = \"deny\"\n");

    fn check(name: &str, lints: &str, expected: &[&str]) {
        let manifest = format!("[package]\nname = \"cofferdam-{name}\"\n{lints}\n");
        assert_eq!(said(super::check, &[WORKSPACE, ("crates/a/Cargo.toml", &manifest)]), expected);
    }

    #[test]
    fn a_crate_takes_or_repeats_the_workspace_lints() {
        check("seal", "[lints]\nworkspace = true", &[]);
        check(
            "seal",
            "[lints.rust]\nunsafe_code = \"forbid\"\nunused_must_use = \"deny\"\nother = \"warn\"",
            &[],
        );
        let all = "crates/a/Cargo.toml:1: lacks lints of the workspace: unsafe_code, unused_must_use";
        check("seal", "", &[all]);
        assert_eq!(
            said(super::check, &[WORKSPACE, ("bench/a/Cargo.toml", "[package]\nname = \"a\"")]),
            [""; 0]
        );
        check("seal", "[lints.rust]\nunsafe_code = \"deny\"\nunused_must_use = \"warn\"", &[all]);
    }

    #[test]
    fn sys_repeats_all_but_one() {
        check("sys", "[lints.rust]\nunused_must_use = \"deny\"", &[]);
        check("sys", "", &["crates/a/Cargo.toml:1: lacks lints of the workspace: unused_must_use"]);
    }

    #[test]
    fn a_workspace_without_lints_holds_nothing() {
        assert_eq!(said(super::check, &[("Cargo.toml", "[workspace]")]).len(), 1);
    }
}
