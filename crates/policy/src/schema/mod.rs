//! From the text of a policy file to its parts. This is the whole schema: what is not read here is an error.

mod alerts;
mod fields;
mod flow;
mod known;
mod rule;
mod tables;
mod tools;

use crate::example::Example;
use crate::host::Hosts;
use crate::mistake::{Mistake, PolicyErrors, Spot, nearest};
use crate::read::{Notes, Table};
use crate::rule::Rule;
use crate::settings::{Alert, Budget, DeclaredTool, Guard, KnownHost, Rewrite, Trigger, Upstream};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use toml::de::DeTable;

/// More than this in one file is a mistake of whatever wrote it.
pub const MAX_RULES: usize = 10_000;

const TABLES: &[&str] = &[
    "defaults",
    "upstream",
    "rule",
    "example",
    "tls",
    "rewrite",
    "budget",
    "guard",
    "on",
    "alert",
    "sources",
    "record",
    "tool",
    "known_host",
];

/// A file, read.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) contact: Option<Arc<str>>,
    pub(crate) review_timeout: Option<Duration>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) examples: Vec<Example>,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) known_hosts: Vec<KnownHost>,
    pub(crate) pass_through: Hosts,
    pub(crate) without_bodies: Hosts,
    pub(crate) rewrites: Vec<Rewrite>,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) guard: Guard,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) alerts: Vec<Alert>,
    pub(crate) tools: Vec<DeclaredTool>,
}

pub(crate) fn read(text: &str) -> Result<Document, PolicyErrors> {
    let mut notes = Notes::new(text);
    let (root, syntax) = DeTable::parse_recoverable(text);
    for error in &syntax {
        let spot = notes.spot(error.span().map_or(0, |span| span.start));
        notes.wrong(spot, "", Mistake::Syntax(error.message().to_owned()));
    }
    // A file that is not TOML is read no further: what recovery makes of it would only confuse.
    if !syntax.is_empty() {
        return Err(PolicyErrors(notes.errors));
    }
    let root = Table::new("", Spot { line: 1, column: 1 }, root.get_ref(), TABLES, &mut notes);
    let rules = rules(&root, &mut notes);
    let (contact, review_timeout) = tables::defaults(&root, &mut notes);
    let document = Document {
        contact,
        review_timeout,
        examples: tables::examples(&root, &mut notes),
        upstreams: tables::upstreams(&root, &mut notes),
        known_hosts: known::known_hosts(&root, &mut notes),
        pass_through: tables::pass_through(&root, &mut notes),
        without_bodies: tables::without_bodies(&root, &mut notes),
        rewrites: tables::rewrites(&root, &mut notes),
        budgets: tables::budgets(&root, &mut notes),
        guard: tables::guard(&root, &mut notes),
        triggers: tables::triggers(&root, &mut notes),
        alerts: alerts::alerts(&root, &mut notes),
        tools: tools::tools(&root, &mut notes),
        rules,
    };
    let Document { rules, rewrites, budgets, triggers, alerts, .. } = &document;
    unique("rule", rules.iter().map(|rule| (rule.name.id.as_str(), rule.name.line)), &mut notes);
    unique("rewrite", rewrites.iter().map(|rewrite| (rewrite.id.as_str(), rewrite.line)), &mut notes);
    unique("budget", budgets.iter().map(|budget| (budget.id.as_str(), budget.line)), &mut notes);
    unique("on", triggers.iter().map(|trigger| (trigger.id.as_str(), trigger.line)), &mut notes);
    unique("alert", alerts.iter().map(|alert| (alert.id.as_str(), alert.line)), &mut notes);
    references(&document, &mut notes);
    match notes.errors.is_empty() {
        true => Ok(document),
        false => {
            notes.errors.sort_by_key(|error| error.spot);
            Err(PolicyErrors(notes.errors))
        }
    }
}

fn rules(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<Rule> {
    let trusted = flow::trusted(root, notes);
    let tables = root.tables("rule", rule::KEYS, notes);
    if tables.len() > MAX_RULES {
        notes.wrong(root.spot_of("rule", notes), "rule", Mistake::TooMany(tables.len()));
        return Vec::new();
    }
    tables.iter().filter_map(|table| rule::read(table, &trusted, notes)).collect()
}

/// Whatever has an id is named by it on record.
fn unique<'a>(table: &str, ids: impl Iterator<Item = (&'a str, usize)>, notes: &mut Notes<'_>) {
    let mut lines: HashMap<&str, usize> = HashMap::new();
    for (id, line) in ids {
        if let Some(first) = lines.insert(id, line) {
            let mistake = Mistake::DuplicateId { id: id.to_owned(), line: first };
            notes.wrong(Spot { line, column: 1 }, format!("{table}.id"), mistake);
        }
    }
}

/// Examples and triggers may name rules; a name that leads nowhere would be silently useless.
fn references(document: &Document, notes: &mut Notes<'_>) {
    let ids = || document.rules.iter().map(|rule| rule.name.id.as_str());
    let named = document.examples.iter().filter_map(|example| Some((example.rule.as_ref()?, "example.rule")));
    let after =
        document.triggers.iter().filter_map(|trigger| Some((trigger.rule_reference()?, "on.after.rule")));
    for (reference, field) in named.chain(after) {
        if !ids().any(|id| id == reference.value) {
            let near = nearest(&reference.value, ids()).map(str::to_owned);
            notes.wrong(reference.spot, field, Mistake::NoSuchRule { id: reference.value.clone(), near });
        }
    }
}
