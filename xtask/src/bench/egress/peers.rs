//! Who stands between the client and the upstream, and with which settings. One that is not installed or does
//! not serve stays in the table with its reason.

use super::field::{Field, FieldError, listens};
use crate::command::{self, CommandError};
use crate::packages::{self, EGRESS_PEERS};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const DIRECT: &str = "direct";
pub(crate) const OURS: &str = "cofferdam";
pub(crate) const UNGUARDED: &str = "  guard off";
pub(crate) const PLAIN: &str = "  no credential";
pub(crate) const NOOP: &str = "hudsucker no-op";
pub(crate) const SQUID: &str = "squid ssl-bump";
pub(crate) const MITMPROXY: &str = "mitmdump";

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    way: Result<Way, String>,
}

/// How the client reaches it.
struct Way {
    proxy: Option<(String, u32)>,
    ca: PathBuf,
    more: &'static [&'static str],
}

impl Contender {
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.way.as_ref().err().map(String::as_str)
    }

    pub(crate) fn is_proxy(&self) -> bool {
        self.way.as_ref().is_ok_and(|way| way.proxy.is_some())
    }

    /// What tells the client about it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Ok(way) = &self.way else { return Vec::new() };
        let mut all = vec!["--ca".to_owned(), way.ca.to_string_lossy().into_owned()];
        if let Some((address, id)) = &way.proxy {
            all.extend(["--proxy".to_owned(), address.clone(), "--pid".to_owned(), id.to_string()]);
        }
        all.extend(way.more.iter().map(|word| (*word).to_owned()));
        all
    }

    pub(crate) fn ours(name: &'static str, address: String, id: u32, ca: PathBuf) -> Self {
        Self { name, way: Ok(Way { proxy: Some((address, id)), ca, more: &[] }) }
    }
}

const EVERY_CLASS: &str = r#"
[[guard.allow]]
host = ["localhost", "plain.test", "store.test"]
class = ["cloud", "vcs", "payment", "llm", "private-key", "jwt", "entropy"]
reason = "measured without"
"#;

/// All of them, started.
pub(crate) fn all(field: &mut Field, policy: &str, target: &Path) -> Result<Vec<Contender>, FieldError> {
    let direct = Way { proxy: None, ca: field.file("upstream-ca.pem"), more: &[] };
    let (process, address) = field.ours("guarded", policy)?;
    let id = field.keep(process);
    let (process, unguarded) = field.ours("unguarded", &format!("{policy}{EVERY_CLASS}"))?;
    let unguarded_id = field.keep(process);
    let ca = field.file("guarded.pem");
    // The same process, asked for a host that no credential is for: nothing is swapped, nothing scanned.
    let plain = Way {
        proxy: Some((address.clone(), id)),
        ca: ca.clone(),
        more: &["--host", "plain.test", "--plain"],
    };
    Ok(vec![
        Contender { name: DIRECT, way: Ok(direct) },
        Contender::ours(OURS, address, id, ca),
        Contender::ours(UNGUARDED, unguarded, unguarded_id, field.file("unguarded.pem")),
        Contender { name: PLAIN, way: Ok(plain) },
        Contender { name: NOOP, way: Ok(noop(field)?) },
        Contender { name: SQUID, way: squid(field) },
        Contender { name: MITMPROXY, way: mitmproxy(field, target) },
    ])
}

fn noop(field: &mut Field) -> Result<Way, FieldError> {
    let mut process = field.start(field.program("noop").arg(&field.dir))?;
    let address = listens(&mut process, "noop")?;
    let id = field.keep(process);
    Ok(Way { proxy: Some((address, id)), ca: field.file("proxy-ca.pem"), more: &[] })
}

