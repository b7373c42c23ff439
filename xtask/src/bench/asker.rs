//! A program that runs already and asks a supervisor for sessions at its socket, as a service does: what it
//! measures has no start of a program of ours in it.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A question goes with at most so many descriptors.
const ALONG: usize = 2;

fn wrong(what: &Value) -> io::Error {
    io::Error::other(format!("the supervisor answered {what}"))
}

/// Sends a line, and hands back where its answers come from.
fn ask(
    home: &Path,
    name: &str,
    question: &Value,
    along: &[BorrowedFd<'_>],
) -> io::Result<BufReader<UnixStream>> {
    // By way of the open directory: the kernel takes no long names of sockets.
    let dir = File::open(home.join("live"))?;
    let stream = UnixStream::connect(PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())))?;
    let text = format!("{question}\n");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ALONG))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !along.is_empty() && !control.push(SendAncillaryMessage::ScmRights(along)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(&stream, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    if sent != text.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(BufReader::new(stream))
}

fn answer(from: &mut BufReader<UnixStream>) -> io::Result<Value> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// A session from its order to the first byte of its first command; it is ended after.
pub(super) fn first_byte(home: &Path, work: &Path) -> io::Result<Duration> {
    let known = |name: &str| std::env::var(name).ok().map(|value| (name.to_owned(), Value::from(value)));
    let caller: serde_json::Map<String, Value> = ["PATH", "HOME"].into_iter().filter_map(known).collect();
    let create = json!({
        "ask": "create", "spec": { "workdir": work }, "by": "bench", "durable": false, "caller": caller,
    });
    let exec = json!({
        "ask": "exec", "argv": ["echo", "x"], "env": {}, "stdin": false, "detach": false, "stops": false,
    });
    let (mut output, theirs) = io::pipe()?;
    let began = Instant::now();
    let made = answer(&mut ask(home, "supervisor.sock", &create, &[])?)?;
    let id = made["created"]["session"].as_str().ok_or_else(|| wrong(&made))?;
    let socket = format!("{id}.sock");
    let mut running = ask(home, &socket, &exec, &[theirs.as_fd(), theirs.as_fd()])?;
    // Theirs alone: where the command is refused, the output ends.
    drop(theirs);
    if let Err(error) = output.read_exact(&mut [0]) {
        return Err(answer(&mut running).map_or(error, |said| wrong(&said)));
    }
    let took = began.elapsed();
    while !answer(&mut running)?.to_string().contains("exited") {}
    let ended = answer(&mut ask(home, &socket, &json!({ "ask": "end", "changes": "discard" }), &[])?)?;
    if ended.get("ended").is_none() {
        return Err(wrong(&ended));
    }
    Ok(took)
}

/// The same command without any of it: no sandbox can be quicker than the program that runs in it.
pub(super) fn bare() -> io::Result<Duration> {
    let (mut output, theirs) = io::pipe()?;
    let began = Instant::now();
    let mut child = Command::new("echo").arg("x").stdin(Stdio::null()).stdout(theirs).spawn()?;
    output.read_exact(&mut [0])?;
    let took = began.elapsed();
    child.wait()?;
    Ok(took)
}
