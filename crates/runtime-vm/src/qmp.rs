//! Talks to QEMU's monitor: a line of JSON there, a line back. Events in between are passed over.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A line of an answer is no longer.
const LINE: u64 = 1 << 20;
/// Between two looks at a migration, which takes a few milliseconds.
const AGAIN: Duration = Duration::from_micros(300);

/// What QEMU is asked, and with what. It reads a byte at a time, and takes a turn for each: what is not needed is not said.
pub(crate) type Question<'a> = (&'a str, Value);

#[derive(Debug)]
pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
    /// As it says in its first words.
    pub(crate) version: String,
    /// What it has said last of whether the machine runs.
    runs: bool,
}

fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn text(questions: &[Question<'_>]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for (command, arguments) in questions {
        let question = match arguments.is_null() {
            true => json!({ "execute": command }),
            false => json!({ "execute": command, "arguments": arguments }),
        };
        serde_json::to_writer(&mut text, &question)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// `7.2.22`.
fn version(greeting: &Value) -> Option<String> {
    let qemu = greeting.get("QMP")?.get("version")?.get("qemu")?;
    let number = |name: &str| qemu.get(name).and_then(Value::as_u64).unwrap_or(0);
    Some(format!("{}.{}.{}", number("major"), number("minor"), number("micro")))
}

impl Qmp {
    /// Waits for its first words, and asks the first things all at once, to be answered in turn: each by itself would wait
    /// for QEMU to wake up.
    pub(crate) fn new<const N: usize>(
        stream: UnixStream,
        patience: Duration,
        first: [Question<'_>; N],
    ) -> io::Result<(Self, [Value; N])> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut monitor = Self { reader: BufReader::new(stream), version: String::new(), runs: false };
        let greeting = monitor.line()?;
        monitor.version = version(&greeting).ok_or_else(|| broken("no greeting from QEMU's monitor"))?;
        let all = [[("qmp_capabilities", Value::Null)].as_slice(), first.as_slice()].concat();
        monitor.reader.get_mut().write_all(&text(&all)?)?;
        monitor.answer("qmp_capabilities")?;
        let answers = monitor.answers(&first)?;
        Ok((monitor, answers))
    }

    fn line(&mut self) -> io::Result<Value> {
        let mut text = Vec::new();
        let read = io::Read::take(&mut self.reader, LINE).read_until(b'\n', &mut text)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line: Value = serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        match line.get("event").and_then(Value::as_str) {
            Some("RESUME") => self.runs = true,
            Some("STOP" | "SHUTDOWN") => self.runs = false,
            _ => {}
        }
        Ok(line)
    }

    /// Whether the machine runs: it says so of itself when that changes, and is asked where it has not said it.
    pub(crate) fn runs(&mut self) -> io::Result<bool> {
        if self.runs {
            return Ok(true);
        }
        let status = self.ask("query-status", Value::Null)?;
        Ok(status.get("status").and_then(Value::as_str) == Some("running"))
    }

    pub(crate) fn ask(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        self.write(&text(&[(command, arguments)])?, None)?;
        self.answer(command)
    }

    /// Hands over a descriptor under a name, with what is to be done with it.
    pub(crate) fn give_and_ask<const N: usize>(
        &mut self,
        name: &str,
        descriptor: BorrowedFd<'_>,
        then: [Question<'_>; N],
    ) -> io::Result<[Value; N]> {
        let given = ("getfd", json!({ "fdname": name }));
        let all = [[given].as_slice(), then.as_slice()].concat();
        self.write(&text(&all)?, Some(descriptor))?;
        self.answer("getfd")?;
        self.answers(&then)
    }

    /// Hands over a descriptor to write to, under a number.
    pub(crate) fn add(&mut self, file: BorrowedFd<'_>) -> io::Result<u64> {
        // It takes one that can be written to and not be read.
        let file = OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        self.write(&text(&[("add-fd", Value::Null)])?, Some(file.as_fd()))?;
        let added = self.answer("add-fd")?;
        let number = added.get("fdset-id").and_then(Value::as_u64);
        number.ok_or_else(|| broken("it gives a descriptor no number"))
    }

    /// Has it write down the devices of a machine that stands still, and nothing of its memory. The command is named after those
    /// who wanted that first.
    pub(crate) fn put_down(&mut self, number: u64) -> io::Result<()> {
        let to = json!({ "filename": format!("/dev/fdset/{number}"), "live": false });
        self.ask("xen-save-devices-state", to).map(drop)
    }

    /// Has it close what it was handed under this number: it does so only while the machine runs.
    pub(crate) fn remove(&mut self, number: u64) -> io::Result<()> {
        self.ask("remove-fd", json!({ "fdset-id": number })).map(drop)
    }

    fn write(&mut self, text: &[u8], with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let stream = self.reader.get_mut();
        let Some(descriptor) = with else { return stream.write_all(text) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let given = [descriptor];
        control.push(SendAncillaryMessage::ScmRights(&given));
        let sent = sendmsg(stream.as_fd(), &[IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL)?;
        stream.write_all(text.get(sent..).unwrap_or_default())
    }

    fn answers<const N: usize>(&mut self, questions: &[Question<'_>; N]) -> io::Result<[Value; N]> {
        let mut answers = [const { Value::Null }; N];
        for (answer, (command, _)) in answers.iter_mut().zip(questions) {
            *answer = self.answer(command)?;
        }
        Ok(answers)
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

    /// Waits until a migration that was asked about has come to its end.
    pub(crate) fn migrated_from(&mut self, mut now: Value, until: Instant) -> io::Result<()> {
        loop {
            match now.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let said = now.get("error-desc").and_then(Value::as_str).unwrap_or("it does not say why");
                    return Err(io::Error::other(format!("the machine's state was not moved: {said}")));
                }
                _ if Instant::now() > until => return Err(io::ErrorKind::TimedOut.into()),
                _ => sleep(AGAIN),
            }
            now = self.ask("query-migrate", Value::Null)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    use std::io::IoSliceMut;
    use std::thread;

    /// A monitor that says these lines, whatever it is told, after its greeting.
    fn monitor(says: &'static str) -> (UnixStream, thread::JoinHandle<(String, usize)>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let heard = thread::spawn(move || {
            let greeting = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}}}}"#;
            theirs.write_all(format!("{greeting}\n{says}").as_bytes()).unwrap();
            let (mut heard, mut given) = (Vec::new(), 0);
            loop {
                let mut bytes = [0; 4096];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let mut parts = [IoSliceMut::new(&mut bytes)];
                let got = recvmsg(&theirs, &mut parts, &mut control, RecvFlags::empty()).unwrap().bytes;
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = message {
                        given += rights.count();
                    }
                }
                if got == 0 {
                    return (String::from_utf8(heard).unwrap(), given);
                }
                heard.extend_from_slice(&bytes[..got]);
            }
        });
        (ours, heard)
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn what_is_asked_at_once_is_answered_in_turn() {
        let says = concat!(
            "{\"return\": {}}\n{\"return\": {\"enabled\": false}}\n{\"return\": {}}\n",
            "{\"event\": \"MIGRATION\"}\n{\"return\": {\"status\": \"completed\"}}\n",
            "{\"event\": \"RESUME\"}\n{\"return\": {}}\n{\"event\": \"STOP\"}\n{\"return\": {}}\n",
            "{\"return\": {\"status\": \"paused\"}}\n",
        );
        let (stream, heard) = monitor(says);
        let (mut qmp, [kvm]) = Qmp::new(stream, PATIENCE, [("query-kvm", Value::Null)]).unwrap();
        assert_eq!(qmp.version, "7.2.22");
        assert_eq!(kvm, json!({ "enabled": false }));
        let then = [("query-migrate", Value::Null)];
        let [now] = qmp.give_and_ask("state", std::io::stdin().as_fd(), then).unwrap();
        qmp.migrated_from(now, Instant::now()).unwrap();
        qmp.ask("cont", Value::Null).unwrap();
        assert!(qmp.runs().unwrap(), "it has said so");
        qmp.ask("stop", Value::Null).unwrap();
        assert!(!qmp.runs().unwrap(), "it was asked");
        drop(qmp);
        let (heard, given) = heard.join().unwrap();
        let expected = concat!(
            "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"query-kvm\"}\n",
            "{\"arguments\":{\"fdname\":\"state\"},\"execute\":\"getfd\"}\n{\"execute\":\"query-migrate\"}\n",
            "{\"execute\":\"cont\"}\n{\"execute\":\"stop\"}\n{\"execute\":\"query-status\"}\n",
        );
        assert_eq!((heard.as_str(), given), (expected, 1));
    }

    #[test]
    fn a_machine_is_put_down_into_what_can_be_written_to_alone() {
        let says = "{\"return\": {}}\n{\"return\": {\"fd\": 12, \"fdset-id\": 3}}\n{\"error\": {\"desc\": \"no\"}}\n\
                    {\"return\": {}}\n{\"return\": {\"fdset-id\": -1}}\n";
        let (stream, heard) = monitor(says);
        let (mut qmp, []) = Qmp::new(stream, PATIENCE, []).unwrap();
        let state = tempfile::tempfile().unwrap();
        let number = qmp.add(state.as_fd()).unwrap();
        let failed = qmp.put_down(number).unwrap_err().to_string();
        assert_eq!(failed, "`xen-save-devices-state`: no");
        qmp.remove(number).unwrap();
        assert!(qmp.add(state.as_fd()).is_err(), "it has no number");
        drop(qmp);
        let (heard, given) = heard.join().unwrap();
        let expected = concat!(
            "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"add-fd\"}\n",
            "{\"arguments\":{\"filename\":\"/dev/fdset/3\",\"live\":false},\"execute\":\"xen-save-devices-state\"}\n",
            "{\"arguments\":{\"fdset-id\":3},\"execute\":\"remove-fd\"}\n{\"execute\":\"add-fd\"}\n",
        );
        assert_eq!((heard.as_str(), given), (expected, 2));
    }

    #[test]
    fn who_is_no_monitor_is_not_spoken_to() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"{\"hello\": 1}\n").unwrap();
        assert_eq!(Qmp::new(ours, PATIENCE, []).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
