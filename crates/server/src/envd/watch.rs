//! Changes of files, both ways that the SDKs ask for them: as a stream, and collected until somebody asks.

use super::Call;
use super::connect;
use super::fault::{Code, Fault};
use super::filesystem::info;
use super::who;
use axum::response::Response;
use bytes::Bytes;
use cofferdam_api::e2b::{EventsAnswer, FileEvent, FileRequest, WatchMessage, WatcherAnswer};
use cofferdam_engine::inside::{Account, FileProblem, InsideError, Watch, WatchChange, WatchEvent};
use futures_util::stream::{StreamExt, iter, unfold};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Of one sandbox's.
const WATCHERS: usize = 64;
/// What is held for somebody who does not ask; older ones go.
const HELD: usize = 10_000;

fn told(event: WatchEvent) -> FileEvent {
    let kind = match event.change {
        WatchChange::Created => "EVENT_TYPE_CREATE",
        WatchChange::Written => "EVENT_TYPE_WRITE",
        WatchChange::Removed => "EVENT_TYPE_REMOVE",
        WatchChange::Renamed => "EVENT_TYPE_RENAME",
        WatchChange::Attributes => "EVENT_TYPE_CHMOD",
    };
    FileEvent { name: event.name, r#type: kind, entry: event.entry.as_ref().map(info) }
}

async fn begin(call: &Call, asked: &FileRequest, who: &Account) -> Result<Watch, Fault> {
    let at = who::path(&asked.path, who)?;
    let watch = call.inside.watch(&at, asked.recursive, asked.include_entry).await;
    watch.map_err(|error| match error {
        InsideError::File { kind: FileProblem::NotDirectory } => {
            Fault::invalid(format!("path '{}' is not a directory", asked.path))
        }
        error => Fault::of(error, &asked.path),
    })
}

pub(super) async fn stream(
    call: &Call,
    asked: &FileRequest,
    who: &Account,
    ping: Duration,
) -> Result<Response, Fault> {
    let watch = begin(call, asked, who).await?;
    let first = iter([Ok(connect::wrap(&WatchMessage::Start {}))]);
    let rest = unfold(Some(watch), move |watch| async move {
        let mut watch = watch?;
        // A watch that is asked again goes on where it was: what had come is not lost by the ping.
        match tokio::time::timeout(ping, watch.next()).await {
            Err(_) => Some((Ok(connect::wrap(&WatchMessage::Keepalive {})), Some(watch))),
            Ok(Ok(event)) => {
                Some((Ok(connect::wrap(&WatchMessage::Filesystem(Box::new(told(event))))), Some(watch)))
            }
            Ok(Err(_)) => Some((Err::<Bytes, _>(io::ErrorKind::ConnectionAborted.into()), None)),
        }
    });
    Ok(connect::stream(first.chain(rest)))
}

struct Watcher {
    events: Arc<Mutex<Vec<FileEvent>>>,
    collecting: JoinHandle<()>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.collecting.abort();
    }
}

#[derive(Default)]
struct All {
    made: u64,
    by_id: BTreeMap<String, Watcher>,
}

/// Those of one sandbox that somebody asks later.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<All>);

impl Watchers {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn create(call: &Call, asked: &FileRequest, who: &Account) -> Result<Response, Fault> {
    if call.sandbox.watchers.all().by_id.len() >= WATCHERS {
        let text = format!("there are {WATCHERS} watchers: remove one first");
        return Err(Fault::new(Code::ResourceExhausted, text));
    }
    let mut watch = begin(call, asked, who).await?;
    let events = Arc::new(Mutex::new(Vec::new()));
    let held = events.clone();
    let collecting = tokio::spawn(async move {
        while let Ok(event) = watch.next().await {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            if held.len() >= HELD {
                held.remove(0);
            }
            held.push(told(event));
        }
    });
    let mut all = call.sandbox.watchers.all();
    all.made += 1;
    let watcher_id = format!("w{}", all.made);
    all.by_id.insert(watcher_id.clone(), Watcher { events, collecting });
    Ok(connect::unary(&WatcherAnswer { watcher_id }))
}

fn unknown(id: &str) -> Fault {
    Fault::new(Code::NotFound, format!("watcher with id {id} not found"))
}

pub(super) fn events(call: &Call, id: &str) -> Result<Response, Fault> {
    let all = call.sandbox.watchers.all();
    let watcher = all.by_id.get(id).ok_or_else(|| unknown(id))?;
    let events = std::mem::take(&mut *watcher.events.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(connect::unary(&EventsAnswer { events }))
}

pub(super) fn remove(call: &Call, id: &str) -> Result<(), Fault> {
    call.sandbox.watchers.all().by_id.remove(id).map(drop).ok_or_else(|| unknown(id))
}
