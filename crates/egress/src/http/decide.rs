//! What the policy says of a request, and what follows: a no with its reason, a wait for a person, or leave
//! to go out. Nothing goes out whose leave is not on record.

use super::identify::Target;
use crate::alert::Sighting;
use crate::approvals::{Held, Reply};
use crate::exchange::Watch;
use crate::rescue::{Denial, Failure};
use crate::rules::Rules;
use crate::session::Session;
use crate::swap::{Refusal, UsedCredential};
use cofferdam_model::{Answer, ApprovalAnswered, Body, CredentialUsed, EgressDecided, Verdict, Via};
use cofferdam_policy::{Action, Alarm, Decision, Effect, Headers, Http, Notice, Occasion, Policy};
use http::request::Parts;
use http::{HeaderMap, header};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

struct Fields<'a>(&'a HeaderMap);

impl Headers for Fields<'_> {
    fn each(&self, visit: &mut dyn FnMut(&str, &[u8])) {
        self.0.iter().for_each(|(name, value)| visit(name.as_str(), value.as_bytes()));
    }

    fn values(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
        self.0.get_all(name).iter().for_each(|value| visit(value.as_bytes()));
    }
}

/// A request as the policy is asked about it.
pub(crate) struct Question<'a> {
    pub(crate) via: Via,
    http: Http<'a>,
}

/// Calls back with the question, which borrows from all of its parts.
pub(crate) fn with_question<T>(
    via: Via,
    (target, sni, program): (&Target, Option<&str>, Option<&str>),
    head: &Parts,
    (body, length): (Option<&[u8]>, Option<u64>),
    then: impl FnOnce(&Question<'_>) -> T,
) -> T {
    let fields = Fields(&head.headers);
    let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let http = Http {
        scheme: target.scheme.name(),
        host: &target.host,
        port: target.port,
        sni,
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query(),
        headers: &fields,
        body,
        content_type,
        length,
        program,
    };
    then(&Question { via, http })
}

impl<'a> Question<'a> {
    /// A connection of which nothing more than its name will be seen.
    pub(crate) fn tunnel(via: Via, host: &'a str, port: u16, program: Option<&'a str>) -> Self {
        let http = Http {
            scheme: "https",
            host,
            port,
            sni: Some(host),
            method: "CONNECT",
            path: "/",
            query: None,
            headers: &(),
            body: None,
            content_type: None,
            length: None,
            program,
        };
        Self { via, http }
    }

    /// What was asked for earlier, as far as it was kept.
    pub(crate) fn again(asked: &'a EgressDecided) -> Self {
        let mut question = Self::tunnel(asked.via, &asked.host, asked.port, asked.program.as_deref());
        if asked.scheme != "tls" {
            question.http.scheme = &asked.scheme;
            question.http.sni = (asked.scheme == "https").then_some(&asked.host);
            question.http.method = &asked.method;
            question.http.path = &asked.path;
            question.http.query = asked.query.as_deref();
        }
        question
    }

    pub(crate) fn http(&self) -> &Http<'a> {
        &self.http
    }

    pub(crate) fn decide(&self, rules: &Rules) -> Decision {
        rules.policy().decide(&Action::Http(self.http))
    }

    pub(crate) fn wants_body(&self, rules: &Rules) -> bool {
        rules.policy().wants_body(&self.http)
    }

    /// The fact of the decision; its texts are those that came from inside.
    fn event(&self, decision: &Decision) -> Box<EgressDecided> {
        let Http { scheme, host, port, method, path, query, program, .. } = self.http;
        let is_tunnel = method == "CONNECT";
        let text = |text: &str| if is_tunnel { String::new() } else { clipped(text) };
        Box::new(EgressDecided {
            via: self.via,
            scheme: if is_tunnel { "tls".to_owned() } else { scheme.to_owned() },
            host: host.to_owned(),
            port,
            method: text(method),
            path: text(path),
            query: query.map(clipped),
            effect: decision.effect.into(),
            rule: decision.rule_id().map(str::to_owned),
            reason: decision.told(),
            program: program.map(str::to_owned),
            credentials: Vec::new(),
        })
    }
}

