//! The recorded request that comes nearest to one that was not recorded, and in what they differ: what a person needs
//! to see whether the agent does something new or the rules lack a word.

use super::identity::json_body;
use super::recording::{Recorded, Request};
use super::rules::Rules;
use cofferdam_model::{Difference, Nearest};
use serde_json::Value as Json;
use similar::{ChangeTag, TextDiff};

/// So many are listed; the others are counted.
const LISTED: usize = 8;
/// Characters of a value that are shown.
const SHOWN: usize = 160;
/// So many recorded requests of one address are looked into.
const LOOKED_INTO: usize = 64;
/// Longer texts are not compared line by line.
const LONG: usize = 256 << 10;

/// The nearest of these; the first of those that are equally near.
pub(super) fn find<'r>(
    candidates: impl Iterator<Item = &'r Recorded>,
    request: &Request,
    by: By<'_>,
) -> Option<Nearest> {
    let apart = |recorded: &&Recorded| {
        let then = &recorded.request;
        let shared = then.path.bytes().zip(request.path.bytes()).take_while(|(a, b)| a == b).count();
        (then.path != request.path, then.method != request.method, usize::MAX - shared)
    };
    let mut ranked: Vec<&Recorded> = candidates.collect();
    ranked.sort_by_key(apart);
    let best = apart(ranked.first()?);
    let near = ranked.iter().take_while(|recorded| apart(recorded) == best).take(LOOKED_INTO);
    near.map(|recorded| compare(recorded, request, by))
        .min_by_key(|nearest| nearest.differences.len() as u64 + nearest.more)
}

pub(super) fn compare(recorded: &Recorded, request: &Request, by: By<'_>) -> Nearest {
    let mut differences = differences(&recorded.request, request, by);
    if differences.is_empty() {
        // Each word would do, but not all together.
        differences = self::differences(&recorded.request, request, By { excuse: &|_, _| false, ..by });
    }
    let more = differences.len().saturating_sub(LISTED) as u64;
    differences.truncate(LISTED);
    Nearest { recorded: recorded.seq, request: shown(&recorded.request.line(), 500), differences, more }
}

/// What two requests are compared by.
#[derive(Clone, Copy)]
pub(super) struct By<'a> {
    pub(super) rules: &'a Rules,
    /// Whether two texts differ in nothing that counts.
    pub(super) excuse: &'a dyn Fn(&str, &str) -> bool,
}

struct Found<'a> {
    rules: &'a Rules,
    excuse: &'a dyn Fn(&str, &str) -> bool,
    list: Vec<Difference>,
}

fn differences(then: &Request, now: &Request, by: By<'_>) -> Vec<Difference> {
    let By { rules, excuse } = by;
    let mut found = Found { rules, excuse, list: Vec::new() };
    for (at, a, b) in [
        ("method", &then.method, &now.method),
        ("scheme", &then.scheme, &now.scheme),
        ("host", &then.host, &now.host),
        ("port", &then.port.to_string(), &now.port.to_string()),
        ("path", &then.path, &now.path),
    ] {
        found.value(at.to_owned(), Some(a), Some(b));
    }
    found.parameters("query", then.query.as_deref(), now.query.as_deref());
    for name in &rules.headers {
        let joined = |request: &Request| {
            let values: Vec<_> = request.header(name).map(String::from_utf8_lossy).collect();
            (!values.is_empty()).then(|| values.join(", "))
        };
        found.value(format!("header.{name}"), joined(then).as_deref(), joined(now).as_deref());
    }
    found.bodies(then, now);
    found.list
}

