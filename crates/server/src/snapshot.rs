//! The files of a sandbox under a name of the tenant's, from which others can begin.

use crate::app::{App, State, blocking, now_us};
use crate::build::Adds;
use crate::disk;
use crate::life::{Condition, condition};
use crate::sandbox::Sandbox;
use cofferdam_engine::EngineError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// As it lies on disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// `name:tag`.
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) sandbox: String,
    pub(crate) template: String,
    /// What the engine calls it.
    pub(crate) files: String,
    pub(crate) taken_us: u64,
    /// What a template brings along that was built.
    #[serde(default)]
    pub(crate) adds: Adds,
}

fn dir(app: &State) -> PathBuf {
    app.engine.home().path().join("service").join("snapshots")
}

/// Each with where it lies.
fn entries(app: &State) -> impl Iterator<Item = (PathBuf, Kept)> {
    let entries = std::fs::read_dir(dir(app)).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter_map(|path| disk::read(&path).ok()?.map(|kept| (path, kept)))
}

/// The newest first.
pub(crate) fn all(app: &State, tenant: &str) -> Vec<Kept> {
    let mut all: Vec<Kept> = entries(app).map(|(_, kept)| kept).collect();
    all.retain(|kept| kept.tenant == tenant);
    all.sort_by(|one, other| (other.taken_us, &other.id).cmp(&(one.taken_us, &one.id)));
    all
}

/// `name`, `name:tag` and `anything/name:tag` mean the same.
pub(crate) fn canonical(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name);
    if name.contains(':') { name.to_owned() } else { format!("{name}:default") }
}

pub(crate) fn find(app: &State, tenant: &str, name: &str) -> Option<Kept> {
    let wanted = canonical(name);
    all(app, tenant).into_iter().find(|kept| kept.id == wanted)
}

/// Names the files as they are now. A name means the last one that was given it.
pub(crate) async fn take(
    app: &App,
    sandbox: &Arc<Sandbox>,
    name: Option<String>,
    by: String,
) -> Result<Kept, EngineError> {
    let _alone = sandbox.changing.lock().await;
    let sandbox = sandbox.clone();
    blocking(app, move |app| {
        let failed = |source| EngineError::Io { doing: "keep the snapshot on file", source };
        let Condition::Running(info) = condition(app, &sandbox)? else {
            return Err(EngineError::Declined("it is paused: resume it first".into()));
        };
        let files = format!("snap-{}", disk::random_hex::<12>().map_err(failed)?);
        app.house.snapshot(&info.session, &files, false, &by)?;
        let (tenant, template, adds) = {
            let record = sandbox.record();
            (record.tenant.clone(), record.template.clone(), record.adds.clone())
        };
        let id = canonical(name.as_deref().unwrap_or(&files));
        let sandbox = sandbox.id.to_string();
        put(app, Kept { id, tenant, sandbox, template, files, taken_us: now_us(), adds })
    })
    .await
}

/// Gives the same files another name.
pub(crate) fn name(app: &State, kept: &Kept, id: String) -> Result<Kept, EngineError> {
    put(app, Kept { id, taken_us: now_us(), ..kept.clone() })
}

fn put(app: &State, kept: Kept) -> Result<Kept, EngineError> {
    let before = find(app, &kept.tenant, &kept.id).filter(|before| before.files != kept.files);
    write(app, &kept)?;
    before.iter().for_each(|before| discard(app, before));
    Ok(kept)
}

/// On file.
pub(crate) fn write(app: &State, kept: &Kept) -> Result<(), EngineError> {
    let failed = |source| EngineError::Io { doing: "keep the snapshot on file", source };
    disk::make_dir(&dir(app)).map_err(failed)?;
    disk::write(&file(app, kept), kept).map_err(failed)
}

/// Of one name for these files.
fn file(app: &State, kept: &Kept) -> PathBuf {
    let digest = cofferdam_seal::digest(kept.id.as_bytes());
    let name: String = digest.as_bytes().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    dir(app).join(format!("{}.{name}.json", kept.files))
}

/// Forgets a name, and with the last of them the files.
pub(crate) fn discard(app: &State, kept: &Kept) {
    let (named, others): (Vec<_>, Vec<_>) = entries(app)
        .filter(|(_, other)| other.files == kept.files)
        .partition(|(_, other)| (&other.tenant, &other.id) == (&kept.tenant, &kept.id));
    for (path, _) in named {
        let _ = std::fs::remove_file(path);
    }
    if others.is_empty() {
        let _ = app.house.forget(&kept.files);
    }
}
