//! A connection's requests, one after the other or side by side: each goes through the same steps, and what
//! goes wrong in any of them is answered in one place.

use super::body::Payload;
use super::decide::{self, Cleared, with_question};
use super::flow::Flow;
use super::forward::{Forwarding, forward};
use super::identify::{Target, identify};
use super::rewrite::Changes;
use super::{doh, hop};
use crate::front::framing::{MAX_FIELDS, MAX_HEAD};
use crate::front::gate::{Gate, Opened};
use crate::own;
use crate::rescue::{self, Asked, Failure};
use crate::rules::Rules;
use crate::session::Session;
use crate::swap::{Destination, Refusal};
use cofferdam_model::Via;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};

/// Streams of one connection at a time, and how much of each may be under way.
const STREAMS: u32 = 256;
const WINDOW: u32 = 1 << 20;
/// The largest that the server's own buffer for a head and the start of a body grows.
const BUFFER: usize = 128 << 10;

/// A connection from inside.
pub(crate) struct Conn {
    pub(crate) session: Arc<Session>,
    pub(crate) via: Via,
    pub(crate) program: Option<Arc<str>>,
    /// Where it leads, unless each request says so itself.
    pub(crate) bound: Option<Target>,
    pub(crate) sni: Option<String>,
    pub(crate) opened: Opened,
    /// For a door of its own: what stands before every path, and is known to whoever may come.
    pub(crate) prefix: Option<Arc<str>>,
}

impl Conn {
    pub(crate) fn new(
        session: Arc<Session>,
        via: Via,
        program: Option<Arc<str>>,
        bound: Option<Target>,
        sni: Option<String>,
    ) -> Self {
        Self { session, via, program, bound, sni, opened: Opened::default(), prefix: None }
    }

    /// A door for what is asked of us alone.
    pub(crate) fn own(session: Arc<Session>, prefix: Arc<str>) -> Self {
        Self { prefix: Some(prefix), ..Self::new(session, Via::Proxy, None, None, None) }
    }
}

pub(crate) async fn serve_h1<T>(conn: Arc<Conn>, stream: T)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let io = TokioIo::new(Gate::new(stream, conn.opened.clone()));
    let head_time = conn.session.limits.head_time;
    let service = service_fn(move |request| answer(conn.clone(), request));
    // An error here is a client that went away or broke off; what concerned a request is recorded with it.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_time)
        .max_headers(MAX_FIELDS)
        .max_buf_size(BUFFER)
        .auto_date_header(false)
        .serve_connection(io, service)
        .with_upgrades()
        .await;
}

pub(crate) async fn serve_h2<T>(conn: Arc<Conn>, stream: T)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| answer(conn.clone(), request));
    let _ = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_header_list_size(MAX_HEAD as u32)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// The one way from a request to an answer.
