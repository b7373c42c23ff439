//! Words and pieces of text: cut to what a page can hold, with ranges of bytes marked.

use cofferdam_compare::Outcome;
use maud::{Markup, html};

/// So much of a text is shown at once, and so much at all.
const SHORT: usize = 400;
const LONG: usize = 16 << 10;

/// How a range is set apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Removed,
    Added,
    /// A reason points here.
    Pointed,
}

/// The class, and the word.
pub(super) fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Review => "review",
        Outcome::Fail => "fail",
    }
}

/// For those who do not see colours.
pub(super) fn mark(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "✓",
        Outcome::Review => "?",
        Outcome::Fail => "✗",
    }
}

/// A sentence of ours, in which quoted values stand between backticks: shown as what they are.
pub(super) fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    // An odd one is part of a value: then nothing says where one begins.
    if parts.len().is_multiple_of(2) {
        return html! { (text) };
    }
    html! {
        @for (at, part) in parts.iter().enumerate() {
            @if at % 2 == 1 { code .value { (part) } } @else { (part) }
        }
    }
}

/// A text with its marks, in short and, on demand, as a whole. Marks decide which part is the short one.
pub(super) fn block(text: &str, marks: &[(usize, usize, Mark)]) -> Markup {
    if text.len() <= SHORT {
        return html! { pre .text { (marked(text, 0, text.len(), marks)) } };
    }
    let first = marks.iter().map(|(from, ..)| *from).min().unwrap_or(0);
    let from = floor(text, first.saturating_sub(SHORT / 4));
    let to = floor(text, from + SHORT);
    let end = floor(text, LONG.max(to));
    html! {
        pre .text { @if from > 0 { "… " } (marked(text, from, to, marks)) @if to < text.len() { " …" } }
        details .whole {
            summary { "all " (text.len()) " bytes" }
            pre .text { (marked(text, 0, end, marks)) @if end < text.len() { " … the rest is in the trace" } }
        }
    }
}

/// The text between two places, which lie between characters.
fn marked(text: &str, from: usize, to: usize, marks: &[(usize, usize, Mark)]) -> Markup {
    let mut sorted: Vec<_> = marks
        .iter()
        .map(|(start, end, mark)| {
            (floor(text, (*start).clamp(from, to)), floor(text, (*end).clamp(from, to)), *mark)
        })
        .filter(|(start, end, _)| start < end)
        .collect();
    sorted.sort_by_key(|(start, end, _)| (*start, *end));
    let mut at = from;
    let mut pieces: Vec<(usize, usize, Option<Mark>)> = Vec::new();
    for (start, end, mark) in sorted {
        // Marks that lie over each other are shown as far as they do not.
        let start = start.max(at);
        if start >= end {
            continue;
        }
        pieces.push((at, start, None));
        pieces.push((start, end, Some(mark)));
        at = end;
    }
    pieces.push((at, to, None));
    html! {
        @for (start, end, mark) in pieces {
            @match mark {
                None => (text[start..end]),
                Some(Mark::Removed) => del { (text[start..end]) },
                Some(Mark::Added) => ins { (text[start..end]) },
                Some(Mark::Pointed) => mark { (text[start..end]) },
            }
        }
    }
}

/// The nearest place at or before this that lies between characters.
fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, marks: &[(usize, usize, Mark)], expected: &str) {
        assert_eq!(block(text, marks).0, format!("<pre class=\"text\">{expected}</pre>"));
    }

    #[test]
    fn ranges_are_marked_and_text_stays_text() {
        check("plain", &[], "plain");
        check("a <b> c", &[(2, 5, Mark::Added)], "a <ins>&lt;b&gt;</ins> c");
        check("abc", &[(0, 1, Mark::Removed), (2, 9, Mark::Pointed)], "<del>a</del>b<mark>c</mark>");
        check("abc", &[(0, 2, Mark::Removed), (1, 3, Mark::Added)], "<del>ab</del><ins>c</ins>");
        check("aüc", &[(0, 2, Mark::Added)], "<ins>a</ins>üc");
    }

    proptest! {
        #[test]
        fn any_marks_are_survived(text in ".{0,600}", marks in prop::collection::vec((0usize..700, 0usize..700), 0..6)) {
            let marks: Vec<_> = marks.into_iter().map(|(a, b)| (a, b, Mark::Added)).collect();
            let made = block(&text, &marks).0;
            prop_assert!(!made.contains("<script"));
        }
    }
}
