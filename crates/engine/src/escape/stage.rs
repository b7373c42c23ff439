//! The part of the world that attempts are made on, all of it ours and gone afterwards: a home with keys in it, a
//! file outside, a process that keeps a secret, sockets that answer, a state directory with a vault. Nothing of
//! the real caller's is touched.

use super::collector::{Collector, Sockets};
use super::facts::Facts;
use super::keeper::Keeper;
use crate::secrets::nobody;
use crate::{Engine, EngineError};
use cofferdam_vault::Draft;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "cofferdam-escape-";

/// Of the credential that a session under a policy has.
pub(crate) const CREDENTIAL: &str = "escape-probe";
const VARIABLE: &str = "ESCAPE_PROBE_KEY";

/// Every host is allowed, so that what is refused is refused by what no policy can switch off.
const POLICY: &str = r#"[[upstream]]
host = "own.example"
connect = "127.0.0.1:PORT"

[[upstream]]
host = "other.example"
connect = "127.0.0.1:PORT"

[[rule]]
id = "everything"
reason = "only what no policy can allow is to be refused"
effect = "allow"
host = "*"
"#;

pub(crate) struct Stage {
    root: TempDir,
    pub(crate) engine: Engine,
    pub(crate) facts: Facts,
    pub(crate) program: PathBuf,
    _collector: Collector,
    _keeper: Keeper,
    /// Open on the outside, and inherited by every process that we start: what it is to be closed against.
    _leak: File,
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> EngineError {
    move |source| EngineError::Io { doing, source }
}

impl Stage {
    pub(crate) fn set() -> Result<Self, EngineError> {
        let doing = "set the stage for the escape checks";
        let word = random_word()?;
        let program = std::env::current_exe().map_err(failed("find our own program"))?;
        let root = make_root().map_err(failed(doing))?;
        let at = |name: &str| root.path().join(name);
        let mut facts = Facts {
            backwards: word.chars().rev().collect(),
            outside: at("outside"),
            home: at("home"),
            state: at("state"),
            shown: at("shown"),
            socket: at("outside/daemon.sock"),
            abstract_socket: format!("cofferdam-escape-{word}"),
            credential: VARIABLE.into(),
            ..Facts::default()
        };
        plant(&facts, &word).map_err(failed(doing))?;
        let sockets = Sockets::on_host(&facts.socket, &facts.abstract_socket).map_err(failed(doing))?;
        let port = |listener: &std::net::TcpListener| listener.local_addr().map(|at| at.port());
        facts.tcp = port(&sockets.tcp[0]).map_err(failed(doing))?;
        facts.tcp6 = sockets.tcp.get(1).and_then(|listener| port(listener).ok());
        facts.udp = sockets.udp[0].local_addr().map_err(failed(doing))?.port();
        fs::write(at("policy.toml"), POLICY.replace("PORT", &facts.tcp.to_string()))
            .map_err(failed(doing))?;
        let collector = Collector::start(sockets, word.clone().into_bytes()).map_err(failed(doing))?;
        let keeper = Keeper::start(&program, &word).map_err(failed("start the keeper of a secret"))?;
        (facts.keeper, facts.keeper_address) = (keeper.pid(), keeper.address);
        let leak = leak(&facts.outside).map_err(failed(doing))?;
        let engine = Engine::open(Some(facts.state.clone()))?;
        let source = format!("file:{}", at("outside/credential").display());
        engine.secrets(&nobody)?.add(Draft {
            name: CREDENTIAL.into(),
            from: Some(source),
            hosts: vec!["own.example".into()],
            places: vec!["bearer".into()],
            env: Some(VARIABLE.into()),
            ..Draft::default()
        })?;
        Ok(Self { root, engine, facts, program, _collector: collector, _keeper: keeper, _leak: leak })
    }

    pub(crate) fn policy(&self) -> PathBuf {
        self.root.path().join("policy.toml")
    }

    /// A work dir for one run, with what a project has in it that an attack could use.
    pub(crate) fn work_dir(&self, name: &str) -> Result<PathBuf, EngineError> {
        let dir = self.root.path().join(name);
        let make = || {
            fs::create_dir_all(&dir)?;
            fs::write(dir.join(".env"), self.facts.word())?;
            fs::write(dir.join("README"), "a project")?;
            // A project may have a link to somewhere else.
            symlink(&self.facts.outside, dir.join("way"))
        };
        make().map_err(failed("make a work dir for the escape checks"))?;
        Ok(dir)
    }
}

fn random_word() -> Result<String, EngineError> {
    let mut random = [0_u8; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| EngineError::Io { doing: "draw random bytes", source: errno.into() })?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Others may pass through it: in a sandbox that root starts, the work dir belongs to another id.
fn make_root() -> io::Result<TempDir> {
    cofferdam_runtime_process::remove_abandoned(&std::env::temp_dir(), PREFIX);
    let root = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
    fs::set_permissions(root.path(), Permissions::from_mode(0o755))?;
    for dir in ["home/.ssh", "home/.aws", "home/.config/gh", "home/.cargo", "outside", "state"] {
        fs::create_dir_all(root.path().join(dir))?;
    }
    fs::set_permissions(root.path().join("state"), Permissions::from_mode(0o700))?;
    Ok(root)
}

fn plant(facts: &Facts, word: &str) -> io::Result<()> {
    for name in
        [".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".netrc", ".cargo/credentials.toml"]
    {
        fs::write(facts.home.join(name), word)?;
    }
    fs::write(facts.outside.join("secret"), word)?;
    fs::write(facts.outside.join("writable"), "before")?;
    // Another word, or the vault's copy would be taken for the planted one. It looks like a key.
    fs::write(facts.outside.join("credential"), format!("sk_live_{}", word.to_uppercase()))?;
    fs::write(&facts.shown, "x".repeat(4096))?;
    // Writable by its mode for everybody: what keeps it is that it is shown read-only.
    fs::set_permissions(&facts.shown, Permissions::from_mode(0o666))
}

fn leak(dir: &Path) -> io::Result<File> {
    let file = File::open(dir)?;
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
    Ok(file)
}
