//! The shape of an answer: Markdown, tables, JSON and prose cut into statements, each with its label and the headings
//! it stands under, so that `10:00` under "Lunch" is a statement about lunch. Thinking aloud is not an answer.

use super::layout::lines;
use std::ops::Range;

/// A stretch of an answer that states something.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    pub(crate) range: Range<usize>,
    /// What a colon, a table's head or a JSON key says this is.
    pub(crate) label: Option<Range<usize>>,
    /// Headings, parent items and first cells that it stands under, outermost first.
    pub(crate) under: Vec<Range<usize>>,
    /// The item or paragraph it is part of, with all its lines.
    pub(crate) block: Range<usize>,
    pub(crate) manner: Manner,
    /// A heading or a label line: title case says nothing about names there.
    pub(crate) heading: bool,
}

/// How it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Plain,
    /// `might`, `probably`: said, but not vouched for.
    Hedged,
    /// A question, an offer, a plan or a refusal: nothing is asserted.
    NotAsserted,
}

struct Shape<'t> {
    text: &'t str,
    found: Vec<Statement>,
    heading: Option<Range<usize>>,
    /// Open list items: indentation and head.
    items: Vec<(usize, Range<usize>)>,
    table: Vec<Range<usize>>,
}

pub(crate) fn statements(text: &str) -> Vec<Statement> {
    let mut shape = Shape { text, found: Vec::new(), heading: None, items: Vec::new(), table: Vec::new() };
    let hidden = hidden(text);
    let mut json = 0;
    for (at, line) in lines(text) {
        if hidden.iter().any(|h| h.contains(&at)) || at < json {
            continue;
        }
        if line.trim_start().starts_with(['{', '['])
            && let Some(end) = json_end(text, at)
        {
            shape.json(at..end);
            json = end;
            continue;
        }
        shape.line(at, line);
    }
    let blocks = blocks(text);
    for statement in &mut shape.found {
        let at = blocks.partition_point(|b| b.start <= statement.range.start).saturating_sub(1);
        statement.block = blocks.get(at).cloned().unwrap_or_default();
    }
    shape.found
}

/// Outermost list items with what hangs under them, and paragraphs.
fn blocks(text: &str) -> Vec<Range<usize>> {
    let mut starts = vec![0];
    let mut blank = false;
    for (at, line) in lines(text) {
        let body = line.trim_start();
        let outer = line.len() - body.len() == 0;
        if !body.is_empty() && outer && (blank || marker(body) > 0 || body.starts_with('|')) {
            starts.push(at);
        }
        blank = body.is_empty();
    }
    join_fields(text, &mut starts);
    let ends = starts.iter().skip(1).copied().chain([text.len()]).collect::<Vec<_>>();
    starts.into_iter().zip(ends).map(|(from, to)| from..to).collect()
}

/// Items that are fields of one thing (`1. Title: …`, `2. Date: …`) are one block; a label that comes again opens the next.
fn join_fields(text: &str, starts: &mut Vec<usize>) {
    let field = |at: usize| {
        let line = text[at..].lines().next().unwrap_or_default();
        let body = &line[marker(line)..];
        let label = label_of(body).filter(|_| marker(line) > 0).map(|range| body[range].to_lowercase())?;
        let words = super::words::words(&label);
        let named = words.len() <= 3 && words.last().is_some_and(|w| super::cue::of_word(w) != 0);
        named.then_some(label)
    };
    let mut kept: Vec<usize> = Vec::with_capacity(starts.len());
    let mut seen: Vec<String> = Vec::new();
    for at in starts.iter().copied() {
        let label = field(at);
        let goes_on = label.as_ref().is_some_and(|label| !seen.is_empty() && !seen.contains(label));
        if !goes_on {
            seen.clear();
            kept.push(at);
        }
        seen.extend(label);
    }
    *starts = kept;
}

/// What the model said to itself.
fn hidden(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (open, close) in
        [("<thinking>", "</thinking>"), ("<think>", "</think>"), ("<scratchpad>", "</scratchpad>")]
    {
        let mut at = 0;
        while let Some(start) = text[at..].find(open).map(|s| at + s) {
            let end = text[start..].find(close).map_or(text.len(), |e| start + e + close.len());
            found.push(start..end);
            at = end;
        }
    }
    found
}

/// The end of the JSON value that starts at a line, if one does and it has keys.
fn json_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<serde_json::Value>();
    let value = values.next()?.ok()?;
    let keyed = match &value {
        serde_json::Value::Array(list) => list.iter().any(serde_json::Value::is_object),
        other => other.is_object(),
    };
    keyed.then(|| at + values.byte_offset())
}

