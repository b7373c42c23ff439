//! The second half of the demonstration: an agent with a key that it never holds. A payment service runs here under
//! its real name and checks the real key; `cofferdam init` sets the agent up; one request needs a person.

use super::{DemoError, Seen, Stage};
use crate::command::{self, CommandError};
use serde::Deserialize;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// As a real one looks. The service below takes this one and no other.
const KEY: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dcDEMO";
const REVIEW: &str = r#"[[rule]]
id = "credit-needs-a-person"
reason = "a credit note is money"
effect = "review"
host = "api.stripe.com"
methods = ["POST"]
paths = ["/v1/credit_notes"]
"#;
/// How long an approval may take to turn up before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the agent wrote down.
#[derive(Debug, Deserialize)]
struct Report {
    key: String,
    read: u16,
    charges: String,
    credit: u16,
    stranger: u16,
    answer: String,
}

/// A program that ends with the demonstration, however that ends.
pub(super) struct Running(Child);

impl Running {
    pub(super) fn start(command: &mut Command) -> Result<Self, CommandError> {
        let started = command.spawn();
        started.map(Self).map_err(|source| CommandError::Start { line: command::line(command), source })
    }

    pub(super) fn stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn show(
    stage: &Stage,
    cofferdam: &Path,
    example: &Path,
    seen: &mut Seen,
) -> Result<(), DemoError> {
    println!("\n== an agent with a key: a payment service runs here, and knows one key");
    let shop = stage.dir.join("shop");
    copy(&example.join("support/agent.py"), &shop.join("agent.py"))?;
    certificates(stage)?;
    let (_service, port) = service(stage, &example.join("payments.py"))?;

    let mut init = stage.plain(cofferdam);
    init.args(["init", "--add-secrets", "--"]).arg(&stage.python).arg("agent.py").env("STRIPE_KEY", KEY);
    let set_up = stage.show(init.current_dir(&shop))?.status.success();
    seen.push(("init finds the key and writes a session and a policy", set_up));
    lead_to(&shop.join("policy.toml"), stage, port)?;
    stage.show(stage.plain(cofferdam).args(["policy", "test", "policy.toml"]).current_dir(&shop))?;

    let (output, approved) = run_and_approve(stage, cofferdam, &shop)?;
    judge(stage, &shop, &output, approved, seen)?;
    let told = stage.show(stage.plain(cofferdam).args(["trace", "show", "latest"]))?;
    let verified = stage.show(stage.plain(cofferdam).args(["trace", "verify", "latest"]))?.status.success();
    seen.push(("every request stands in the trace, which is sound", verified && is_told(&told)));
    seen.push((
        "the real key is nowhere in the trace or the work dir",
        !holds(&stage.dir.join("state/traces"))? && !holds(&shop)?,
    ));
    Ok(())
}

pub(super) fn copy(from: &Path, to: &Path) -> Result<(), DemoError> {
    let failed = |source| DemoError::Stage { path: to.to_owned(), source };
    to.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
    std::fs::copy(from, to).map(drop).map_err(failed)
}

/// An authority of the demonstration's own, and a certificate for the service's real name.
fn certificates(stage: &Stage) -> Result<(), DemoError> {
    let names = stage.dir.join("names");
    std::fs::write(&names, "subjectAltName=DNS:api.stripe.com\n")
        .map_err(|source| DemoError::Stage { path: names, source })?;
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let openssl = |args: &[&[&str]]| {
        command::stdout(Command::new("openssl").args(args.concat()).current_dir(&stage.dir))
    };
    let authority = ["-days", "2", "-subj", "/CN=demonstration", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&[&["req", "-x509"], &key, &authority])?;
    let request = ["-subj", "/CN=api.stripe.com", "-keyout", "service.key", "-out", "service.csr"];
    openssl(&[&["req"], &key, &request])?;
    let signed =
        ["x509", "-req", "-in", "service.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
    openssl(&[&signed, &["-days", "2", "-extfile", "names", "-out", "service.pem"]])?;
    Ok(())
}

fn service(stage: &Stage, program: &Path) -> Result<(Running, u16), DemoError> {
    let mut command = Command::new(&stage.python);
    command.arg(program).args(["service.pem", "service.key", "payments.log"]);
    command.current_dir(&stage.dir).env("PAYMENTS_KEY", KEY).stdout(Stdio::piped());
    let mut child = Running::start(&mut command)?;
    let mut line = String::new();
    if let Some(out) = child.stdout() {
        BufReader::new(out).read_line(&mut line).map_err(DemoError::Service)?;
    }
    let port = line.trim().parse().map_err(|_| DemoError::NoPort(line.trim().to_owned()))?;
    Ok((child, port))
}

/// The operator's words: one thing more that needs a person, and where the service is. The agent still calls it by
/// its name.
fn lead_to(policy: &Path, stage: &Stage, port: u16) -> Result<(), DemoError> {
    let failed = |source| DemoError::Stage { path: policy.to_owned(), source };
    let ca = stage.dir.join("ca.pem");
    let upstream = format!(
        "\n{REVIEW}\n[[upstream]]\nhost = \"api.stripe.com\"\nconnect = \"127.0.0.1:{port}\"\nca = \"{}\"\n",
        ca.display()
    );
    println!("\n$ cat >> policy.toml{}", upstream.replace(&*stage.dir.to_string_lossy(), "$DEMO").trim_end());
    let text = std::fs::read_to_string(policy).map_err(failed)?;
    std::fs::write(policy, text + &upstream).map_err(failed)
}

/// Runs the agent, and answers the one request that waits for a person.
fn run_and_approve(stage: &Stage, cofferdam: &Path, shop: &Path) -> Result<(Output, bool), DemoError> {
    let files = ["agent.out", "agent.err"].map(|name| stage.dir.join(name));
    let file = |path: &PathBuf| {
        std::fs::File::create(path).map_err(|source| DemoError::Stage { path: path.clone(), source })
    };
    let mut run = stage.plain(cofferdam);
    run.args(["run", "--spec", "cofferdam.toml", "--changes", "keep"]).current_dir(shop);
    run.stdin(Stdio::null()).stdout(file(&files[0])?).stderr(file(&files[1])?);
    println!("\n$ {} &", stage.typed(&run));
    let mut running = Running::start(&mut run)?;
    let mut approved = false;
    if let Some(id) = held(stage, cofferdam, &mut running)? {
        stage.show(stage.plain(cofferdam).args(["approve", "ls"]))?;
        approved = stage.show(stage.plain(cofferdam).args(["approve", "allow", &id]))?.status.success();
    }
    let status = running.0.wait().map_err(DemoError::Service)?;
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| DemoError::Stage { path: path.clone(), source })
    };
    let output = Output { status, stdout: read(&files[0])?, stderr: read(&files[1])? };
    println!("\n$ fg");
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok((output, approved))
}

