//! Swaps that leave a statement which the results hold up as well as the one before. Nobody could tell such a statement
//! from a true one, so these are counted apart. The rule is the evaluation's own and knows nothing of the checker:
//!
//! A passage is an item of a list or a whole small result; inside a field that is a text of several lines, it is the
//! line. Of the passages that hold the old value, the one that shares most words with what is said (the paragraph or
//! item of the answer around the value, its headings, and the user's question) is what was meant. The swap is open if
//! under the same key of some passage the new value stands as well, and that passage shares all of those words too.
//! Three things make it not open whatever else: the user's question holds the old value and so says which is meant; the
//! paragraph or item says the new value already, so that it would be said twice; a word right beside the old value was
//! read right beside it and never beside the new one. Where not one word is shared, nothing says what was meant, and the
//! swap is not open either.

use std::collections::BTreeSet;
use std::ops::Range;

/// A value's surroundings in a result.
struct Passage {
    key: String,
    words: BTreeSet<String>,
}

/// Whether `new` in the place of `old` is held up as well. `forms` makes all ways in which a value may be written.
pub fn is_open(
    results: &[&str],
    place: &Place<'_>,
    (old, new): (&str, &str),
    forms: &dyn Fn(&str) -> Vec<String>,
) -> bool {
    let said = &place.said;
    let of = |value: &str| -> Vec<Passage> {
        let forms = forms(value);
        results.iter().flat_map(|text| passages(text, &forms)).collect()
    };
    let (old_words, new_words) = (words_of(old), words_of(new));
    let shared = |p: &Passage| -> BTreeSet<String> {
        let own = |w: &&String| !old_words.contains(*w) && !new_words.contains(*w);
        p.words.intersection(said).filter(own).cloned().collect()
    };
    let were = of(old);
    let most = were.iter().map(|p| shared(p).len()).max().unwrap_or(0);
    if most == 0 || forms(old).iter().any(|form| holds(place.question, form)) {
        return false;
    }
    if said.iter().any(|word| new_words.contains(word) && !old_words.contains(word)) {
        return false;
    }
    let read_beside = |value: &str, word: &str, after: bool| {
        let pair = if after { format!("{value} {word}") } else { format!("{word} {value}") };
        results.iter().any(|text| holds(text, &pair))
    };
    let broken = |word: &str, after: bool| {
        !word.is_empty() && read_beside(old, word, after) && !read_beside(new, word, after)
    };
    if broken(place.before, false) || broken(place.after, true) {
        return false;
    }
    let meant: Vec<&Passage> = were.iter().filter(|p| shared(p).len() == most).collect();
    of(new)
        .iter()
        .any(|now| meant.iter().any(|was| was.key == now.key && shared(was).is_subset(&shared(now))))
}

/// Where a value stands in an answer.
pub struct Place<'a> {
    question: &'a str,
    /// The words right beside it.
    before: &'a str,
    after: &'a str,
    /// The words of its paragraph or item, of what that stands under, and of the question.
    said: BTreeSet<String>,
}

impl<'a> Place<'a> {
    pub fn of(answer: &'a str, range: &Range<usize>, question: &'a str) -> Self {
        let edge = |c: char| !c.is_alphanumeric();
        let before = answer[..range.start].strip_suffix(' ').unwrap_or_default();
        let after = answer[range.end..].strip_prefix(' ').unwrap_or_default();
        Self {
            question,
            before: before.rsplit(edge).next().unwrap_or_default(),
            after: after.split(edge).next().unwrap_or_default(),
            said: said(answer, range, question),
        }
    }
}

