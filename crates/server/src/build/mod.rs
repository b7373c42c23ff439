//! Templates that tenants build: a sandbox of another template, or over an image, in which steps are run, and then the
//! files of it under a name. What can be changed is what a sandbox can change: its home, and of an image everything.

mod begin;
mod fetched;
mod from;
mod steps;

pub(crate) use begin::begin;
pub(crate) use fetched::Fetched;
pub(crate) use from::From;

use crate::app::{App, State, blocking, now_us};
use crate::keys::Key;
use crate::snapshot::{self, Kept};
use crate::{disk, life, time};
use cofferdam_api::e2b::{BuildAsked, BuildLog, BuildReason, BuildRequest, BuildStatus, NewBuild};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// So many are remembered.
const REMEMBERED: usize = 200;
/// Of one build's log.
const MOST_LINES: usize = 10_000;

/// What a template adds to the sandboxes that are made of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Adds {
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) user: Option<String>,
    pub(crate) workdir: Option<String>,
    pub(crate) start: Option<String>,
    pub(crate) ready: Option<String>,
}

struct Log {
    lines: Vec<BuildLog>,
    status: &'static str,
    reason: Option<BuildReason>,
}

/// One that was asked for.
pub(crate) struct Build {
    id: String,
    tenant: String,
    template: String,
    names: Vec<String>,
    log: Mutex<Log>,
}

impl Build {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, level: &'static str, step: Option<&str>, message: impl Into<String>) {
        let mut log = self.log();
        if log.lines.len() < MOST_LINES {
            let (timestamp, step) = (time::told(now_us()), step.map(str::to_owned));
            log.lines.push(BuildLog { timestamp, level, message: message.into(), step });
        }
    }

    fn end(&self, failed: Option<(String, Option<String>)>) {
        let mut log = self.log();
        log.status = if failed.is_some() { "error" } else { "ready" };
        log.reason = failed.map(|(message, step)| BuildReason { message, step, log_entries: Vec::new() });
    }

    /// From a line on.
    pub(crate) fn status(&self, offset: usize) -> BuildStatus {
        let log = self.log();
        BuildStatus {
            template_id: self.template.clone(),
            build_id: self.id.clone(),
            status: log.status,
            logs: Vec::new(),
            log_entries: log.lines.iter().skip(offset).take(100).cloned().collect(),
            reason: log.reason.clone(),
        }
    }

    /// Whether nobody has begun it yet; from now on somebody has.
    fn begin(&self) -> bool {
        let mut log = self.log();
        std::mem::replace(&mut log.status, "building") == "waiting"
    }
}

#[derive(Default)]
struct Books {
    builds: VecDeque<Arc<Build>>,
    /// Who may put which files, for a while.
    links: VecDeque<(String, String)>,
}

/// Images that are taken in at a time: each may be large, and one that is slow holds up no more than its turn.
const FETCHED_AT_ONCE: usize = 2;

/// All of the service's since it was started.
pub(crate) struct Builds {
    books: Mutex<Books>,
    fetching: Semaphore,
}

impl Default for Builds {
    fn default() -> Self {
        Self { books: Mutex::default(), fetching: Semaphore::new(FETCHED_AT_ONCE) }
    }
}