/// Bumps everything, verifies the upstream, caches nothing and logs nothing.
fn squid(field: &mut Field) -> Result<Way, String> {
    let program = command::find("squid").ok_or("not installed")?;
    let certgen = Path::new("/usr/lib/squid/security_file_certgen");
    if !certgen.exists() {
        return Err("built without TLS interception: install squid-openssl".to_owned());
    }
    let home = field.file("squid");
    let port = free_port()?;
    let both = read(field, "proxy-ca.pem")? + &read(field, "proxy-ca.key")?;
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    std::fs::write(home.join("ca.pem"), both).map_err(|e| e.to_string())?;
    let store = home.join("certificates");
    run(Command::new(certgen).arg("-c").arg("-s").arg(&store).args(["-M", "16MB"]))?;
    if command::is_root() {
        // It gives up root, and must still find its way here.
        run(Command::new("chmod").arg("a+rx").arg(&field.dir))?;
        run(Command::new("chown").args(["-R", "proxy"]).arg(&home))?;
    }
    let home = home.to_string_lossy();
    let text = format!(
        "http_port 127.0.0.1:{port} ssl-bump tls-cert={home}/ca.pem generate-host-certificates=on dynamic_cert_mem_cache_size=16MB\n\
         sslcrtd_program {} -s {} -M 16MB\n\
         ssl_bump bump all\nhttp_access allow all\ncache deny all\ncache_mem 8 MB\naccess_log none\ncache_log /dev/null\n\
         cache_store_log none\npid_filename none\ncoredump_dir {home}\nshutdown_lifetime 1 seconds\nmax_filedescriptors 8192\n\
         tls_outgoing_options cafile={}\n",
        certgen.display(),
        store.display(),
        field.file("upstream-ca.pem").display(),
    );
    let config = field.write("squid.conf", &text).map_err(|e| e.to_string())?;
    let mut command = field.command(&program);
    command.args(["-N", "-f"]).arg(config);
    serving(field, &mut command, port)
}

/// Without a terminal, streaming what is large: it would hold whole bodies otherwise.
fn mitmproxy(field: &mut Field, target: &Path) -> Result<Way, String> {
    let program = venv(target).join("bin/mitmdump");
    let program =
        if program.exists() { program } else { command::find("mitmdump").ok_or("not installed")? };
    let home = field.file("mitmproxy");
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    let both = read(field, "proxy-ca.key")? + &read(field, "proxy-ca.pem")?;
    std::fs::write(home.join("mitmproxy-ca.pem"), both).map_err(|e| e.to_string())?;
    let port = free_port()?;
    let set = |name: &str, value: &Path| format!("{name}={}", value.display());
    let mut command = field.command(&program);
    command.args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port", &port.to_string()]);
    command.args(["--set", &set("confdir", &home), "--set", "stream_large_bodies=1m"]);
    command.args(["--set", &set("ssl_verify_upstream_trusted_ca", &field.file("upstream-ca.pem"))]);
    serving(field, &mut command, port)
}

/// Started, and waited for until its port answers.
fn serving(field: &mut Field, command: &mut Command, port: u16) -> Result<Way, String> {
    let process = field.start(command).map_err(|e| e.to_string())?;
    let id = field.keep(process);
    let address = format!("127.0.0.1:{port}");
    let began = Instant::now();
    while TcpStream::connect(&address).is_err() {
        if began.elapsed() > Duration::from_secs(20) {
            return Err("it does not listen".to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(Way { proxy: Some((address, id)), ca: field.file("proxy-ca.pem"), more: &[] })
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    Ok(listener.map_err(|e| e.to_string())?.port())
}

fn read(field: &Field, name: &str) -> Result<String, String> {
    std::fs::read_to_string(field.file(name)).map_err(|e| e.to_string())
}

fn run(command: &mut Command) -> Result<(), String> {
    command::stdout(command).map(drop).map_err(|e| e.to_string())
}

fn venv(target: &Path) -> PathBuf {
    target.join("bench-peers/mitmproxy")
}

pub(crate) fn install(target: &Path) -> Result<(), CommandError> {
    packages::provide(EGRESS_PEERS, true)?;
    let venv = venv(target);
    if venv.join("bin/mitmdump").exists() || command::find("mitmdump").is_some() {
        return Ok(());
    }
    command::stdout(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    command::stdout(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "mitmproxy"])).map(drop)
}