fn said(answer: &str, range: &Range<usize>, question: &str) -> BTreeSet<String> {
    let mut lines = Vec::new();
    let mut at = 0;
    for line in answer.split_inclusive('\n') {
        lines.push((at, line));
        at += line.len();
    }
    let here = lines.partition_point(|(at, _)| *at <= range.start).saturating_sub(1);
    let deep = |line: &str| line.len() - line.trim_start().len();
    let blank = |at: usize| lines[at].1.trim().is_empty();
    let from = (0..=here).rev().take_while(|at| !blank(*at)).last().unwrap_or(here);
    let to = (here..lines.len()).take_while(|at| !blank(*at)).last().unwrap_or(here) + 1;
    // the value itself is what is asked about
    let block = lines[from].0..lines[to - 1].0 + lines[to - 1].1.len();
    let rest = [&answer[block.start..range.start], &answer[range.end.min(block.end)..block.end]];
    let mut kept: Vec<&str> = rest.to_vec();
    // headings and the items it stands under, upwards and ever less deep
    let mut depth = deep(lines[here].1) + 1;
    for (_, line) in lines[..from].iter().rev().filter(|(_, line)| !line.trim().is_empty()) {
        let heads = line.trim_end().ends_with(':') || line.starts_with('#') || deep(line) < depth;
        if heads {
            kept.push(line);
            depth = deep(line);
        }
        if depth == 0 {
            break;
        }
    }
    let text = kept.join(" ") + " " + question;
    words_of(&text)
}

fn passages(text: &str, forms: &[String]) -> Vec<Passage> {
    let mut found = Vec::new();
    for record in records(text) {
        let fields = fields(&record);
        for field in &fields {
            let long =
                field.lines.len() > 1 && !field.lines[1..].iter().all(|l| l.trim_start().starts_with("- "));
            for line in field.lines.iter().filter(|line| forms.iter().any(|form| holds(line, form))) {
                let words = if long { words_of(line) } else { words_of(&record.join("\n")) };
                found.push(Passage { key: field.key.clone(), words });
            }
        }
    }
    found
}

/// Whether a text holds a value as a word of its own.
pub fn holds(text: &str, value: &str) -> bool {
    text.match_indices(value).any(|(at, _)| {
        let outside = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        outside(text[..at].chars().next_back()) && outside(text[at + value.len()..].chars().next())
    })
}

/// Items of a list at the left edge, or all of it; lines that a printer broke are put together.
fn records(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", "").replace("\\n", "\n").replace("\\ ", " ");
    let listed = text.trim_start().starts_with("- ");
    let mut records: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        if records.is_empty() || listed && line.starts_with("- ") {
            records.push(Vec::new());
        }
        let Some(record) = records.last_mut() else { continue };
        let indented = line.starts_with("    ") && !line.trim_start().starts_with("- ");
        match record.last_mut().filter(|last| indented && last.len() > 60) {
            Some(last) => *last = format!("{last} {}", line.trim_start()),
            None => record.push(line.to_owned()),
        }
    }
    records
}

struct Field {
    key: String,
    lines: Vec<String>,
}

/// The keys of a record with the lines that are theirs; what stands before the first is a field without a name.
fn fields(record: &[String]) -> Vec<Field> {
    let mut fields = vec![Field { key: String::new(), lines: Vec::new() }];
    let mut base = None;
    for line in record {
        let bare = line.strip_prefix("- ").map_or_else(|| line.clone(), |rest| format!("  {rest}"));
        let indent = bare.len() - bare.trim_start().len();
        let key = bare.trim_start().split_once(':').map(|(key, _)| key.to_owned());
        let plain = |k: &String| !k.is_empty() && k.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if let Some(key) = key.filter(|k| plain(k) && base.is_none_or(|base| indent <= base)) {
            base = Some(indent);
            fields.push(Field { key, lines: vec![line.clone()] });
        } else if let Some(field) = fields.last_mut() {
            field.lines.push(line.clone());
        }
    }
    fields
}

fn words_of(text: &str) -> BTreeSet<String> {
    const COMMON: [&str; 40] = [
        "the", "and", "for", "you", "your", "with", "from", "that", "this", "has", "have", "had", "was",
        "were", "are", "will", "would", "can", "could", "not", "but", "all", "any", "its", "it's", "here",
        "there", "they", "them", "their", "his", "her", "she", "our", "what", "which", "who", "when",
        "where", "how",
    ];
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|w| w.len() > 2 || w.bytes().any(|b| b.is_ascii_digit()))
        .map(str::to_lowercase)
        .filter(|w| !COMMON.contains(&w.as_str()))
        .collect()
}
