//! What a round trip to a database costs through the proxy: pgbench reads one row, over and over, directly and from inside
//! a sandbox, against the same server on this machine, both over TLS. Rounds alternate; a round's number is the median of
//! its transactions, by pgbench's own log.

use super::rounds;
use super::stats::{self, Summary};
use crate::command::{self, CommandError};
use fastrand::Rng;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Sql {
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Transactions in a round
    #[arg(long, default_value_t = 2000)]
    transactions: usize,
    /// For the order of the rounds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long)]
    json: bool,
    /// Measure this program in place of a released build
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum SqlError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("pgbench wrote no times: is `postgresql` installed, with its contributed programs?")]
    NoTimes,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    summary: Summary,
}

const PASSWORD: &str = "pw-bench-0123456789abcdef";

/// A server of its own in this directory, on this port.
const BEGIN: &str = r#"
set -e
cd "$1"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=db.internal \
    -addext subjectAltName=DNS:db.internal -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem 2> /dev/null
chmod 600 key.pem
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
"$bin/initdb" -D data -U owner -A trust -E UTF8 --no-sync > /dev/null
printf 'local all all trust\nhostssl all agent 127.0.0.1/32 scram-sha-256\n' > data/pg_hba.conf
"$bin/pg_ctl" -D data -l log -w -o "-k $1 -h 127.0.0.1 -p $2 -c ssl=on -c ssl_cert_file=$1/cert.pem -c ssl_key_file=$1/key.pem" start > /dev/null
psql -q -h "$1" -p "$2" -U owner postgres -c "CREATE ROLE agent LOGIN PASSWORD '$3'"
psql -q -h "$1" -p "$2" -U owner postgres -c "CREATE TABLE orders AS SELECT n AS id, n * 10 AS amount FROM generate_series(1, 1000) n" \
    -c "ALTER TABLE orders ADD PRIMARY KEY (id)" -c "GRANT SELECT ON orders TO agent"
"#;
const END: &str = r#"cd "$1" && "$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)/pg_ctl" -D data -m immediate stop > /dev/null"#;
/// The times of its transactions, a line each, in microseconds.
const READ: &str = r#"
rm -f times.*
"$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)/pgbench" -n -M "$1" -t "$2" -f read.sql -l --log-prefix=times postgres > said 2>&1 || { cat said >&2; exit 1; }
cut -d' ' -f3 times.*
"#;
const POLICY: &str = r#"
[[rule]]
id = "read"
reason = "what is measured"
effect = "allow"
sql = "read"
host = "db.internal"
"#;

/// A server, and a place to ask from.
struct Place {
    cofferdam: PathBuf,
    dir: PathBuf,
    port: String,
}

impl Place {
    fn begin(cofferdam: PathBuf, dir: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let place = Self { cofferdam, dir: dir.to_owned(), port };
        for name in ["server", "work"] {
            std::fs::create_dir(place.dir.join(name))?;
        }
        std::fs::write(place.dir.join("work/read.sql"), "SELECT amount FROM orders WHERE id = 7;\n")?;
        if command::is_root() {
            // Postgres is never root; its package brings a user.
            command::stdout(Command::new("chown").arg("postgres").arg(place.dir.join("server")))?;
            command::stdout(Command::new("chmod").args(["-R", "a+rX"]).arg(dir))?;
        }
        command::stdout(place.server(BEGIN).arg(&place.port).arg(PASSWORD))?;
        let upstream = format!(
            "[[upstream]]\nhost = \"db.internal\"\nconnect = \"127.0.0.1:{}\"\nca = \"{}\"\n{POLICY}",
            place.port,
            place.dir.join("server/cert.pem").display()
        );
        std::fs::write(place.dir.join("policy.toml"), upstream)?;
        let add =
            ["secret", "add", "db", "--from", "env:PGPASSWORD", "--for", "db.internal", "--as", "postgres"];
        command::stdout(place.ours().args(add).env("PGPASSWORD", PASSWORD))?;
        Ok(place)
    }

    fn server(&self, script: &str) -> Command {
        let mut sh = if command::is_root() { Command::new("setpriv") } else { Command::new("sh") };
        if command::is_root() {
            sh.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--", "sh"]);
        }
        sh.args(["-c", script, "server"]).arg(self.dir.join("server")).env("LC_ALL", "C");
        sh
    }

    fn ours(&self) -> Command {
        let mut ours = Command::new(&self.cofferdam);
        ours.env("COFFERDAM_HOME", self.dir.join("state")).current_dir(self.dir.join("work"));
        ours
    }

    /// The median of so many transactions, in milliseconds.
    fn round(&self, inside: bool, mode: &str, transactions: usize) -> Result<Duration, SqlError> {
        let (policy, count) = (self.dir.join("policy.toml"), transactions.to_string());
        let mut ask = if inside { self.ours() } else { Command::new("sh") };
        if inside {
            ask.args(["run", "--changes", "discard", "--policy"]).arg(policy);
            ask.args(["--secret", "db", "--env", "PGUSER=agent", "--env", "PGHOST=db.internal", "--", "sh"]);
        } else {
            ask.env("PGPASSWORD", PASSWORD).env("PGUSER", "agent").env("PGHOST", "127.0.0.1");
            ask.env("PGPORT", &self.port).env("PGSSLMODE", "require").current_dir(self.dir.join("work"));
        }
        let times = command::stdout(ask.args(["-c", READ, "read", mode, &count]))?;
        let times: Vec<f64> = times.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let median = stats::median(&times).ok_or(SqlError::NoTimes)?;
        Ok(Duration::from_nanos((median * 1e3) as u64))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = command::stdout(&mut self.server(END));
    }
}

const MODES: [&str; 2] = ["prepared", "simple"];

pub(crate) fn main(args: &Sql) -> crate::Outcome {
    let cofferdam = match &args.program {
        Some(program) => program.canonicalize()?,
        None => crate::dist::build(&crate::workspace::root())?,
    };
    let dir = tempfile::Builder::new().prefix("bench-sql.").tempdir()?;
    let place = Place::begin(cofferdam, dir.path())?;
    let plan = rounds::Plan { rounds: args.rounds, warmup: 1, slow: Duration::MAX };
    let mut rng = Rng::with_seed(args.seed);
    eprintln!("bench: a row of a database, {} rounds", args.rounds);
    let samples = rounds::interleave(&plan, 2 * MODES.len(), &mut rng, |who| {
        place.round(who >= MODES.len(), MODES[who % MODES.len()], args.transactions)
    })?;
    let name = |who: usize| {
        format!("{}, {}", if who < MODES.len() { "direct" } else { "through us" }, MODES[who % MODES.len()])
    };
    let row = |(who, own): (usize, &Vec<f64>)| Some(Row { name: name(who), summary: stats::summary(own)? });
    let rows: Vec<Row> = samples.iter().enumerate().filter_map(row).collect();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(true);
    }
    println!("{} rounds of {} transactions, milliseconds (goal: 0.15 more)", args.rounds, args.transactions);
    for Row { name, summary: Summary { median, p95, mad, .. } } in &rows {
        println!("{name:<22} {median:>7.3} {p95:>7.3} {mad:>6.3}");
    }
    for (mode, (direct, ours)) in MODES.iter().zip(samples.iter().zip(samples.iter().skip(MODES.len()))) {
        if let Some(more) = stats::difference(ours, direct, &mut rng) {
            println!("added, {mode:<15} {:>7.3} ({:.3} to {:.3})", more.value, more.low, more.high);
        }
    }
    Ok(true)
}
