//! What in a call's arguments can tell where it came from: addresses, links, accounts, codes, ids and names, by
//! their shape and by what their argument is called. Amounts, dates and prose cannot: the same ten is in every
//! table.

use cofferdam_policy::ValueKind;
use serde_json::Value;
use std::borrow::Cow;

/// Longer is prose.
const MAX_NAME_WORDS: usize = 4;
const MAX_VALUE: usize = 120;
/// More values in one call than anyone reads are not looked at one by one.
const MAX_LEAVES: usize = 20_000;

/// One scalar of a call's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaf<'a> {
    pub(super) place: ArgPlace,
    pub(super) text: Cow<'a, str>,
    is_number: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArgPlace {
    /// `attachments.file_id`: what it is, whatever its place in a list.
    pub(super) arg: String,
    /// A JSON pointer to it.
    pub(super) path: String,
}

/// The scalars of a call, in order. Deep nesting costs memory and no stack.
pub(super) fn leaves(args: &Value) -> Vec<Leaf<'_>> {
    let mut open = vec![(String::new(), String::new(), args)];
    let mut found = Vec::new();
    while let Some((arg, path, value)) = open.pop() {
        let (text, is_number) = match value {
            Value::Object(fields) => {
                let dot = if arg.is_empty() { "" } else { "." };
                open.extend(fields.iter().rev().map(|(key, value)| {
                    let escaped = key.replace('~', "~0").replace('/', "~1");
                    (format!("{arg}{dot}{key}"), format!("{path}/{escaped}"), value)
                }));
                continue;
            }
            Value::Array(items) => {
                let item = |(at, value)| (arg.clone(), format!("{path}/{at}"), value);
                open.extend(items.iter().enumerate().rev().map(item));
                continue;
            }
            Value::String(text) => (Cow::Borrowed(text.as_str()), false),
            Value::Number(number) => (Cow::Owned(number.to_string()), true),
            Value::Null | Value::Bool(_) => continue,
        };
        found.push(Leaf { place: ArgPlace { arg, path }, text, is_number });
        if found.len() == MAX_LEAVES {
            break;
        }
    }
    found
}

/// A value that can be traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Traced {
    pub(super) kind: ValueKind,
    /// As it is compared.
    pub(super) key: String,
    /// It stands within a longer text.
    pub(super) in_text: bool,
}

impl Leaf<'_> {
    /// The leaf itself, or what a longer text mentions.
    pub(super) fn traced(&self) -> Vec<Traced> {
        let text = self.text.trim();
        match self.shape(text) {
            Shape::Value(kind) => vec![Traced { kind, key: key(text), in_text: false }],
            Shape::Weak => Vec::new(),
            Shape::Prose => {
                mentions(text).map(|(kind, word)| Traced { kind, key: key(word), in_text: true }).collect()
            }
        }
    }

    fn shape(&self, text: &str) -> Shape {
        let name = self.place.arg.rsplit('.').next().unwrap_or_default();
        if is_account(text) {
            return Shape::Value(ValueKind::Account);
        }
        let words = text.split_whitespace().count();
        if words > MAX_NAME_WORDS || text.len() > MAX_VALUE || text.contains('\n') {
            return Shape::Prose;
        }
        if words == 1 {
            if let Some(kind) = entity(text) {
                let is_id = kind == ValueKind::Code && is_named(name, IDS);
                return Shape::Value(if is_id { ValueKind::Id } else { kind });
            }
            if is_named(name, LINKS) && text.contains('.') {
                return Shape::Value(ValueKind::Url);
            }
            if is_named(name, IDS) && !is_date(text) && !text.contains('.') {
                return Shape::Value(ValueKind::Id);
            }
        }
        if self.is_number || is_quantity(text) || text.len() < 2 {
            return Shape::Weak;
        }
        if is_named(name, PROSE) {
            return Shape::Prose;
        }
        Shape::Value(ValueKind::Name)
    }
}

enum Shape {
    Value(ValueKind),
    /// Too common to be traced.
    Weak,
    Prose,
}

/// Arguments for identifiers, by the last word of their name.
const IDS: &[&str] = &["id", "ids", "uuid", "guid", "key", "ref", "account", "iban", "number", "no", "code"];
const LINKS: &[&str] =
    &["url", "urls", "uri", "link", "links", "href", "website", "host", "domain", "endpoint"];
/// Arguments for words that each writer chooses.
const PROSE: &[&str] = &[
    "subject",
    "title",
    "body",
    "message",
    "content",
    "contents",
    "text",
    "description",
    "note",
    "notes",
    "comment",
    "summary",
    "reason",
    "label",
    "caption",
    "query",
    "html",
    "markdown",
    "prompt",
];

