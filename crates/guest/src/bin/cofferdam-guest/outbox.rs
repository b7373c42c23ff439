//! What is on its way to the host. Small output is copied behind the frames that wait already, large output is
//! spliced: it goes from the command's pipe to the channel without passing through this process.
//!
//! Spliced bytes lie in a pipe of our own first, so that a header promises what is certainly there: a command
//! can open its own output for reading and take back what it wrote. Where nothing can be spliced, several frames are read at
//! once: who has filled a pipe is woken for each time that something is taken from it, and takes the processor.

use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::{self, DATA_MAX, HEADER_LEN, Header, Kind, Stream};
use rustix::buffer::spare_capacity;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::FileType;
use rustix::io::{Errno, IoSliceMut};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use serde::Serialize;

/// What is read at once by copying: with its header, what a virtual machine's port takes at once. A command that fills it
/// has more to say, and is spliced from then on.
pub(crate) const COPY_MAX: usize = FRAME - HEADER_LEN;
const FRAME: usize = 32 * 1024;
/// So many of them are read at once from a command that has much to say.
const FRAMES: usize = 8;
/// As much as an ordinary user may ask for.
pub(crate) const PIPE_SIZE: usize = 1024 * 1024;
/// Beyond this much unsent the host is not read any more, so that it cannot make the rest grow.
const FULL: usize = 64 * 1024;

/// Where the bytes of an output stream are, and what they belong to.
pub(crate) struct Source<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) id: u32,
    pub(crate) stream: Stream,
    pub(crate) most: usize,
}

struct Stage {
    from: OwnedFd,
    into: OwnedFd,
    held: usize,
}

/// Frames that were read at once, with their headers.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    sent: usize,
    end: usize,
}

pub(crate) struct Outbox {
    /// Sent first, up to and with the header of what is staged…
    before: Vec<u8>,
    sent: usize,
    /// …then this, of which one has anything in it…
    stage: Option<Stage>,
    block: Block,
    /// …then this.
    after: Vec<u8>,
    /// Neither the channel nor the kernel has refused yet.
    splices: bool,
    /// Where copied bytes are read to. Made with the first of them.
    scratch: Vec<u8>,
}

/// Whether this channel is a port of a virtual machine.
pub(crate) fn is_port(channel: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(channel)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
}

impl Outbox {
    /// To a port nothing is spliced: whoever has the other end would be woken for every page.
    pub(crate) fn to(channel: BorrowedFd<'_>) -> Self {
        Self { splices: !is_port(channel), ..Self::new() }
    }

    const fn new() -> Self {
        Self {
            before: Vec::new(),
            sent: 0,
            stage: None,
            block: Block { bytes: Vec::new(), sent: 0, end: 0 },
            after: Vec::new(),
            splices: true,
            scratch: Vec::new(),
        }
    }

    fn staged(&self) -> usize {
        self.stage.as_ref().map_or(0, |stage| stage.held) + self.block.left()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.before.len() && self.staged() == 0 && self.after.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.before.len() - self.sent + self.after.len() > FULL
    }

    /// Frames go behind what is staged, and behind whatever went behind it before.
    fn is_split(&self) -> bool {
        self.staged() > 0 || !self.after.is_empty()
    }

    /// Whether output may be added. It waits until what is staged has gone.
    pub(crate) fn takes_output(&self) -> bool {
        !self.is_split() && self.before.len() - self.sent < COPY_MAX
    }

    fn end(&mut self) -> &mut Vec<u8> {
        if self.is_split() { &mut self.after } else { &mut self.before }
    }

    pub(crate) fn put(&mut self, kind: Kind, id: u32, stream: Option<Stream>, body: &impl Serialize) {
        // None of the guest's messages can be too long, so none is lost here.
        let _ = wire::put(self.end(), kind, id, stream, body);
    }

    /// Bytes that are no frame, between frames.
    pub(crate) fn put_raw(&mut self, bytes: &[u8]) {
        self.end().extend_from_slice(bytes);
    }

    pub(crate) fn put_eof(&mut self, id: u32, stream: Stream) {
        wire::put_empty(self.end(), Kind::Eof, id, stream);
    }

    /// Adds one frame of what can be read without waiting and says how much that was: nothing at the end.
    pub(crate) fn copy(&mut self, source: &Source<'_>) -> Result<usize, Errno> {
        if self.is_blank() && source.most >= COPY_MAX {
            return self.copy_in_place(source);
        }
        let count = rustix::io::read(source.fd, scratch(&mut self.scratch, source.most))?;
        if count > 0 {
            self.before.extend_from_slice(&header(source, count));
            self.before.extend_from_slice(self.scratch.get(..count).unwrap_or_default());
        }
        Ok(count)
    }

