//! One stream with many in it: what both ends do alike.

use super::frame::{self, Kind, MOST, WINDOW};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Connections at once. More are not taken until one ends.
pub(super) const STREAMS: usize = 1024;
/// What may wait to be sent before nothing more is read.
const FULL: usize = 1 << 20;

/// One connection.
pub(super) struct Stream {
    socket: OwnedFd,
    /// Being opened: it can be written to when it is.
    opening: bool,
    /// For the socket.
    pending: Vec<u8>,
    /// Written to the socket, and not yet told.
    owed: u32,
    /// What may be sent.
    credit: u32,
    /// The socket has no more to say.
    ended: bool,
    /// Neither has the other side; when all is written.
    ends: bool,
    shut: bool,
}

impl Stream {
    pub(super) fn new(socket: OwnedFd, opening: bool) -> Self {
        Self {
            socket,
            opening,
            pending: Vec::new(),
            owed: 0,
            credit: WINDOW,
            ended: false,
            ends: false,
            shut: false,
        }
    }
}

pub(super) struct Pump {
    port: OwnedFd,
    ended: Option<OwnedFd>,
    input: Vec<u8>,
    pub(super) output: Vec<u8>,
    sent: usize,
    pub(super) streams: BTreeMap<u32, Stream>,
}

/// Something that an end does by itself: a message for it, or a socket of its own that can be read.
pub(super) enum News<'a> {
    Frame(Kind, u32, &'a [u8]),
    Readable(usize),
}

/// Why there is nothing more to carry.
struct Over;

