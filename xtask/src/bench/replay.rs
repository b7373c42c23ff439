//! What a replayed session costs beyond the agent's own work, and how long many of them take: an agent of five calls
//! against a server on this machine, recorded once, then run bare, recorded again, and replayed, in turns. And what a
//! part of a stream costs that passes us.

use super::chunks::{self, Chunks};
use super::contenders::Ground;
use super::rounds;
use super::stats::{self, Estimate, Summary};
use fastrand::Rng;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Asks five times, each time telling all that it was told so far, as agents do.
const AGENT: &str = r#"
import json, sys, urllib.request
messages = [{"role": "system", "content": "You are a clerk. " * 100}]
for turn in range(5):
    messages.append({"role": "user", "content": f"turn {turn}"})
    data = json.dumps({"model": "m", "messages": messages}).encode()
    asked = urllib.request.Request(sys.argv[1], data, {"content-type": "application/json"})
    messages.append(json.load(urllib.request.urlopen(asked)))
print(len(messages))
"#;
const HOST: &str = "model.example";
/// Where the server streams.
const STREAM: &str = "/streamed";
/// A version manager in front of Python would be measured with it.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Sessions of the second part, and the time they should take in all.
const GOAL: Duration = Duration::from_secs(60);
/// Percent of a replayed session that its record may take.
const RECORDING: f64 = 2.0;

#[derive(clap::Args)]
pub(crate) struct Replay {
    #[arg(long, default_value_t = 40)]
    rounds: usize,
    /// Sessions that are replayed as fast as the cores allow
    #[arg(long, default_value_t = 500)]
    sessions: usize,
    /// Streams of each kind whose parts are timed
    #[arg(long, default_value_t = 10)]
    streams: usize,
    /// For the order of the rounds and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure this program in place of a released build
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("`{line}` failed: {reason}")]
    Failed { line: String, reason: String },
    #[error("nothing was measured: ask for at least one round")]
    Nothing,
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Debug, Serialize)]
struct Report {
    rounds: usize,
    rows: Vec<(&'static str, Summary)>,
    /// What a replay takes beyond the bare agent, in milliseconds.
    share: Option<Estimate>,
    sessions: usize,
    at_once: usize,
    seconds: f64,
    chunks: Option<Chunks>,
    /// Writing a replay's trace again, all by itself, in milliseconds.
    record: f64,
}

pub(crate) fn main(args: &Replay) -> crate::Outcome {
    let root = crate::workspace::root();
    let cofferdam = match &args.program {
        Some(program) => program.canonicalize()?,
        None => crate::dist::build(&root)?,
    };
    let home = cofferdam.parent().unwrap_or(&root).to_owned();
    let dir = tempfile::Builder::new().prefix("bench.").tempdir_in(home)?;
    let stage = Stage::new(Ground { cofferdam, dir: dir.path().to_owned() })?;
    let report = measure(args, &stage)?;
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{report}"),
    }
    Ok(true)
}

fn measure(args: &Replay, stage: &Stage) -> Result<Report, ReplayError> {
    let mut rng = Rng::with_seed(args.seed);
    eprintln!("bench: a session of five calls, {} rounds", args.rounds);
    let lines =
        [("agent alone", stage.bare()), ("cofferdam run", stage.run()), ("cofferdam replay", stage.replay())];
    let plan = rounds::Plan { rounds: args.rounds, warmup: 2, slow: Duration::MAX };
    let run = |who: usize| lines.get(who).map_or(Ok(Duration::ZERO), |(_, line)| stage.time(line));
    let samples = rounds::interleave(&plan, lines.len(), &mut rng, run)?;
    let [bare, _, replayed] = samples.as_slice() else { return Err(ReplayError::Nothing) };
    let share = stats::difference(replayed, bare, &mut rng);
    let record = stage.record()?;
    let summaries = samples.iter().map(|samples| stats::summary(samples).ok_or(ReplayError::Nothing));
    let rows = lines.iter().zip(summaries).map(|((name, _), summary)| Ok((*name, summary?)));
    let rows = rows.collect::<Result<_, ReplayError>>()?;
    eprintln!("bench: {} streams of {} parts, each way", args.streams, chunks::PARTS);
    let chunks = stage.chunks(args.streams, &mut rng)?;
    let at_once = thread::available_parallelism().map_or(1, Into::into);
    eprintln!("bench: {} replays, {at_once} at once", args.sessions);
    let seconds = stage.many(args.sessions, at_once)?.as_secs_f64();
    Ok(Report { rounds: args.rounds, rows, share, sessions: args.sessions, at_once, seconds, chunks, record })
}

