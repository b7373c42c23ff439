//! The tools of `cofferdam mcp` over HTTP, each message a request of its own. A client that begins with `initialize` at
//! `/mcp` gets a session, which its next requests name in a header; who has a session asks at `/mcp/{id}`.

use super::sessions;
use super::wire::{Caller, Problem};
use super::work::{USER, Watched};
use crate::app::{App, blocking};
use crate::body;
use crate::life;
use crate::mcp::files::{content_of, file_read, file_written, limit_of, located};
use crate::mcp::output::Shown;
use crate::mcp::told::{Done, Fault, begun, differences, may_run, ran, settled};
use crate::mcp::{OF_ITS_OWN, Refused, answer, failed, named_call, problem};
use crate::sandbox::Sandbox;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use cofferdam_api::mcp::{
    Call, Diff, NO_METHOD, NO_REQUEST, NOT_JSON, ReadFile, Run, Settle, WITH_HANDSHAKE, WITHOUT_HANDSHAKE,
    WriteFile,
};
use cofferdam_api::v1;
use cofferdam_engine::inside::{Account, Inside, ProcessSpec};
use cofferdam_engine::rpc::{self, Id, Malformed, Message};
use cofferdam_engine::{EngineError, Heard, OutputStream};
use cofferdam_model::{Exit, SessionId, Span};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Which session a message is for, …
const SESSION: &str = "mcp-session-id";
/// … and which version of the protocol it is of.
const VERSION: &str = "mcp-protocol-version";
/// A client that says nothing for so many seconds has left, and its session ends.
const IDLE: u64 = 3600;

pub(super) fn router() -> Router<App> {
    Router::new().route("/mcp", post(anywhere).delete(leave)).route("/mcp/{id}", post(there))
}

/// Those that have no answer yet, so that they can be taken back.
#[derive(Default)]
pub(crate) struct Calls(Mutex<HashMap<(SessionId, Id), Arc<Notify>>>);

impl Calls {
    fn all(&self) -> MutexGuard<'_, HashMap<(SessionId, Id), Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, for as long as somebody waits for it.
struct Open<'a> {
    calls: &'a Calls,
    key: (SessionId, Id),
    taken_back: Arc<Notify>,
}

impl<'a> Open<'a> {
    /// Nothing where one of that name is open.
    fn new(calls: &'a Calls, session: SessionId, id: Id) -> Option<Self> {
        let (key, taken_back) = ((session, id), Arc::new(Notify::new()));
        let mut all = calls.all();
        if all.contains_key(&key) {
            return None;
        }
        all.insert(key.clone(), taken_back.clone());
        drop(all);
        Some(Self { calls, key, taken_back })
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.calls.all().remove(&self.key);
    }
}

async fn there(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let sandbox = caller.session(&app, &id)?;
    Talk { app, caller, sandbox: Some(sandbox), begins: false }.hear(request).await
}

async fn anywhere(
    State(app): State<App>,
    caller: Caller,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let sandbox = match header(request.headers(), SESSION)? {
        Some(id) => Some(caller.session(&app, id)?),
        None => None,
    };
    if let Some(session) = sandbox.as_ref().and_then(|sandbox| sandbox.session()) {
        let (by, time) = (caller.by(), Span(idle(&app)));
        // One that is asleep has no time that could run out.
        let _ = blocking(&app, move |app| app.house.set_time(&session, Some(time), &by)).await;
    }
    Talk { app, caller, sandbox, begins: true }.hear(request).await
}

async fn leave(State(app): State<App>, caller: Caller, headers: HeaderMap) -> Result<StatusCode, Problem> {
    let named = header(&headers, SESSION)?;
    let id = named.ok_or_else(|| Problem::bad("`Mcp-Session-Id`: which session is to end?"))?;
    let sandbox = caller.session(&app, id)?;
    life::end(&app, &sandbox, &caller.by()).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn idle(app: &App) -> Duration {
    Duration::from_secs(IDLE).min(app.config.e2b.max_timeout.0)
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Problem::bad(format!("`{name}`: it has strange bytes in it")))
}

fn said(status: StatusCode, message: Vec<u8>) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], message).into_response()
}

/// A message of a client, and what it is about.
struct Talk {
    app: App,
    caller: Caller,
    sandbox: Option<Arc<Sandbox>>,
    /// Who has no session yet can have one.
    begins: bool,
}

