//! What the policy says of a session and of each of its statements; nothing goes on that is not on record.

use super::relay::Link;
use super::wire::Told;
use super::{Visit, Wish};
use crate::alert::Sighting;
use crate::approvals::{Held, Reply};
use crate::exchange::Watch;
use crate::http::decide::Unanswered;
use crate::rescue::{Denial, Failure};
use crate::rules::Rules;
use crate::session::Session;
use crate::swap::UsedCredential;
use cofferdam_model::{Answer, Body, EgressDecided, SqlDecided, Verdict};
use cofferdam_policy::sql::{self, Script, SqlError, Statement};
use cofferdam_policy::{Action, Alarm, Decision, Effect, Notice, Occasion, Sql};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Statements are told up to here.
const MOST_TOLD: usize = 4096;
/// For a text that is a very deep tree.
const STACK: usize = 256 << 20;

/// The session as it stands on record.
pub(super) fn asked(visit: &Visit, wish: &Wish, decision: &Decision) -> Box<EgressDecided> {
    Box::new(EgressDecided {
        via: visit.via,
        scheme: "postgres".to_owned(),
        host: visit.host.to_string(),
        port: visit.port,
        method: "CONNECT".to_owned(),
        path: format!("/{}", clipped(&wish.database, 200)),
        query: Some(format!("user={}", clipped(&wish.user, 200))),
        effect: decision.effect.into(),
        rule: decision.rule_id().map(str::to_owned),
        reason: decision.told(),
        program: visit.program.as_deref().map(str::to_owned),
        credentials: Vec::new(),
    })
}

/// Leave to begin a session, on record.
pub(super) async fn connect(
    session: &Session,
    rules: &Rules,
    sql: &Sql<'_>,
    decision: &Decision,
    mut event: Box<EgressDecided>,
    spent: &[UsedCredential],
) -> Result<(u64, Box<EgressDecided>), Failure> {
    event.credentials = spent.iter().map(|used| used.name.to_string()).collect();
    let body = Body::EgressDecided(event);
    let seq = session.record.append(None, &body)?;
    let Body::EgressDecided(event) = body else { return Err(Failure::Paused) };
    if let Some(rule) = decision.rule_id() {
        session.act_on(&Occasion::Rule(rule));
    }
    match decision.effect {
        Effect::Allow => {}
        Effect::Review => {
            let url = format!("postgres://{}:{}{}", event.host, event.port, event.path);
            hold(session, seq, decision, "CONNECT", url, &event).await?;
        }
        Effect::Deny => return Err(denied(session, rules, sql, decision, "", &event, seq)),
    }
    Ok((seq, event))
}

/// A no, counted and told to whoever wants to know.
fn denied(
    session: &Session,
    rules: &Rules,
    sql: &Sql<'_>,
    decision: &Decision,
    act: &str,
    asked: &EgressDecided,
    seq: u64,
) -> Failure {
    session.counters.denied.fetch_add(1, Relaxed);
    session.noticed(Alarm::Denied, &decision.told(), asked, seq);
    let act = if act.is_empty() { String::new() } else { format!(" ({act})") };
    Failure::Denied(Box::new(Denial {
        line: format!("{decision}{act}"),
        rule: decision.rule_id().map(str::to_owned),
        reason: decision.reason().to_owned(),
        contact: decision.contact.as_deref().unwrap_or_default().to_owned(),
        allow: rules.policy().suggest(&Action::Sql(*sql), decision),
    }))
}

/// Waits for a person.
async fn hold(
    session: &Session,
    seq: u64,
    decision: &Decision,
    method: &str,
    url: String,
    asked: &EgressDecided,
) -> Result<(), Failure> {
    let rule = decision.rule_id().unwrap_or_default().to_owned();
    let held = Held {
        id: 0,
        rule: rule.clone(),
        reason: decision.told(),
        method: method.to_owned(),
        url,
        program: asked.program.clone(),
        credentials: asked.credentials.clone(),
        since: 0,
        until: 0,
    };
    let patience = session.patience();
    let mut answer = Unanswered::new(session, seq, Instant::now());
    let question = session.approvals.ask(held, patience)?;
    session.alerts.tell(Notice::Held, &session.coffer, || Sighting {
        held: Some(question.number()),
        ..Sighting::of(asked, Some(seq))
    });
    let line = match question.wait(patience).await {
        Reply::Allowed { by } => {
            answer.tell(Answer::Allowed, &by)?;
            return session.is_open();
        }
        Reply::Denied { by } => {
            answer.tell(Answer::Denied, &by)?;
            format!("denied by {by}")
        }
        Reply::TimedOut => {
            answer.tell(Answer::TimedOut, "")?;
            "denied: nobody approved it in time".to_owned()
        }
        Reply::Withdrawn => {
            answer.tell(Answer::Withdrawn, "")?;
            "denied: the question was taken back".to_owned()
        }
    };
    session.counters.denied.fetch_add(1, Relaxed);
    let reason = decision.told();
    let line = format!("{line}; held by rule {rule}: {reason}");
    let rule = Some(rule);
    Err(Failure::Denied(Box::new(Denial { line, rule, reason, contact: String::new(), allow: None })))
}