    /// Whether nothing is to be sent before the next frame, for which there is room, and for no more than that.
    fn is_blank(&mut self) -> bool {
        if !self.before.is_empty() {
            return false;
        }
        self.before.shrink_to(FRAME);
        self.before.reserve_exact(FRAME);
        self.before.capacity() == FRAME
    }

    /// As `copy`, to where it is sent from.
    fn copy_in_place(&mut self, source: &Source<'_>) -> Result<usize, Errno> {
        self.before.extend_from_slice(&[0; HEADER_LEN]);
        let read = rustix::io::read(source.fd, spare_capacity(&mut self.before));
        let Ok(count @ 1..) = read else {
            self.before.clear();
            return read;
        };
        if let Some(place) = self.before.first_chunk_mut() {
            *place = header(source, count);
        }
        read
    }

    /// As `copy`, as many frames as there is something for.
    fn copy_block(&mut self, source: &Source<'_>) -> Result<usize, Errno> {
        match source.most / COPY_MAX {
            0 | 1 => self.copy(source),
            frames => self.block.read(source, frames.min(FRAMES)),
        }
    }

    /// As `copy`, by way of the stage.
    pub(crate) fn splice(&mut self, source: &Source<'_>) -> Result<usize, Errno> {
        let Some(stage) = self.splices.then(|| open_stage(&mut self.stage)).flatten() else {
            self.splices = false;
            return self.copy_block(source);
        };
        let most = source.most.min(DATA_MAX as usize);
        let count = splice(source.fd, None, &stage.into, None, most, SpliceFlags::NONBLOCK)?;
        if count > 0 {
            stage.held = count;
            self.before.extend_from_slice(&header(source, count));
        }
        Ok(count)
    }