async fn answer(conn: Arc<Conn>, mut request: Request<Incoming>) -> Result<Response<Flow>, Infallible> {
    conn.session.counters.requests.fetch_add(1, Relaxed);
    let asked = Asked::of(request.headers());
    let (method, uri) = (request.method().clone(), request.uri().clone());
    // Whoever waits to be told to send its body is not waited for.
    let lingers = !request.headers().contains_key(header::EXPECT);
    let client = hop::upgrade(request.headers()).map(|_| hyper::upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let mut payload = Payload::Live(body);
    let own = conn.session.own.as_ref().filter(|_| conn.bound.is_none() && uri.authority().is_none());
    let answered = match (own, uri.path().strip_prefix(conn.prefix.as_deref().unwrap_or_default())) {
        (Some(own), Some(path)) => {
            let prefix = conn.prefix.as_deref().unwrap_or_default();
            let visit = own::Visit { head: &head, path, prefix, upgrade: client, opened: &conn.opened };
            own::answer(&conn.session, own.as_ref(), visit, &mut payload).await
        }
        // Nothing goes out by a door that is for us alone.
        _ if conn.prefix.is_some() => Ok(own::nothing_here()),
        _ => exchange(&conn, head, &mut payload, client).await,
    };
    let failure = match answered {
        Ok(response) => return Ok(response),
        Err(failure) => failure,
    };
    if failure.is_own_event() {
        let destination = match (&conn.bound, uri.authority()) {
            (Some(bound), _) => format!("{}:{}", bound.host, bound.port),
            (None, Some(authority)) => authority.as_str().chars().take(300).collect(),
            (None, None) => "the proxy".to_owned(),
        };
        let request = match failure {
            Failure::SecretIn { .. } => format!("{method} {WITHHELD}"),
            _ => tellable(&conn, &method, uri),
        };
        conn.session.tell_refused(&failure, (conn.via, conn.program.as_deref()), destination, request);
    }
    if lingers {
        payload.linger().await;
    }
    Ok(rescue::answer(&failure, &asked))
}

/// The method and path of a refused request, unless there is a credential in them: what was refused for
/// holding one must not hold it on record.
fn tellable(conn: &Conn, method: &Method, uri: Uri) -> String {
    let path = uri.path().chars().take(1000).collect::<String>();
    let mut head = Request::new(()).into_parts().0;
    head.uri = uri;
    match is_leaking(conn, conn.bound.as_ref(), &head) {
        true => format!("{method} {WITHHELD}"),
        false => format!("{method} {path}"),
    }
}

/// Stands in the record for what holds a credential's value, or may.
pub(crate) const WITHHELD: &str = "(withheld: a credential is in it)";

fn is_leaking(conn: &Conn, target: Option<&Target>, head: &Parts) -> bool {
    would_use(conn, target, head).is_err()
}

/// The credentials whose placeholders are in a head, by name; an error where one does not belong there.
fn would_use(conn: &Conn, target: Option<&Target>, head: &Parts) -> Result<Vec<String>, Refusal> {
    let (host, port) = target.map_or(("", 0), |target| (&target.host, target.port));
    let to = Destination { host, port, program: conn.program.as_deref() };
    let mut head = head.clone();
    let taken = conn.session.coffer.take_signature(&to, &mut head)?;
    let mut used = conn.session.coffer.swap_head(&to, &mut head)?;
    if let Some(taken) = taken {
        taken.spend(&mut used);
    }
    Ok(used.credentials.iter().map(|used| used.name.to_string()).collect())
}

async fn exchange(
    conn: &Arc<Conn>,
    mut head: Parts,
    payload: &mut Payload,
    client: Option<OnUpgrade>,
) -> Result<Response<Flow>, Failure> {
    let began = Instant::now();
    let upgrade = wanted_upgrade(&head, client)?;
    let target = identify(conn.bound.as_ref(), &mut head)?;
    hop::strip(&mut head.headers);
    // The server answers it by itself once the body is wanted, which is after the decision.
    head.headers.remove(header::EXPECT);
    if let Some(why) = doh::find(&target.host, &head) {
        return Err(Failure::Doh(why));
    }
    conn.session.is_open()?;
    let rules = conn.session.rules.load_full();
    if conn.bound.is_none() {
        conn.session.coffer.check_name(&target.host)?;
        rules.may_lead_to(&target.host)?;
    }
    let (cleared, rewritten) = clear(conn, &rules, &target, &mut head, payload).await?;
    forward(Forwarding { conn, rules: &rules, target, head, payload, cleared, rewritten, upgrade, began })
        .await
}

/// Something that is said in a client's place, to whom it was speaking already: by the same steps. Boxed, because
/// it comes up while a request of the client's is under way.
pub(super) fn let_out<'a>(
    conn: Arc<Conn>,
    target: Target,
    mut head: Parts,
    payload: &'a mut Payload,
) -> Pin<Box<dyn Future<Output = Result<Response<Flow>, Failure>> + Send + 'a>> {
    Box::pin(async move {
        let began = Instant::now();
        conn.session.is_open()?;
        let (conn, rules) = (&conn, &conn.session.rules.load_full());
        let (cleared, rewritten) = clear(conn, rules, &target, &mut head, payload).await?;
        forward(Forwarding { conn, rules, target, head, payload, cleared, rewritten, upgrade: None, began })
            .await
    })
}

/// A change of protocol that the client asks for.
pub(crate) struct Upgrade {
    pub(crate) protocol: HeaderValue,
    pub(crate) client: OnUpgrade,
}

fn wanted_upgrade(head: &Parts, client: Option<OnUpgrade>) -> Result<Option<Upgrade>, Failure> {
    let (Version::HTTP_11, Some(client)) = (head.version, client) else { return Ok(None) };
    let Some(protocol) = hop::upgrade(&head.headers) else { return Ok(None) };
    let name = String::from_utf8_lossy(protocol.as_bytes()).to_ascii_lowercase();
    match name.as_str() {
        // A server may ignore the wish, and clients that make it go on in HTTP/1.
        "h2c" => Ok(None),
        // Tunnels for whole networks.
        "connect-udp" | "connect-ip" | "connect-tcp" => Err(Failure::Upgrade(name)),
        _ => Ok(Some(Upgrade { protocol, client })),
    }
}

/// Asks the policy, with the body where it wants one, and changes what the policy changes; says whether it did.
async fn clear(
    conn: &Conn,
    rules: &Rules,
    target: &Target,
    head: &mut Parts,
    payload: &mut Payload,
) -> Result<(Cleared, bool), Failure> {
    let session = &*conn.session;
    let whom = (target, conn.sni.as_deref(), conn.program.as_deref());
    let (wanted, changes) = with_question(conn.via, whom, head, payload.facts(), |question| {
        let changes = Changes::of(rules, question);
        (question.wants_body(rules) || changes.want_body(), changes)
    });
    if wanted {
        payload.collect(session.limits.body).await?;
    }
    let pending = with_question(conn.via, whom, head, payload.facts(), |question| {
        let decision = question.decide(rules);
        // What goes out is checked on its way; what stays is recorded now.
        let would_use = match decision.is_allowed() {
            true => None,
            false => Some(would_use(conn, Some(target), head)),
        };
        decide::settle(session, rules, question, &decision, would_use)
    })?;
    let cleared = pending.wait(session).await?;
    changes.head(head)?;
    if changes.want_body() {
        let body = payload.collect(session.limits.body).await?;
        *body = changes.body(std::mem::take(body))?;
    }
    Ok((cleared, !changes.is_empty()))
}
