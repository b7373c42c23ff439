//! What a program waits for that uses the service through E2B's published SDK over loopback: a sandbox and its first
//! output, a command in one that is there, a large file each way; and what the service holds while it does nothing, and
//! while many sessions do. The client is `bench/api/client.py`; it runs `bwrap` in the same rounds.

use super::stats;
use crate::command;
use crate::venv;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The goals of the design, in milliseconds and KiB.
const FIRST_OUTPUT: f64 = 25.0;
const IDLE: f64 = 60.0 * 1024.0;
const PER_SESSION: f64 = 1024.0;

#[derive(clap::Args)]
pub(crate) struct Api {
    #[arg(long, default_value_t = 60)]
    rounds: usize,
    /// Sessions that live at a time
    #[arg(long, default_value_t = 500)]
    sessions: usize,
    /// Of the large file
    #[arg(long, default_value_t = 1024)]
    mebibytes: usize,
    /// Sandboxes that are kept prepared; 0 for none
    #[arg(long, default_value_t = 8)]
    pool: usize,
    /// This binary instead of one that is built now
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where the SDKs are, instead of where the tests have them
    #[arg(long)]
    packages: Option<PathBuf>,
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum ApiError {
    #[error("the service does not serve: {0}")]
    Silent(String),
    #[error("the client failed: {0}")]
    Client(String),
}

/// Ends with the measurement.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

pub(crate) fn main(args: &Api) -> crate::Outcome {
    let root = crate::workspace::root();
    let packages = match &args.packages {
        Some(packages) => packages.clone(),
        None => venv::provide(&root, true)?,
    };
    let cofferdam = match &args.binary {
        Some(binary) => binary.canonicalize()?,
        None => crate::dist::build(&root)?,
    };
    // Beside the build, not in the temporary directory: that is memory on many machines.
    let home = tempfile::Builder::new()
        .prefix("bench-api.")
        .tempdir_in(cofferdam.parent().unwrap_or(Path::new(".")))?;
    let settings = format!("[sessions]\nmost = {}\n", args.sessions + 100);
    std::fs::write(home.path().join("operator.toml"), settings)?;
    std::fs::write(home.path().join("serve.toml"), "[limits]\nrate = 100000\n")?;
    let mut pool = Command::new(&cofferdam);
    pool.args(["pool", "set", &args.pool.to_string()]).env("COFFERDAM_HOME", home.path());
    let (service, told) = serve(&cofferdam, home.path())?;
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    if args.pool > 0 {
        command::stdout(&mut pool)?;
    }
    let mut client = Command::new("/usr/bin/python3");
    client.arg(root.join("bench/api/client.py"));
    client.args([args.rounds, args.sessions, args.mebibytes].map(|number| number.to_string()));
    client.env("PYTHONPATH", packages).env("SERVICE_PID", service.0.id().to_string());
    client
        .env("E2B_API_KEY", text("api_key"))
        .env("E2B_API_URL", text("url"))
        .env("E2B_SANDBOX_URL", text("url"));
    eprintln!("bench: the service by the SDK, {} rounds, {} sessions", args.rounds, args.sessions);
    let said = client.stderr(Stdio::inherit()).output()?;
    if !said.status.success() {
        return Err(ApiError::Client(said.status.to_string()).into());
    }
    let measured: Map<String, Value> = serde_json::from_slice(&said.stdout)?;
    drop(service);
    report(&measured, args.json)?;
    Ok(true)
}

fn serve(cofferdam: &Path, home: &Path) -> Result<(Service, Value), Box<dyn std::error::Error>> {
    let mut command = Command::new(cofferdam);
    command.args(["serve", "--listen", "127.0.0.1:0", "--json", "--config"]).arg(home.join("serve.toml"));
    command.env("COFFERDAM_HOME", home).stdout(Stdio::piped());
    command.stderr(std::fs::File::create(home.join("serve.log"))?);
    let mut child = Service(command.spawn()?);
    let mut line = String::new();
    if let Some(stdout) = child.0.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let log = || std::fs::read_to_string(home.join("serve.log")).unwrap_or_default();
    let told = serde_json::from_str(&line).map_err(|_| ApiError::Silent(log()))?;
    Ok((child, told))
}

fn report(measured: &Map<String, Value>, as_json: bool) -> Result<(), serde_json::Error> {
    let mut rows = Map::new();
    for (name, value) in measured {
        let samples: Vec<f64> = value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let at = |share| stats::quantile(&samples, share);
        let row = match (at(0.5), at(0.95), at(0.99)) {
            (Some(p50), Some(p95), Some(p99)) => {
                json!({ "samples": samples.len(), "p50": p50, "p95": p95, "p99": p99 })
            }
            _ if value.is_object() => value.clone(),
            // A peer that is not installed.
            _ => continue,
        };
        rows.insert(name.clone(), row);
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    println!("{:<45} {:>8} {:>9} {:>9} {:>9}", "milliseconds", "samples", "p50", "p95", "p99");
    for (name, row) in &rows {
        let number = |key: &str| row[key].as_f64().unwrap_or_default();
        match row.get("p50") {
            Some(_) => {
                let (samples, p50, p95, p99) =
                    (number("samples"), number("p50"), number("p95"), number("p99"));
                println!("{name:<45} {samples:>8} {p50:>9.1} {p95:>9.1} {p99:>9.1}");
            }
            None => println!(
                "{name:<45} {:.0} of the service, {:.0} of sandboxes",
                number("service"),
                number("children")
            ),
        }
    }
    let value = |row: &str, key: &str| rows.get(row).and_then(|row| row[key].as_f64());
    goal("create to first output, p50", value("create to first output, 1 at a time", "p50"), FIRST_OUTPUT);
    goal("idle service, KiB", value("idle service KiB", "service"), IDLE);
    goal("idle session, KiB of the service", value("per idle session KiB", "service"), PER_SESSION);
    goal(
        "exec in a warm session, p50, beside bwrap's",
        value("exec in a warm session", "p50"),
        value("bwrap, in the same rounds", "p50").unwrap_or(f64::INFINITY),
    );
    Ok(())
}

fn goal(name: &str, seen: Option<f64>, most: f64) {
    if let Some(seen) = seen.filter(|_| most.is_finite()) {
        let word = if seen <= most { "holds" } else { "does not hold" };
        println!("goal: {name}: {seen:.1} of {most:.1}: {word}");
    }
}
