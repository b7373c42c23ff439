//! CHANGELOG.md has a place for what is not released yet, so that a change and its entry travel together.

use super::tree::Tree;
use super::{Violation, markdown};

const PAGE: &str = "CHANGELOG.md";

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let is_unreleased = |line: &str| {
        line.strip_prefix("## ")
            .is_some_and(|h| h.trim_matches(['[', ']', ' ']).eq_ignore_ascii_case("unreleased"))
    };
    let has_section =
        tree.file(PAGE).is_some_and(|f| markdown::prose(&f.text).any(|(_, line)| is_unreleased(line)));
    if has_section { Vec::new() } else { vec![Violation::new(PAGE, 1, "has no section `## [Unreleased]`")] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    #[test]
    fn there_is_a_place_for_what_comes() {
        assert!(said(check, &[(PAGE, "# Changelog\n## [Unreleased]\n")]).is_empty());
        assert!(said(check, &[(PAGE, "## Unreleased")]).is_empty());
        assert_eq!(said(check, &[(PAGE, "```\n## Unreleased\n```\n## 1.0")]).len(), 1);
        assert_eq!(said(check, &[]).len(), 1);
    }
}
