//! A command that prints 100 MB, bare and in a sandbox, both into a pipe that someone reads: what hashing and
//! relaying every byte costs.

use super::contenders::Ground;
use std::io::{self, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

pub(crate) const BYTES: u64 = 100_000_000;
const PRINT: &str = "head -c 100000000 /dev/zero | tr '\\0' x";

#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error("could not run `{line}`: {source}")]
    Run { line: String, source: io::Error },
    #[error("`{line}` printed {seen} bytes instead of {BYTES}: look at its output limit")]
    Bytes { line: String, seen: u64 },
}

pub(crate) fn bare() -> Vec<String> {
    ["sh", "-c", PRINT].map(str::to_owned).to_vec()
}

pub(crate) fn ours(ground: &Ground) -> Vec<String> {
    ground.cofferdam(&["--", "sh", "-c", PRINT])
}

/// From the start to the end of its output and of itself.
pub(crate) fn time(ground: &Ground, argv: &[String]) -> Result<Duration, OutputError> {
    let failed = |source| OutputError::Run { line: argv.join(" "), source };
    let started = Instant::now();
    let mut child =
        ground.command(argv).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let seen = child.stdout.take().map_or(Ok(0), drain).map_err(failed)?;
    child.wait().map_err(failed)?;
    let took = started.elapsed();
    if seen == BYTES { Ok(took) } else { Err(OutputError::Bytes { line: argv.join(" "), seen }) }
}

fn drain(mut from: impl Read) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 18];
    let mut seen = 0;
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(seen),
            read => seen += read as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_command_prints_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let ground = Ground { cofferdam: "cofferdam".into(), dir: dir.path().to_owned() };
        assert!(time(&ground, &bare()).is_ok());
        let short = ["echo", "short"].map(str::to_owned);
        assert!(matches!(time(&ground, &short), Err(OutputError::Bytes { seen: 6, .. })));
    }
}