/// A server, an agent, and one recorded session of the two.
struct Stage {
    ground: Ground,
    port: u16,
    recorded: String,
}

impl Stage {
    fn new(ground: Ground) -> Result<Self, ReplayError> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        thread::spawn(move || {
            listener.incoming().flatten().for_each(|stream| drop(thread::spawn(|| serve(stream))))
        });
        std::fs::create_dir_all(ground.work())?;
        std::fs::write(ground.work().join("agent.py"), AGENT)?;
        std::fs::write(ground.work().join("stream.py"), chunks::CLIENT)?;
        let policy = format!(
            "[[upstream]]\nhost = \"{HOST}\"\nconnect = \"127.0.0.1:{port}\"\n\n[[rule]]\nid = \"model\"\nreason = \"asks\"\neffect = \"allow\"\nhost = \"{HOST}\"\n"
        );
        std::fs::write(ground.dir.join("policy.toml"), policy)?;
        let mut stage = Self { ground, port, recorded: String::new() };
        stage.time(&stage.run())?;
        stage.recorded = stage.newest()?;
        Ok(stage)
    }

    fn newest(&self) -> Result<String, ReplayError> {
        let traces = std::fs::read_dir(self.ground.dir.join("state/traces"))?;
        let newest = traces.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).max();
        newest.ok_or(ReplayError::Nothing)
    }

    /// What writing a replay's trace takes: events, payloads, hashes and signatures, as the writer's own bench has it.
    fn record(&self) -> Result<f64, ReplayError> {
        self.time(&self.replay())?;
        let trace = self.ground.dir.join("state/traces").join(self.newest()?);
        let mut cargo = crate::command::cargo();
        cargo.current_dir(crate::workspace::root()).args([
            "bench",
            "--quiet",
            "--package",
            "cofferdam-trace",
        ]);
        cargo.args(["--bench", "append", "--", "--again"]).arg(trace);
        let failed = |reason: String| ReplayError::Failed { line: "the writer's bench".into(), reason };
        let said = crate::command::stdout(&mut cargo).map_err(|error| failed(error.to_string()))?;
        let micros = said.split_once("events: ").and_then(|(_, rest)| rest.split_once(" us"));
        let micros = micros.and_then(|(micros, _)| micros.parse::<f64>().ok());
        micros.map(|micros| micros / 1e3).ok_or_else(|| failed(said))
    }

    fn bare(&self) -> Vec<String> {
        self.directly("agent.py", "/v1/chat/completions")
    }

    fn directly(&self, program: &str, path: &str) -> Vec<String> {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        ["python3".to_owned(), program.to_owned(), url].to_vec()
    }

    fn run(&self) -> Vec<String> {
        self.inside("agent.py", "/v1/chat/completions")
    }

    fn inside(&self, program: &str, path: &str) -> Vec<String> {
        let policy = self.ground.dir.join("policy.toml").display().to_string();
        let url = format!("http://{HOST}{path}");
        self.ours(&["run", "--policy", &policy, "--", "python3", program, &url])
    }

    /// How long parts of streams take, directly and through us, one stream after the other.
    fn chunks(&self, streams: usize, rng: &mut Rng) -> Result<Option<Chunks>, ReplayError> {
        let path = format!("{STREAM}/chat/completions");
        let lines = [self.directly("stream.py", &path), self.inside("stream.py", &path)];
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..streams {
            for (line, samples) in lines.iter().zip(&mut samples) {
                let (_, printed) = self.output(line)?;
                let took = chunks::read(&printed);
                let failed = || ReplayError::Failed { line: line.join(" "), reason: printed.clone() };
                samples.extend(took.ok_or_else(failed)?);
            }
        }
        let [direct, through] = &samples;
        Ok(Chunks::of(direct, through, rng))
    }

    fn replay(&self) -> Vec<String> {
        self.ours(&["--quiet", "replay", &self.recorded])
    }

    fn ours(&self, words: &[&str]) -> Vec<String> {
        let program = self.ground.cofferdam.display().to_string();
        let home = self.ground.dir.join("state").display().to_string();
        let start = [program, "--home".to_owned(), home];
        start.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect()
    }

    /// From before it starts until it has been waited for. It must have got all its answers.
    fn time(&self, line: &[String]) -> Result<Duration, ReplayError> {
        let (took, printed) = self.output(line)?;
        match printed.as_str() {
            "11\n" => Ok(took),
            _ => Err(ReplayError::Failed { line: line.join(" "), reason: printed }),
        }
    }

    fn output(&self, line: &[String]) -> Result<(Duration, String), ReplayError> {
        let (program, rest) = line.split_first().ok_or(ReplayError::Nothing)?;
        let mut command = Command::new(program);
        command.args(rest).current_dir(self.ground.work()).stdin(Stdio::null()).env("PATH", SEARCH_PATH);
        let started = Instant::now();
        let output = command.output()?;
        let took = started.elapsed();
        if output.status.success() {
            return Ok((took, String::from_utf8_lossy(&output.stdout).into_owned()));
        }
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(ReplayError::Failed { line: line.join(" "), reason })
    }

    /// So many replays on so many threads.
    fn many(&self, count: usize, at_once: usize) -> Result<Duration, ReplayError> {
        let (next, line) = (AtomicUsize::new(0), self.replay());
        let work = || -> Result<(), ReplayError> {
            while next.fetch_add(1, Ordering::Relaxed) < count {
                self.time(&line)?;
            }
            Ok(())
        };
        let started = Instant::now();
        thread::scope(|scope| {
            let all: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
            all.into_iter().try_for_each(|one| one.join().unwrap_or(Err(ReplayError::Nothing)))
        })?;
        Ok(started.elapsed())
    }
}

