//! What is allowed by the letter and surely not meant: rules that never decide anything, rules that contradict
//! each other, examples that fail.

use crate::example::Tried;
use crate::host::HostPattern;
use crate::policy::{Layer, Policy};
use crate::rule::{Effect, Rule, Subject};
use serde::Serialize;
use std::cmp::Ordering;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The file cannot be read as a policy.
    Invalid,
    /// Another rule always decides what this one matches.
    Shadowed,
    /// Two rules match the same and say different things.
    Contradictory,
    /// Nothing that can happen matches it.
    NeverMatches,
    /// An example does not hold.
    FailedExample,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Shadowed => "shadowed",
            Self::Contradictory => "contradictory",
            Self::NeverMatches => "never-matches",
            Self::FailedExample => "failed-example",
        }
    }
}

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub kind: Kind,
    pub line: usize,
    pub column: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl Policy {
    /// Everything worth a look, in the order of the file.
    pub fn check(&self) -> Vec<Finding> {
        let mut found: Vec<_> = self.layers.iter().flat_map(|layer| layer.check()).collect();
        found.extend(self.test().iter().filter(|tried| !tried.passed()).map(failed));
        found.sort_by_key(|finding| (finding.line, finding.column));
        found
    }
}

fn failed(tried: &Tried) -> Finding {
    Finding {
        severity: Severity::Error,
        kind: Kind::FailedExample,
        line: tried.line,
        column: 1,
        rule: tried.expect_rule.clone(),
        message: format!("example `{}`: {tried}", tried.request),
    }
}

fn about(rule: &Rule, severity: Severity, kind: Kind, message: String) -> Finding {
    let (line, column) = (rule.spot.line, rule.spot.column);
    Finding { severity, kind, line, column, rule: Some(rule.name.id.clone()), message }
}

impl Layer {
    fn check(&self) -> Vec<Finding> {
        let rules = &self.document.rules;
        let mut found = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            if let Some(why) = self.never(rule) {
                let message = format!("rule `{}` never matches: {why}", rule.name.id);
                found.push(about(rule, Severity::Warning, Kind::NeverMatches, message));
                continue;
            }
            let others = rules.iter().enumerate().filter(|(other, _)| *other != at);
            let decides = |(other, by): &(usize, &Rule)| by.covers(rule) && beats(by, *other, rule, at);
            if let Some((_, by)) = others.into_iter().find(decides) {
                found.push(shadowed(rule, by));
            }
        }
        found.extend(self.useless_upstreams());
        found
    }

    fn never(&self, rule: &Rule) -> Option<String> {
        if rule.condition.as_ref().is_some_and(|condition| condition.constant() == Some(false)) {
            return Some("its condition is always false".to_owned());
        }
        let Subject::Http(http) = &rule.subject else { return None };
        let sni_apart = |sni: &crate::host::Hosts| {
            let pairs = sni.0.iter().flat_map(|a| http.page.hosts.0.iter().map(move |b| (a, b)));
            pairs.into_iter().all(|(a, b)| !a.covers(b) && !b.covers(a))
        };
        if http.sni.as_ref().is_some_and(sni_apart) {
            return Some("its `sni` is none of its hosts, and the two must agree".to_owned());
        }
        let only_http = |schemes: &Vec<String>| schemes.iter().all(|scheme| scheme == "http");
        if http.sni.is_some() && http.page.schemes.as_ref().is_some_and(only_http) {
            return Some("it asks for `sni`, which plain http does not have".to_owned());
        }
        let passes =
            |host: &HostPattern| self.document.pass_through.0.iter().any(|pattern| pattern.covers(host));
        let looks_inside = http.methods.is_some()
            || http.page.paths.is_some()
            || !(http.page.query.is_empty() && http.headers.is_empty() && http.body.is_empty());
        if looks_inside && http.page.hosts.0.iter().all(passes) {
            return Some("its hosts are in `tls.pass_through`, where nothing inside is seen".to_owned());
        }
        None
    }

    fn useless_upstreams(&self) -> Vec<Finding> {
        let upstreams = &self.document.upstreams;
        let repeated = upstreams.iter().enumerate().filter_map(|(at, upstream)| {
            let first = upstreams[..at].iter().find(|first| first.host == upstream.host)?;
            Some(Finding {
                severity: Severity::Warning,
                kind: Kind::Shadowed,
                line: upstream.line,
                column: 1,
                rule: None,
                message: format!("upstream `{}` is already given on line {}", upstream.host, first.line),
            })
        });
        repeated.collect()
    }
}

/// Whether `by` decides where both match: by strength, then by order. A condition that fails denies in its
/// own name, so a rule with one is only silenced by a rule that denies anyway or that fails before it.
fn beats(by: &Rule, by_at: usize, rule: &Rule, at: usize) -> bool {
    let silenced = rule.condition.is_none()
        || (by.condition.is_none() && by.name.effect == Effect::Deny)
        || (by.condition.is_some() && by_at < at);
    match by.name.effect.cmp(&rule.name.effect) {
        Ordering::Less => silenced,
        Ordering::Equal => silenced && by_at < at,
        Ordering::Greater => false,
    }
}

fn shadowed(rule: &Rule, by: &Rule) -> Finding {
    let (id, by_id, line) = (&rule.name.id, &by.name.id, by.spot.line);
    if rule.name.effect != by.name.effect && rule.covers(by) {
        let message = format!(
            "rule `{id}` says {} and rule `{by_id}` on line {line} says {} of the same; take one out",
            rule.name.effect, by.name.effect
        );
        return about(rule, Severity::Error, Kind::Contradictory, message);
    }
    let why = match by.name.effect {
        Effect::Deny if rule.name.effect != Effect::Deny => "denies all that it matches",
        Effect::Review if rule.name.effect != Effect::Review => "holds all that it matches",
        _ => "matches all that it does",
    };
    let message = format!("rule `{id}` never decides: rule `{by_id}` on line {line} {why}");
    about(rule, Severity::Warning, Kind::Shadowed, message)
}
