//! Commands and transactions.

use super::wire::{Caller, Input, Problem};
use crate::app::{App, blocking};
use crate::time::told as time;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cofferdam_api::v1;
use cofferdam_engine::inside::{Attached, Inside, InsideError, Process, ProcessSpec};
use cofferdam_engine::{End, Heard, OutputStream};
use cofferdam_model::SessionId;
use futures_util::{StreamExt, stream};
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use std::convert::Infallible;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// So much of each stream is in the answer to who does not want it as it comes.
const SHOWN: usize = 4 << 20;
pub(super) const USER: &str = "user";
const KILL: u8 = 9;

/// A command that ends when nobody waits for it any more.
pub(super) struct Watched {
    process: Arc<Process>,
    attached: Attached,
    over: bool,
}

impl Watched {
    pub(super) async fn start(
        inside: &Inside,
        spec: ProcessSpec,
        input: Option<String>,
    ) -> Result<Self, InsideError> {
        let (process, attached) = inside.start(spec).await?;
        if let Some(text) = input {
            let process = process.clone();
            // Beside its output: either could wait for the other.
            tokio::spawn(async move {
                if process.input(Bytes::from(text)).await.is_ok() {
                    let _ = process.end_input().await;
                }
            });
        }
        Ok(Self { process, attached, over: false })
    }

    pub(super) async fn next(&mut self) -> Option<Heard> {
        let heard = self.attached.next().await;
        self.over |= matches!(heard, None | Some(Heard::Ended(_)));
        heard
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.over {
            // One that is gone already hears nothing.
            let _ = self.process.signal(KILL);
        }
    }
}

pub(super) fn inside(app: &App, session: &SessionId, caller: &Caller) -> Result<Inside, Problem> {
    app.house.inside(session, caller.by()).ok_or_else(|| Problem::not_found("session"))
}

/// No NUL, and from the home if it is not absolute.
pub(super) fn located(path: &str, home: &FsPath) -> Result<PathBuf, Problem> {
    match path.is_empty() || path.contains('\0') || path.len() > 4096 {
        true => Err(Problem::bad("`path`: a path of at most 4096 bytes without NUL is needed")),
        false if path == "." => Ok(home.to_owned()),
        false => Ok(home.join(path)),
    }
}

pub(super) async fn exec(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    Input(asked): Input<v1::ExecAsked>,
) -> Result<Response, Problem> {
    if asked.argv.first().is_none_or(String::is_empty) || asked.argv.iter().any(|word| word.contains('\0')) {
        return Err(Problem::bad("`argv`: a program is needed, and no word may have NUL in it"));
    }
    let bad = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if asked.env.iter().any(bad) {
        return Err(Problem::bad("`env`: a name is empty or has `=` or NUL in it, or a value has NUL in it"));
    }
    if asked.timeout == Some(0) {
        return Err(Problem::bad("`timeout`: at least a second is needed"));
    }
    let (_, session) = caller.running(&app, &id)?;
    let inside = inside(&app, &session, &caller)?;
    let account = inside.account(asked.user.as_deref().unwrap_or(USER)).await?;
    let cwd = located(asked.cwd.as_deref().unwrap_or("."), &account.home)?;
    let spec = ProcessSpec {
        argv: asked.argv,
        env: asked.env,
        cwd: Some(cwd),
        who: Some(account),
        stdin: asked.stdin.is_some(),
        timeout: asked.timeout.map(|seconds| Duration::from_secs(seconds.into())),
        ..ProcessSpec::default()
    };
    let watched = Watched::start(&inside, spec, asked.stdin).await?;
    let events = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    match events.is_some_and(|accept| accept.contains("text/event-stream")) {
        true => Ok(streamed(watched).into_response()),
        false => whole(watched).await.map(|result| Json(result).into_response()),
    }
}

fn exit(end: &End) -> Result<v1::ExecExit, Problem> {
    match &end.exit {
        Ok(exit) => Ok(v1::ExecExit { exit_code: exit.code(), reason: end.reason.clone() }),
        Err(why) => Err(Problem::unfit(format!("the command could not be started: {why}"))),
    }
}

async fn whole(mut watched: Watched) -> Result<v1::ExecResult, Problem> {
    let (mut stdout, mut stderr, mut truncated) = (Vec::new(), Vec::new(), false);
    while let Some(heard) = watched.next().await {
        match heard {
            Heard::Started { .. } => {}
            Heard::Output { stream, piece } => {
                let into = if stream == OutputStream::Stderr { &mut stderr } else { &mut stdout };
                let room = SHOWN - into.len();
                truncated |= piece.bytes().len() > room;
                into.extend_from_slice(&piece.bytes()[..piece.bytes().len().min(room)]);
            }
            Heard::Ended(end) => {
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                let (stdout, stderr) = (text(stdout), text(stderr));
                return Ok(v1::ExecResult { stdout, stderr, truncated, exit: exit(&end)? });
            }
        }
    }
    Err(Problem::conflict("the session ended before the command did"))
}