/// Answers every request on a connection the same way, as a model's API would.
fn serve(stream: TcpStream) -> io::Result<()> {
    let answer = r#"{"role": "assistant", "content": "noted"}"#;
    let (mut reader, mut stream) = (BufReader::new(stream.try_clone()?), stream);
    loop {
        let (mut length, mut line, mut streams) = (0u64, String::new(), false);
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            let told = line.to_ascii_lowercase();
            streams |= told.starts_with("post ") && told.contains(STREAM);
            if let Some(value) = told.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
        if streams {
            chunks::serve(&mut stream)?;
            continue;
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
        stream.write_all(format!("{head}{}\r\n\r\n{answer}", answer.len()).as_bytes())?;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A session of five calls, {} rounds, milliseconds", self.rounds)?;
        writeln!(f, "{:<18} {:>7} {:>7} {:>6}", "", "median", "p95", "spread")?;
        for (name, Summary { median, p95, mad, .. }) in &self.rows {
            writeln!(f, "{name:<18} {median:>7.1} {p95:>7.1} {mad:>6.1}")?;
        }
        if let Some(Estimate { value, low, high }) = self.share {
            writeln!(f, "a replay beyond the agent alone: {value:.1} ms ({low:.1} to {high:.1})")?;
        }
        if let Some((_, Summary { median, .. })) = self.rows.last() {
            let share = 100.0 * self.record / median;
            let goal = if share < RECORDING { "holds" } else { "does not hold" };
            let record = self.record;
            writeln!(
                f,
                "of it the record: {record:.2} ms, {share:.1} % of a replay; under {RECORDING} %: {goal}"
            )?;
        }
        if let Some(chunks) = &self.chunks {
            writeln!(f, "{chunks}")?;
        }
        let each = self.seconds * 1e3 / self.sessions.max(1) as f64;
        let goal = if self.seconds <= GOAL.as_secs_f64() { "holds" } else { "does not hold" };
        let (count, at_once, seconds) = (self.sessions, self.at_once, self.seconds);
        writeln!(f, "{count} replays, {at_once} at once: {seconds:.1} s, {each:.1} ms each")?;
        writeln!(f, "500 in {} s: {}", GOAL.as_secs(), if self.sessions == 500 { goal } else { "not tried" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_answers_more_than_once_on_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let server = thread::spawn(|| serve(stream));
        for _ in 0..2 {
            client.write_all(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").unwrap();
        }
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("noted").count(), 2, "{text}");
        server.join().unwrap().unwrap();
    }
}
