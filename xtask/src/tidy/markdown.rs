//! The little of Markdown that rules need: lines outside of code fences, `code` spans and link targets.

/// Lines with their number, without fenced blocks.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((n + 1, line))
    })
}

/// What stands between single backticks on this line.
pub(crate) fn code(line: &str) -> impl Iterator<Item = &str> {
    let closed = line.matches('`').count() / 2;
    line.split('`').skip(1).step_by(2).take(closed)
}

/// Targets of `[text](target)` that are files of this repository.
pub(crate) fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|t| !t.contains("://") && !t.starts_with(['#', '<']) && !t.starts_with("mailto:"))
        .filter_map(|t| t.split('#').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_left_out() {
        let lines: Vec<_> = prose("a\n```sh\nb\n```\nc").collect();
        assert_eq!(lines, [(1, "a"), (5, "c")]);
    }

    #[test]
    fn spans_and_links() {
        assert_eq!(code("a `b` c `d::e` f ` g").collect::<Vec<_>>(), ["b", "d::e"]);
        let line = "[a](docs/a.md#part) [b](https://example.org) [c](#here)";
        assert_eq!(links(line).collect::<Vec<_>>(), ["docs/a.md"]);
    }
}
