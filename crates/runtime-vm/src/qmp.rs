//! Talks to QEMU's monitor: a line of JSON there, a line back. Events in between are passed over.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A line of an answer is no longer.
const LINE: u64 = 1 << 20;
/// Between two looks at a migration, which takes a few milliseconds.
const AGAIN: Duration = Duration::from_micros(300);

#[derive(Debug)]
pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
}

fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Qmp {
    pub(crate) fn new(stream: UnixStream, patience: Duration) -> io::Result<Self> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut monitor = Self { reader: BufReader::new(stream) };
        let greeting = monitor.line()?;
        if greeting.get("QMP").is_none() {
            return Err(broken("no greeting from QEMU's monitor"));
        }
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    fn line(&mut self) -> io::Result<Value> {
        let mut text = Vec::new();
        let read = io::Read::take(&mut self.reader, LINE).read_until(b'\n', &mut text)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))
    }

    pub(crate) fn ask(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        self.send(command, arguments, None)
    }

    /// Gives a descriptor under a name, by which commands find it.
    pub(crate) fn give(&mut self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.send("getfd", json!({ "fdname": name }), Some(descriptor)).map(drop)
    }

    /// Asks several things at once, to be answered in turn: each by itself would wait for QEMU to wake up.
    pub(crate) fn ask_all<const N: usize>(&mut self, commands: [&str; N]) -> io::Result<[Value; N]> {
        let mut text = Vec::new();
        for command in commands {
            serde_json::to_writer(&mut text, &json!({ "execute": command }))?;
            text.push(b'\n');
        }
        self.reader.get_mut().write_all(&text)?;
        let mut answers = [const { Value::Null }; N];
        for (answer, command) in answers.iter_mut().zip(commands) {
            *answer = self.answer(command)?;
        }
        Ok(answers)
    }

    fn send(&mut self, command: &str, arguments: Value, with: Option<BorrowedFd<'_>>) -> io::Result<Value> {
        let mut text = serde_json::to_vec(&json!({ "execute": command, "arguments": arguments }))?;
        text.push(b'\n');
        let stream = self.reader.get_mut();
        match with {
            None => stream.write_all(&text)?,
            Some(descriptor) => {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                let given = [descriptor];
                control.push(SendAncillaryMessage::ScmRights(&given));
                let sent =
                    sendmsg(stream.as_fd(), &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
                stream.write_all(text.get(sent..).unwrap_or_default())?;
            }
        }
        self.answer(command)
    }

    fn answer(&mut self, command: &str) -> io::Result<Value> {
        loop {
            let answer = self.line()?;
            if let Some(error) = answer.get("error") {
                let said = error.get("desc").and_then(Value::as_str).unwrap_or("it fails");
                return Err(io::Error::other(format!("`{command}`: {said}")));
            }
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
        }
    }

    /// Waits until a migration has come to its end.
    pub(crate) fn migrated(&mut self, until: Instant) -> io::Result<()> {
        loop {
            let now = self.ask("query-migrate", json!({}))?;
            match now.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let said = now.get("error-desc").and_then(Value::as_str).unwrap_or("it does not say why");
                    return Err(io::Error::other(format!("the machine's state was not moved: {said}")));
                }
                _ if Instant::now() > until => return Err(io::ErrorKind::TimedOut.into()),
                _ => sleep(AGAIN),
            }
        }
    }
}