/// Whether these rules deny what was asked for earlier, as far as it was kept.
pub(crate) fn is_denied_now(asked: &EgressDecided, rules: &Rules) -> bool {
    let effect = match asked.scheme.as_str() {
        "ssh" => crate::ssh::again(asked, rules),
        _ => Question::again(asked).decide(rules).effect,
    };
    effect == Effect::Deny
}

/// A trace is no place for a path of 60 KiB.
fn clipped(text: &str) -> String {
    const MOST: usize = 4096;
    let end = (0..=MOST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}

/// Leave to go out.
pub(crate) struct Cleared {
    pub(crate) event: Box<EgressDecided>,
    /// Where it stands on record, once it does.
    recorded: Option<u64>,
    /// The policy that gave it.
    by: Arc<Policy>,
}

/// What a decision comes to before anybody waits. `would_use`: the credentials that its head asks for, where it does
/// not go at once; an error where the path or query holds one that does not belong there.
pub(crate) fn settle(
    session: &Session,
    rules: &Rules,
    question: &Question<'_>,
    decision: &Decision,
    would_use: Option<Result<Vec<String>, Refusal>>,
) -> Result<Pending, Failure> {
    let mut event = question.event(decision);
    match would_use {
        Some(Err(_)) => {
            event.path = super::service::WITHHELD.to_owned();
            event.query = None;
        }
        // Whoever is asked sees what would be spent.
        Some(Ok(names)) if decision.effect == Effect::Review => event.credentials = names,
        _ => {}
    }
    settled(session, rules, event, decision, &Action::Http(question.http))
}

/// The same for what is on record in its own way.
pub(crate) fn settled(
    session: &Session,
    rules: &Rules,
    event: Box<EgressDecided>,
    decision: &Decision,
    action: &Action<'_>,
) -> Result<Pending, Failure> {
    if let Some(rule) = decision.rule_id() {
        session.act_on(&Occasion::Rule(rule));
    }
    match decision.effect {
        Effect::Allow => Ok(Pending::Cleared(Cleared { event, recorded: None, by: rules.policy().clone() })),
        Effect::Review => Ok(Pending::Held(event, rules.policy().clone())),
        Effect::Deny => {
            session.counters.denied.fetch_add(1, Relaxed);
            let body = Body::EgressDecided(event);
            let seq = session.record.append(None, &body)?;
            if let Body::EgressDecided(event) = &body {
                session.noticed(Alarm::Denied, &event.reason, event, seq);
            }
            Err(Failure::Denied(Box::new(Denial {
                line: decision.to_string(),
                rule: decision.rule_id().map(str::to_owned),
                reason: decision.reason().to_owned(),
                contact: decision.contact.as_deref().unwrap_or_default().to_owned(),
                allow: rules.policy().suggest(action, decision),
            })))
        }
    }
}

pub(crate) enum Pending {
    Cleared(Cleared),
    /// A person must answer first.
    Held(Box<EgressDecided>, Arc<Policy>),
}

impl Pending {
    /// Waits for the person, if one is needed.
    pub(crate) async fn wait(self, session: &Session) -> Result<Cleared, Failure> {
        match self {
            Self::Cleared(cleared) => Ok(cleared),
            Self::Held(event, policy) => hold(session, event, policy).await,
        }
    }
}

/// `policy` is the one that was asked; only another one is asked again, with what is left of the request.
async fn hold(session: &Session, event: Box<EgressDecided>, policy: Arc<Policy>) -> Result<Cleared, Failure> {
    let began = Instant::now();
    let body = Body::EgressDecided(event);
    let seq = session.record.append(None, &body)?;
    let Body::EgressDecided(event) = body else { return Err(Failure::Paused) };
    let patience = session.patience();
    let question = session.approvals.ask(held(&event), patience)?;
    session.alerts.tell(Notice::Held, &session.coffer, || Sighting {
        held: Some(question.number()),
        ..Sighting::of(&event, Some(seq))
    });
    let mut answer = Unanswered::new(session, seq, began);
    let reply = question.wait(patience).await;
    let (kind, by) = match &reply {
        Reply::Allowed { by } => (Answer::Allowed, by.as_str()),
        Reply::Denied { by } => (Answer::Denied, by.as_str()),
        Reply::TimedOut => (Answer::TimedOut, ""),
        Reply::Withdrawn => (Answer::Withdrawn, ""),
    };
    answer.tell(kind, by)?;
    if kind == Answer::Allowed {
        // Whatever was switched while it waited holds.
        session.is_open()?;
        let rules = session.rules.load();
        let same = Arc::ptr_eq(&policy, rules.policy());
        if same || !is_denied_now(&event, &rules) {
            return Ok(Cleared { event, recorded: Some(seq), by: policy });
        }
    }
    session.counters.denied.fetch_add(1, Relaxed);
    let (rule, reason) = (event.rule.clone(), event.reason.clone());
    let held = format!("held by rule {}: {reason}", rule.as_deref().unwrap_or_default());
    let line = match kind {
        Answer::Denied => format!("denied by {by}; {held}"),
        Answer::TimedOut => format!("denied: nobody approved it in time; {held}"),
        _ => format!("denied: the policy changed while it waited; {held}"),
    };
    Err(Failure::Denied(Box::new(Denial { line, rule, reason, contact: String::new(), allow: None })))
}

fn held(event: &EgressDecided) -> Held {
    let query = event.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
    let usual = matches!((event.scheme.as_str(), event.port), ("https" | "tls", 443) | ("http", 80));
    let port = if usual { String::new() } else { format!(":{}", event.port) };
    Held {
        id: 0,
        rule: event.rule.clone().unwrap_or_default(),
        reason: event.reason.clone(),
        method: event.method.clone(),
        url: format!("{}://{}{port}{}{query}", event.scheme, event.host, event.path),
        program: event.program.clone(),
        credentials: event.credentials.clone(),
        since: 0,
        until: 0,
    }
}

/// A question on record needs an answer on record, also when its client goes away.
pub(crate) struct Unanswered<'a> {
    session: &'a Session,
    seq: u64,
    began: Instant,
    told: bool,
}

