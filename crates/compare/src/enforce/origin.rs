//! Who brought a value up first: the operator and the user in their own words, a tool, or nobody. All values of a
//! run are looked for in one pass over its texts, so the cost is their length and not their product.

use super::value::{ArgPlace, Traced, leaves};
use crate::effects::Effects;
use aho_corasick::{AhoCorasick, MatchKind};
use cofferdam_model::{Act, ActKind, Run};
use cofferdam_policy::ValueKind;
use std::collections::HashMap;
use std::rc::Rc;

/// Where a value first came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Told(Found),
    /// The answer to a change that the run itself has made.
    Own(Found),
    Returned(Found),
    /// In nothing that the model was given.
    Made,
}

/// An act, and the bytes of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) act: usize,
    pub(super) bytes: (usize, usize),
}

/// A value of an act.
#[derive(Debug, Clone)]
pub(super) struct Used {
    pub(super) act: usize,
    /// A text may have many; the place is shared.
    pub(super) place: Rc<ArgPlace>,
    pub(super) traced: Traced,
}

/// The first mention of each value in the words of people and in what tools returned.
#[derive(Debug, Default)]
pub(super) struct Origins {
    told: HashMap<String, Found>,
    returned: HashMap<String, Found>,
    /// Not all could be looked for: values and texts were made to be found without end.
    pub(super) is_cut: bool,
}

/// Values within values within a text of nothing else can be found this often before it is enough.
const MAX_FINDS: usize = 20_000_000;

/// The values of an act's arguments. A request that left has its address for one.
pub(super) fn values(index: usize, act: &Act) -> Vec<Used> {
    let address = act.name.split_whitespace().next_back().filter(|_| act.kind == ActKind::Egress);
    let address = address.map(|address| serde_json::json!({ "url": address }));
    let mut all = leaves(&act.args);
    if all.is_empty() {
        all = address.iter().flat_map(leaves).collect();
    }
    let mut used = Vec::new();
    for leaf in all {
        let traced = leaf.traced();
        let place = Rc::new(leaf.place);
        used.extend(traced.into_iter().map(|traced| Used { act: index, place: Rc::clone(&place), traced }));
    }
    used
}

impl Origins {
    pub(super) fn of(run: &Run, used: &[Used]) -> Self {
        let mut origins = Self::default();
        let keys = distinct(used.iter());
        let accounts = distinct(used.iter().filter(|used| used.traced.kind == ValueKind::Account));
        let (Some(any), gapless) = (finder(&keys), finder(&accounts)) else { return origins };
        let mut left = MAX_FINDS;
        for (at, act) in run.acts.iter().enumerate() {
            let told = match act.kind {
                ActKind::Told | ActKind::Instructed => true,
                ActKind::Said | ActKind::Model => continue,
                _ => false,
            };
            let known = if told { &mut origins.told } else { &mut origins.returned };
            search(&any, &keys, &Flat::spaced(&act.text), at, known, &mut left);
            // Accounts are printed in groups and typed without: the gaps must not hide where one came from.
            if let Some(gapless) = &gapless {
                search(gapless, &accounts, &Flat::gapless(&act.text), at, known, &mut left);
            }
        }
        origins.is_cut = left == 0;
        origins
    }

    /// Looks back from the act that uses it. What came back from calls of the same moment was not known yet.
    pub(super) fn trace(&self, run: &Run, effects: &Effects, used: &Used) -> Origin {
        let Some(user) = run.acts.get(used.act) else { return Origin::Made };
        let visible = |found: &&Found| {
            let together = run.acts.get(found.act).is_some_and(|source| {
                source.at == user.at || (source.within.is_some() && source.within == user.within)
            });
            found.act < used.act && !together
        };
        let key = &used.traced.key;
        if let Some(found) = self.told.get(key).filter(|found| found.act < used.act) {
            return Origin::Told(*found);
        }
        match self.returned.get(key).filter(visible) {
            Some(found) => {
                // Ids and links of what was just made are one's own; whom to pay or write to never is.
                let made = matches!(used.traced.kind, ValueKind::Id | ValueKind::Code | ValueKind::Url);
                let own = made && run.acts.get(found.act).is_some_and(|source| effects.changes(source));
                if own { Origin::Own(*found) } else { Origin::Returned(*found) }
            }
            None => Origin::Made,
        }
    }
}