impl Shape<'_> {
    fn line(&mut self, at: usize, line: &str) {
        let indent = line.len() - line.trim_start().len();
        let body = line.trim();
        let start = at + indent;
        if body.is_empty() {
            self.table.clear();
            return;
        }
        if body.starts_with("```") || body.chars().all(|c| "-=*_ ".contains(c)) {
            return;
        }
        if body.starts_with('|') {
            return self.row(start, body);
        }
        self.table.clear();
        if body.starts_with('#') {
            let skip = body.len() - body.trim_start_matches(['#', ' ']).len();
            self.items.clear();
            let range = start + skip..start + body.len();
            self.push(range.clone(), true);
            self.heading = Some(range);
            return;
        }
        let mark = marker(body);
        self.items.retain(|(deep, _)| *deep < indent);
        if mark == 0 && indent == 0 {
            self.items.clear();
        }
        let range = start + mark..start + body.len();
        let heads = body.ends_with(':') || body.ends_with(":**") || (mark > 0) || wholly_bold(body);
        self.sentences(range.clone(), body.ends_with(':') || wholly_bold(&body[mark..]));
        if mark > 0 {
            self.items.push((indent, range));
        } else if heads {
            self.heading = Some(range);
        }
    }

    fn sentences(&mut self, range: Range<usize>, heading: bool) {
        let text = self.text;
        let mut parts = crate::ground::sentences(&text[range.clone()]);
        // the subject "Hello!" was sent: what closes a quote does not close the sentence around it
        let closes = |part: &Range<usize>| {
            let rest = &text[range.start + part.start..range.start + part.end];
            rest.strip_prefix(['"', '”']).is_some_and(|rest| rest.starts_with([' ', ',']))
        };
        for at in (1..parts.len()).rev() {
            if closes(&parts[at]) {
                parts[at - 1].end = parts[at].end;
                parts.remove(at);
            }
        }
        let last = parts.len().saturating_sub(1);
        for (at, part) in parts.into_iter().enumerate() {
            self.push(range.start + part.start..range.start + part.end, heading && at == last);
        }
    }

    fn push(&mut self, range: Range<usize>, heading: bool) {
        let said = &self.text[range.clone()];
        let label = label_of(said).map(|l| range.start + l.start..range.start + l.end);
        let mut under: Vec<_> = self.heading.iter().cloned().collect();
        under.extend(self.items.iter().map(|(_, r)| r.clone()));
        self.found.push(Statement {
            label,
            under,
            manner: manner(said),
            heading: heading && titled(said),
            block: 0..0,
            range,
        });
    }

    fn row(&mut self, start: usize, body: &str) {
        if body.chars().all(|c| "|-: ".contains(c)) {
            return;
        }
        let mut cells = Vec::new();
        let mut at = start;
        for cell in body.split('|') {
            let lead = cell.len() - cell.trim_start().len();
            cells.push(at + lead..at + lead + cell.trim().len());
            at += cell.len() + 1;
        }
        let inner = cells
            .get(1..cells.len().saturating_sub(usize::from(body.ends_with('|'))))
            .unwrap_or_default()
            .to_vec();
        if self.table.is_empty() {
            self.table = inner;
            return;
        }
        for (column, cell) in inner.iter().enumerate().filter(|(_, c)| !c.is_empty()) {
            let label = self.table.get(column).filter(|h| !h.is_empty()).cloned();
            let mut under: Vec<_> = self.heading.iter().cloned().collect();
            under.extend(
                inner.iter().enumerate().filter(|(other, _)| *other != column).map(|(_, r)| r.clone()),
            );
            self.found.push(Statement {
                range: cell.clone(),
                label,
                under,
                manner: manner(&self.text[cell.clone()]),
                heading: false,
                block: 0..0,
            });
        }
    }

    /// Each key of a JSON answer with its value, under the object it belongs to.
    fn json(&mut self, range: Range<usize>) {
        let text = &self.text[range.clone()];
        let mut open: Vec<usize> = Vec::new();
        let mut objects: Vec<Range<usize>> = Vec::new();
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                b'{' => open.push(at),
                b'}' => objects.extend(open.pop().map(|from| from..at + 1)),
                _ => {}
            }
        }
        for (key, value) in super::layout::slots(text) {
            let owner = objects.iter().filter(|o| o.contains(&value.start)).min_by_key(|o| o.len()).cloned();
            let label = text[..value.start]
                .rfind('"')
                .and_then(|q| text[..q].rfind('"').map(|p| range.start + p + 1..range.start + q));
            let end = owner.as_ref().map_or(value.end, |o| o.end.min(value.end));
            if key.is_empty() || end <= value.start {
                continue;
            }
            let under = owner.map(|o| range.start + o.start..range.start + o.end).into_iter().collect();
            self.found.push(Statement {
                range: range.start + value.start..range.start + end,
                label,
                under,
                manner: Manner::Plain,
                heading: false,
                block: 0..0,
            });
        }
    }
}

