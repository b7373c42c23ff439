//! The host's side of the channel: a state machine for a poll loop that never blocks.
//!
//! The guest shares the sandbox with hostile code and is taken for hostile itself: every length, id, stream and
//! order is checked, nothing it sends can make this side hold more than a fixed amount, and the first broken
//! rule ends the conversation for good. What to do about that, killing the sandbox, is the caller's.
//!
//! ```text
//! poll(client: readable, or writable while client.wants_write(); your input while client.input_room(id) > 0)
//! client.receive()?                          when readable
//! while let Some(event) = client.next_event()? { ...; client.consumed(id, stream, bytes) }
//! client.flush()?
//! ```

mod rules;

use crate::wire::{
    DATA_MAX, DENY_MAX, Deny, EXECS_MAX, Exec, Exited, Fault, FrameError, Grant, Header, Invite, Kind, Part,
    Plea, Reader, Resize, Side, Signal, Size, Stream, Target, Task, ToHost, WINDOW, Warm, Window, put,
    put_empty,
};
use alloc::vec::Vec;
use rules::Rules;
pub use rules::Violation;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// What is read at once.
const READ: usize = 256 * 1024;
/// How much input may wait to be sent, over all execs.
const UNSENT_MAX: usize = WINDOW as usize;

/// An exec, by the number this side has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecId(u32);