impl Builds {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, key: &Key, template: &str, id: &str) -> Option<Arc<Build>> {
        let books = self.books();
        let found = books.builds.iter().find(|build| build.id == id && build.template == template);
        found.filter(|build| key.sees(&build.tenant)).cloned()
    }

    pub(crate) fn ask(&self, key: &Key, asked: NewBuild) -> Result<BuildAsked, String> {
        let given = if asked.name.is_empty() { asked.alias.unwrap_or_default() } else { asked.name };
        let word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let given = given.rsplit('/').next().unwrap_or_default().to_owned();
        let (name, tag) =
            given.split_once(':').map_or((given.as_str(), None), |(n, t)| (n, Some(t.to_owned())));
        let mut tags: Vec<String> = asked.tags.unwrap_or_default().into_iter().chain(tag).collect();
        if tags.is_empty() {
            tags.push("default".into());
        }
        let good = |text: &str| !text.is_empty() && text.len() <= 100 && text.chars().all(word);
        if !good(name) || !tags.iter().all(|tag| good(tag)) {
            return Err("`name`: up to 100 letters, digits, `-`, `_`, `.` and a `:tag` are needed".into());
        }
        if crate::template::exists(name) {
            return Err(format!("`name`: `{name}` is a template of the service's own: choose another"));
        }
        let id = disk::random_hex::<12>().map_err(|error| error.to_string())?;
        let names: Vec<String> = tags.iter().map(|tag| format!("{name}:{tag}")).collect();
        let build = Build {
            id: id.clone(),
            tenant: key.tenant.clone(),
            template: name.to_owned(),
            names: names.clone(),
            log: Mutex::new(Log { lines: Vec::new(), status: "waiting", reason: None }),
        };
        let mut books = self.books();
        books.builds.push_front(Arc::new(build));
        books.builds.truncate(REMEMBERED);
        let (template_id, aliases) = (name.to_owned(), vec![name.to_owned()]);
        Ok(BuildAsked { template_id, build_id: id, public: false, names, tags, aliases })
    }

    /// A word by which files of this hash may be put in place.
    pub(crate) fn link(&self, tenant: &str, hash: &str) -> std::io::Result<String> {
        let word = disk::random_hex::<20>()?;
        let mut books = self.books();
        books.links.push_front((word.clone(), file_name(tenant, hash)));
        books.links.truncate(REMEMBERED * 10);
        Ok(word)
    }

    /// The file that a word is for.
    pub(crate) fn linked(&self, word: &str) -> Option<String> {
        let books = self.books();
        let found =
            books.links.iter().find(|(known, _)| cofferdam_seal::same(known.as_bytes(), word.as_bytes()));
        found.map(|(_, file)| file.clone())
    }
}

fn file_name(tenant: &str, hash: &str) -> String {
    let digest = cofferdam_seal::digest(format!("{tenant}\n{hash}").as_bytes());
    digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn files(app: &State) -> PathBuf {
    app.engine.home().path().join("service").join("build-files")
}

pub(crate) fn place(app: &State, name: &str) -> std::io::Result<PathBuf> {
    let dir = files(app);
    disk::make_dir(&dir)?;
    Ok(dir.join(name))
}

pub(crate) fn is_there(app: &State, tenant: &str, hash: &str) -> bool {
    files(app).join(file_name(tenant, hash)).is_file()
}

/// Begins a build that was asked for; it goes on by itself.
pub(crate) fn start(app: &App, key: &Key, build: &Arc<Build>, asked: BuildRequest) -> Result<(), String> {
    from::check(app, &asked)?;
    if !build.begin() {
        return Err("it was begun already".into());
    }
    let (app, key, build) = (app.clone(), key.clone(), build.clone());
    tokio::spawn(async move {
        let failed = run(&app, &key, &build, asked).await.err();
        if let Some((message, step)) = &failed {
            build.say("error", step.as_deref(), message.clone());
        }
        build.end(failed);
    });
    Ok(())
}

type Failed = (String, Option<String>);

async fn run(app: &App, key: &Key, build: &Build, asked: BuildRequest) -> Result<(), Failed> {
    let whole = |error: String| (error, None);
    let from = from::find(app, build, &asked).await.map_err(whole)?;
    build.say("info", None, format!("building {} from {from}", build.template));
    let sandbox = crate::e2b::for_build(app, key, &from).await.map_err(whole)?;
    let made = steps::run(app, &sandbox, build, asked).await;
    let kept = match made {
        Ok(adds) => keep(app, build, &sandbox, adds).await.map_err(whole),
        Err(failed) => Err(failed),
    };
    if let Err(error) = life::end(app, &sandbox, "the build").await {
        app.log.warn("a build's sandbox could not be ended", json!({ "why": error.to_string() }));
    }
    kept
}

/// The files under each of the names.
async fn keep(
    app: &App,
    build: &Build,
    sandbox: &Arc<crate::sandbox::Sandbox>,
    adds: Adds,
) -> Result<(), String> {
    let Some((first, others)) = build.names.split_first() else { return Ok(()) };
    let by = format!("build {}", build.id);
    let kept = snapshot::take(app, sandbox, Some(first.clone()), by).await.map_err(|e| e.to_string())?;
    let others = others.to_vec();
    let written = blocking(app, move |app| {
        let kept = Kept { adds, ..kept };
        snapshot::write(app, &kept)?;
        others.into_iter().try_for_each(|name| snapshot::name(app, &kept, name).map(drop))
    });
    written.await.map_err(|error| error.to_string())?;
    build.names.iter().for_each(|name| build.say("info", None, format!("{name} is ready")));
    Ok(())
}