fn streamed(watched: Watched) -> Sse<impl stream::Stream<Item = Result<Event, Infallible>>> {
    let first = event(&v1::ExecEvent::Started { pid: watched.process.pid });
    let events = stream::unfold(Some(watched), |watched| async {
        let mut watched = watched?;
        let event = match watched.next().await? {
            // Told already.
            Heard::Started { .. } => return Some((Ok(Event::default().comment("runs")), Some(watched))),
            Heard::Output { stream, piece } => {
                let data = STANDARD.encode(piece.bytes());
                match stream == OutputStream::Stderr {
                    true => v1::ExecEvent::Stderr { data },
                    false => v1::ExecEvent::Stdout { data },
                }
            }
            Heard::Ended(end) => {
                let failed = |_| v1::ExecExit { exit_code: 125, reason: end.exit.as_ref().err().cloned() };
                return Some((Ok(event(&v1::ExecEvent::Exit(exit(&end).unwrap_or_else(failed)))), None));
            }
        };
        Some((Ok(self::event(&event)), Some(watched)))
    });
    Sse::new(stream::once(async { Ok(first) }).chain(events)).keep_alive(KeepAlive::default())
}

fn event(event: &v1::ExecEvent) -> Event {
    let name = match event {
        v1::ExecEvent::Started { .. } => "started",
        v1::ExecEvent::Stdout { .. } => "stdout",
        v1::ExecEvent::Stderr { .. } => "stderr",
        v1::ExecEvent::Exit(_) => "exit",
    };
    Event::default().event(name).data(serde_json::to_string(event).unwrap_or_default())
}

pub(super) async fn execs(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<v1::Execs>, Problem> {
    let (_, session) = caller.running(&app, &id)?;
    let info = blocking(&app, move |app| app.house.info(&session)).await?;
    let execs = info.execs.into_iter().map(|exec| v1::Exec {
        id: exec.id,
        argv: exec.argv,
        started_at: time(exec.started_us),
        exit_code: exec.exit.map(|exit| exit.code()),
        output_bytes: exec.output,
    });
    Ok(Json(v1::Execs { execs: execs.collect() }))
}

pub(super) async fn begin(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<v1::Transaction>), Problem> {
    let (_, session) = caller.running(&app, &id)?;
    let by = caller.by();
    let begun = blocking(&app, move |app| {
        app.house.begin(&session, &by)?;
        app.house.info(&session)
    });
    let depth = u32::try_from(begun.await?.transactions).unwrap_or(u32::MAX);
    Ok((StatusCode::CREATED, Json(v1::Transaction { depth })))
}

pub(super) async fn diff(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<v1::Difference>, Problem> {
    let (_, session) = caller.running(&app, &id)?;
    let found = blocking(&app, move |app| app.engine.difference(&session, true)).await?;
    let object = |one| match serde_json::to_value(one) {
        Ok(serde_json::Value::Object(object)) => Some(object),
        _ => None,
    };
    Ok(Json(v1::Difference { changes: found.iter().filter_map(object).collect() }))
}

pub(super) async fn commit(
    app: State<App>,
    caller: Caller,
    id: Path<String>,
    asked: Input<v1::Settle>,
) -> Result<Json<v1::SettledTransaction>, Problem> {
    settle(app, caller, id, asked, true).await
}

pub(super) async fn rollback(
    app: State<App>,
    caller: Caller,
    id: Path<String>,
    asked: Input<v1::Settle>,
) -> Result<Json<v1::SettledTransaction>, Problem> {
    settle(app, caller, id, asked, false).await
}

/// Only what was begun: the session's own changes are no transaction of its client's.
async fn settle(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(asked): Input<v1::Settle>,
    keep: bool,
) -> Result<Json<v1::SettledTransaction>, Problem> {
    let (sandbox, session) = caller.running(&app, &id)?;
    let _alone = sandbox.changing.lock().await;
    let by = caller.by();
    let settled = blocking(&app, move |app| {
        if app.house.info(&session)?.transactions == 0 {
            return Err(cofferdam_engine::EngineError::Declined(
                "no transaction is open: begin one first".into(),
            ));
        }
        app.house.settle(&session, keep, asked.force, &by)
    });
    let settled = settled.await?;
    let depth = u32::try_from(settled.depth).unwrap_or(u32::MAX);
    Ok(Json(v1::SettledTransaction { kept: settled.kept, depth, effects: settled.effects }))
}