/// A text that may go on: what to send, and the events of its statements.
pub(super) struct Cleared {
    pub(super) canonical: Option<String>,
    pub(super) events: Vec<(u64, Box<SqlDecided>)>,
    /// Names that it prepares statements under, each with the place of its event.
    pub(super) prepares: Vec<(String, usize)>,
}

/// Why a text does not go on.
pub(super) enum No {
    /// The client is told, and the session goes on.
    Refused(Told),
    /// The session ends.
    Fatal(Failure),
}

impl From<Failure> for No {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotRecorded(_) | Failure::Paused | Failure::Cut(_) => Self::Fatal(failure),
            other => {
                let told = super::told(&other);
                Self::Refused(Told { fatal: false, ..told })
            }
        }
    }
}

impl Link<'_> {
    /// Reads, judges and records a text.
    pub(super) async fn judge(&self, text: &str) -> Result<Cleared, No> {
        self.visit.session.counters.requests.fetch_add(1, Relaxed);
        self.visit.session.is_open()?;
        let script = match read(text).await {
            Ok(script) => script,
            Err(error) => return Err(self.unreadable(text, &error)?),
        };
        let mut events = Vec::with_capacity(script.statements.len());
        let mut prepares = Vec::new();
        let single = script.statements.len() == 1;
        // All are judged before the first goes on.
        let mut held = Vec::new();
        for statement in &script.statements {
            let sql = self.sql(statement);
            let (decision, at) = self.rules.policy().decide_sql(&sql);
            if decision.effect == Effect::Deny {
                let seq = self.record(&self.fact(text, statement, &decision))?;
                let act = statement.acts.get(at).map(ToString::to_string).unwrap_or_default();
                self.fired(&decision);
                let (session, asked) = (&self.visit.session, &self.exchange.asked);
                return Err(denied(session, &self.rules, &sql, &decision, &act, asked, seq).into());
            }
            held.push(decision);
        }
        for (statement, decision) in script.statements.iter().zip(held) {
            let told = if single { text } else { statement.text.as_deref().unwrap_or_default() };
            let fact = self.fact(told, statement, &decision);
            let seq = self.record(&fact)?;
            self.fired(&decision);
            if decision.effect == Effect::Review {
                let acts = fact.acts.join(", ");
                let url =
                    format!("postgres://{}{} {}", self.visit.host, self.exchange.asked.path, fact.statement);
                hold(&self.visit.session, seq, &decision, &acts, url, &self.exchange.asked).await?;
            }
            if let Some(name) = &statement.prepares {
                prepares.push((name.clone(), events.len()));
            }
            events.push((seq, fact));
        }
        Ok(Cleared { canonical: script.canonical, events, prepares })
    }

    fn sql<'a>(&'a self, statement: &'a Statement) -> Sql<'a> {
        Sql { shape: Some(&statement.shape), ..self.visit.sql(&self.wish, &statement.acts) }
    }

    fn fired(&self, decision: &Decision) {
        if let Some(rule) = decision.rule_id() {
            self.visit.session.act_on(&Occasion::Rule(rule));
        }
    }

    fn fact(&self, text: &str, statement: &Statement, decision: &Decision) -> Box<SqlDecided> {
        Box::new(SqlDecided {
            acts: statement.acts.iter().take(64).map(ToString::to_string).collect(),
            effect: decision.effect.into(),
            rule: decision.rule_id().map(str::to_owned),
            reason: decision.told(),
            statement: self.visit.session.coffer.cover(clipped(text, MOST_TOLD)),
            again: false,
        })
    }

    pub(super) fn record(&self, fact: &SqlDecided) -> Result<u64, Failure> {
        let body = Body::SqlDecided(Box::new(fact.clone()));
        Ok(self.visit.session.record.append(Some(self.exchange.parent()), &body)?)
    }

    fn unreadable(&self, text: &str, error: &SqlError) -> Result<No, Failure> {
        let fact = SqlDecided {
            acts: Vec::new(),
            effect: Verdict::Deny,
            rule: None,
            reason: error.to_string(),
            statement: self.visit.session.coffer.cover(clipped(text, MOST_TOLD)),
            again: false,
        };
        let seq = self.record(&fact)?;
        self.visit.session.counters.denied.fetch_add(1, Relaxed);
        self.visit.session.noticed(Alarm::Denied, &fact.reason, &self.exchange.asked, seq);
        let message = format!("cofferdam: the statement is refused: {error}");
        Ok(No::Refused(Told { fatal: false, code: "42501", message, hint: None }))
    }
}

/// Where there is stack enough for it.
async fn read(text: &str) -> Result<Script, SqlError> {
    if !sql::is_deep(text) {
        return sql::read(text);
    }
    let (tell, told) = tokio::sync::oneshot::channel();
    let owned = text.to_owned();
    let thread = std::thread::Builder::new().name("egress-sql".into()).stack_size(STACK);
    let spawned = thread.spawn(move || {
        // What is left of the tree is taken down here too.
        drop(tell.send(sql::read(&owned)));
    });
    match spawned {
        Ok(_) => told.await.unwrap_or(Err(SqlError::Complex)),
        Err(_) => Err(SqlError::Complex),
    }
}

fn clipped(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}