/// Whether the last word of `file_id`, `fileId` or `file-id` is one of these.
fn is_named(name: &str, words: &[&str]) -> bool {
    let cut = name.rfind(['_', '-', ' ']).map_or(0, |at| at + 1);
    let last = name.get(cut..).unwrap_or(name);
    // Where a capital follows a small letter a new word begins; `ID` is one.
    let bytes = last.as_bytes();
    let humps = bytes.windows(2).rposition(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase());
    let last = humps.and_then(|at| last.get(at + 1..)).unwrap_or(last);
    words.iter().any(|word| word.eq_ignore_ascii_case(last.trim_end_matches(|c: char| c.is_ascii_digit())))
}

/// The addresses, links, accounts and codes that a text mentions.
pub(super) fn mentions(text: &str) -> impl Iterator<Item = (ValueKind, &str)> {
    words(text).filter_map(|word| entity(word).map(|kind| (kind, word)))
}

/// Words without the signs around them. What is escaped for JSON or YAML ends a word too.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| c.is_whitespace() || "<>\"'`(){}[]|,;\\".contains(c);
    let around = |c: char| ".:!?*#_=~".contains(c);
    text.split(between).map(move |word| word.trim_matches(around)).filter(|word| !word.is_empty())
}

/// What one word is, if it is something that has an owner.
fn entity(word: &str) -> Option<ValueKind> {
    let word = word.strip_prefix("mailto:").unwrap_or(word);
    if word.len() < 5 || word.len() > 2_000 {
        return None;
    }
    if let Some((local, domain)) = word.split_once('@') {
        let is_address = !local.is_empty() && is_host(domain) && !local.contains('/');
        if is_address {
            return Some(ValueKind::Address);
        }
    }
    if is_link(word) {
        return Some(ValueKind::Url);
    }
    if is_account(word) {
        return Some(ValueKind::Account);
    }
    let is_code = word.len() >= 6
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && word.bytes().any(|b| b.is_ascii_digit())
        && word.bytes().any(|b| b.is_ascii_alphabetic());
    is_code.then_some(ValueKind::Code)
}

/// Names that a browser would complete: without a scheme, only the ends that hosts commonly have, for
/// `notes.txt` and `e.g` are no hosts.
const ENDS: &[&str] = &[
    "com", "org", "net", "io", "ai", "co", "dev", "app", "info", "biz", "edu", "gov", "xyz", "site",
    "online", "top", "club", "shop", "store", "cloud", "me", "tv", "de", "fr", "it", "es", "nl", "ch", "at",
    "be", "eu", "uk", "us", "ca", "au", "in", "jp", "cn", "ru", "br", "pl", "se", "example", "test",
];

fn is_link(word: &str) -> bool {
    if let Some((scheme, rest)) = word.split_once("://") {
        return !rest.is_empty() && !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphabetic());
    }
    let host = word.split(['/', '?', '#']).next().unwrap_or(word);
    let bare = host.split(':').next().unwrap_or(host);
    let end = bare.rsplit('.').next().unwrap_or_default();
    is_host(bare) && (starts_with(bare, "www.") || ENDS.iter().any(|known| known.eq_ignore_ascii_case(end)))
}

fn is_host(text: &str) -> bool {
    let fits =
        |label: &str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    let end = text.rsplit('.').next().unwrap_or_default();
    text.contains('.')
        && text.split('.').all(fits)
        && end.len() >= 2
        && !end.bytes().any(|b| b.is_ascii_digit())
}

fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

/// Account, card and phone numbers: two letters and digits as in an IBAN, or nine and more digits, in groups or
/// not. Check digits are not looked at: whoever lies about an account may lie about those.
fn is_account(text: &str) -> bool {
    if text.len() < 9 || text.len() > 60 || is_date(text) {
        return false;
    }
    let grouped = |c: char| c == ' ' || c == '-' || c == '.';
    let mut groups = text.trim_start_matches('+').split(grouped);
    let small = |group: &str| !group.is_empty() && group.bytes().all(|b| b.is_ascii_alphanumeric());
    if !groups.clone().all(small) || (groups.clone().count() > 1 && groups.any(|group| group.len() > 6)) {
        return false;
    }
    let squashed: Vec<u8> = text.bytes().filter(u8::is_ascii_alphanumeric).collect();
    let digits = squashed.iter().filter(|b| b.is_ascii_digit()).count();
    let is_iban = squashed.len() >= 15
        && squashed.len() <= 34
        && squashed.iter().take(2).all(u8::is_ascii_alphabetic)
        && squashed.iter().skip(2).take(2).all(u8::is_ascii_digit)
        && digits * 2 > squashed.len();
    is_iban || (digits == squashed.len() && (9..=19).contains(&digits))
}

