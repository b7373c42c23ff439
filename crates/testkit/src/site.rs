//! A place for one test: the program, a state directory, a home and a work dir, all of one user.

use crate::mode::is_root;
use crate::{Done, Mode, PATIENCE, Running, groups_of};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What everyone has; a developer's own tools must not decide what a test sees.
pub const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where a program lies, by the search path of the tests.
pub fn program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(SEARCH_PATH).map(|dir| dir.join(name)).find(|path| path.is_file())
}

const PREFIX: &str = "cofferdam-test-";
/// Longer than any test takes.
const ABANDONED: Duration = Duration::from_secs(6 * 3600);
static CLEARED: Once = Once::new();

/// Removes what tests left that were killed long ago.
fn clear_abandoned() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let old = |meta: fs::Metadata| meta.modified().ok()?.elapsed().ok().filter(|age| *age > ABANDONED);
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().ok().and_then(old).is_some()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

pub struct Site {
    pub mode: Mode,
    root: TempDir,
}

impl Site {
    /// `binary` may lie where only root can reach it, so it gets a name here.
    pub fn new(mode: Mode, binary: &str) -> Self {
        CLEARED.call_once(clear_abandoned);
        let root = tempfile::Builder::new().prefix(PREFIX).tempdir().unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        let site = Self { mode, root };
        // Copied by another process: a file that this one writes could be open in a child just being started
        // by another test, and such a file cannot be executed.
        if fs::hard_link(binary, site.binary()).is_err() {
            let copied = Command::new("cp").arg(binary).arg(site.binary()).status().unwrap();
            assert!(copied.success(), "{binary} cannot be copied");
        }
        for dir in [site.state(), site.home(), site.work()] {
            fs::create_dir(&dir).unwrap();
            site.give(&dir);
        }
        fs::set_permissions(site.state(), Permissions::from_mode(0o700)).unwrap();
        site
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn binary(&self) -> PathBuf {
        self.root().join("cofferdam")
    }

    /// Cofferdam's state directory.
    pub fn state(&self) -> PathBuf {
        self.root().join("state")
    }

    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    pub fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    /// Makes the user of this place the owner.
    pub fn give(&self, path: &Path) {
        let (uid, gid) = self.mode.ids();
        if is_root() {
            chown(path, Some(uid), Some(gid)).unwrap();
        }
    }

    /// The same for a link itself.
    pub fn give_link(&self, path: &Path) {
        let (uid, gid) = self.mode.ids();
        if is_root() {
            lchown(path, Some(uid), Some(gid)).unwrap();
        }
    }

    /// A file of the user's own, with the directories that it needs. Relative paths are below the work dir.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(path);
        let mut missing: Vec<&Path> = path.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
        missing.reverse();
        for dir in missing {
            fs::create_dir(dir).unwrap();
            self.give(dir);
        }
        fs::write(&path, content).unwrap();
        self.give(&path);
        path
    }

    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.work().join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Any program, as the user of this place, outside of a sandbox.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let (uid, gid) = self.mode.ids();
        let mut command = if is_root() && uid != 0 {
            let setpriv = crate::program("setpriv").expect("setpriv is missing: apt-get install util-linux");
            let mut command = Command::new(setpriv);
            command.args([&format!("--reuid={uid}"), &format!("--regid={gid}"), "--clear-groups", "--"]);
            command.arg(program.as_ref());
            command
        } else {
            Command::new(program.as_ref())
        };
        command.env_clear().env("PATH", SEARCH_PATH).env("HOME", self.home());
        command.env("COFFERDAM_HOME", self.state()).env("LANG", "C.UTF-8").current_dir(self.work());
        command
    }

    /// `cofferdam` with these arguments.
    pub fn call(&self, args: &[&str]) -> Call<'_> {
        Call { site: self, flags: args.iter().map(Into::into).collect(), ..Call::of(self) }
    }

    /// `cofferdam run` of this command.
    pub fn run(&self, command: &[&str]) -> Call<'_> {
        let flags = ["run"].iter().chain(self.mode.flags()).map(Into::into).collect();
        Call { flags, command: command.iter().map(Into::into).collect(), ..Call::of(self) }
    }

    /// `cofferdam run -- sh -c SCRIPT`.
    pub fn sh(&self, script: &str) -> Call<'_> {
        self.run(&["sh", "-c", script])
    }

    /// The one request, call or step of `running` that waits for a person.
    #[track_caller]
    pub fn held(&self, running: &mut Running) -> Value {
        let started = Instant::now();
        loop {
            let told = self.call(&["approve", "ls", "--json"]).exits(0).out();
            if let Some(waiting) = serde_json::from_str::<Vec<Value>>(&told).unwrap().pop() {
                return waiting;
            }
            if !running.is_running() || started.elapsed() > PATIENCE {
                let story = self.call(&["trace", "show", "latest"]).done();
                panic!("nothing waits; {}\n{}{}", running.said(), story.out(), story.err());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The ids of all traces, the oldest first.
    pub fn traces(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.state().join("traces")) else { return Vec::new() };
        let mut ids: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        ids.sort();
        ids
    }

    pub fn events_file(&self, id: &str) -> PathBuf {
        self.state().join("traces").join(id).join("events.jsonl")
    }

    /// The events of the newest trace.
    pub fn events(&self) -> Vec<Value> {
        let id = self.traces().pop().expect("there is no trace");
        // A session makes the place for its trace before the trace.
        let text = fs::read_to_string(self.events_file(&id)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The bodies of the newest trace's events of one kind.
    pub fn bodies(&self, kind: &str) -> Vec<Value> {
        self.events()
            .into_iter()
            .filter(|event| event["kind"] == kind)
            .map(|mut e| e["body"].take())
            .collect()
    }

    /// Names below a directory of the state that is only filled while sessions run.
    pub fn remains(&self) -> Vec<String> {
        let names = |dir: &str| {
            let entries = fs::read_dir(self.state().join(dir)).into_iter().flatten();
            entries
                .map(move |e| format!("{dir}/{}", e.unwrap().file_name().to_string_lossy()))
                .collect::<Vec<_>>()
        };
        ["layers", "staging/root", "staging/scratch", "staging/lower"].into_iter().flat_map(names).collect()
    }
}

impl Drop for Site {
    /// What a test killed has to be cleaned up by a next start, and what it locked to be opened.
    fn drop(&mut self) {
        let left = !self.remains().is_empty() || self.traces().iter().any(|id| !groups_of(id).is_empty());
        if left {
            let _ = self.run(&["true"]).command().output();
        }
        if !is_root() {
            let _ = Command::new("chmod").args(["-R", "u+rwX"]).arg(self.work()).output();
        }
    }
}

/// A call of `cofferdam`, to be completed and made.
pub struct Call<'s> {
    site: &'s Site,
    flags: Vec<OsString>,
    command: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Option<Vec<u8>>,
    dir: PathBuf,
}

impl<'s> Call<'s> {
    fn of(site: &'s Site) -> Self {
        let dir = site.work();
        Self { site, flags: Vec::new(), command: Vec::new(), env: Vec::new(), input: None, dir }
    }

    pub fn with(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    /// The line as it would be typed.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = vec![self.site.binary().into_os_string()];
        words.extend_from_slice(&self.flags);
        if !self.command.is_empty() {
            words.push("--".into());
            words.extend_from_slice(&self.command);
        }
        words
    }

    pub fn command(&self) -> Command {
        let mut command = self.site.command(self.site.binary());
        command.args(&self.words()[1..]);
        command.envs(self.env.iter().map(|(name, value)| (name, value))).current_dir(&self.dir);
        command
    }

    pub fn start(self) -> Running {
        Running::start(&mut self.command(), self.input)
    }

    #[track_caller]
    pub fn done(self) -> Done {
        self.start().finish()
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Done {
        self.done().exits(code)
    }
}
