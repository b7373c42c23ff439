//! Everything that is linked in carries a licence of the list in `deny.toml`.

use super::tree::Tree;
use super::{Violation, denied};
use spdx::{Expression, ParseMode};

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let denied = match denied::read(tree) {
        Ok(denied) => denied,
        Err(violation) => return vec![violation],
    };
    let judged = tree.dependencies.iter().filter_map(|p| {
        let why = refused(p.license.as_deref(), &denied.licenses.allow)?;
        Some(Violation::new("Cargo.lock", 1, format!("{} {}: {why}", p.name, p.version)))
    });
    judged.collect()
}

fn refused(licence: Option<&str>, allowed: &[String]) -> Option<String> {
    let Some(text) = licence else {
        return Some("states no licence: look at it, then replace it".to_owned());
    };
    // Older crates write `MIT/Apache-2.0`, which is no expression but means one.
    let Ok(expression) = Expression::parse_mode(text, ParseMode::LAX) else {
        return Some(format!("its licence `{text}` is no SPDX expression"));
    };
    let fits = expression.evaluate(|licence| allowed.contains(&licence.to_string()));
    (!fits).then(|| format!("its licence `{text}` is not in the list of deny.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said_of;
    use crate::workspace::Package;

    fn check(licence: &str, expected: bool) {
        let allowed =
            ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(str::to_owned);
        let refused = refused(Some(licence), &allowed);
        assert_eq!(refused.is_none(), expected, "{licence}: {refused:?}");
    }

    #[test]
    fn expressions_are_read_and_not_compared() {
        check("MIT", true);
        check("GPL-3.0-only OR MIT", true);
        check("MIT/Apache-2.0", true);
        check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
        check("Apache-2.0 WITH LLVM-exception", true);
        check("MIT AND GPL-3.0-only", false);
        check("my own", false);
        assert!(super::refused(None, &[]).is_some());
    }

    #[test]
    fn every_dependency_is_judged() {
        let mut tree = Tree::of(&[("deny.toml", "[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = []\n")]);
        let package = |name: &str, licence: &str| Package {
            name: name.into(),
            version: "1.0.0".into(),
            license: Some(licence.into()),
            ..Package::default()
        };
        tree.dependencies = vec![package("good", "MIT"), package("bad", "GPL-3.0-only")];
        let found = said_of(super::check, &tree);
        assert_eq!(
            found,
            ["Cargo.lock:1: bad 1.0.0: its licence `GPL-3.0-only` is not in the list of deny.toml"]
        );
    }
}