impl Found<'_> {
    fn value(&mut self, at: String, then: Option<&str>, now: Option<&str>) {
        if then != now && !then.zip(now).is_some_and(|(then, now)| (self.excuse)(then, now)) {
            let (recorded, now) = around(then, now);
            self.list.push(Difference { at, recorded, now });
        }
    }

    fn parameters(&mut self, at: &str, then: Option<&str>, now: Option<&str>) {
        let pairs = |text: Option<&str>| -> Vec<(String, String)> {
            let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
            let split = |pair: &str| pair.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
            pairs.map(|pair| split(pair).unwrap_or_else(|| (pair.to_owned(), String::new()))).collect()
        };
        let (then, now) = (pairs(then), pairs(now));
        let mut names: Vec<&String> = then.iter().chain(&now).map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        for name in names.into_iter().filter(|name| !self.rules.ignores_parameter(name)) {
            let values = |pairs: &[(String, String)]| {
                let values: Vec<&str> =
                    pairs.iter().filter(|(held, _)| held == name).map(|(_, value)| value.as_str()).collect();
                (!values.is_empty()).then(|| values.join(", "))
            };
            self.value(format!("{at}.{name}"), values(&then).as_deref(), values(&now).as_deref());
        }
    }

    fn bodies(&mut self, then: &Request, now: &Request) {
        if then.body == now.body {
            return;
        }
        if let (Some(then), Some(now)) = (json_body(then), json_body(now)) {
            let before = self.list.len();
            self.json(&then, &now, &mut Vec::new());
            if before == self.list.len() && !self.rules.is_normalised() {
                let (a, b) = (then.to_string(), now.to_string());
                let at = "body (order or white space only)".to_owned();
                self.list.push(Difference {
                    at,
                    recorded: Some(shown(&a, SHOWN)),
                    now: Some(shown(&b, SHOWN)),
                });
            }
            return;
        }
        let form = "application/x-www-form-urlencoded";
        match (std::str::from_utf8(&then.body), std::str::from_utf8(&now.body)) {
            (Ok(a), Ok(b)) if then.media() == form && now.media() == form => {
                self.parameters("body", Some(a), Some(b));
            }
            (Ok(a), Ok(b)) if a.len() + b.len() <= LONG => self.lines(a, b),
            _ => {
                let size = |bytes: &[u8]| format!("{} bytes", bytes.len());
                let at = match then.body.iter().zip(&now.body).position(|(a, b)| a != b) {
                    Some(offset) => format!("body, from byte {offset}"),
                    None => "body".to_owned(),
                };
                self.list.push(Difference {
                    at,
                    recorded: Some(size(&then.body)),
                    now: Some(size(&now.body)),
                });
            }
        }
    }

    fn json(&mut self, then: &Json, now: &Json, at: &mut Vec<String>) {
        if then == now || self.rules.ignores_field(at) {
            return;
        }
        match (then, now) {
            (Json::Object(a), Json::Object(b)) => {
                let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
                names.sort();
                names.dedup();
                for name in names {
                    self.field(a.get(name), b.get(name), name.clone(), at);
                }
            }
            (Json::Array(a), Json::Array(b)) => self.items(a, b, at),
            _ => self.leaf(Some(then), Some(now), at),
        }
    }

    fn field(&mut self, then: Option<&Json>, now: Option<&Json>, name: String, at: &mut Vec<String>) {
        at.push(name);
        match (then, now) {
            (Some(then), Some(now)) => self.json(then, now, at),
            _ if self.rules.ignores_field(at) => {}
            _ => self.leaf(then, now, at),
        }
        at.pop();
    }

    /// An item that was put in or left out moves those behind it: they are the same.
    fn items(&mut self, then: &[Json], now: &[Json], at: &mut Vec<String>) {
        let head = then.iter().zip(now).take_while(|(a, b)| a == b).count();
        let rest = then.len().min(now.len()) - head;
        let tail = then.iter().rev().zip(now.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
        let (then, now) = (&then[head..then.len() - tail], &now[head..now.len() - tail]);
        for index in 0..then.len().max(now.len()) {
            self.field(then.get(index), now.get(index), (head + index).to_string(), at);
        }
    }

    fn leaf(&mut self, then: Option<&Json>, now: Option<&Json>, at: &[String]) {
        let text = |json: &Json| json.as_str().map_or_else(|| json.to_string(), str::to_owned);
        let (then, now) = (then.map(text), now.map(text));
        self.value(place(at), then.as_deref(), now.as_deref());
    }

    fn lines(&mut self, then: &str, now: &str) {
        let diff = TextDiff::from_lines(then, now);
        for change in diff.iter_all_changes() {
            let line = Some(shown(change.value().trim_end_matches('\n'), SHOWN));
            let at = |index: Option<usize>| format!("body, line {}", index.unwrap_or(0) + 1);
            match change.tag() {
                ChangeTag::Equal => {}
                ChangeTag::Delete => {
                    self.list.push(Difference { at: at(change.old_index()), recorded: line, now: None });
                }
                ChangeTag::Insert => {
                    self.list.push(Difference { at: at(change.new_index()), recorded: None, now: line });
                }
            }
        }
    }
}

