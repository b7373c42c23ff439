//! How a text is laid out: records (an item of a list, an object of an array, a paragraph) and slots (a key with what
//! follows it), by eye rather than by grammar: tool results are JSON, YAML, Python's print and prose, often in one text.

use super::words::words;
use std::ops::Range;

/// Byte ranges of the records of a text; they cover it.
pub(crate) fn records(text: &str) -> Vec<Range<usize>> {
    let mut starts = items(text);
    if starts.is_empty() && text.trim_start().starts_with(['[', '{']) {
        starts = objects(text);
    }
    if starts.is_empty() {
        starts = paragraphs(text);
    }
    if starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().copied().zip(ends).map(|(from, to)| from..to).collect()
}

/// Where the items of a list open. Plain items below a key of a mapping are that key's, and open nothing.
fn items(text: &str) -> Vec<usize> {
    let listed = text.trim_start_matches('\n').starts_with("- ");
    let keyed = |line: &str| line.find(':').is_some_and(|at| key_before(line, at).is_some());
    let keys = lines(text).filter(|(_, line)| line.starts_with(char::is_alphabetic) && keyed(line)).count();
    let opens = |line: &str| line.starts_with("- ") && (listed || keys < 2 || keyed(line));
    lines(text).filter(|(_, line)| opens(line)).map(|(at, _)| at).collect()
}

pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, line.trim_end_matches(['\n', '\r']))
    })
}

fn paragraphs(text: &str) -> Vec<usize> {
    let mut blank = true;
    let mut starts = Vec::new();
    for (at, line) in lines(text) {
        if blank && !line.trim().is_empty() {
            starts.push(at);
        }
        blank = line.trim().is_empty();
    }
    starts
}

/// Where objects open at the shallowest depth that has two or more of them.
fn objects(text: &str) -> Vec<usize> {
    let mut by_depth: Vec<Vec<usize>> = vec![Vec::new(); 8];
    let (mut depth, mut quote, mut escaped) = (0usize, None, false);
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(_), b'\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(q), b) if b == q && !escaped => quote = None,
            (Some(_), _) => {}
            (None, b'"') => quote = Some(b'"'),
            (None, b'{') => {
                if let Some(at_depth) = by_depth.get_mut(depth) {
                    at_depth.push(at);
                }
                depth += 1;
            }
            (None, b'[') => depth += 1,
            (None, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = false;
    }
    by_depth.into_iter().find(|d| d.len() > 1).unwrap_or_default()
}

/// Keys with the range of what follows each, up to the next key.
pub(crate) fn slots(text: &str) -> Vec<(String, Range<usize>)> {
    let bytes = text.as_bytes();
    let mut found: Vec<(String, Range<usize>)> = Vec::new();
    for (at, _) in text.match_indices(':') {
        if !bytes.get(at + 1).is_none_or(|b| b.is_ascii_whitespace() || b"\"'[{-0123456789tfn".contains(b)) {
            continue;
        }
        let Some(key) = key_before(text, at) else { continue };
        if let Some((_, last)) = found.last_mut() {
            last.end = last.end.min(key.start);
        }
        found.push((normal_key(&text[key]), at + 1..text.len()));
    }
    found
}

/// The key that ends at a colon: quoted, or a short run of words from the start of its line or item.
fn key_before(text: &str, colon: usize) -> Option<Range<usize>> {
    let before = text[..colon].trim_end_matches(' ');
    if let Some(quote) = before.bytes().last().filter(|b| b"\"'`".contains(b)) {
        let inner = &before[..before.len() - 1];
        let open = inner.rfind(char::from(quote))?;
        return (!inner[open + 1..].is_empty() && inner.len() - open < 48).then_some(open + 1..inner.len());
    }
    let line = before.rfind('\n').map_or(0, |n| n + 1);
    let start = line + before[line..].len()
        - before[line..]
            .trim_start_matches([
                ' ', '-', '*', '#', '\t', '|', '.', ')', '1', '2', '3', '4', '5', '6', '7', '8', '9', '0',
            ])
            .len();
    let key = &before[start..];
    let plain = |c: char| c.is_alphanumeric() || "_-. */()".contains(c);
    let short = key.len() < 40 && key.split_whitespace().count() <= 5;
    (short && key.starts_with(char::is_alphabetic) && key.chars().all(plain)).then_some(start..before.len())
}

/// The stems of a key's telling words.
pub(crate) fn key_stems(key: &str) -> Vec<u64> {
    words(key).iter().filter(|w| !w.common).map(|w| w.stem).collect()
}

/// `id_`, `Start Time`, `startTime` and `start-time` as words: `id`, `start time`.
pub(crate) fn normal_key(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 2);
    let mut last_lower = false;
    for c in key.chars() {
        if c.is_alphanumeric() {
            if c.is_uppercase() && last_lower {
                out.push(' ');
            }
            out.extend(c.to_lowercase());
        } else if !out.ends_with(' ') && !out.is_empty() {
            out.push(' ');
        }
        last_lower = c.is_lowercase();
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = "- id_: '6'\n  start_time: 2024-05-15 10:00:00\n  title: Team Sync\n- id_: '9'\n  start_time: 2024-05-15 12:30:00\n  title: Lunch\n";

    #[test]
    fn a_list_is_cut_into_its_items_in_any_notation() {
        let check = |text: &str, n: usize| assert_eq!(records(text).len(), n, "{text}");
        check(EVENTS, 2);
        check(r#"{"total": 2, "items": [{"id": 1, "of": {"x": 1}}, {"id": 2}]}"#, 3);
        check("One paragraph,\ntwo lines.\n\nAnother.", 2);
        check("", 1);
        check("title: Sync\nparticipants:\n- ann@x.org\n- bob@x.org\nstart: 10:00\n", 1);
        check("total: 2\nitems:\n- id: 1\n  a: 2\n- id: 2\n", 3);
        check("Here are the two:\n- one\n- two\n", 3);
    }

    #[test]
    fn keys_own_what_follows_them() {
        let of = |text: &str| {
            slots(text).into_iter().map(|(k, r)| (k, text[r].trim().to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(
            of("startTime: 10:00\nend-time: 11:00"),
            [("start time".into(), "10:00".into()), ("end time".to_owned(), "11:00".to_owned())]
        );
        assert_eq!(of(r#"{"id": 7, "to":"x"}"#)[0].0, "id");
        assert_eq!(of(r#"{"id": 7, "to":"x"}"#)[1], ("to".into(), "\"x\"}".into()));
        assert_eq!(of("see https://example.com"), []);
    }
}
