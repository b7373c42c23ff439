//! Stores outside that check signatures: s3s-fs, azurite, and a checker of version 4A (`src/python/stores`). Started
//! once for a test program, and ended with it.

use crate::SEARCH_PATH;
use crate::server::{packages, readable};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The account whose blobs azurite keeps.
const ACCOUNT: &str = "devstore";
/// A name of an access point in many regions, which clients sign for with version 4A.
pub const ACCESS_POINT: &str = "mfzwi23gnjvgw.mrap";

/// Hosts that the stores answer for, with the server that does.
const HOSTS: &[(&str, &str)] = &[
    ("s3.eu-west-1.amazonaws.com", "s3"),
    ("bucket.s3.eu-west-1.amazonaws.com", "s3"),
    ("sts.eu-west-1.amazonaws.com", "s3"),
    ("devstore.blob.core.windows.net", "blob"),
    ("oauth2.googleapis.com", "tokens"),
    ("storage.googleapis.com", "tokens"),
    ("api.github.com", "tokens"),
    ("auth.corp.example", "tokens"),
    ("api.corp.example", "tokens"),
    ("mfzwi23gnjvgw.mrap.accesspoint.s3-global.amazonaws.com", "regions"),
];

pub struct Stores {
    dir: TempDir,
    ports: Value,
    keys: Value,
    packages: PathBuf,
    /// The end of its input, which comes with ours, is its end; then it removes the directory.
    _process: Child,
}

impl Stores {
    /// The stores of this test program; none where their packages are missing and nobody insists on them.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Stores>> = OnceLock::new();
        SHARED.get_or_init(|| packages().map(Self::start)).as_ref()
    }

    fn start(packages: PathBuf) -> Self {
        let dir = tempfile::Builder::new().prefix("cofferdam-stores-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let packages = readable(packages, dir.path());
        let random = || fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().replace('-', "");
        let id: String =
            random().to_uppercase().replace(['0', '1', '8', '9'], "Q").chars().take(16).collect();
        let keys = json!({
            "aws_id": format!("AKIA{id}"),
            "aws_secret": format!("{}/{}+", random(), &random()[..6]),
            "azure_account": ACCOUNT,
            // 64 bytes in base64, as accounts have them.
            "azure_key": format!("{}{}{}Q==", random(), random(), &random()[..21]),
        });
        let errors = File::create(dir.path().join("errors")).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/python/stores/main.py");
        let mut command = Command::new("python3");
        command.arg(program).arg(dir.path()).arg(&packages).env_clear().env("PATH", SEARCH_PATH);
        command.env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1").env("HOME", dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().expect("python3 is missing: apt-get install python3");
        child.stdin.as_mut().unwrap().write_all(format!("{keys}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = || fs::read_to_string(dir.path().join("errors")).unwrap_or_default();
        let ports = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no stores: {}", said()));
        Self { ports, keys, packages, _process: child, dir }
    }

    /// A key: `aws_id`, `aws_secret`, `azure_account`, `azure_key`.
    pub fn key(&self, name: &str) -> &str {
        self.keys[name].as_str().unwrap()
    }

    pub fn packages(&self) -> &Path {
        &self.packages
    }

    /// What is exchanged for tokens, as its provider hands it out: `jwt`, `oauth`, `short`, `github-app`.
    pub fn file(&self, kind: &str) -> Value {
        self.ports["files"][kind].clone()
    }

    /// Where S3 listens without TLS.
    pub fn plain_s3(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports["plain_s3"])
    }

    /// What lies in the bucket under this key.
    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        fs::read(self.dir.path().join("s3/bucket").join(key)).ok()
    }

    /// The part of a policy that leads all hosts here.
    pub fn upstreams(&self) -> String {
        let ca = self.dir.path().join("ca.pem");
        let one = |(host, server): &(&str, &str)| {
            let (port, ca) = (&self.ports[*server], ca.display());
            format!("[[upstream]]\nhost = \"{host}\"\nconnect = \"127.0.0.1:{port}\"\nca = \"{ca}\"\n\n")
        };
        HOSTS.iter().map(one).collect()
    }
}
