//! What happens to a request between the leave to go and its first byte: head and body are looked through, and
//! credentials take the place of their placeholders.
//!
//! What is looked through is looked through before anything leaves, as far as it is bounded: a body up to the limit
//! that rules have too, and only as long as it keeps coming. What is longer goes on being looked through on its way.

use super::body::{Begun, Outgoing, Payload};
use super::flow::{Filter, IDLE};
use super::mint;
use crate::guard::Guard;
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::session::Session;
use crate::sign::{Payload as Covered, Sending, Taken};
use crate::swap::{BodyPlan, Destination, Used, readings};
use bytes::Bytes;
use cofferdam_policy::{Class, GuardAction};
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use jiff::Timestamp;
use std::time::Duration;

/// How long the next part of a body is waited for before what has come of it leaves.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Preparing<'a> {
    pub(super) session: &'a Session,
    pub(super) rules: &'a Rules,
    pub(super) to: Destination<'a>,
    /// As the `host` field will say it.
    pub(super) authority: &'a str,
    /// Whether the policy changed the request.
    pub(super) rewritten: bool,
    pub(super) head: &'a mut Parts,
    pub(super) payload: &'a mut Payload,
    /// The protocol that the client wants to change to.
    pub(super) upgrade: Option<&'a HeaderValue>,
}

#[derive(Default)]
pub(super) struct Prepared {
    pub(super) used: Used,
    /// Looks through what streams.
    pub(super) filter: Option<Box<dyn Filter>>,
    pub(super) noticed: Vec<String>,
    /// What a person must be asked about first.
    pub(super) doubt: Option<String>,
    /// The body before credentials were put in, where all of it is here.
    pub(super) seen: Option<Bytes>,
}

pub(super) async fn prepare(this: Preparing<'_>) -> Result<Prepared, Failure> {
    let Preparing { session, rules, to, authority, rewritten, head, payload, upgrade } = this;
    let mut prepared = look_at_head(session, rules, to.host, head)?;
    mint::renew(session, rules, &to, head).await?;
    let taken = session.coffer.take_signature(&to, head)?;
    let sending = Sending { authority, now: Timestamp::now().as_second(), rewritten };
    if upgrade.is_none() && payload.is_empty() {
        prepared.used = session.coffer.swap_head(&to, head)?;
        if let Some(taken) = &taken {
            taken.spend(&mut prepared.used);
            taken.sign(&sending, head, Covered::Whole(b""))?;
        }
        return Ok(prepared);
    }
    let plan = session.coffer.request_body(&to, head)?;
    let guard = guard(session, rules, to.host, &head.headers)?;
    let is_held = guard.is_some() && holds(rules, to.host);
    let needs_whole = taken.as_ref().is_some_and(Taken::needs_whole) || matches!(plan, BodyPlan::Swap(_));
    if upgrade.is_none() && (is_held || needs_whole) {
        payload.collect(session.limits.body).await?;
    } else if upgrade.is_none() && (guard.is_some() || matches!(plan, BodyPlan::Scan(_))) {
        payload.begin(session.limits.body, patience(head)).await?;
    }
    let (scan, swap) = match plan {
        BodyPlan::Nothing => (None, None),
        BodyPlan::Scan(scan) => (Some(scan), None),
        BodyPlan::Swap(swap) => (None, Some(swap)),
    };
    let mut used = session.coffer.swap_head(&to, head)?;
    if let Some(taken) = &taken {
        taken.spend(&mut used);
    }
    let mut outgoing = Outgoing::new(scan, guard);
    if !matches!(payload, Payload::Whole(_)) {
        let sign = |taken: &Taken| taken.sign(&sending, head, Covered::Live);
        outgoing.resign = taken.as_ref().map(sign).transpose()?.flatten();
    }
    match payload {
        Payload::Whole(bytes) => {
            // The guard comes first: what the swap puts in is a secret, and belongs there.
            *bytes = outgoing.whole(bytes)?;
            prepared.seen = Some(bytes.clone());
            if let Some(mut swap) = swap {
                swap.push(bytes)?;
                *bytes = swap.finish(&mut used)?;
            }
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            if let Some(taken) = &taken {
                *bytes = signed_whole(taken, &sending, head, bytes)?;
            }
            prepared.noticed.append(&mut outgoing.noticed);
            prepared.doubt = outgoing.doubt.or(prepared.doubt);
        }
        Payload::Begun(begun) => {
            look_at_beginning(&mut outgoing, begun)?;
            prepared.filter = (!outgoing.is_idle()).then(|| Box::new(outgoing) as Box<dyn Filter>);
        }
        Payload::Live(_) => {
            prepared.filter = (!outgoing.is_idle()).then(|| Box::new(outgoing) as Box<dyn Filter>);
        }
    }
    prepared.used = used;
    Ok(prepared)
}

/// The body under the real signature, and the head with it.
fn signed_whole(
    taken: &Taken,
    sending: &Sending<'_>,
    head: &mut Parts,
    bytes: &Bytes,
) -> Result<Bytes, Failure> {
    let Some(mut resign) = taken.sign(sending, head, Covered::Whole(bytes))? else {
        return Ok(bytes.clone());
    };
    Ok([resign.push(bytes.clone())?, resign.finish()?].concat().into())
}

fn look_at_beginning(outgoing: &mut Outgoing, begun: &mut Begun) -> Result<(), Failure> {
    begun.first = outgoing.pass(std::mem::take(&mut begun.first)).map_err(|failure| *failure)?;
    Ok(())
}

/// Calls of gRPC may wait for an answer in the midst of their body.
fn patience(head: &Parts) -> Duration {
    let content = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if content.starts_with(b"application/grpc") { IDLE } else { PATIENCE }
}

/// None where every class may pass.
fn guard(
    session: &Session,
    rules: &Rules,
    host: &str,
    headers: &HeaderMap,
) -> Result<Option<Guard>, Failure> {
    let action = |class| rules.policy().guard(class, host);
    Guard::new(action, session.coffer.placeholders(), headers)
        .map_err(|error| Failure::Secret(error.to_string()))
}

/// Looks for keys that are not the session's in the path, the query and the fields.
fn look_at_head(session: &Session, rules: &Rules, host: &str, head: &Parts) -> Result<Prepared, Failure> {
    let mut prepared = Prepared::default();
    let Some(mut guard) = guard(session, rules, host, &HeaderMap::new())? else { return Ok(prepared) };
    let mut look = |at: &str, text: &[u8]| {
        for reading in readings(text) {
            for finding in guard.text(&reading) {
                let what = format!("{}: {}", finding.shape, finding.reason);
                match finding.action {
                    GuardAction::Deny | GuardAction::Redact => {
                        return Err(Failure::SecretIn { at: at.to_owned(), what });
                    }
                    GuardAction::Review => prepared.doubt = Some(format!("in the {at}: {what}")),
                    GuardAction::Flag => prepared.noticed.push(format!("in the {at}: {what}")),
                }
            }
        }
        Ok(())
    };
    look("path", head.uri.path().as_bytes())?;
    look("query", head.uri.query().unwrap_or_default().as_bytes())?;
    for (name, value) in &head.headers {
        look(&format!("header `{name}`"), value.as_bytes())?;
    }
    prepared.noticed.dedup();
    Ok(prepared)
}

/// Whether some class has to be shown to a person.
fn holds(rules: &Rules, host: &str) -> bool {
    Class::ALL.into_iter().any(|class| rules.policy().guard(class, host) == Some(GuardAction::Review))
}