/// `body.messages[2].content`
fn place(at: &[String]) -> String {
    at.iter().fold("body".to_owned(), |text, step| match step.parse::<usize>() {
        Ok(index) => format!("{text}[{index}]"),
        Err(_) => format!("{text}.{step}"),
    })
}

/// Long values from a little before the place where they part.
fn around(then: Option<&str>, now: Option<&str>) -> (Option<String>, Option<String>) {
    let (Some(a), Some(b)) = (then, now) else {
        return (then.map(|text| shown(text, SHOWN)), now.map(|text| shown(text, SHOWN)));
    };
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let skip = if same > SHOWN / 2 { same - SHOWN / 4 } else { 0 };
    let from = |text: &str| {
        let start = if skip > 0 { "…" } else { "" };
        let rest: String = text.chars().skip(skip).take(SHOWN + 1).collect();
        shown(&format!("{start}{rest}"), SHOWN)
    };
    (Some(from(a)), Some(from(b)))
}

fn shown(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording::Answered;
    use super::*;

    fn post(path: &str, body: &str) -> Request {
        Request {
            scheme: "https".into(),
            host: "a.example".into(),
            port: 443,
            method: "POST".into(),
            path: path.into(),
            body: body.into(),
            ..Request::default()
        }
    }

    fn plain(rules: &Rules) -> By<'_> {
        By { rules, excuse: &|_, _| false }
    }

    #[track_caller]
    fn check(then: &str, now: &str, expected: &str) {
        let rules = Rules::default();
        let recorded = Recorded { seq: 7, request: post("/v1", then), answer: Answered::Not(String::new()) };
        let nearest = compare(&recorded, &post("/v1", now), plain(&rules));
        let one = |difference: &Difference| {
            let side = |text: &Option<String>| text.as_deref().unwrap_or("-").to_owned();
            format!("{}: {} | {}", difference.at, side(&difference.recorded), side(&difference.now))
        };
        let lines: Vec<String> = nearest.differences.iter().map(one).collect();
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn differences_are_told_by_their_place() {
        check(
            r#"{"a":1,"b":[{"c":"x"}]}"#,
            r#"{"a":2,"b":[{"c":"y"}]}"#,
            "body.a: 1 | 2\nbody.b[0].c: x | y",
        );
        check(r#"{"m":[1,2,3]}"#, r#"{"m":[1,9,2,3]}"#, "body.m[1]: - | 9");
        check(r#"{"a":1}"#, r#"{"b":1}"#, "body.a: 1 | -\nbody.b: - | 1");
        check("one\ntwo\n", "one\nthree\n", "body, line 2: two | -\nbody, line 2: - | three");
        let (long, part) = ("x".repeat(500), "x".repeat(40));
        check(
            &format!("{{\"t\":\"{long}a\"}}"),
            &format!("{{\"t\":\"{long}b\"}}"),
            &format!("body.t: …{part}a | …{part}b"),
        );
    }

    #[test]
    fn the_same_address_is_nearer_than_the_same_body() {
        let recorded = |seq, path: &str, body: &str| Recorded {
            seq,
            request: post(path, body),
            answer: Answered::Not(String::new()),
        };
        let all = [recorded(1, "/other", "{}"), recorded(2, "/v1", "{\"a\":1}"), recorded(3, "/v1", "[]")];
        let rules = Rules::default();
        let nearest = find(all.iter(), &post("/v1", "{\"a\":2}"), plain(&rules)).unwrap();
        assert_eq!(nearest.recorded, 2);
        assert!(find([].iter(), &post("/v1", ""), plain(&rules)).is_none());
    }
}
