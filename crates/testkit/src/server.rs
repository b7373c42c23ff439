//! Servers outside, for clients inside: third-party programs that check real credentials and write down what they
//! saw (`src/python/peers`). Started once for a test program, and ended with it.

use crate::SEARCH_PATH;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Names the directory of the Python packages that `src/python/requirements.txt` lists.
const PACKAGES: &str = "COFFERDAM_TEST_PACKAGES";

/// Hosts that the servers answer for, with the server that does.
const HOSTS: &[(&str, &str)] = &[
    ("api.anthropic.com", "web"),
    ("api.corp.example", "web"),
    ("api.openai.com", "web"),
    ("api.stripe.com", "web"),
    ("generativelanguage.googleapis.com", "web"),
    ("git.corp.example", "web"),
    ("models.corp.example", "plain"),
    ("npm.corp.example", "web"),
    ("open.corp.example", "web"),
    ("plain.corp.example", "plain"),
    ("pypi.corp.example", "web"),
    ("rpc.corp.example", "rpc"),
    ("sockets.corp.example", "sockets"),
];

pub struct Server {
    dir: TempDir,
    ports: Value,
    packages: PathBuf,
    /// The end of its input, which comes with ours, is its end; then it removes the directory.
    _process: Child,
}

impl Server {
    /// The servers of this test program; none where their packages are missing and nobody insists on them.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Server>> = OnceLock::new();
        SHARED.get_or_init(|| packages().map(Self::start)).as_ref()
    }

    fn start(packages: PathBuf) -> Self {
        let dir = tempfile::Builder::new().prefix("cofferdam-servers-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let packages = readable(packages, dir.path());
        for name in ["keys", "log.jsonl"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let errors = File::create(dir.path().join("errors")).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/python/peers/main.py");
        let mut command = Command::new("python3");
        command.arg(program).arg(dir.path()).env_clear().env("PATH", SEARCH_PATH);
        command.env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1").env("HOME", dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().expect("python3 is missing: apt-get install python3");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = || fs::read_to_string(dir.path().join("errors")).unwrap_or_default();
        let ports = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no servers: {}", said()));
        Self { ports, packages, _process: child, dir }
    }

    /// Where the Python packages are that clients use too.
    pub fn packages(&self) -> &Path {
        &self.packages
    }

    /// The authority of their certificates.
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// From now on this credential is a good one.
    pub fn admit(&self, credential: &str) {
        let mut keys = OpenOptions::new().append(true).open(self.dir.path().join("keys")).unwrap();
        keys.write_all(format!("{credential}\n").as_bytes()).unwrap();
    }

    /// What was seen of requests so far that satisfy this.
    pub fn seen(&self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("log.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).filter(wanted).collect()
    }

    /// Requests that came with this credential.
    pub fn seen_with(&self, credential: &str) -> Vec<Value> {
        self.seen(|request| request["credential"] == credential)
    }

    /// The part of a policy that leads all hosts here.
    pub fn upstreams(&self) -> String {
        let ca = self.authority();
        let one = |(host, server): &(&str, &str)| {
            let (port, ca) = (&self.ports[*server], ca.display());
            format!("[[upstream]]\nhost = \"{host}\"\nconnect = \"127.0.0.1:{port}\"\nca = \"{ca}\"\n\n")
        };
        HOSTS.iter().map(one).collect()
    }
}

/// Where the packages are: as told, or where `cargo xtask test` puts them beside this test program.
pub fn packages() -> Option<PathBuf> {
    let told = std::env::var_os(PACKAGES).map(PathBuf::from);
    let program = std::env::current_exe().unwrap();
    let beside = program.ancestors().nth(3).map(|target| target.join("test-packages"));
    let found = told.clone().or(beside).filter(|dir| dir.join("hypercorn").is_dir());
    if found.is_none() {
        let advice = "real clients and servers for the tests are missing: `cargo xtask test` installs them";
        assert!(told.is_none() && std::env::var_os("CI").is_none(), "{advice}");
        eprintln!("not tried: {advice}");
    }
    found
}

/// The same place, or a copy below `at` where only this user could get to it.
pub(crate) fn readable(dir: PathBuf, at: &Path) -> PathBuf {
    let open = |dir: &Path| dir.metadata().unwrap().permissions().mode() & 0o5 == 0o5;
    let dir = dir.canonicalize().unwrap();
    if dir.ancestors().all(open) {
        return dir;
    }
    let copy = at.join("test-packages");
    let copied = Command::new("cp").arg("-rT").arg(&dir).arg(&copy).status().unwrap();
    assert!(copied.success(), "{} cannot be copied", dir.display());
    copy
}
