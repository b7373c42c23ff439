//! The tables besides `[[rule]]`, one function each.

use super::fields::{choice, each, header_name, hosts, id, methods, paths, span, unknown_word, words};
use crate::example::Example;
use crate::glob::Pattern;
use crate::host::{HostPattern, Hosts, canonical};
use crate::json::Field;
use crate::mistake::Mistake;
use crate::read::{At, Notes, Table, to_json};
use crate::request::Request;
use crate::rule::Effect;
use crate::settings::{After, micro_dollars};
use crate::settings::{
    Alarm, Budget, Change, Class, Deed, Exemption, Guard, GuardAction, Rewrite, Trigger, Upstream,
};
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::Duration;

/// How long a held act may wait. Less than a second nobody can answer; a day is long enough to forget it.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(86_400));

/// `[defaults]`: whom to ask, and how long a person has to answer.
pub(super) fn defaults(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> (Option<Arc<str>>, Option<Duration>) {
    let Some(table) = root.table("defaults", &["contact", "review_timeout"], notes) else {
        return (None, None);
    };
    let contact = words(&table, "contact", notes).map(|text| text.value.into());
    (contact, span(&table, "review_timeout", PATIENCE, notes))
}

pub(super) fn pass_through(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Hosts {
    let hosts = root
        .table("tls", &["pass_through"], notes)
        .and_then(|tls| each(&tls, "pass_through", notes, HostPattern::parse));
    Hosts(hosts.unwrap_or_default())
}

/// Hosts of whose exchanges no bodies are put on record.
pub(super) fn without_bodies(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Hosts {
    let hosts = root
        .table("record", &["without_bodies"], notes)
        .and_then(|record| each(&record, "without_bodies", notes, HostPattern::parse));
    Hosts(hosts.unwrap_or_default())
}

pub(super) fn upstreams(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<Upstream> {
    let tables = root.tables("upstream", &["host", "connect", "ca", "plain"], notes);
    tables.iter().filter_map(|table| upstream(table, notes)).collect()
}

fn upstream(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Upstream> {
    for (key, why) in [("host", "the name that the inside uses"), ("connect", "write HOST:PORT")] {
        if !table.has(key) {
            table.missing(key, why, notes);
        }
    }
    let host = table.string("host", notes);
    let connect = table.string("connect", notes);
    let ca = words(table, "ca", notes).map(|text| text.value);
    let plain = table.flag("plain", notes) == Some(true);
    let (host, connect) = (host?, connect?);
    let is_address = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        (canonical(host).is_ok() && port.parse::<u16>().ok()? > 0).then_some(())
    };
    if is_address(&connect.value).is_none() {
        notes.wrong(
            connect.spot,
            table.field("connect"),
            Mistake::Connect(connect.value.chars().take(80).collect()),
        );
    }
    match canonical(&host.value) {
        Ok(name) => Some(Upstream {
            host: name.into_owned(),
            connect: connect.value,
            ca,
            plain,
            line: table.spot.line,
        }),
        Err(error) => {
            notes.wrong(host.spot, table.field("host"), error);
            None
        }
    }
}

pub(super) fn examples(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<Example> {
    let known = &["request", "expect", "rule", "headers", "body", "program"];
    let tables = root.tables("example", known, notes);
    tables.iter().filter_map(|table| example(table, notes)).collect()
}

fn example(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Example> {
    if !table.has("request") {
        table.missing("request", "write one, as in \"GET https://api.example.com/v1\"", notes);
    }
    if !table.has("expect") {
        table.missing("expect", "write \"allow\", \"deny\" or \"review\"", notes);
    }
    let text = table.string("request", notes);
    let expect = choice(table, "expect", Effect::NAMES, Effect::named, notes);
    let rule = table.string("rule", notes);
    let program = table.string("program", notes).map(|text| text.value);
    let headers = texts(table, "headers", notes, header_name);
    let (text, expect) = (text?, expect?);
    let mut request = match Request::parse(&text.value) {
        Ok(request) => request,
        Err(error) => {
            notes.wrong(text.spot, table.field("request"), error);
            return None;
        }
    };
    request.headers = headers;
    request.program = program;
    request.body = table.json("body").map(|body| match body {
        Json::String(text) => text.into_bytes(),
        json => json.to_string().into_bytes(),
    });
    Some(Example { text: text.value, request, expect, rule, spot: table.spot })
}

/// `set = { name = "text" }`.
fn texts(
    table: &Table<'_, '_>,
    key: &'static str,
    notes: &mut Notes<'_>,
    name: impl Fn(&str) -> Result<String, Mistake>,
) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (entry, value) in table.entries(key, notes).unwrap_or_default() {
        let field = format!("{}.{}", table.field(key), entry.value);
        let Some(text) = value.get_ref().as_str() else {
            let found = value.get_ref().type_str();
            notes.wrong(entry.spot, field, Mistake::Type { want: "a string", found });
            continue;
        };
        match name(&entry.value) {
            Ok(_) if text.contains(|c: char| c.is_control()) => {
                notes.wrong(entry.spot, field, Mistake::HeaderValue)
            }
            Ok(name) => found.push((name, text.to_owned())),
            Err(mistake) => notes.wrong(entry.spot, field, mistake),
        }
    }
    found
}

pub(super) fn rewrites(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<Rewrite> {
    let tables =
        root.tables("rewrite", &["id", "host", "methods", "paths", "headers", "query", "json"], notes);
    tables.iter().filter_map(|table| rewrite(table, notes)).collect()
}

fn rewrite(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Rewrite> {
    const CHANGE: &[&str] = &["set", "remove"];
    let id = id(table, notes);
    let hosts = some_hosts(table, notes);
    let (methods, paths) = (methods(table, notes), paths(table, notes));
    let headers = table.table("headers", CHANGE, notes).map(|change| Change {
        set: texts(&change, "set", notes, header_name),
        remove: each(&change, "remove", notes, header_name).unwrap_or_default(),
    });
    let query = table.table("query", CHANGE, notes).map(|change| Change {
        set: texts(&change, "set", notes, |name| Ok(name.to_owned())),
        remove: change.strings("remove", notes).unwrap_or_default().into_iter().map(|at| at.value).collect(),
    });
    let json = table.table("json", CHANGE, notes).map(|change| json_change(&change, notes));
    if headers.is_none() && query.is_none() && json.is_none() {
        notes.wrong(table.spot, "rewrite", Mistake::NoChange);
    }
    Some(Rewrite {
        id: id?,
        hosts: hosts?,
        methods,
        paths,
        headers: headers.unwrap_or_default(),
        query: query.unwrap_or_default(),
        json: json.unwrap_or_default(),
        line: table.spot.line,
    })
}

fn json_change(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Change<Json> {
    let mut change = Change::default();
    let field_path = |text: &str| match Field::path(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(Mistake::FieldPath(text.chars().take(40).collect())),
    };
    for (entry, value) in table.entries("set", notes).unwrap_or_default() {
        match field_path(&entry.value) {
            Ok(name) => change.set.push((name, to_json(value.get_ref()))),
            Err(mistake) => notes.wrong(entry.spot, table.field("set"), mistake),
        }
    }
    change.remove = each(table, "remove", notes, field_path).unwrap_or_default();
    change
}

fn some_hosts(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Hosts> {
    if !table.has("host") {
        table.missing("host", "write the hosts it is for, or \"*\"", notes);
    }
    hosts(table, "host", notes)
}

pub(super) fn budgets(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<Budget> {
    let known = &["id", "host", "requests", "bytes_up", "bytes_down", "spend", "tokens"];
    let tables = root.tables("budget", known, notes);
    tables.iter().filter_map(|table| budget(table, notes)).collect()
}

fn budget(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Budget> {
    let id = id(table, notes);
    let hosts = some_hosts(table, notes);
    let (requests, tokens) = (count(table, "requests", notes), count(table, "tokens", notes));
    let spend = table.decimal("spend", notes).and_then(|amount| {
        let dollars = micro_dollars(&amount.value);
        if dollars.is_none() {
            notes.wrong(amount.spot, "budget.spend", Mistake::Money(amount.value.chars().take(40).collect()));
        }
        dollars
    });
    if !["requests", "bytes_up", "bytes_down", "spend", "tokens"].iter().any(|key| table.has(key)) {
        notes.wrong(table.spot, "budget", Mistake::NoLimit);
    }
    Some(Budget {
        bytes_up: table.size("bytes_up", notes),
        bytes_down: table.size("bytes_down", notes),
        id: id?,
        hosts: hosts?,
        requests,
        spend,
        tokens,
        line: table.spot.line,
    })
}

fn count(table: &Table<'_, '_>, name: &'static str, notes: &mut Notes<'_>) -> Option<u64> {
    let number = table.integer(name, notes)?;
    let count = u64::try_from(number.value).ok();
    if count.is_none() {
        let mistake = Mistake::Type { want: "a count", found: "a negative number" };
        notes.wrong(number.spot, table.field(name), mistake);
    }
    count
}

pub(super) fn guard(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Guard {
    let mut guard = Guard::default();
    let known = &["cloud", "vcs", "payment", "llm", "private-key", "jwt", "entropy", "large", "allow"];
    let Some(table) = root.table("guard", known, notes) else { return guard };
    for class in Class::ALL {
        if let Some(action) = choice(&table, class.name(), GuardAction::NAMES, GuardAction::named, notes) {
            guard.set(class, action);
        }
    }
    guard.large = table.size("large", notes);
    for table in table.tables("allow", &["host", "class", "reason"], notes) {
        guard.allow.extend(exemption(&table, notes));
    }
    guard
}

fn exemption(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Exemption> {
    let hosts = some_hosts(table, notes);
    let reason = words(table, "reason", notes);
    if !table.has("reason") {
        table.missing("reason", "an exemption says why", notes);
    }
    if !table.has("class") {
        table.missing("class", "write what may pass, as in class = [\"jwt\"]", notes);
    }
    let named = |word: &str| Class::named(word).ok_or_else(|| unknown_word(word, Class::NAMES));
    let classes = each(table, "class", notes, named);
    Some(Exemption { hosts: hosts?, classes: classes?, reason: reason?.value, line: table.spot.line })
}

pub(super) fn triggers(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<Trigger> {
    let tables = root.tables("on", &["id", "after", "do"], notes);
    tables.iter().filter_map(|table| trigger(table, notes)).collect()
}

fn trigger(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Trigger> {
    let id = id(table, notes);
    for (key, why) in [("after", "write what sets it off"), ("do", "write what happens then")] {
        if !table.has(key) {
            table.missing(key, why, notes);
        }
    }
    let after =
        table.table("after", &["rule", "tool", "alarm"], notes).and_then(|table| after(&table, notes));
    let deeds = table.table("do", &["narrow", "pause", "revoke"], notes).map(|table| deeds(&table, notes));
    Some(Trigger { id: id?, after: after?, deeds: deeds?, line: table.spot.line })
}

fn after(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<After> {
    if ["rule", "tool", "alarm"].iter().filter(|key| table.has(key)).count() != 1 {
        notes.wrong(table.spot, &table.name, Mistake::NoOccasion);
        return None;
    }
    if let Some(rule) = table.string("rule", notes) {
        return Some(After::Rule(rule));
    }
    if let Some(alarm) = choice(table, "alarm", Alarm::NAMES, Alarm::named, notes) {
        return Some(After::Alarm(alarm));
    }
    let At { value, spot } = table.string("tool", notes)?;
    match Pattern::parse(&value) {
        Ok(pattern) => Some(After::Tool(pattern)),
        Err(error) => {
            notes.wrong(spot, table.field("tool"), error);
            None
        }
    }
}

fn deeds(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<Deed> {
    let names = |texts: Vec<At<String>>| texts.into_iter().map(|text| text.value).collect();
    let mut deeds = Vec::new();
    deeds.extend(table.strings("narrow", notes).map(|tools| Deed::Narrow(names(tools))));
    deeds.extend((table.flag("pause", notes) == Some(true)).then_some(Deed::Pause));
    deeds.extend(table.strings("revoke", notes).map(|secrets| Deed::Revoke(names(secrets))));
    if deeds.is_empty() {
        notes.wrong(table.spot, &table.name, Mistake::NoDeed);
    }
    deeds
}
