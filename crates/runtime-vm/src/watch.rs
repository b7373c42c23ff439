//! What is said around a VMM, by it and on its machine's console: the last of it is kept, to be told when it fails.

use crate::machine::{MEETING, PROGRAM};
use cofferdam_guest::host::{Client, Event, Received};
use cofferdam_guest::wire::{Exec, Stdin};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// What is kept of what the VMM and the machine's console say.
const TAIL: usize = 16 << 10;
const LINES: usize = 6;

/// The last of what was said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    pub(crate) fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let over = kept.len().saturating_sub(TAIL);
        kept.drain(..over);
    }

    /// Its last lines, fit for a message; of a kernel that panics, the reason and not the trace after it.
    pub(crate) fn said(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept.iter().copied().collect::<Vec<u8>>()).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        // What came just before it may be why.
        let panic =
            lines.iter().rposition(|line| line.contains("Kernel panic")).map(|at| at.saturating_sub(4));
        let from = panic.unwrap_or(lines.len().saturating_sub(LINES));
        let last = lines.iter().skip(from).take(LINES).copied().collect::<Vec<_>>().join(" | ");
        last.chars().filter(|c| !c.is_control()).take(1200).collect()
    }
}

/// Starts our program in the sandbox and keeps the last of what is said there. The first of the results is closed when
/// it ends.
pub(crate) fn watch(mut client: Client, tail: &Tail) -> io::Result<(OwnedFd, JoinHandle<Option<Client>>)> {
    let (ended, alive) = io::pipe()?;
    let argv: Vec<&[u8]> = vec![PROGRAM.as_bytes(), b"vm-launch", MEETING.as_bytes()];
    let exec = Exec {
        argv,
        env: vec![b"PATH=/usr/sbin:/usr/bin:/sbin:/bin", b"LANG=C"],
        cwd: Path::new("/").as_os_str().as_bytes(),
        user: None,
        tty: None,
        stdin: Stdin::Null,
    };
    client.exec(&exec).map_err(io::Error::other)?;
    let tail = tail.clone();
    let watch = move || {
        let listened = listen(&mut client, &tail);
        drop(alive);
        listened.ok().map(|()| client)
    };
    Ok((ended.into(), std::thread::Builder::new().name("vm-watch".into()).spawn(watch)?))
}

fn listen(client: &mut Client, tail: &Tail) -> Result<(), cofferdam_guest::host::HostError> {
    loop {
        client.flush()?;
        let wants = if client.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut set = [PollFd::new(client, wants)];
        let _ = poll(&mut set, None);
        let received = client.receive()?;
        loop {
            let consumed = match client.next_event()? {
                None => break,
                Some(Event::Output { id, stream, bytes }) => {
                    tail.add(bytes);
                    Some((id, stream, bytes.len()))
                }
                Some(Event::Exited { exited, .. }) => {
                    tail.add(format!("\nthe VMM has ended: {:?}\n", exited.outcome).as_bytes());
                    return Ok(());
                }
                Some(_) => None,
            };
            if let Some((id, stream, bytes)) = consumed {
                client.consumed(id, stream, bytes)?;
            }
        }
        if received == Received::Closed {
            return Ok(());
        }
    }
}