impl<'a> Unanswered<'a> {
    pub(crate) fn new(session: &'a Session, seq: u64, began: Instant) -> Self {
        Self { session, seq, began, told: false }
    }

    pub(crate) fn tell(&mut self, answer: Answer, by: &str) -> Result<(), Failure> {
        self.told = true;
        let waited_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let fact = ApprovalAnswered { answer, by: by.to_owned(), waited_us };
        self.session.record.append(Some(self.seq), &Body::ApprovalAnswered(fact))?;
        Ok(())
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.told {
            let _ = self.tell(Answer::Withdrawn, "");
        }
    }
}

impl Cleared {
    /// Asks a person after all, because of what was found in the body.
    pub(crate) async fn review(mut self, session: &Session, doubt: String) -> Result<Self, Failure> {
        self.event.effect = Verdict::Review;
        self.event.reason = doubt;
        hold(session, self.event, self.by).await
    }

    /// Puts the leave on record, and gives its place there.
    pub(crate) fn record(
        mut self,
        session: &Session,
        spent: &[UsedCredential],
    ) -> Result<(u64, Box<EgressDecided>), Failure> {
        self.event.credentials = spent.iter().map(|used| used.name.to_string()).collect();
        let body = Body::EgressDecided(self.event);
        let seq = match self.recorded {
            Some(seq) => seq,
            None => session.record.append(None, &body)?,
        };
        let Body::EgressDecided(event) = body else { return Err(Failure::Paused) };
        Ok((seq, event))
    }
}

/// Puts on record that these credentials go along with what the event `seq` let go.
pub(crate) fn record_spent(
    session: &Session,
    seq: u64,
    asked: &EgressDecided,
    spent: &[UsedCredential],
) -> Result<(), Failure> {
    for used in spent {
        let fact = CredentialUsed {
            name: used.name.to_string(),
            generation: used.generation,
            host: asked.host.clone(),
            port: asked.port,
        };
        session.record.append(Some(seq), &Body::CredentialUsed(fact))?;
    }
    Ok(())
}