impl Talk {
    async fn hear(self, request: Request<Body>) -> Result<Response, Problem> {
        readable(request.headers())?;
        let refused = |(status, message)| Problem::new(status, message);
        let bytes = body::whole(&self.app, request.into_body()).await.map_err(refused)?;
        Ok(match Message::read(&bytes) {
            Ok(Message::Request { id, method, params }) if method == "tools/call" => {
                said(StatusCode::OK, self.call(id, params).await?)
            }
            Ok(Message::Request { id, method, params }) => self.answer(&id, &method, &params).await?,
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                self.take_back(&params);
                StatusCode::ACCEPTED.into_response()
            }
            // We ask nothing, and have no use for what else there is to tell.
            Ok(Message::Notification { .. } | Message::Answer { .. }) => StatusCode::ACCEPTED.into_response(),
            Err(malformed) => {
                let code = if matches!(malformed, Malformed::NotJson(_)) { NOT_JSON } else { NO_REQUEST };
                said(StatusCode::BAD_REQUEST, rpc::error(None, code, &malformed.to_string()))
            }
        })
    }

    async fn answer(self, id: &Id, method: &str, params: &Value) -> Result<Response, Problem> {
        let none = self.begins && self.sandbox.is_none();
        if none && method == "server/discover" {
            // In versions without a greeting nothing could name the session: such a client begins in the other way.
            let error =
                problem(NO_METHOD, "begin with `initialize`, or ask at /mcp/ID of a session that is there");
            return Ok(said(StatusCode::OK, rpc::error_value(id, &error)));
        }
        let result = match answer(OF_ITS_OWN, method, params) {
            Ok(result) => rpc::result(id, &result),
            Err(error) => return Ok(said(StatusCode::OK, rpc::error_value(id, &error))),
        };
        let mut response = said(StatusCode::OK, result);
        if method == "initialize" && none {
            let seconds = u32::try_from(idle(&self.app).as_secs()).unwrap_or(u32::MAX);
            let asked = v1::NewSession { timeout: Some(seconds), ..v1::NewSession::default() };
            let made = sessions::make(&self.app, &self.caller, asked).await?;
            let name = HeaderValue::from_str(made.id.as_str())
                .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a session without a name"))?;
            response.headers_mut().insert(SESSION, name);
        }
        Ok(response)
    }

    /// Whoever waits for it hears that it was.
    fn take_back(&self, params: &Value) {
        let session = self.sandbox.as_ref().and_then(|sandbox| sandbox.session());
        if let Some(key) = session.zip(Id::member(params, "requestId")) {
            self.app.calls.all().get(&key).into_iter().for_each(|call| call.notify_one());
        }
    }

    async fn call(self, id: Id, params: Value) -> Result<Vec<u8>, Problem> {
        let refused = |error: &Value| Ok(rpc::error_value(&id, error));
        let call = match named_call(params) {
            Ok(call) => call,
            Err(Refused::Protocol(error)) => return refused(&error),
            Err(Refused::Arguments(why)) => return Ok(rpc::result(&id, &failed(&why))),
        };
        let Some(sandbox) = &self.sandbox else {
            let text = "which session? Begin with `initialize`, or ask at /mcp/ID of one that is there";
            return refused(&problem(NO_REQUEST, text));
        };
        let session = match self.caller.running(&self.app, sandbox.id.as_str()) {
            Ok((_, session)) => session,
            // The client is to begin anew.
            Err(gone) if gone.is_not_found() => return Err(gone),
            Err(_) if life::present(&self.app, &sandbox.id).is_none() => {
                return Err(Problem::not_found("session"));
            }
            Err(asleep) => return Ok(rpc::result(&id, &failed(asleep.message()))),
        };
        let Some(open) = Open::new(&self.app.calls, session.clone(), id.clone()) else {
            return refused(&problem(NO_REQUEST, "a request with this id has no answer yet"));
        };
        let done = tokio::select! {
            done = self.perform(sandbox, session, call) => done,
            () = open.taken_back.notified() => Err(Fault("it was taken back".into())),
        };
        let result = match done {
            Ok(done) => done.told(),
            Err(Fault(why)) => failed(&why),
        };
        Ok(rpc::result(&id, &result))
    }

    async fn perform(&self, sandbox: &Sandbox, session: SessionId, call: Call) -> Result<Done, Fault> {
        let Self { app, caller, .. } = self;
        let inside = app.house.inside(&session, caller.by()).ok_or_else(|| Fault("it has ended".into()))?;
        match call {
            Call::Run(asked) => run(&inside, asked).await,
            Call::ReadFile(asked) => read(&inside, asked).await,
            Call::WriteFile(asked) => write(&inside, asked).await,
            Call::Diff(Diff { brief }) => {
                let found = blocking(app, move |app| app.engine.difference(&session, !brief)).await?;
                differences(found)
            }
            Call::Begin(_) => {
                let (_alone, by) = (sandbox.changing.lock().await, caller.by());
                let info = blocking(app, move |app| {
                    app.house.begin(&session, &by)?;
                    app.house.info(&session)
                });
                begun(info.await?.transactions as u64)
            }
            Call::Commit(asked) => self.settle(sandbox, session, asked, true).await,
            Call::Rollback(asked) => self.settle(sandbox, session, asked, false).await,
        }
    }

    async fn settle(
        &self,
        sandbox: &Sandbox,
        session: SessionId,
        Settle { force }: Settle,
        keep: bool,
    ) -> Result<Done, Fault> {
        let (_alone, by) = (sandbox.changing.lock().await, self.caller.by());
        let done = blocking(&self.app, move |app| {
            if app.house.info(&session)?.transactions == 0 {
                return Err(EngineError::Declined("no transaction is open: begin one first".into()));
            }
            app.house.settle(&session, keep, force, &by)
        });
        settled(keep, done.await?)
    }
}

