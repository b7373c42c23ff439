//! What a clone over SSH costs through the proxy: git clones one repository, directly and from inside a sandbox, from the
//! same OpenSSH server on this machine. Rounds alternate; a round's number is the clone alone, by the clock around it.

use super::rounds;
use super::stats::{self, Summary};
use crate::command::{self, CommandError};
use fastrand::Rng;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Ssh {
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// The size of the repository, in MB
    #[arg(long, default_value_t = 100)]
    size: usize,
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
enum SshError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("a clone told no time: {0}")]
    NoTime(String),
    #[error("sshd does not listen: {0}")]
    NoServer(String),
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    #[serde(flatten)]
    summary: Summary,
}

/// Keys, a server's configuration, and a repository of content that no compression helps with, packed once.
const BEGIN: &str = r#"
set -e
cd "$1"
for key in host agent; do ssh-keygen -q -t ed25519 -N '' -f $key; done
cp agent.pub authorized_keys
printf '[127.0.0.1]:%s %s\n' "$2" "$(cut -d' ' -f1,2 host.pub)" > known_hosts
cat > config <<END
Port $2
ListenAddress 127.0.0.1
HostKey $1/host
PidFile none
AuthorizedKeysFile $1/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
AcceptEnv GIT_PROTOCOL
END
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example
git init -q repo
cd repo
git config core.compression 0
n=0
while [ $n -lt "$3" ]; do head -c 1000000 /dev/urandom > file$n; n=$((n + 1)); done
git add .
git commit -q -m content
git repack -q -a -d
"#;

/// The time that a clone took, in nanoseconds.
const CLONE: &str = r#"
rm -rf copy
before=$(date +%s%N)
git clone -q --bare "$1" copy || exit 1
after=$(date +%s%N)
rm -rf copy
echo $((after - before))
"#;

const RULES: &str = r#"
[[rule]]
id = "fetch"
reason = "what is measured"
effect = "allow"
ssh = "fetch"
host = "git.internal"
"#;

/// A server, and a place to clone from.
struct Place {
    cofferdam: PathBuf,
    dir: PathBuf,
    port: String,
    user: String,
    server: Child,
}

impl Place {
    fn begin(cofferdam: PathBuf, dir: &Path, size: usize) -> Result<Self, Box<dyn std::error::Error>> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        for name in ["server", "work"] {
            std::fs::create_dir(dir.join(name))?;
        }
        let at = dir.join("server");
        command::stdout(
            Command::new("sh").args(["-c", BEGIN, "begin"]).arg(&at).args([&port, &size.to_string()]),
        )?;
        if command::is_root() {
            // Where root's server keeps apart what it does not trust; its package makes it when it is started.
            std::fs::create_dir_all("/run/sshd")?;
        }
        let log = std::fs::File::create(at.join("log"))?;
        let mut sshd = Command::new("/usr/sbin/sshd");
        let server =
            sshd.args(["-D", "-e", "-f"]).arg(at.join("config")).stderr(log).stdin(Stdio::null()).spawn()?;
        let user = command::stdout(Command::new("id").arg("-un"))?.trim().to_owned();
        let place = Self { cofferdam, dir: dir.to_owned(), port, user, server };
        place.listens()?;
        let key = std::fs::read_to_string(at.join("host.pub"))?;
        let key = key.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let policy = format!(
            "[[upstream]]\nhost = \"git.internal\"\nconnect = \"127.0.0.1:{}\"\n\n[[known_host]]\nhost = \"git.internal\"\nkey = \"{key}\"\n{RULES}",
            place.port
        );
        std::fs::write(dir.join("policy.toml"), policy)?;
        let from = format!("file:{}", at.join("agent").display());
        let add = ["secret", "add", "gh", "--from", &from, "--for", "git.internal:22", "--as", "ssh"];
        command::stdout(place.ours().args(add))?;
        Ok(place)
    }

    fn listens(&self) -> Result<(), SshError> {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if std::net::TcpStream::connect(format!("127.0.0.1:{}", self.port)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(SshError::NoServer(std::fs::read_to_string(self.dir.join("server/log")).unwrap_or_default()))
    }

    fn ours(&self) -> Command {
        let mut ours = Command::new(&self.cofferdam);
        ours.env("COFFERDAM_HOME", self.dir.join("state")).current_dir(self.dir.join("work"));
        ours
    }

    fn round(&self, inside: bool) -> Result<Duration, SshError> {
        let server = self.dir.join("server");
        let (host, mut clone) = match inside {
            true => {
                let mut ours = self.ours();
                ours.args(["run", "--changes", "discard", "--policy"]).arg(self.dir.join("policy.toml"));
                ours.args(["--secret", "gh", "--", "sh"]);
                ("git.internal".to_owned(), ours)
            }
            false => {
                let mut sh = Command::new("sh");
                let ssh = format!(
                    "ssh -F none -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile={0}/known_hosts -i {0}/agent",
                    server.display()
                );
                sh.env("GIT_SSH_COMMAND", ssh).current_dir(self.dir.join("work"));
                (format!("127.0.0.1:{}", self.port), sh)
            }
        };
        let url = format!("ssh://{}@{host}{}", self.user, server.join("repo/.git").display());
        let told = command::stdout(clone.args(["-c", CLONE, "clone", &url]))?;
        told.trim().parse().map(Duration::from_nanos).map_err(|_| SshError::NoTime(told))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub(crate) fn main(args: &Ssh) -> crate::Outcome {
    let cofferdam = match &args.program {
        Some(program) => program.canonicalize()?,
        None => crate::dist::build(&crate::workspace::root())?,
    };
    let dir = tempfile::Builder::new().prefix("bench-ssh.").tempdir()?;
    let place = Place::begin(cofferdam, dir.path(), args.size)?;
    let plan = rounds::Plan { rounds: args.rounds, warmup: 1, slow: Duration::MAX };
    let mut rng = Rng::with_seed(args.seed);
    eprintln!("bench: a clone of {} MB over SSH, {} rounds", args.size, args.rounds);
    let samples = rounds::interleave(&plan, 2, &mut rng, |who| place.round(who == 1))?;
    let name = |who: usize| ["direct", "through us"][who];
    let row = |(who, own): (usize, &Vec<f64>)| Some(Row { name: name(who), summary: stats::summary(own)? });
    let rows: Vec<Row> = samples.iter().enumerate().filter_map(row).collect();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(true);
    }
    println!("{} rounds of a clone of {} MB, milliseconds: median, p95, mad", args.rounds, args.size);
    for Row { name, summary: Summary { median, p95, mad, .. } } in &rows {
        println!("{name:<12} {median:>9.1} {p95:>9.1} {mad:>7.1}");
    }
    if let [direct, ours] = &samples[..]
        && let Some(ratio) = stats::ratio(ours, direct, &mut rng)
    {
        println!("ratio        {:>9.3} ({:.3} to {:.3}; goal: 1.3)", ratio.value, ratio.low, ratio.high);
    }
    Ok(true)
}
