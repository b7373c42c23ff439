//! What a session was not let do, kept aside while it is put on record: whoever started the session is told at its
//! end what was missing. The trace stays the truth; this is a bounded summary of it.

use crate::record::Recorder;
use cofferdam_model::{
    BlobRef, Body, EgressDecided, EgressRefused, NotRecorded, Record, SqlDecided, Stop, Verdict,
};
use cofferdam_policy::{Policy, Request};
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};

/// Different ones that are kept; the inside must not fill our memory with them.
const KEPT: usize = 64;

/// A request that was not let through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Denied {
    /// The method and the address, without a query.
    pub request: String,
    /// The rule that denied it; none where no rule allowed it, or none was asked.
    pub rule: Option<String>,
    pub why: String,
    pub times: u64,
    /// The rule that would allow it, as text for the policy.
    pub allow: Option<String>,
}

/// What was denied so far, and how many more than are kept.
#[derive(Debug, Default)]
struct Seen {
    denied: Vec<Denied>,
    more: u64,
}

/// Clones see the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Denials(Arc<Mutex<Seen>>);

impl Denials {
    /// A record that also notes here what it is told.
    pub(crate) fn noting(&self, recorder: Recorder) -> Arc<dyn Record> {
        Arc::new(Noting { recorder, denials: self.clone() })
    }

    /// All of them in order, each with the rule that this policy lacks, and the number of those not kept.
    pub(crate) fn told(&self, policy: &Policy) -> (Vec<Denied>, u64) {
        let seen = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let with_rule = |denied: Denied| Denied { allow: lacking(&denied, policy), ..denied };
        (seen.denied.into_iter().map(with_rule).collect(), seen.more)
    }

    fn note(&self, body: &Body) {
        let (denied, folded) = match body {
            Body::EgressDecided(fact) if fact.effect == Verdict::Deny => (decided(fact), 1),
            Body::SqlDecided(fact) if fact.effect == Verdict::Deny => (statement(fact), 1),
            // A replay tells itself what it missed.
            Body::EgressRefused(fact) if fact.cause == Stop::NOT_RECORDED => return,
            Body::EgressRefused(fact) => (refused(fact), fact.times),
            _ => return,
        };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |one: &&mut Denied| one.request == denied.request && one.why == denied.why;
        if let Some(one) = seen.denied.iter_mut().find(same) {
            one.times += folded;
        } else if seen.denied.len() < KEPT {
            seen.denied.push(Denied { times: folded, ..denied });
        } else {
            seen.more += folded;
        }
    }
}

fn decided(fact: &EgressDecided) -> Denied {
    if fact.scheme == "ssh" {
        let user = fact.query.as_deref().and_then(|query| query.strip_prefix("user=")).unwrap_or_default();
        let request = format!("ssh {user}@{}:{} {}", fact.host, fact.port, fact.method);
        return Denied { request, rule: fact.rule.clone(), why: fact.reason.clone(), times: 1, allow: None };
    }
    let usual = matches!((fact.scheme.as_str(), fact.port), ("https" | "tls", 443) | ("http", 80));
    let port = if usual { String::new() } else { format!(":{}", fact.port) };
    let request = format!("{} {}://{}{port}{}", fact.method, fact.scheme, fact.host, fact.path);
    Denied { request, rule: fact.rule.clone(), why: fact.reason.clone(), times: 1, allow: None }
}

/// By what it would have done: its text may be long, and no two are the same.
fn statement(fact: &SqlDecided) -> Denied {
    let request = format!("statement: {}", fact.acts.join(", "));
    Denied { request, rule: fact.rule.clone(), why: fact.reason.clone(), times: 1, allow: None }
}

fn refused(fact: &EgressRefused) -> Denied {
    let request = match fact.request.is_empty() {
        true => fact.destination.clone(),
        false => format!("{} to {}", fact.request, fact.destination),
    };
    Denied { request, rule: None, why: fact.detail.clone(), times: 1, allow: None }
}

/// The rule to add, where one would help. What no policy was asked about is no request that can be read again.
fn lacking(denied: &Denied, policy: &Policy) -> Option<String> {
    if denied.rule.is_some() {
        return None;
    }
    Request::parse(&denied.request).ok()?.with(|action| policy.explain(action).suggestion)
}

struct Noting {
    recorder: Recorder,
    denials: Denials,
}

impl Record for Noting {
    fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded> {
        let seq = Record::append(&self.recorder, parent, body)?;
        self.denials.note(body);
        Ok(seq)
    }

    fn keep(&self, bytes: &[u8]) -> Result<BlobRef, NotRecorded> {
        self.recorder.keep(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::Via;

    fn denied(path: &str, rule: Option<&str>, effect: Verdict) -> Body {
        Body::EgressDecided(Box::new(EgressDecided {
            via: Via::Proxy,
            scheme: "https".into(),
            host: "api.example.com".into(),
            port: 443,
            method: "GET".into(),
            path: path.into(),
            query: Some("secret=1".into()),
            effect,
            rule: rule.map(Into::into),
            reason: "no rule allows it".into(),
            program: None,
            credentials: Vec::new(),
        }))
    }

    fn refused(detail: &str) -> Body {
        Body::EgressRefused(Box::new(EgressRefused {
            cause: "forbidden-address".into(),
            via: Via::Transparent,
            destination: "169.254.169.254:80".into(),
            request: String::new(),
            detail: detail.into(),
            alarm: true,
            times: 3,
        }))
    }

    #[test]
    fn each_is_told_once_with_the_rule_that_it_lacks() {
        let denials = Denials::default();
        for body in [
            denied("/v1/a", None, Verdict::Deny),
            denied("/v1/a", None, Verdict::Deny),
            denied("/v1/b", Some("no-b"), Verdict::Deny),
            denied("/v1/c", Some("yes"), Verdict::Allow),
            denied("/v1/d", Some("ask"), Verdict::Review),
            refused("it is link-local"),
        ] {
            denials.note(&body);
        }
        let (told, more) = denials.told(&Policy::parse("").unwrap());
        assert_eq!((told.len(), more), (3, 0));
        assert_eq!((told[0].request.as_str(), told[0].times), ("GET https://api.example.com/v1/a", 2));
        let rule = told[0].allow.as_deref().unwrap();
        assert!(
            rule.contains("host = \"api.example.com\"") && rule.contains("paths = [\"/v1/a\"]"),
            "{rule}"
        );
        assert_eq!((told[1].rule.as_deref(), &told[1].allow), (Some("no-b"), &None));
        assert_eq!((told[2].why.as_str(), told[2].times, &told[2].allow), ("it is link-local", 3, &None));
    }

    #[test]
    fn the_inside_cannot_fill_our_memory() {
        let denials = Denials::default();
        (0..1000).for_each(|n| denials.note(&denied(&format!("/{n}"), None, Verdict::Deny)));
        let (told, more) = denials.told(&Policy::parse("").unwrap());
        assert_eq!((told.len(), more), (KEPT, 1000 - KEPT as u64));
    }
}