fn distinct<'a>(used: impl Iterator<Item = &'a Used>) -> Vec<&'a str> {
    let mut keys: Vec<&str> =
        used.map(|used| used.traced.key.as_str()).filter(|key| !key.is_empty()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// None where there is nothing to find, or too much to build.
fn finder(keys: &[&str]) -> Option<AhoCorasick> {
    let builder =
        AhoCorasick::builder().match_kind(MatchKind::Standard).ascii_case_insensitive(true).build(keys);
    builder.ok().filter(|_| !keys.is_empty())
}

fn search(
    finder: &AhoCorasick,
    keys: &[&str],
    text: &Flat,
    act: usize,
    known: &mut HashMap<String, Found>,
    left: &mut usize,
) {
    for found in finder.find_overlapping_iter(&text.text) {
        *left = left.saturating_sub(1);
        if *left == 0 {
            return;
        }
        let Some(key) = keys.get(found.pattern().as_usize()) else { continue };
        let alone = text.is_gapless || stands_alone(&text.text, found.start(), found.end());
        if !alone || known.contains_key(*key) {
            continue;
        }
        let bytes = (text.origin(found.start()), text.origin(found.end().saturating_sub(1)) + 1);
        known.insert((*key).to_owned(), Found { act, bytes });
    }
}

/// Whether a find is a word of its own: `13` is not in `2024-05-13`, nor `bank.com` in `my-bank.com`,
/// `x@bank.com` or `bank.com.evil.io`.
fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let bytes = text.as_bytes();
    let at = |index: Option<usize>| index.and_then(|index| bytes.get(index)).copied().unwrap_or(b' ');
    let joins = |near: u8, beyond: u8| match near {
        b'_' | b'-' | b'@' | b'+' => beyond.is_ascii_alphanumeric(),
        b'.' | b':' => beyond.is_ascii_alphanumeric(),
        _ => false,
    };
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte >= 0x80;
    let (before, beyond) = (at(start.checked_sub(1)), at(start.checked_sub(2)));
    let escaped = matches!(before, b'n' | b't' | b'r') && beyond == b'\\';
    let www = start
        .checked_sub(4)
        .and_then(|from| text.get(from..start))
        .is_some_and(|w| w.eq_ignore_ascii_case("www."));
    let mailto = before == b':' && text.get(..start).is_some_and(|head| head.ends_with("mailto:"));
    let left = escaped || www || mailto || !(is_word(before) || joins(before, beyond));
    let (after, beyond) = (at(Some(end)), at(Some(end + 1)));
    // A port follows a host.
    let right = !(is_word(after)
        || (after != b':' && joins(after, beyond))
        || (after == b':' && at(end.checked_sub(1)).is_ascii_digit() && beyond.is_ascii_digit()));
    left && right
}

/// A text with its white space folded, and the way back to its bytes.
struct Flat {
    text: String,
    /// From this byte on, and what to add to get to the original's.
    shifts: Vec<(usize, usize)>,
    is_gapless: bool,
}

impl Flat {
    /// Every run of white space as one space, `\/` as `/`.
    fn spaced(text: &str) -> Self {
        let mut last = ' ';
        Self::keep(text, false, |c, next| {
            let kept = match c {
                '\\' => next != Some('/'),
                c if c.is_whitespace() => !last.is_whitespace(),
                _ => true,
            };
            last = c;
            kept.then_some(if c.is_whitespace() { ' ' } else { c })
        })
    }

    /// Without the spaces and hyphens that group numbers.
    fn gapless(text: &str) -> Self {
        Self::keep(text, true, |c, _| (c != ' ' && c != '-').then_some(c))
    }

    fn keep(text: &str, is_gapless: bool, mut keep: impl FnMut(char, Option<char>) -> Option<char>) -> Self {
        let mut flat = Self { text: String::with_capacity(text.len()), shifts: vec![(0, 0)], is_gapless };
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if let Some(kept) = keep(c, chars.peek().map(|(_, next)| *next)) {
                let shift = at - flat.text.len().min(at);
                if flat.shifts.last().is_some_and(|(_, last)| *last != shift) {
                    flat.shifts.push((flat.text.len(), shift));
                }
                flat.text.push(kept);
            }
        }
        flat
    }

    fn origin(&self, at: usize) -> usize {
        let index = self.shifts.partition_point(|(from, _)| *from <= at);
        at + index.checked_sub(1).and_then(|index| self.shifts.get(index)).map_or(0, |(_, shift)| *shift)
    }
}