/// The id of what waits; none when the agent ended, or nothing came.
fn held(stage: &Stage, cofferdam: &Path, running: &mut Running) -> Result<Option<String>, DemoError> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE && running.0.try_wait().map_err(DemoError::Service)?.is_none() {
        let listed = command::stdout(stage.plain(cofferdam).args(["approve", "ls", "--json"]))?;
        let listed: Value = serde_json::from_str(&listed).unwrap_or_default();
        if let Some(id) = listed[0]["id"].as_str() {
            return Ok(Some(id.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(None)
}

fn judge(
    stage: &Stage,
    shop: &Path,
    output: &Output,
    approved: bool,
    seen: &mut Seen,
) -> Result<(), DemoError> {
    let path = shop.join("report.json");
    let text = std::fs::read(&path).map_err(|source| DemoError::NoReport { path: path.clone(), source })?;
    let report: Report =
        serde_json::from_slice(&text).map_err(|source| DemoError::Report { path, source })?;
    let log = stage.dir.join("payments.log");
    let log = std::fs::read_to_string(&log).map_err(|source| DemoError::Stage { path: log, source })?;
    let asked = |method: &str| {
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.any(|line| line["method"] == method && line["real_key"] == true)
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    let likeness = report.key.len() == KEY.len() && report.key.starts_with("sk_live_") && report.key != KEY;
    seen.push(("the agent sees a placeholder that looks like its key", likeness));
    seen.push(("the service saw the real key", report.read == 200 && asked("GET")));
    let scrubbed = report.charges.contains(&report.key) && !report.charges.contains(KEY);
    seen.push(("the key that it sent back came in as the placeholder", scrubbed));
    seen.push((
        "what needs a person waited for one, and went",
        approved && report.credit == 200 && asked("POST"),
    ));
    seen.push(("a host that no rule names is refused", report.stranger == 403));
    let rule = "host = \"collector.example.net\"";
    let told = report.answer.contains("[[rule]]") && stderr.contains("[[rule]]") && stderr.contains(rule);
    seen.push(("agent and operator are told the rule that would allow it", told));
    Ok(())
}

fn is_told(shown: &Output) -> bool {
    let text = String::from_utf8_lossy(&shown.stdout);
    ["/v1/charges", "/v1/credit_notes", "collector.example.net", "allowed by"]
        .iter()
        .all(|part| text.contains(part))
}

/// Whether a file below a directory holds the real key.
fn holds(dir: &Path) -> Result<bool, DemoError> {
    let failed = |path: &Path, source| DemoError::Stage { path: path.to_owned(), source };
    for entry in walkdir::WalkDir::new(dir) {
        let entry = entry.map_err(|error| failed(dir, error.into()))?;
        if entry.file_type().is_file() {
            let bytes = std::fs::read(entry.path()).map_err(|source| failed(entry.path(), source))?;
            if bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes()) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(dir: &Path) -> Stage {
        Stage::set(dir, &crate::workspace::root().join("examples/agent")).unwrap()
    }

    /// The control: the service would refuse what the agent holds, so that a 200 means the real key.
    #[test]
    fn the_service_takes_one_key_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let stage = stage(dir.path());
        certificates(&stage).unwrap();
        let program = crate::workspace::root().join("examples/agent/payments.py");
        let (_service, port) = service(&stage, &program).unwrap();
        let client = "import os, ssl, sys, urllib.request, urllib.error\n\
            context = ssl.create_default_context(cafile='ca.pem')\n\
            context.check_hostname = False\n\
            request = urllib.request.Request(f'https://127.0.0.1:{sys.argv[1]}/v1/charges', headers={'Authorization': 'Bearer ' + sys.argv[2]})\n\
            try: print(urllib.request.urlopen(request, context=context).status)\n\
            except urllib.error.HTTPError as error: print(error.code)\n";
        let ask = |key: &str| {
            let mut command = Command::new(&stage.python);
            command.args(["-c", client, &port.to_string(), key]).current_dir(dir.path());
            command::stdout(command.env_remove("https_proxy").env_remove("HTTPS_PROXY")).unwrap()
        };
        assert_eq!(ask(KEY), "200\n");
        assert_eq!(ask("sk_live_something_else"), "401\n");
        assert!(!holds(&dir.path().join("inside")).unwrap());
        std::fs::write(dir.path().join("inside/leak"), format!("x{KEY}x")).unwrap();
        assert!(holds(&dir.path().join("inside")).unwrap());
    }
}