/// The length of a list marker: `- `, `* `, `• `, `1. `, `2) `.
fn marker(body: &str) -> usize {
    for mark in ["- ", "* ", "+ ", "• "] {
        if body.starts_with(mark) {
            return mark.len();
        }
    }
    let digits = body.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &body[digits..];
    if (1..=3).contains(&digits) && (rest.starts_with(". ") || rest.starts_with(") ")) {
        digits + 2
    } else {
        0
    }
}

fn wholly_bold(body: &str) -> bool {
    body.len() > 4
        && body.starts_with("**")
        && body.trim_end_matches(':').ends_with("**")
        && body.matches("**").count() == 2
}

/// A short beginning that a colon closes: `**Amount:** 50`.
fn label_of(said: &str) -> Option<Range<usize>> {
    let colon = said
        .match_indices(':')
        .map(|(at, _)| at)
        .find(|at| said[at + 1..].starts_with([' ', '*', '_']) || at + 1 == said.len())?;
    let lead = said.len() - said.trim_start_matches(['*', '_', ' ', '`', '"', '#']).len();
    let label = said.get(lead..colon)?.trim_end_matches(['*', '_', '`', '"', ' ']);
    (!label.is_empty() && label.split_whitespace().count() <= 5 && label.len() < 48)
        .then_some(lead..lead + label.len())
}

/// A title rather than a sentence that leads in a list: few words, or most of them capitalised.
fn titled(said: &str) -> bool {
    let telling: Vec<_> = super::words::words(said).into_iter().filter(|w| !w.common).collect();
    telling.len() <= 3 || telling.iter().filter(|w| w.upper || w.digits).count() * 2 > telling.len()
}

fn manner(said: &str) -> Manner {
    let lower = said.to_lowercase();
    let has = |cues: &[&str]| cues.iter().any(|c| lower.contains(c));
    let asks =
        said.trim_end_matches(['*', ' ']).ends_with('?') && said.matches('"').count().is_multiple_of(2);
    if asks
        || has(&[
            "let me know",
            "would you like",
            "please provide",
            "please let me",
            "for example",
            "e.g.",
            "such as",
        ])
    {
        return Manner::NotAsserted;
    }
    if has(&[
        "might ",
        "may be",
        "perhaps",
        "probably",
        "possibly",
        "it seems",
        "appears to",
        "likely",
        "i think",
        "i believe",
        "not sure",
        "could be",
        "i assume",
        "assuming",
    ]) {
        return Manner::Hedged;
    }
    Manner::Plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str, &str)]) {
        let found: Vec<(String, String, String)> = statements(text)
            .into_iter()
            .map(|s| {
                (
                    text[s.range].to_owned(),
                    s.label.map_or(String::new(), |l| text[l].to_owned()),
                    s.under.into_iter().map(|r| text[r].to_owned()).collect::<Vec<_>>().join(" > "),
                )
            })
            .collect();
        let expected: Vec<_> =
            expected.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn items_stand_under_their_headings() {
        check(
            "## Today\n1. **Lunch**\n   - **Time:** 12:30\n2. Sync\n",
            &[
                ("Today", "", ""),
                ("**Lunch**", "", "Today"),
                ("**Time:** 12:30", "Time", "Today > **Lunch**"),
                ("Sync", "", "Today"),
            ],
        );
    }

    #[test]
    fn cells_are_labelled_by_their_column_and_stand_beside_their_row() {
        check(
            "| Name | Size |\n|---|---|\n| a.txt | 12 |\n",
            &[("a.txt", "Name", "12"), ("12", "Size", "a.txt")],
        );
    }

    #[test]
    fn json_is_read_by_its_keys() {
        let text = "[{\"id\": 7, \"size\": 12}]";
        check(
            text,
            &[(" 7, \"", "id", "{\"id\": 7, \"size\": 12}"), (" 12}", "size", "{\"id\": 7, \"size\": 12}")],
        );
    }

    #[test]
    fn thinking_is_not_an_answer_and_offers_assert_nothing() {
        let text = "<thinking>\nIt is 5.\n</thinking>\nIt is probably 6. Would you like 7?";
        let found: Vec<_> = statements(text).into_iter().map(|s| (&text[s.range], s.manner)).collect();
        assert_eq!(
            found,
            [("It is probably 6.", Manner::Hedged), ("Would you like 7?", Manner::NotAsserted)]
        );
    }
}