/// The name by which a source is told.
pub(super) fn source_name(run: &Run, found: Found) -> &str {
    run.acts.get(found.act).map_or("", |act| act.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::{EffectOf, Status};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn act(kind: ActKind, name: &str, args: Value, text: &str) -> Act {
        Act {
            at: 0,
            within: None,
            kind,
            name: name.to_owned(),
            args,
            text: text.to_owned(),
            status: Status::Ok,
            effect: EffectOf::Unknown,
            decided: None,
        }
    }

    fn run(acts: Vec<Act>) -> Run {
        let numbered = acts.into_iter().zip(0..).map(|(act, at)| Act { at, ..act });
        Run { acts: numbered.collect(), ..Run::default() }
    }

    /// What is said of the first value of the last act.
    #[track_caller]
    fn check(told: &str, returned: &str, value: Value, expected: &str) {
        let run = run(vec![
            act(ActKind::Told, "user", Value::Null, told),
            act(ActKind::Tool, "read_file", json!({}), returned),
            act(ActKind::Tool, "send_it", json!({ "to_id": value }), ""),
        ]);
        let used = values(2, &run.acts[2]);
        let origins = Origins::of(&run, &used);
        let place = |found: Found| {
            let text = &run.acts[found.act].text;
            format!("{:?}", &text[found.bytes.0..found.bytes.1])
        };
        let told = match origins.trace(&run, &Effects::default(), &used[0]) {
            Origin::Told(found) => format!("told {}", place(found)),
            Origin::Own(found) => format!("own {}", place(found)),
            Origin::Returned(found) => format!("returned {}", place(found)),
            Origin::Made => "made".to_owned(),
        };
        assert_eq!(told, expected, "{value}");
    }

    #[test]
    fn the_first_source_is_found_with_its_bytes() {
        check(
            "pay it",
            "IBAN: US133000000121212121212.",
            json!("US133000000121212121212"),
            "returned \"US133000000121212121212\"",
        );
        check(
            "pay us133000000121212121212",
            "US133000000121212121212",
            json!("US133000000121212121212"),
            "told \"us133000000121212121212\"",
        );
        check(
            "pay it",
            "US13 3000 0001 2121 2121 212",
            json!("US133000000121212121212"),
            "returned \"US13 3000 0001 2121 2121 212\"",
        );
        check(
            "x",
            "see http:\\/\\/www.evil.com\\/a now",
            json!("https://evil.com/a/"),
            "returned \"evil.com\\\\/a\"",
        );
        check(
            "x",
            "Grand\n    River  Hotel",
            json!("Grand River Hotel"),
            "returned \"Grand\\n    River  Hotel\"",
        );
        check("x", "y", json!("ann@example.com"), "made");
    }

    #[test]
    fn parts_of_other_words_are_no_source() {
        check("on 2024-05-13 at 10:13", "x13 13.5", json!("13"), "made");
        check("item 13.", "13", json!("13"), "told \"13\"");
        check("mail x@bank.com about my-bank.com", "bank.com.evil.io", json!("bank.com"), "made");
        check("go to www.bank.com:443", "", json!("bank.com"), "told \"bank.com\"");
        check("x", "a\\nann@example.com", json!("ann@example.com"), "returned \"ann@example.com\"");
        check("é13", "13é", json!("13"), "made");
    }

    #[test]
    fn answers_of_the_same_moment_are_not_known_yet() {
        let mut run = run(vec![
            act(ActKind::Tool, "read_file", json!({}), "evil.com"),
            act(ActKind::Tool, "send_it", json!({ "url": "evil.com" }), ""),
        ]);
        let origin = |run: &Run| {
            let used = values(1, &run.acts[1]);
            Origins::of(run, &used).trace(run, &Effects::default(), &used[0])
        };
        assert!(matches!(origin(&run), Origin::Returned(_)));
        run.acts[1].at = run.acts[0].at;
        assert_eq!(origin(&run), Origin::Made);
    }

    #[test]
    fn what_a_change_returned_is_its_own() {
        let own = |first: &str, value: &str| {
            let run = run(vec![
                act(ActKind::Tool, first, json!({}), "id 26, mail ann@example.com"),
                act(ActKind::Tool, "share_file", json!({ "file_id": value }), ""),
            ]);
            let used = values(1, &run.acts[1]);
            matches!(Origins::of(&run, &used).trace(&run, &Effects::default(), &used[0]), Origin::Own(_))
        };
        assert!(own("create_file", "26"));
        assert!(!own("get_file", "26"));
        assert!(!own("create_file", "ann@example.com"), "whom to write to is never one's own");
    }

    proptest! {
        #[test]
        fn places_are_in_the_text(text in "[ a\\n\\\\/13é-]{0,40}", value in "[a13]{1,4}") {
            let run = run(vec![
                act(ActKind::Tool, "read", json!({}), &text),
                act(ActKind::Tool, "send", json!({ "id": value }), ""),
            ]);
            let used = values(1, &run.acts[1]);
            let origins = Origins::of(&run, &used);
            for used in &used {
                if let Origin::Returned(found) | Origin::Own(found) = origins.trace(&run, &Effects::default(), used) {
                    let there = text.get(found.bytes.0..found.bytes.1);
                    prop_assert!(there.is_some_and(|t| t.to_lowercase().starts_with(&used.traced.key[..1])), "{there:?}");
                }
            }
        }
    }
}