/// In a version and a form that we read.
fn readable(headers: &HeaderMap) -> Result<(), Problem> {
    if let Some(version) = header(headers, VERSION)?
        && !WITH_HANDSHAKE.iter().chain(&WITHOUT_HANDSHAKE).any(|known| *known == version)
    {
        let known = [&WITH_HANDSHAKE[..], &WITHOUT_HANDSHAKE].concat().join(", ");
        return Err(Problem::bad(format!("`MCP-Protocol-Version`: one of {known} is spoken here")));
    }
    let kind = header(headers, CONTENT_TYPE.as_str())?.unwrap_or("application/json");
    match kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body has to be application/json")),
    }
}

async fn run(inside: &Inside, asked: Run) -> Result<Done, Fault> {
    may_run(&asked)?;
    let account = inside.account(USER).await?;
    match shell(inside, &account, "bash", &asked).await? {
        (Exit::NotFound, _) => shell(inside, &account, "sh", &asked).await?.1,
        (_, done) => done,
    }
}

async fn shell(
    inside: &Inside,
    account: &Account,
    shell: &str,
    asked: &Run,
) -> Result<(Exit, Result<Done, Fault>), Fault> {
    let spec = ProcessSpec {
        argv: vec![shell.into(), "-c".into(), asked.command.clone()],
        cwd: Some(account.home.join(asked.cwd.as_deref().unwrap_or_default())),
        who: Some(account.clone()),
        stdin: asked.stdin.is_some(),
        timeout: asked.timeout.map(|seconds| Duration::from_secs(seconds.into())),
        ..ProcessSpec::default()
    };
    let mut watched = Watched::start(inside, spec, asked.stdin.clone()).await?;
    let (mut stdout, mut stderr) = (Shown::default(), Shown::default());
    while let Some(heard) = watched.next().await {
        match heard {
            Heard::Started { .. } => {}
            Heard::Output { stream: OutputStream::Stderr, piece } => stderr.add(piece.bytes()),
            Heard::Output { piece, .. } => stdout.add(piece.bytes()),
            Heard::Ended(end) => {
                let exit = end.exit.as_ref().copied().map_err(|why| match &asked.cwd {
                    Some(cwd) => Fault(format!("{why} (`cwd`: {cwd})")),
                    None => Fault(why.clone()),
                })?;
                return Ok((exit, ran(exit.code(), end.reason.clone(), stdout, stderr)));
            }
        }
    }
    Err(Fault("the session ended before the command did".into()))
}

async fn read(inside: &Inside, asked: ReadFile) -> Result<Done, Fault> {
    let (limit, offset) = (limit_of(&asked)?, asked.offset.unwrap_or(0));
    let path = located(&inside.account(USER).await?.home, &asked.path)?;
    let mut reader = inside.read(&path, offset, Some(u64::from(limit) + 1)).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = reader.next().await? {
        bytes.extend_from_slice(&piece);
    }
    let more = bytes.len() > limit as usize;
    bytes.truncate(limit as usize);
    file_read(asked.encoding, bytes, more, offset)
}

async fn write(inside: &Inside, asked: WriteFile) -> Result<Done, Fault> {
    let content = content_of(&asked)?;
    let account = inside.account(USER).await?;
    let path = located(&account.home, &asked.path)?;
    let size = content.len() as u64;
    let mut writer = inside.write(&path, &account, None).await?;
    if size > 0 {
        writer.write(Bytes::from(content)).await?;
    }
    writer.finish().await?;
    file_written(&path, size)
}
