//! `filesystem.Filesystem`: files told, listed, made, moved, removed and watched.

use super::connect::{self, Messages};
use super::fault::{Code, Fault};
use super::{Call, watch, who};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use cofferdam_api::e2b::{EntriesAnswer, EntryAnswer, EntryInfo, FileRequest};
use cofferdam_engine::inside::{FileEntry, FileKind};
use http::Request;

/// A listing goes no deeper.
const DEEPEST: u32 = 10_000;

pub(super) async fn serve(call: Call, name: &str, request: Request<Body>) -> Response {
    let streams = name == "WatchDir";
    if let Err(refused) = connect::check(&request, streams) {
        return *refused;
    }
    let most = call.app.config.limits.body.0;
    let (parts, body) = request.into_parts();
    let user = who::named(&parts.headers);
    if streams {
        let answer = async {
            let asked: FileRequest = Messages::new(body, most).first().await?;
            let who = call.account(user.as_deref()).await?;
            watch::stream(&call, &asked, &who, connect::ping(&parts.headers)).await
        };
        return answer.await.unwrap_or_else(|fault: Fault| connect::refuse(fault, true));
    }
    let answer = async {
        let asked: FileRequest = connect::message(body, most).await?;
        unary(&call, name, &asked, user.as_deref()).await
    };
    answer.await.unwrap_or_else(|fault: Fault| fault.into_response())
}

async fn unary(call: &Call, name: &str, asked: &FileRequest, user: Option<&str>) -> Result<Response, Fault> {
    let who = call.account(user).await?;
    let empty = || connect::unary(&serde_json::json!({}));
    let told = |entry: FileEntry| connect::unary(&EntryAnswer { entry: info(&entry) });
    let at = || who::path(&asked.path, &who);
    let failed = |error| Fault::of(error, &asked.path);
    match name {
        "Stat" => Ok(told(call.inside.stat(&at()?).await.map_err(failed)?)),
        "MakeDir" => Ok(told(call.inside.make_dir(&at()?, &who).await.map_err(failed)?)),
        "ListDir" => {
            let depth = asked.depth.clamp(1, DEEPEST);
            let entries = call.inside.list(&at()?, depth).await.map_err(failed)?;
            Ok(connect::unary(&EntriesAnswer { entries: entries.iter().map(info).collect() }))
        }
        "Remove" => {
            call.inside.remove(&at()?, &who).await.map_err(failed)?;
            Ok(empty())
        }
        "Move" => {
            let (from, to) = (who::path(&asked.source, &who)?, who::path(&asked.destination, &who)?);
            let moved = call.inside.rename(&from, &to, &who).await;
            Ok(told(moved.map_err(|error| Fault::of(error, &asked.source))?))
        }
        "CreateWatcher" => watch::create(call, asked, &who).await,
        "GetWatcherEvents" => watch::events(call, &asked.watcher_id),
        "RemoveWatcher" => {
            watch::remove(call, &asked.watcher_id)?;
            Ok(empty())
        }
        other => Err(Fault::new(Code::Unimplemented, format!("filesystem.Filesystem has no {other}"))),
    }
}

pub(super) fn info(entry: &FileEntry) -> EntryInfo {
    let name = entry.path.file_name().unwrap_or(entry.path.as_os_str());
    EntryInfo {
        name: name.to_string_lossy().into_owned(),
        r#type: match entry.kind {
            FileKind::File => "FILE_TYPE_FILE",
            FileKind::Directory => "FILE_TYPE_DIRECTORY",
            FileKind::Link | FileKind::Other => "FILE_TYPE_UNSPECIFIED",
        },
        path: entry.path.to_string_lossy().into_owned(),
        size: entry.size.to_string(),
        mode: entry.mode & 0o777,
        permissions: permissions(entry),
        owner: entry.owner.clone(),
        group: entry.group.clone(),
        modified_time: time(entry),
        symlink_target: entry.target.as_ref().map(|target| target.to_string_lossy().into_owned()),
        metadata: entry.notes.iter().cloned().collect(),
    }
}

/// As Go writes a file's mode.
fn permissions(entry: &FileEntry) -> String {
    let (first, mode) = match (&entry.target, entry.kind) {
        (Some(_), _) => ('L', 0o777),
        (None, FileKind::Directory) => ('d', entry.mode),
        (None, _) => ('-', entry.mode),
    };
    let bits = "rwxrwxrwx".chars().enumerate();
    let bits = bits.map(|(at, letter)| if mode & (0o400 >> at) != 0 { letter } else { '-' });
    std::iter::once(first).chain(bits).collect()
}

fn time(entry: &FileEntry) -> String {
    let nanosecond = i32::try_from(entry.modified_ns).unwrap_or(0);
    let when = jiff::Timestamp::new(entry.modified_s, nanosecond).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    when.strftime("%Y-%m-%dT%H:%M:%S%.fZ").to_string()
}