    /// Sends what can be sent without waiting.
    pub(crate) fn flush(&mut self, channel: BorrowedFd<'_>) -> Result<(), Errno> {
        loop {
            let sent = if self.sent < self.before.len() {
                let rest = self.before.get(self.sent..).unwrap_or_default();
                rustix::io::write(channel, rest).map(|count| self.sent += count)
            } else if self.staged() > 0 {
                self.flush_stage(channel)
            } else if self.after.is_empty() {
                self.before.clear();
                self.sent = 0;
                return Ok(());
            } else {
                core::mem::swap(&mut self.before, &mut self.after);
                self.after.clear();
                self.sent = 0;
                Ok(())
            };
            match sent {
                Ok(()) | Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => {
                    // Or a host that is never quite caught up with would make this grow for ever.
                    self.before.drain(..self.sent);
                    self.sent = 0;
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    fn flush_stage(&mut self, channel: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.block.left() > 0 {
            return self.block.send(channel);
        }
        let Some(stage) = &mut self.stage else { return Ok(()) };
        match splice(&stage.from, None, channel, None, stage.held, SpliceFlags::NONBLOCK) {
            Ok(0) => Err(Errno::IO),
            Ok(count) => {
                stage.held -= count;
                Ok(())
            }
            // A channel that does not take them so: the header is out, so these go as they are.
            Err(Errno::INVAL) => {
                self.splices = false;
                let count = rustix::io::read(&stage.from, scratch(&mut self.scratch, stage.held))?;
                stage.held -= count;
                self.before.clear();
                self.before.extend_from_slice(self.scratch.get(..count).unwrap_or_default());
                self.sent = 0;
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }
}

impl Block {
    const fn left(&self) -> usize {
        self.end - self.sent
    }

    fn read(&mut self, source: &Source<'_>, frames: usize) -> Result<usize, Errno> {
        if self.bytes.is_empty() {
            self.bytes = vec![0; FRAMES * FRAME];
        }
        let places =
            self.bytes.chunks_mut(FRAME).take(frames).filter_map(|frame| frame.get_mut(HEADER_LEN..));
        let mut places: Vec<IoSliceMut<'_>> = places.map(IoSliceMut::new).collect();
        let count = rustix::io::readv(source.fd, &mut places)?;
        let used = count.div_ceil(COPY_MAX);
        for (number, frame) in self.bytes.chunks_mut(FRAME).take(used).enumerate() {
            if let Some(place) = frame.first_chunk_mut() {
                *place = header(source, (count - number * COPY_MAX).min(COPY_MAX));
            }
        }
        (self.sent, self.end) = (0, count + used * HEADER_LEN);
        Ok(count)
    }

    fn send(&mut self, channel: BorrowedFd<'_>) -> Result<(), Errno> {
        let rest = self.bytes.get(self.sent..self.end).unwrap_or_default();
        self.sent += rustix::io::write(channel, rest)?;
        Ok(())
    }
}

fn header(source: &Source<'_>, count: usize) -> [u8; HEADER_LEN] {
    let (id, stream) = (source.id, Some(source.stream));
    Header { kind: Kind::Data, stream, id, length: count as u32 }.encode()
}

fn scratch(buffer: &mut Vec<u8>, most: usize) -> &mut [u8] {
    if buffer.is_empty() {
        *buffer = vec![0; COPY_MAX];
    }
    buffer.get_mut(..most.min(COPY_MAX)).unwrap_or_default()
}

fn open_stage(stage: &mut Option<Stage>) -> Option<&mut Stage> {
    if stage.is_none() {
        let (from, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // A smaller one works too.
        let _ = fcntl_setpipe_size(&into, PIPE_SIZE);
        *stage = Some(Stage { from, into, held: 0 });
    }
    stage.as_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_guest::wire::{Part, Reader, Side};
    use rustix::fd::AsFd;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// What of the output arrives, and the kinds of what comes with it.
    fn arrived(sent: &[u8]) -> (Vec<u8>, Vec<Kind>) {
        let mut reader = Reader::new(Side::Guest, 1 << 20);
        reader.space()[..sent.len()].copy_from_slice(sent);
        reader.filled(sent.len());
        let (mut output, mut kinds) = (Vec::new(), Vec::new());
        while let Some(part) = reader.next_part().unwrap() {
            match part {
                Part::Data { bytes, .. } => output.extend_from_slice(bytes),
                Part::Message { header, .. } => kinds.push(header.kind),
            }
        }
        (output, kinds)
    }

    /// Sends 200 KB by splicing, with a message between any two frames; `channel` takes what it takes, and
    /// `read` fetches all that has come.
    fn check(mut outbox: Outbox, most: usize, channel: BorrowedFd<'_>, mut read: impl FnMut(&mut Vec<u8>)) {
        let bytes: Vec<u8> = (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (from, into) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        fcntl_setpipe_size(&into, PIPE_SIZE).unwrap();
        std::fs::File::from(into).write_all(&bytes).unwrap();
        let (mut received, mut frames) = (Vec::new(), 0);
        loop {
            let source = Source { fd: from.as_fd(), id: 1, stream: Stream::Stdout, most };
            match outbox.takes_output().then(|| outbox.splice(&source)) {
                Some(Ok(0)) => break,
                Some(moved) => {
                    moved.unwrap();
                    outbox.put_eof(1, Stream::Stdin);
                    frames += 1;
                }
                None => (),
            }
            outbox.flush(channel).unwrap();
            read(&mut received);
        }
        while !outbox.is_empty() {
            outbox.flush(channel).unwrap();
            read(&mut received);
        }
        let (output, kinds) = arrived(&received);
        assert!(output == bytes, "{} bytes arrived", output.len());
        assert_eq!(kinds, vec![Kind::Eof; frames]);
    }

    #[test]
    fn spliced_output_arrives_whole_and_in_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        check(Outbox::new(), 50_000, ours.as_fd(), |received| _ = theirs.read_to_end(received));
    }

    #[test]
    fn a_slow_host_makes_nothing_grow() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let mut outbox = Outbox::new();
        let mut bytes = vec![0; 5000];
        for _ in 0..2000 {
            while outbox.takes_output() {
                let source = Source { fd: zero.as_fd(), id: 1, stream: Stream::Tty, most: 3000 };
                assert_eq!(outbox.copy(&source), Ok(3000));
                outbox.flush(ours.as_fd()).unwrap();
            }
            theirs.read_exact(&mut bytes).unwrap();
            outbox.flush(ours.as_fd()).unwrap();
        }
        assert!(outbox.before.capacity() < 4 * COPY_MAX, "{}", outbox.before.capacity());
    }

    #[test]
    fn and_so_it_does_where_the_channel_cannot_splice() {
        // A file that is only appended to takes no splices.
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let channel = std::fs::OpenOptions::new().append(true).open(file.path()).unwrap();
        check(Outbox::new(), 50_000, channel.as_fd(), |received| _ = file.read_to_end(received));
    }

    #[test]
    fn and_where_several_frames_are_read_at_once() {
        for most in [COPY_MAX, 2 * COPY_MAX - 1, 2 * COPY_MAX, 70_000, 300_000, 1 << 20] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            theirs.set_nonblocking(true).unwrap();
            // It takes a little at a time, so that a block is sent in parts.
            rustix::net::sockopt::set_socket_send_buffer_size(&ours, 8192).unwrap();
            let outbox = Outbox { splices: false, ..Outbox::new() };
            check(outbox, most, ours.as_fd(), |received| _ = theirs.read_to_end(received));
        }
    }
}