/// `2024-05-15`, with or without a time, and times alone.
fn is_date(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_digit() || "-:./ TZ+".contains(c);
    let parts: Vec<&str> = text.split(['-', ':', '.', '/', ' ', 'T', 'Z', '+']).collect();
    let short = |part: &&str| part.len() <= 4;
    text.chars().all(plain)
        && parts.len() >= 2
        && parts.iter().take(3).all(short)
        && (text.contains(':') || (parts.len() >= 3 && text.len() <= 10) || text.contains('T'))
}

fn is_quantity(text: &str) -> bool {
    let sign = |c: char| c.is_ascii_digit() || " .,:-+/%$€£TZ".contains(c);
    text.chars().all(sign)
}

/// The one spelling in which values are compared: a link without scheme, `www.` and last slash, an account
/// without its gaps, all in small letters and single spaces.
pub(super) fn key(text: &str) -> String {
    if is_account(text) {
        return text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    }
    let mut rest = text.trim();
    let ahead = ["mailto:", "https://", "http://", "www."];
    while let Some(start) = ahead.iter().find(|start| starts_with(rest, start)) {
        rest = rest.get(start.len()..).unwrap_or_default();
    }
    let joined = rest.split_whitespace().collect::<Vec<_>>().join(" ");
    joined.trim_end_matches('/').to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(arg: &str, value: Value, expected: &str) {
        let told: Vec<String> = leaves(&json!({ arg: value }))
            .iter()
            .flat_map(|leaf| leaf.traced())
            .map(|t| format!("{}{} {}", t.kind.name(), if t.in_text { "*" } else { "" }, t.key))
            .collect();
        assert_eq!(told.join("; "), expected);
    }

    #[test]
    fn values_are_told_by_shape() {
        check("to", json!("Ann.Lee@Example.com"), "address ann.lee@example.com");
        check("page", json!("https://www.example.com/a/"), "url example.com/a");
        check("page", json!("example.org"), "url example.org");
        check("host", json!("db.internal"), "url db.internal");
        check("recipient", json!("GB29 NWBK 6016 1331 9268 19"), "account gb29nwbk60161331926819");
        check("recipient", json!("US133000000121212121212"), "account us133000000121212121212");
        check("phone", json!("+41 44 123 45 67"), "account 41441234567");
        check("order", json!("A17-99B2"), "code a17-99b2");
        check("file_id", json!("13"), "id 13");
        check("fileId", json!(13), "id 13");
        check("ids", json!(["7", "8"]), "id 7; id 8");
        check("user", json!("Bob"), "name bob");
        check("hotel", json!("Grand  River Hotel"), "name grand river hotel");
    }

    #[test]
    fn amounts_dates_and_prose_are_not_traced() {
        for value in
            [json!(10), json!(12.5), json!("10.00"), json!("2024-05-15"), json!("2024-05-15T10:00:00Z")]
        {
            check("when", value, "");
        }
        check("amount", json!("1,200 €"), "");
        check("date", json!("2024-05-15 10:00"), "");
        check("title", json!("Lunch with Ann"), "");
        check("flag", json!(true), "");
        check("file", json!("notes.txt"), "name notes.txt");
    }

    #[test]
    fn longer_texts_are_searched() {
        let text = "Please pay DE89370400440532013000 and see <www.example.com/pay>, or write to (a@b.example). Code: 1a7b3d.";
        let expected =
            "account* de89370400440532013000; url* example.com/pay; address* a@b.example; code* 1a7b3d";
        check("body", json!(text), expected);
        check("subject", json!("see evil.com"), "url* evil.com");
        check("body", json!("www.example.com"), "url example.com");
    }

    #[test]
    fn pointers_lead_to_the_value() {
        let args = json!({ "a/b": [{ "x~y": "Bob" }] });
        let found = leaves(&args);
        assert_eq!(found[0].place.arg, "a/b.x~y");
        assert_eq!(args.pointer(&found[0].place.path), Some(&json!("Bob")));
    }

    #[test]
    fn deep_and_wide_arguments_are_bounded() {
        let mut deep = json!("x");
        for _ in 0..100_000 {
            deep = Value::Array(vec![deep]);
        }
        assert_eq!(leaves(&deep).len(), 1);
        // Taken apart from outside: dropped as it is, it would use up the stack.
        while let Value::Array(mut items) = deep {
            deep = items.pop().unwrap_or_default();
        }
        assert_eq!(leaves(&json!(vec![1; MAX_LEAVES + 5])).len(), MAX_LEAVES);
    }

    proptest! {
        #[test]
        fn any_text_has_a_key_that_stays(text in "\\PC{0,40}", arg in "[a-z_]{0,8}") {
            let once = key(&text);
            prop_assert_eq!(key(&once), once);
            for leaf in leaves(&json!({ arg: text })) {
                leaf.traced();
            }
        }
    }
}
