//! What happens to a request between the leave to go and its first byte: its body is looked through, and
//! credentials take the place of their placeholders.

use super::body::{Outgoing, Payload};
use super::flow::Filter;
use crate::guard::Guard;
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::session::Session;
use crate::swap::{BodyPlan, Destination, Used};
use bytes::Bytes;
use cofferdam_policy::{Class, GuardAction};
use http::Version;
use http::header::{self, HeaderValue};
use http::request::Parts;

/// Bodies up to this size come with their head, or right behind it.
const SMALL: u64 = 16 << 10;

pub(super) struct Preparing<'a> {
    pub(super) session: &'a Session,
    pub(super) rules: &'a Rules,
    pub(super) to: Destination<'a>,
    pub(super) head: &'a mut Parts,
    pub(super) payload: &'a mut Payload,
    /// The protocol that the client wants to change to.
    pub(super) upgrade: Option<&'a HeaderValue>,
}

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
    let Preparing { session, rules, to, head, payload, upgrade } = this;
    if upgrade.is_none() && payload.is_empty() {
        let used = session.coffer.swap_head(&to, head)?;
        return Ok(Prepared { used, filter: None, noticed: Vec::new(), doubt: None, seen: None });
    }
    let plan = session.coffer.request_body(&to, head)?;
    let guard = guard(session, rules, to.host, head, upgrade)?;
    let must_wait = (guard.is_some() && holds(rules, to.host)) || is_small(head, payload);
    if (must_wait && upgrade.is_none()) || matches!(plan, BodyPlan::Swap(_)) {
        payload.collect(session.limits.body).await?;
    }
    let (scan, swap) = match plan {
        BodyPlan::Nothing => (None, None),
        BodyPlan::Scan(scan) => (Some(scan), None),
        BodyPlan::Swap(swap) => (None, Some(swap)),
    };
    let mut used = session.coffer.swap_head(&to, head)?;
    let mut outgoing = Outgoing::new(scan, guard);
    let Payload::Whole(bytes) = payload else {
        let filter = (!outgoing.is_idle()).then(|| Box::new(outgoing) as Box<dyn Filter>);
        return Ok(Prepared { used, filter, noticed: Vec::new(), doubt: None, seen: None });
    };
    // The guard comes first: what the swap puts in is a secret, and belongs there.
    *bytes = outgoing.whole(bytes)?;
    let seen = Some(bytes.clone());
    if let Some(mut swap) = swap {
        swap.push(bytes)?;
        *bytes = swap.finish(&mut used)?;
    }
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    Ok(Prepared { used, filter: None, noticed: outgoing.noticed, doubt: outgoing.doubt, seen })
}

/// Goes out with its head, in one piece, and where it is refused nothing of it has gone. Only a body whose length
/// is its end: over HTTP/2 there may be trailers.
fn is_small(head: &Parts, payload: &Payload) -> bool {
    head.version <= Version::HTTP_11 && payload.facts().1.is_some_and(|length| length <= SMALL)
}

/// None where every class may pass, and for protocols whose bytes cannot be held back for a look.
fn guard(
    session: &Session,
    rules: &Rules,
    host: &str,
    head: &Parts,
    upgrade: Option<&HeaderValue>,
) -> Result<Option<Guard>, Failure> {
    if upgrade.is_some_and(|protocol| !protocol.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Ok(None);
    }
    let action = |class| rules.policy().guard(class, host);
    Guard::new(action, session.coffer.placeholders(), &head.headers)
        .map_err(|error| Failure::Secret(error.to_string()))
}

/// Whether some class has to be shown to a person.
fn holds(rules: &Rules, host: &str) -> bool {
    Class::ALL.into_iter().any(|class| rules.policy().guard(class, host) == Some(GuardAction::Review))
}
