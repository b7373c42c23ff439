//! `process.Process`: commands and terminals, started, listened to, spoken to and ended.

use super::connect::{self, Messages};
use super::fault::{Code, Fault};
use super::{Call, input, output, who};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use cofferdam_api::e2b::{
    ProcessConfig, ProcessInfo, ProcessList, ProcessRequest, ProcessSelector, Pty, StartRequest,
};
use cofferdam_engine::EngineError;
use cofferdam_engine::inside::{FileKind, FileProblem, InsideError, Process, ProcessSpec};
use http::{HeaderMap, Request};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) async fn serve(call: Call, name: &str, request: Request<Body>) -> Response {
    let streams = matches!(name, "Start" | "Connect" | "StreamInput");
    if let Err(refused) = connect::check(&request, streams) {
        return *refused;
    }
    let most = call.app.config.limits.body.0;
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    match name {
        "Start" => match start(&call, &headers, Messages::new(body, most)).await {
            Ok(response) => response,
            Err(fault) => connect::refuse(fault, true),
        },
        "Connect" => match listen(&call, &headers, Messages::new(body, most)).await {
            Ok(response) => response,
            Err(fault) => connect::refuse(fault, true),
        },
        "StreamInput" => input::stream(&call, Messages::new(body, most)).await,
        _ => match unary(&call, name, body, most).await {
            Ok(response) => response,
            Err(fault) => fault.into_response(),
        },
    }
}

async fn unary(call: &Call, name: &str, body: Body, most: u64) -> Result<Response, Fault> {
    let request: ProcessRequest = connect::message(body, most).await?;
    let empty = || connect::unary(&serde_json::json!({}));
    let process = || find(call, &request.process);
    match name {
        "List" => Ok(connect::unary(&list(call))),
        "SendInput" => {
            input::give(&*process()?, request.input.as_ref()).await?;
            Ok(empty())
        }
        "CloseStdin" => {
            input::close(&*process()?).await?;
            Ok(empty())
        }
        "SendSignal" => {
            let number = signal(request.signal.as_deref().unwrap_or_default())?;
            process()?.signal(number).map_err(|_| Fault::gone())?;
            Ok(empty())
        }
        "Update" => {
            let process = process()?;
            if let Some((rows, columns)) = size(request.pty) {
                if !process.tty {
                    return Err(Fault::new(Code::FailedPrecondition, "it does not run on a terminal"));
                }
                process.resize(rows, columns).map_err(|_| Fault::gone())?;
            }
            Ok(empty())
        }
        other => Err(Fault::new(Code::Unimplemented, format!("process.Process has no {other}"))),
    }
}

fn signal(name: &str) -> Result<u8, Fault> {
    match name {
        "SIGNAL_SIGKILL" | "9" => Ok(9),
        "SIGNAL_SIGTERM" | "15" => Ok(15),
        other => Err(Fault::invalid(format!("invalid signal: {other}"))),
    }
}

fn size(pty: Option<Pty>) -> Option<(u16, u16)> {
    let size = pty?.size.unwrap_or_default();
    let bounded = |number: u32, default: u16| match number {
        0 => default,
        number => u16::try_from(number).unwrap_or(u16::MAX),
    };
    Some((bounded(size.rows, 24), bounded(size.cols, 80)))
}

/// One that runs, or has just ended.
pub(super) fn find(call: &Call, wanted: &ProcessSelector) -> Result<Arc<Process>, Fault> {
    let not_found = |what: String| Fault::new(Code::NotFound, format!("process with {what} not found"));
    match (wanted.pid, &wanted.tag) {
        (Some(pid), _) => {
            running(call, |process| process.pid == pid).ok_or_else(|| not_found(format!("pid {pid}")))
        }
        (None, Some(tag)) => running(call, |process| process.tag.as_ref() == Some(tag))
            .ok_or_else(|| not_found(format!("tag {tag}"))),
        (None, None) => Err(Fault::invalid("a process is selected by its pid or its tag")),
    }
}

fn running(call: &Call, is_it: impl Fn(&Process) -> bool) -> Option<Arc<Process>> {
    call.inside.process(|process| is_it(process) && !process.has_ended())
}

fn list(call: &Call) -> ProcessList {
    let info = |process: Arc<Process>| {
        let (cmd, args) =
            process.argv.split_first().map(|(c, a)| (c.clone(), a.to_vec())).unwrap_or_default();
        let cwd = process.cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned());
        let config = ProcessConfig { cmd, args, envs: process.env.clone(), cwd };
        ProcessInfo { pid: process.pid, config, tag: process.tag.clone() }
    };
    ProcessList { processes: call.inside.processes().into_iter().map(info).collect() }
}

/// What commands are told of where they are.
fn of_sandbox(call: &Call) -> BTreeMap<String, String> {
    let record = call.sandbox.record();
    BTreeMap::from([
        ("E2B_SANDBOX".to_owned(), "true".to_owned()),
        ("E2B_SANDBOX_ID".to_owned(), record.id.to_string()),
        ("E2B_TEMPLATE_ID".to_owned(), record.template.clone()),
    ])
}

async fn start(call: &Call, headers: &HeaderMap, mut messages: Messages) -> Result<Response, Fault> {
    let request: StartRequest = messages.first().await?;
    let who = call.account(who::named(headers).as_deref()).await?;
    let ProcessConfig { cmd, args, envs, cwd } = request.process;
    if cmd.is_empty() {
        return Err(Fault::invalid("`process.cmd` is empty: name the program to run"));
    }
    let cwd = match cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        None => call.sandbox.record().adds.workdir.as_ref().map_or_else(|| who.home.clone(), Into::into),
        Some(text) => {
            let cwd = who::path(text, &who)?;
            match call.inside.stat(&cwd).await {
                Ok(entry) if entry.kind == FileKind::Directory => cwd,
                Ok(_) => return Err(Fault::invalid(format!("cwd '{text}' is not a directory"))),
                Err(InsideError::File { kind: FileProblem::Missing | FileProblem::NotDirectory }) => {
                    return Err(Fault::invalid(format!("cwd '{text}' does not exist")));
                }
                Err(error) => return Err(Fault::of(error, text)),
            }
        }
    };
    let mut env = of_sandbox(call);
    env.extend(envs);
    let spec = ProcessSpec {
        argv: std::iter::once(cmd).chain(args).collect(),
        env,
        cwd: Some(cwd),
        who: Some(who),
        tty: size(request.pty),
        stdin: request.stdin.unwrap_or(true),
        timeout: connect::timeout(headers),
        tag: request.tag,
    };
    let (process, attached) = call.inside.start(spec).await.map_err(|error| match error {
        InsideError::Refused(EngineError::Declined(reason)) => {
            Fault::invalid(format!("error starting process: {reason}"))
        }
        error => Fault::of(error, ""),
    })?;
    Ok(output::stream(&process, attached, connect::ping(headers)))
}

async fn listen(call: &Call, headers: &HeaderMap, mut messages: Messages) -> Result<Response, Fault> {
    let request: ProcessRequest = messages.first().await?;
    let wanted = request.process;
    // Also one that has just ended: who comes a little late still hears how.
    let found = call.inside.process(|process| match (wanted.pid, &wanted.tag) {
        (Some(pid), _) => process.pid == pid,
        (None, tag) => tag.is_some() && process.tag == *tag,
    });
    let process = match found {
        Some(process) => process,
        None => find(call, &wanted)?,
    };
    Ok(output::stream(&process, process.attach(), connect::ping(headers)))
}
