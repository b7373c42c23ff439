//! How much later a part of a stream is there because it passes us: the server says in each part when it left, the
//! client when it came, directly and out of a sandbox, in turns.

use super::stats::{self, Estimate, Summary};
use fastrand::Rng;
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Asks for a stream and prints, for each part, how many nanoseconds it took.
pub(super) const CLIENT: &str = r#"
import sys, time, urllib.request
asked = urllib.request.Request(sys.argv[1], b'{"model": "m", "messages": [], "stream": true}', {"content-type": "application/json"})
took = []
with urllib.request.urlopen(asked) as answer:
    while line := answer.readline():
        now = time.time_ns()
        if line.startswith(b"data: "):
            took.append(now - int(line[6:]))
print(*took)
"#;

/// Parts of one stream, and the time between them: about as fast as models speak.
pub(super) const PARTS: usize = 200;
const PAUSE: Duration = Duration::from_millis(2);
/// What a part may be later, in milliseconds.
const GOAL: f64 = 0.2;

/// A stream of parts, each with the time it left.
pub(super) fn serve(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    for _ in 0..PARTS {
        thread::sleep(PAUSE);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let part = format!("data: {now}\n\n");
        stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes())?;
    }
    stream.write_all(b"0\r\n\r\n")
}

/// What a client printed, in milliseconds.
pub(super) fn read(printed: &str) -> Option<Vec<f64>> {
    let took: Option<Vec<f64>> = printed.split_whitespace().map(|one| one.parse::<f64>().ok()).collect();
    took.filter(|took| took.len() == PARTS).map(|took| took.iter().map(|ns| ns / 1e6).collect())
}

#[derive(Debug, Serialize)]
pub(super) struct Chunks {
    direct: Summary,
    through: Summary,
    added: Option<Estimate>,
}

impl Chunks {
    pub(super) fn of(direct: &[f64], through: &[f64], rng: &mut Rng) -> Option<Self> {
        let added = stats::difference(through, direct, rng);
        Some(Self { direct: stats::summary(direct)?, through: stats::summary(through)?, added })
    }
}

impl fmt::Display for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nA part of a stream, from the server to the client, milliseconds")?;
        writeln!(f, "{:<18} {:>7} {:>7} {:>6}", "", "median", "p95", "spread")?;
        for (name, Summary { median, p95, mad, .. }) in
            [("directly", self.direct), ("cofferdam run", self.through)]
        {
            writeln!(f, "{name:<18} {median:>7.3} {p95:>7.3} {mad:>6.3}")?;
        }
        if let Some(Estimate { value, low, high }) = self.added {
            let goal = if high < GOAL {
                "holds"
            } else if low > GOAL {
                "does not hold"
            } else {
                "cannot tell"
            };
            writeln!(f, "added by us: {value:.3} ms ({low:.3} to {high:.3}); under {GOAL} ms: {goal}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_whole_stream_is_not_measured() {
        let whole = vec!["1000000"; PARTS].join(" ");
        assert_eq!(read(&whole).unwrap()[0], 1.0);
        assert_eq!(read("1000000 2000000"), None);
        assert_eq!(read(&whole.replacen("1000000", "x", 1)), None);
    }
}