impl Pump {
    pub(super) fn new(port: OwnedFd, ended: Option<OwnedFd>) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&port)?;
        rustix::fs::fcntl_setfl(&port, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { port, ended, input: Vec::new(), output: Vec::new(), sent: 0, streams: BTreeMap::new() })
    }

    pub(super) fn put(&mut self, kind: Kind, id: u32, parts: &[&[u8]]) {
        frame::put(&mut self.output, kind, id, parts);
    }

    pub(super) fn has_room(&self) -> bool {
        self.output.len() - self.sent < FULL
    }

    pub(super) fn reset(&mut self, id: u32) {
        self.streams.remove(&id);
        self.put(Kind::Reset, id, &[]);
    }

    /// One turn of waiting and doing; whether there is to be another. `own` are the end's sockets, looked at while
    /// there is room; `news` what it does itself.
    pub(super) fn turn<'a>(
        &mut self,
        own: impl Fn() -> Vec<BorrowedFd<'a>>,
        mut news: impl FnMut(&mut Self, News<'_>) -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.flush().is_err() {
            return Ok(false);
        }
        let own = own();
        let (port, ended, ready, streams) = self.wait(&own)?;
        if ended {
            return Ok(false);
        }
        for at in ready {
            news(self, News::Readable(at))?;
        }
        for (id, flags) in streams {
            self.attend(id, flags);
        }
        Ok(!port || self.listen(&mut news)?.is_none())
    }

    #[expect(clippy::type_complexity, reason = "used in one place, where it is taken apart at once")]
    fn wait(&self, own: &[BorrowedFd<'_>]) -> io::Result<(bool, bool, Vec<usize>, Vec<(u32, PollFlags)>)> {
        let room = self.has_room();
        let mut fds = Vec::with_capacity(2 + own.len() + self.streams.len());
        let mut port = PollFlags::IN;
        port.set(PollFlags::OUT, !self.output.is_empty());
        fds.push(PollFd::new(&self.port, port));
        let ended = self.ended.as_ref().map_or(self.port.as_fd(), AsFd::as_fd);
        let watched = if self.ended.is_some() { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::from_borrowed_fd(ended, watched));
        let own_flags = if room && self.streams.len() < STREAMS { PollFlags::IN } else { PollFlags::empty() };
        fds.extend(own.iter().map(|fd| PollFd::from_borrowed_fd(*fd, own_flags)));
        let mut ids = Vec::with_capacity(self.streams.len());
        for (id, stream) in &self.streams {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, room && stream.credit > 0 && !stream.ended && !stream.opening);
            flags.set(PollFlags::OUT, stream.opening || !stream.pending.is_empty());
            if !flags.is_empty() {
                ids.push(*id);
                fds.push(PollFd::new(&stream.socket, flags));
            }
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let happened: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let is = |at: usize| happened.get(at).is_some_and(|flags| !flags.is_empty());
        let readable = (0..own.len()).filter(|at| is(2 + at)).collect();
        let first = 2 + own.len();
        let streams = ids.into_iter().enumerate().filter(|(at, _)| is(first + at));
        let streams =
            streams.map(|(at, id)| (id, happened.get(first + at).copied().unwrap_or(PollFlags::empty())));
        Ok((is(0), self.ended.is_some() && is(1), readable, streams.collect()))
    }

    fn flush(&mut self) -> Result<(), Over> {
        while let Some(rest @ [_, ..]) = self.output.get(self.sent..) {
            match rustix::io::write(&self.port, rest) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => {
                    self.output.drain(..self.sent);
                    self.sent = 0;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(Over),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    fn listen(
        &mut self,
        news: &mut impl FnMut(&mut Self, News<'_>) -> io::Result<()>,
    ) -> io::Result<Option<Over>> {
        let had = self.input.len();
        self.input.resize(had + MOST, 0);
        let read = rustix::io::read(&self.port, self.input.get_mut(had..).unwrap_or_default());
        self.input.truncate(had + read.unwrap_or(0));
        match read {
            Ok(0) => return Ok(Some(Over)),
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(_) => return Ok(Some(Over)),
        }
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        loop {
            match frame::next(rest) {
                Err(()) => return Ok(Some(Over)),
                Ok(None) => break,
                Ok(Some((kind, id, body, whole))) => {
                    self.hear(kind, id, body, news)?;
                    rest = rest.get(whole..).unwrap_or_default();
                }
            }
        }
        self.input = rest.to_vec();
        Ok(None)
    }

    /// What is said of a stream that is no more was under way when it ended.
    fn hear(
        &mut self,
        kind: Kind,
        id: u32,
        body: &[u8],
        news: &mut impl FnMut(&mut Self, News<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        match kind {
            Kind::Data => {
                let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
                // More than it was allowed to send.
                if stream.pending.len() + stream.owed as usize + body.len() > WINDOW as usize || stream.ends {
                    self.reset(id);
                    return Ok(());
                }
                stream.pending.extend_from_slice(body);
                self.write(id);
            }
            Kind::Eof => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.ends = true;
                }
                self.write(id);
            }
            Kind::Reset => _ = self.streams.remove(&id),
            Kind::Window => {
                let more = body.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.credit = stream.credit.saturating_add(more).min(WINDOW);
                }
            }
            Kind::Open | Kind::Ask | Kind::Answer | Kind::Stray => news(self, News::Frame(kind, id, body))?,
        }
        Ok(())
    }

    fn attend(&mut self, id: u32, flags: PollFlags) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.opening {
            match rustix::net::sockopt::socket_error(&stream.socket) {
                Ok(Ok(())) => stream.opening = false,
                _ => return self.reset(id),
            }
        }
        if flags.intersects(PollFlags::OUT | PollFlags::ERR | PollFlags::HUP) {
            self.write(id);
        }
        if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.read(id);
        }
    }

    fn read(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.credit == 0 || stream.ended {
            return;
        }
        let mut bytes = [0u8; 32 << 10];
        let most = bytes.len().min(stream.credit as usize);
        match rustix::io::read(&stream.socket, bytes.get_mut(..most).unwrap_or_default()) {
            Ok(0) => {
                stream.ended = true;
                self.put(Kind::Eof, id, &[]);
                self.forget(id);
            }
            Ok(count) => {
                stream.credit -= count as u32;
                self.put(Kind::Data, id, &[bytes.get(..count).unwrap_or_default()]);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.reset(id),
        }
    }

    fn write(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.opening {
            return;
        }
        let mut written = 0;
        while let Some(rest @ [_, ..]) = stream.pending.get(written..) {
            match rustix::net::send(&stream.socket, rest, rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return self.reset(id),
            }
        }
        stream.pending.drain(..written);
        stream.owed += written as u32;
        if stream.ends && stream.pending.is_empty() && !stream.shut {
            stream.shut = true;
            let _ = rustix::net::shutdown(&stream.socket, rustix::net::Shutdown::Write);
        }
        if stream.owed >= WINDOW / 4 && !stream.ends {
            let owed = std::mem::take(&mut stream.owed);
            self.put(Kind::Window, id, &[&owed.to_le_bytes()]);
        }
        self.forget(id);
    }

    /// Both sides have said all.
    fn forget(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(|stream| stream.ended && stream.shut) {
            self.streams.remove(&id);
        }
    }
}
