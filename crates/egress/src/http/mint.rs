//! Tokens that are got for the inside: a credential that is exchanged for one is exchanged here, once for all who wait,
//! and the inside has a placeholder that stays the same while tokens come and go. A client that asks for a token with
//! the placeholder of what refreshes it is given that placeholder, and nothing leaves.

use super::body::Payload;
use super::identify::Target;
use crate::http::flow::Flow;
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::session::Session;
use crate::swap::Destination;
use crate::swap::state::Entry;
use crate::upstream::dial::Route;
use crate::upstream::pool::Key;
use cofferdam_model::Reply;
use cofferdam_vault::{Role, TokenRequest, token_address, token_in, token_request};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::request::Parts;
use http::{Method, Request};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use std::time::Duration;

/// A token that ends within this is renewed first.
const SOON: i64 = 60;
const LONGEST_ANSWER: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// Until when the token of a credential is good; whoever renews it holds the lock, and the others wait for it.
pub(crate) type Until = tokio::sync::Mutex<Option<i64>>;

/// Sees to it that the token which this request needs is one that lives.
pub(super) async fn renew(
    session: &Session,
    rules: &Rules,
    to: &Destination<'_>,
    head: &Parts,
) -> Result<(), Failure> {
    let Some(entry) = session.coffer.minting(to, head) else { return Ok(()) };
    let Some(until) = &entry.until else { return Ok(()) };
    let mut until = until.lock().await;
    let now = Timestamp::now().as_second();
    if until.is_some_and(|until| now + SOON < until) {
        return Ok(());
    }
    let failed = |why: String| Failure::Token { name: entry.name.to_string(), why };
    // As it is now: whoever waited before may have renewed what it is renewed with.
    let Some(grant) = session.coffer.grant(&entry.name) else { return Ok(()) };
    let request = token_request(&grant, now).map_err(|why| failed(why.to_string()))?;
    let host = request.host.clone();
    let answer = tokio::time::timeout(PATIENCE, ask(session, rules, request)).await;
    let answer = answer.map_err(|_| failed(format!("`{host}` did not answer in time")))??;
    let token = token_in(&grant, &answer).map_err(|why| failed(why.to_string()))?;
    let lives = i64::try_from(token.lives).unwrap_or(i64::MAX / 2);
    session.changed("token", entry.name.to_string(), &host, 0)?;
    session.coffer.refresh(&entry.name, token.plain, token.grant).map_err(|why| failed(why.to_string()))?;
    *until = Some(now + lives);
    Ok(())
}

async fn ask(session: &Session, rules: &Rules, request: TokenRequest) -> Result<Vec<u8>, Failure> {
    let TokenRequest { host, port, path, content_type, authorization, body } = request;
    let name: std::sync::Arc<str> = host.as_str().into();
    let key = Key { host: name.clone(), port, tls: true, h2: false, credentials: 0 };
    let route = Route { host: name.clone(), port, fixed: rules.fixed(&host).cloned() };
    let mut sender = session.pool.fresh(&key, &route).await?;
    let bad = |why: &str| Failure::Unreadable { host: name.clone(), reason: why.to_owned() };
    let authority = if port == 443 { host.clone() } else { format!("{host}:{port}") };
    let mut built = Request::post(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, content_type)
        .header(CONTENT_LENGTH, body.len())
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, "cofferdam");
    if let Some(text) = authorization {
        let mut value = HeaderValue::from_str(&text).map_err(|_| bad("the request cannot be made"))?;
        value.set_sensitive(true);
        built = built.header(AUTHORIZATION, value);
    }
    let request =
        built.body(Flow::whole(body.to_vec().into())).map_err(|_| bad("the request cannot be made"))?;
    let sent = sender.send(request).await;
    let answer = sent.map_err(|not_sent| Failure::Upstream { host: name.clone(), source: not_sent.error })?;
    let read = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
    Ok(read.map_err(|_| bad("it is too long, or broke off"))?.to_bytes().to_vec())
}

/// The answer to a client that asks for a token with the placeholder of what refreshes it.
pub(super) async fn answer(
    session: &Session,
    target: &Target,
    head: &Parts,
    payload: &mut Payload,
) -> Result<Option<Reply>, Failure> {
    let is_its_address = |entry: &Entry| {
        let grant = entry.part(Role::Grant).filter(|_| !entry.revoked);
        let address = grant.and_then(|grant| token_address(&grant.plain));
        address.is_some_and(|(host, port, path)| {
            *target.host == *host && target.port == port && head.uri.path() == path
        })
    };
    if head.method != Method::POST || !session.coffer.any(is_its_address) {
        return Ok(None);
    }
    let body = payload.collect(LONGEST_ANSWER).await?;
    let Some(token) = session.coffer.token_for(body, is_its_address) else { return Ok(None) };
    let text = serde_json::json!({ "access_token": &*token, "expires_in": 3599, "token_type": "Bearer" });
    let headers = vec![("content-type".to_owned(), b"application/json".to_vec())];
    Ok(Some(Reply { status: 200, headers, parts: vec![(Duration::ZERO, text.to_string().into_bytes())] }))
}