impl ExecId {
    /// For logs and traces: counts from one, and no two execs of a guest share it.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The number of a plea, for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PleaId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("the guest broke the protocol: {0}; the sandbox cannot be trusted to go on: kill it")]
    Protocol(#[from] Violation),
    #[error("the guest gave up on what the host sent ({0:?}): kill the sandbox")]
    Fault(Fault),
    #[error("the channel to the guest failed: {0}; kill the sandbox")]
    Channel(Errno),
    #[error("an exec of {bytes} bytes is more than the guest takes: shorten its arguments or environment")]
    TooLong { bytes: u32 },
    #[error("`{0}` of an exec has a NUL byte in it, or no program is named: name one, without NUL")]
    Request(&'static str),
    #[error("{EXECS_MAX} execs are running: wait for one to end")]
    TooMany,
}

/// What the guest had to say. `Output` and `OutputEnd` come from `Stdout`, `Stderr` or `Tty`.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The guest is up.
    Ready {
        pid: u32,
    },
    Started {
        id: ExecId,
        pid: u32,
    },
    /// Never empty. The guest may send only so much more until `consumed` is called for it.
    Output {
        id: ExecId,
        stream: Stream,
        bytes: &'a [u8],
    },
    OutputEnd {
        id: ExecId,
        stream: Stream,
    },
    /// `input_room` has grown.
    InputReady {
        id: ExecId,
    },
    /// Nobody reads the input any more.
    InputClosed {
        id: ExecId,
    },
    /// It was stopped, at a terminal whose people can be stopped with it, and goes on when it is told to.
    Stopped {
        id: ExecId,
    },
    /// The last of this exec.
    Exited {
        id: ExecId,
        exited: Exited,
    },
    /// Somebody inside asks for a command. It is open until it is granted or denied, and only so many are.
    Asked {
        plea: PleaId,
        asked: Plea<'a>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// There may be events.
    Bytes,
    /// Nothing was there.
    Nothing,
    /// The guest is gone; events may still be left of what it sent before.
    Closed,
}

pub struct Client {
    channel: OwnedFd,
    reader: Reader,
    rules: Rules,
    unsent: Vec<u8>,
    sent: usize,
    last_id: u32,
    broken: Option<HostError>,
}

impl Client {
    /// An exec may be asked for at once: the guest finds it when it comes up.
    pub fn new(channel: OwnedFd) -> Result<Self, HostError> {
        let set = fcntl_getfl(&channel).and_then(|flags| fcntl_setfl(&channel, flags | OFlags::NONBLOCK));
        set.map_err(HostError::Channel)?;
        Ok(Self {
            channel,
            reader: Reader::growing(Side::Guest, READ),
            rules: Rules::default(),
            unsent: Vec::new(),
            sent: 0,
            last_id: 0,
            broken: None,
        })
    }

    pub fn exec(&mut self, exec: &Exec<'_>) -> Result<ExecId, HostError> {
        check(exec)?;
        // Numbers are never used again, so what comes late for an old exec cannot be taken for a new one's.
        let id = self.last_id.checked_add(1).filter(|_| self.rules.has_room()).ok_or(HostError::TooMany)?;
        match put(&mut self.unsent, Kind::Exec, id, None, exec) {
            Err(FrameError::Length { length, .. }) => return Err(HostError::TooLong { bytes: length }),
            other => other.map_err(Violation::Frame)?,
        }
        self.rules.begin(id, exec);
        self.last_id = id;
        Ok(ExecId(id))
    }

    /// Lets those inside ask for commands, so many at once.
    pub fn invite(&mut self, most: u16) -> Result<(), HostError> {
        self.rules.invite(most);
        Ok(put(&mut self.unsent, Kind::Invite, 0, None, &Invite { most }).map_err(Violation::Frame)?)
    }

    /// Has the guest execute this with the descriptors of who asked. It has no streams.
    pub fn grant(&mut self, plea: PleaId, exec: &Exec<'_>) -> Result<ExecId, HostError> {
        check(exec)?;
        let id = self.last_id.checked_add(1).filter(|_| self.rules.has_room()).ok_or(HostError::TooMany)?;
        let grant = Grant { plea: plea.0, exec: exec.clone() };
        if !self.rules.has_plea(plea.0) {
            return Err(HostError::Request("plea"));
        }
        match put(&mut self.unsent, Kind::Grant, id, None, &grant) {
            Err(FrameError::Length { length, .. }) => return Err(HostError::TooLong { bytes: length }),
            other => other.map_err(Violation::Frame)?,
        }
        self.rules.close_plea(plea.0);
        self.rules.begin_elsewhere(id);
        self.last_id = id;
        Ok(ExecId(id))
    }

    /// Tells who asked why not. One that is answered already hears nothing more.
    pub fn deny(&mut self, plea: PleaId, why: &str) -> Result<(), HostError> {
        if !self.rules.close_plea(plea.0) {
            return Ok(());
        }
        let most = DENY_MAX as usize - 16;
        let why = why.as_bytes().get(..most).unwrap_or(why.as_bytes());
        Ok(put(&mut self.unsent, Kind::Deny, plea.0, None, &Deny { why }).map_err(Violation::Frame)?)
    }

    /// A task is as an exec with the one output `Stdout`, on which its records are.
    pub fn task(&mut self, task: &Task) -> Result<ExecId, HostError> {
        if task.work.paths().any(|path| path.contains(&0)) {
            return Err(HostError::Request("path"));
        }
        let id = self.last_id.checked_add(1).filter(|_| self.rules.has_room()).ok_or(HostError::TooMany)?;
        match put(&mut self.unsent, Kind::Task, id, None, task) {
            Err(FrameError::Length { length, .. }) => return Err(HostError::TooLong { bytes: length }),
            other => other.map_err(Violation::Frame)?,
        }
        self.rules.begin_task(id);
        self.last_id = id;
        Ok(ExecId(id))
    }

    /// Has the guest keep an interpreter for scripts, in the place of one that it keeps; without a program, none. It says
    /// nothing of it.
    pub fn warm(&mut self, warm: &Warm<'_>) -> Result<(), HostError> {
        let has_nul = |strings: &[&[u8]]| strings.iter().any(|text| text.contains(&0));
        if has_nul(&warm.argv) || has_nul(&warm.env) {
            return Err(HostError::Request("warm"));
        }
        match put(&mut self.unsent, Kind::Warm, 0, None, warm) {
            Err(FrameError::Length { length, .. }) => Err(HostError::TooLong { bytes: length }),
            other => Ok(other.map_err(Violation::Frame)?),
        }
    }

    /// How many bytes of input would be taken now.
    pub fn input_room(&self, id: ExecId) -> usize {
        let unsent = self.unsent.len() - self.sent;
        self.rules.input_credit(id.0).min(UNSENT_MAX.saturating_sub(unsent))
    }

    /// Takes what there is room for and says how much that was. An exec that has ended takes nothing.
    pub fn input(&mut self, id: ExecId, bytes: &[u8]) -> usize {
        let Some(stream) = self.rules.input_stream(id.0) else { return 0 };
        let taken = bytes.get(..self.input_room(id)).unwrap_or(bytes);
        for chunk in taken.chunks(DATA_MAX as usize) {
            let length = chunk.len() as u32;
            let header = Header { kind: Kind::Data, stream: Some(stream), id: id.0, length };
            self.unsent.extend_from_slice(&header.encode());
            self.unsent.extend_from_slice(chunk);
            self.rules.sent(id.0, length);
        }
        taken.len()
    }

    /// No more input will come. On a terminal this is the end-of-file character.
    pub fn end_input(&mut self, id: ExecId) {
        if let Some(stream) = self.rules.end_input(id.0) {
            put_empty(&mut self.unsent, Kind::Eof, id.0, stream);
        }
    }

    pub fn resize(&mut self, id: ExecId, size: Size) -> Result<(), HostError> {
        if !self.rules.knows(id.0) {
            return Ok(());
        }
        Ok(put(&mut self.unsent, Kind::Resize, id.0, None, &Resize { size }).map_err(Violation::Frame)?)
    }

    pub fn signal(&mut self, id: ExecId, number: u8, to: Target) -> Result<(), HostError> {
        if !self.rules.knows(id.0) {
            return Ok(());
        }
        Ok(put(&mut self.unsent, Kind::Signal, id.0, None, &Signal { number, to })
            .map_err(Violation::Frame)?)
    }

    /// So many bytes of output are out of the caller's hands, and as many more may come.
    pub fn consumed(&mut self, id: ExecId, stream: Stream, bytes: usize) -> Result<(), HostError> {
        let Some(bytes) = self.rules.consumed(id.0, stream, bytes) else { return Ok(()) };
        let window = Window { bytes };
        Ok(put(&mut self.unsent, Kind::Window, id.0, Some(stream), &window).map_err(Violation::Frame)?)
    }

    /// Reads once. Take all events before the next time, or there is no room to read into.
    pub fn receive(&mut self) -> Result<Received, HostError> {
        let space = self.reader.space();
        if space.is_empty() {
            return Ok(Received::Bytes);
        }
        match rustix::io::read(&self.channel, space) {
            Ok(0) | Err(Errno::CONNRESET) => Ok(Received::Closed),
            Ok(count) => {
                self.reader.filled(count);
                Ok(Received::Bytes)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(errno) => Err(HostError::Channel(errno)),
        }
    }

    /// The next thing the guest said. Once it has broken a rule there is no other answer.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, HostError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let (rules, broken) = (&mut self.rules, &mut self.broken);
        match self.reader.next_part().map_err(Violation::Frame) {
            Ok(None) => Ok(None),
            Ok(Some(part)) => judge(rules, part).map(Some).map_err(|error| *broken.insert(error)),
            Err(violation) => Err(*broken.insert(violation.into())),
        }
    }

    pub fn wants_write(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Sends what can be sent without waiting.
    pub fn flush(&mut self) -> Result<(), HostError> {
        while let Some(rest @ [_, ..]) = self.unsent.get(self.sent..) {
            let written = match rustix::net::send(&self.channel, rest, SendFlags::NOSIGNAL) {
                Err(Errno::NOTSOCK) => rustix::io::write(&self.channel, rest),
                other => other,
            };
            match written {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => {
                    // Or a guest that is never quite caught up with would make this grow for ever.
                    self.unsent.drain(..self.sent);
                    self.sent = 0;
                    return Ok(());
                }
                Err(Errno::INTR) => (),
                // It hears nothing more, but what it said before is still to be read, with the end of it.
                Err(Errno::PIPE | Errno::CONNRESET) => break,
                Err(errno) => return Err(HostError::Channel(errno)),
            }
        }
        self.sent = 0;
        self.unsent.clear();
        self.unsent.shrink_to(UNSENT_MAX);
        Ok(())
    }
}

fn check(exec: &Exec<'_>) -> Result<(), HostError> {
    let has_nul = |strings: &[&[u8]]| strings.iter().any(|text| text.contains(&0));
    if exec.argv.is_empty() || has_nul(&exec.argv) {
        return Err(HostError::Request("argv"));
    }
    if has_nul(&exec.env) {
        return Err(HostError::Request("env"));
    }
    if has_nul(&[exec.cwd]) {
        return Err(HostError::Request("cwd"));
    }
    Ok(())
}

fn judge<'a>(rules: &mut Rules, part: Part<'a>) -> Result<Event<'a>, HostError> {
    match part {
        Part::Data { id, stream, opens, bytes } => {
            rules.data(id, stream, opens)?;
            Ok(Event::Output { id: ExecId(id), stream, bytes })
        }
        Part::Message { header: Header { kind: Kind::Plea, id, .. }, body } => {
            let asked = Plea::decode(body).map_err(Violation::Frame)?;
            rules.plea(id)?;
            Ok(Event::Asked { plea: PleaId(id), asked })
        }
        Part::Message { header, body } => {
            let message = ToHost::decode(header.kind, body).map_err(Violation::Frame)?;
            rules.message(header, message)
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

#[cfg(test)]
mod tests;
