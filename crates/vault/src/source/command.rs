//! A program that prints a value: run without a shell, for a limited time, with limited output. Its stderr is the
//! caller's, so that a password manager can say what it needs.

use crate::value::LONGEST;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Long enough for a person to touch a security key.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("cannot run `{program}`: {source}")]
    Start { program: String, source: io::Error },
    #[error("`{program}` ended with {status} and no value: run it by hand to see why")]
    Failed { program: String, status: ExitStatus },
    #[error("`{program}` gave no value within {} seconds and was ended", PATIENCE.as_secs())]
    Late { program: String },
    #[error("`{program}` wrote more than a value can be, and was ended")]
    TooMuch { program: String },
    #[error("cannot read what `{program}` wrote: {source}")]
    Read { program: String, source: io::Error },
}

pub(super) fn output(words: &[String]) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    within(words, PATIENCE)
}

fn within(words: &[String], patience: Duration) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    let program = words.first().cloned().unwrap_or_default();
    let started = Command::new(&program)
        .args(words.iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| CommandError::Start { program: program.clone(), source })?;
    let mut running = Running(started);
    let deadline = Instant::now() + patience;
    let bytes = running.read(&program, deadline)?;
    let status = running.ended(&program, deadline)?;
    if status.success() { Ok(bytes) } else { Err(CommandError::Failed { program, status }) }
}

/// Ended when we lose interest in it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = (self.0.kill(), self.0.wait());
    }
}

impl Running {
    /// To the end of its output. Waiting is bounded also where something it left behind holds the pipe open.
    fn read(&mut self, program: &str, deadline: Instant) -> Result<Zeroizing<Vec<u8>>, CommandError> {
        let failed = |source| CommandError::Read { program: program.to_owned(), source };
        let mut bytes = Zeroizing::new(vec![0; LONGEST + 3]);
        let mut length = 0;
        let Some(mut pipe) = self.0.stdout.take() else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut wanted = [PollFd::new(&pipe, PollFlags::IN)];
            match poll(&mut wanted, Some(&left)) {
                Ok(0) => return Err(CommandError::Late { program: program.to_owned() }),
                Err(rustix::io::Errno::INTR) => continue,
                other => other.map_err(|errno| failed(errno.into()))?,
            };
            match pipe.read(&mut bytes[length..]).map_err(failed)? {
                0 => break,
                read => length += read,
            }
            if length > LONGEST + 2 {
                return Err(CommandError::TooMuch { program: program.to_owned() });
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn ended(&mut self, program: &str, deadline: Instant) -> Result<ExitStatus, CommandError> {
        loop {
            let status = self.0.try_wait();
            if let Some(status) =
                status.map_err(|source| CommandError::Read { program: program.to_owned(), source })?
            {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(CommandError::Late { program: program.to_owned() });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str], patience: Duration) -> Result<Vec<u8>, CommandError> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        within(&words, patience).map(|bytes| bytes.to_vec())
    }

    const AMPLE: Duration = Duration::from_secs(100);

    #[test]
    fn what_a_program_writes() {
        assert_eq!(run(&["echo", "a", "b"], AMPLE).unwrap(), b"a b\n");
        assert_eq!(run(&["sh", "-c", "cat; echo in two; echo parts"], AMPLE).unwrap(), b"in two\nparts\n");
    }

    #[test]
    fn a_program_that_fails_gives_no_value() {
        let error = run(&["sh", "-c", "echo half a value; exit 3"], AMPLE).unwrap_err();
        assert!(matches!(&error, CommandError::Failed { status, .. } if status.code() == Some(3)), "{error}");
        let error = run(&["no-such-program-here"], AMPLE).unwrap_err();
        assert!(matches!(error, CommandError::Start { .. }), "{error}");
    }

    #[test]
    fn time_and_output_are_bounded() {
        let short = Duration::from_millis(50);
        for script in
            ["exec sleep 600", "sleep 2 2>/dev/null & echo held open by another", "exec >&-; exec sleep 600"]
        {
            let error = run(&["sh", "-c", script], short).unwrap_err();
            assert!(matches!(error, CommandError::Late { .. }), "{script}: {error}");
        }
        let error = run(&["cat", "/dev/zero"], AMPLE).unwrap_err();
        assert!(matches!(error, CommandError::TooMuch { .. }), "{error}");
    }
}
