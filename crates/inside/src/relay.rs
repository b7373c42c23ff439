//! A stream that outlives its connection. A machine that is written down loses the connections of its vsock, the one
//! that runs on as well as every copy: so what is said goes over connections that follow each other, and each end keeps
//! what the other has not yet got.
//!
//! Each connection begins with whose life this is and how much has come. A caller of another life is a copy's, and begins
//! anew: what the one before has not got is forgotten. Then pieces, with their length, and in between how much has come
//! by now. Both ends are ours; still the one outside believes nothing that the other says of lengths.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What may be under way and not got.
const WINDOW: usize = 256 << 10;
const PIECE: usize = 64 << 10;
/// In the place of a length: how much has come follows.
const GOT: u32 = u32::MAX;

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Who connects, for as long as it lives.
    Calling { life: u64 },
    /// Who is connected to.
    Called,
}

/// What a relay has in hand.
#[derive(Debug, Default)]
pub struct Held {
    /// Taken from who speaks here, and not yet got by the other end.
    outward: AtomicUsize,
    /// Got from the other end, and not yet read here.
    inward: AtomicUsize,
}

impl Held {
    /// Whether everything that was said here is at the other end.
    pub fn is_all_got(&self) -> bool {
        self.outward.load(Ordering::SeqCst) == 0
    }

    /// Whether everything that came is where it can be read.
    pub fn is_all_given(&self) -> bool {
        self.inward.load(Ordering::SeqCst) == 0
    }
}

/// The end to speak on. `next` gives connections, each when the one before has ended, until it fails.
pub fn relay(
    side: Side,
    mut next: impl FnMut() -> io::Result<OwnedFd> + Send + 'static,
) -> io::Result<(UnixStream, Arc<Held>)> {
    let (ours, near) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let held = Arc::new(Held::default());
    let mut state = State::new(side, near, held.clone());
    std::thread::Builder::new().name("vm-relay".into()).spawn(move || {
        while let Ok(far) = next() {
            // A connection that ends is followed by another; when nobody speaks here any more, none is needed.
            if state.carry(far.into()).is_ok() || state.give().is_err() {
                return;
            }
        }
    })?;
    Ok((ours, held))
}

struct State {
    near: UnixStream,
    held: Arc<Held>,
    side: Side,
    life: u64,
    /// Of the other end's, in all.
    received: u64,
    to_near: Vec<u8>,
    /// What the other end has not got, and how much came before that.
    kept: Vec<u8>,
    got: u64,
    closed: bool,
    /// To read into.
    bytes: Vec<u8>,
}

/// One connection.
struct Link {
    far: UnixStream,
    out: Vec<u8>,
    /// How far everything was put into `out`.
    sent: u64,
    told: u64,
    came: Vec<u8>,
    /// It takes nothing any more.
    is_deaf: bool,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl State {
    fn new(side: Side, near: UnixStream, held: Arc<Held>) -> Self {
        let life = if let Side::Calling { life } = side { life } else { 0 };
        let (to_near, kept, bytes) = (Vec::new(), Vec::new(), vec![0; PIECE]);
        Self { near, held, side, life, received: 0, to_near, kept, got: 0, closed: false, bytes }
    }

    /// Carries over one connection, until it ends (an error) or nobody speaks here any more.
    fn carry(&mut self, far: UnixStream) -> io::Result<()> {
        let mut link = self.meet(far)?;
        link.far.set_nonblocking(true)?;
        loop {
            self.put(&mut link);
            if self.closed && self.kept.is_empty() {
                return Ok(());
            }
            self.wait(&link)?;
            self.write_near();
            if write_some(&mut &link.far, &mut link.out).is_err() {
                // What it has said before it went is still to be read.
                link.is_deaf = true;
                link.out.clear();
            }
            self.read_near();
            if self.to_near.is_empty() {
                self.read_far(&mut link)?;
            }
            self.note();
        }
    }

    /// What came over a connection that has ended is given all the same, to the last byte.
    fn give(&mut self) -> io::Result<()> {
        self.near.set_nonblocking(false)?;
        (&self.near).write_all(&self.to_near)?;
        self.to_near.clear();
        self.note();
        self.near.set_nonblocking(true)
    }

    fn note(&self) {
        self.held.outward.store(self.kept.len(), Ordering::SeqCst);
        self.held.inward.store(self.to_near.len(), Ordering::SeqCst);
    }

    fn hello(&self) -> [u8; 16] {
        let mut hello = [0; 16];
        let (life, received) = hello.split_at_mut(8);
        life.copy_from_slice(&self.life.to_le_bytes());
        received.copy_from_slice(&self.received.to_le_bytes());
        hello
    }

    fn meet(&mut self, mut far: UnixStream) -> io::Result<Link> {
        far.set_nonblocking(false)?;
        if self.side != Side::Called {
            far.write_all(&self.hello())?;
        }
        let mut said = [0; 16];
        far.read_exact(&mut said)?;
        let [life, received] = [0, 8].map(|at| {
            said.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
        });
        if self.side == Side::Called {
            if life != self.life {
                (self.life, self.received, self.got) = (life, 0, 0);
                self.kept.clear();
            }
            far.write_all(&self.hello())?;
        } else if life != self.life {
            return Err(broken("the other end lives another life"));
        }
        self.gone(received)?;
        Ok(Link {
            far,
            out: Vec::new(),
            sent: self.got,
            told: self.received,
            came: Vec::new(),
            is_deaf: false,
        })
    }

    /// The other end has got so much in all.
    fn gone(&mut self, got: u64) -> io::Result<()> {
        let count = got.checked_sub(self.got).and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| *count <= self.kept.len());
        let count = count.ok_or_else(|| broken("more was got than was sent"))?;
        self.kept.drain(..count);
        self.got = got;
        Ok(())
    }

    /// What there is to say, once the other end takes more.
    fn put(&self, link: &mut Link) {
        if !link.out.is_empty() || link.is_deaf {
            return;
        }
        if link.told != self.received {
            link.told = self.received;
            link.out.extend_from_slice(&GOT.to_le_bytes());
            link.out.extend_from_slice(&self.received.to_le_bytes());
        }
        let from = usize::try_from(link.sent - self.got).unwrap_or(usize::MAX);
        let rest = self.kept.get(from..).unwrap_or_default();
        let piece = rest.get(..rest.len().min(PIECE)).unwrap_or_default();
        if !piece.is_empty() {
            link.out.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            link.out.extend_from_slice(piece);
            link.sent += piece.len() as u64;
        }
    }

    fn wait(&self, link: &Link) -> io::Result<()> {
        let mut near = PollFlags::empty();
        near.set(PollFlags::IN, !self.closed && self.kept.len() < WINDOW);
        near.set(PollFlags::OUT, !self.to_near.is_empty());
        let mut far = PollFlags::empty();
        far.set(PollFlags::IN, self.to_near.is_empty());
        far.set(PollFlags::OUT, !link.out.is_empty());
        // One that has hung up, and of which nothing is wanted now, would wake us for ever.
        let both = [(link.far.as_fd(), far), (self.near.as_fd(), near)];
        let wanted = both.into_iter().filter(|(_, flags)| !flags.is_empty());
        let mut set: Vec<_> = wanted.map(|(end, flags)| PollFd::from_borrowed_fd(end, flags)).collect();
        match poll(&mut set, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn write_near(&mut self) {
        if write_some(&mut &self.near, &mut self.to_near).is_err() {
            // Nobody reads here any more.
            self.to_near.clear();
            self.closed = true;
        }
    }

    fn read_near(&mut self) {
        if self.closed || self.kept.len() >= WINDOW {
            return;
        }
        // Counted before it is taken, so that whoever looks finds it either here or where it was.
        self.held.outward.fetch_add(1, Ordering::SeqCst);
        match (&self.near).read(&mut self.bytes) {
            Ok(count) if count > 0 => {
                self.kept.extend_from_slice(self.bytes.get(..count).unwrap_or_default());
            }
            Err(error) if is_for_later(&error) => {}
            Ok(_) | Err(_) => self.closed = true,
        }
    }

    fn read_far(&mut self, link: &mut Link) -> io::Result<()> {
        match (&link.far).read(&mut self.bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => link.came.extend_from_slice(self.bytes.get(..count).unwrap_or_default()),
            Err(error) if is_for_later(&error) => return Ok(()),
            // Told once, before the rest can be read: that not all of ours was taken.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !link.is_deaf => {
                link.is_deaf = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        while let Some(length) = link.came.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) {
            let rest = link.came.get(4..).unwrap_or_default();
            if length == GOT {
                let Some(got) = rest.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else { break };
                if got > link.sent {
                    return Err(broken("more was got than was sent"));
                }
                self.gone(got)?;
                link.came.drain(..12);
                continue;
            }
            let length = length as usize;
            if length > PIECE {
                return Err(broken("a piece of that length"));
            }
            let Some(piece) = rest.get(..length) else { break };
            self.to_near.extend_from_slice(piece);
            self.received += length as u64;
            link.came.drain(..4 + length);
        }
        Ok(())
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn write_some(to: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    match to.write(bytes) {
        Ok(count) => {
            bytes.drain(..count);
            Ok(())
        }
        Err(error) if is_for_later(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::{Duration, Instant};

    /// Gives connections as they are put in.
    fn ends() -> (Sender<OwnedFd>, impl FnMut() -> io::Result<OwnedFd> + Send + 'static) {
        let (put, take): (Sender<OwnedFd>, Receiver<OwnedFd>) = channel();
        (put, move || take.recv().map_err(|_| io::ErrorKind::BrokenPipe.into()))
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// A connection that is cut when so much has gone over it, in both directions.
    fn cut_after(count: usize, a: &Sender<OwnedFd>, b: &Sender<OwnedFd>) {
        let ((a_far, mut a_near), (b_far, mut b_near)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        a.send(a_far.into()).unwrap();
        b.send(b_far.into()).unwrap();
        let (mut a_back, mut b_back) = (a_near.try_clone().unwrap(), b_near.try_clone().unwrap());
        let back = std::thread::spawn(move || io::copy(&mut b_back, &mut a_back));
        io::copy(&mut (&mut a_near).take(count as u64), &mut b_near).unwrap();
        let _ = a_near.shutdown(std::net::Shutdown::Both);
        let _ = b_near.shutdown(std::net::Shutdown::Both);
        let _ = back.join();
    }

    #[test]
    fn nothing_is_lost_or_doubled_however_often_it_is_cut() {
        let ((calling, next_calling), (called, next_called)) = (ends(), ends());
        let (host, _) = relay(Side::Calling { life: 7 }, next_calling).unwrap();
        let (inside, _) = relay(Side::Called, next_called).unwrap();
        let whole = bytes(900_000);
        let send = |mut to: UnixStream| {
            let whole = whole.clone();
            std::thread::spawn(move || to.write_all(&whole).unwrap())
        };
        let take = |mut from: UnixStream| {
            std::thread::spawn(move || {
                let mut all = vec![0; 900_000];
                from.read_exact(&mut all).unwrap();
                all
            })
        };
        let senders = [send(host.try_clone().unwrap()), send(inside.try_clone().unwrap())];
        let takers = [take(host.try_clone().unwrap()), take(inside.try_clone().unwrap())];
        for count in [3, 16, 17, 40, 1000, 70_000, 65_540, 200_001, 5] {
            cut_after(count, &calling, &called);
        }
        let last = std::thread::spawn(move || cut_after(usize::MAX, &calling, &called));
        for taker in takers {
            assert!(taker.join().unwrap() == whole);
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        drop((host, inside));
        last.join().unwrap();
    }

    #[test]
    fn a_caller_of_another_life_begins_anew() {
        let (called, next_called) = ends();
        let (mut inside, held) = relay(Side::Called, next_called).unwrap();
        let call = |life| {
            let (put, next) = ends();
            let (ours, theirs) = UnixStream::pair().unwrap();
            put.send(ours.into()).unwrap();
            called.send(theirs.into()).unwrap();
            (relay(Side::Calling { life }, next).unwrap().0, put)
        };
        let (mut first, put) = call(1);
        first.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        inside.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        drop((first, put));
        // Said while nobody is there, to the one that is gone.
        inside.write_all(b"for the first").unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let (mut second, _put) = call(2);
        second.write_all(b"anew!").unwrap();
        inside.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"anew!");
        while !held.is_all_got() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        inside.write_all(b"for the second").unwrap();
        let mut said = [0; 64];
        let mut count = 0;
        while !said[..count].ends_with(b"for the second") {
            count += second.read(&mut said[count..]).unwrap();
        }
    }

    #[test]
    fn lengths_that_cannot_be_end_the_connection_and_not_the_stream() {
        let (put, next) = ends();
        let (mut host, _) = relay(Side::Calling { life: 3 }, next).unwrap();
        let meet = |received: u64| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            put.send(ours.into()).unwrap();
            let mut hello = [0; 16];
            theirs.read_exact(&mut hello).unwrap();
            theirs.write_all(&3u64.to_le_bytes()).unwrap();
            theirs.write_all(&received.to_le_bytes()).unwrap();
            theirs
        };
        let is_cut = |mut link: UnixStream| {
            let mut rest = Vec::new();
            let _ = link.read_to_end(&mut rest);
        };
        is_cut(meet(1));
        let mut link = meet(0);
        link.write_all(&(PIECE as u32 + 1).to_le_bytes()).unwrap();
        is_cut(link);
        let mut link = meet(0);
        link.write_all(&GOT.to_le_bytes()).unwrap();
        link.write_all(&9u64.to_le_bytes()).unwrap();
        is_cut(link);
        let mut link = meet(0);
        link.write_all(&2u32.to_le_bytes()).unwrap();
        link.write_all(b"ok").unwrap();
        let mut heard = [0; 2];
        host.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"ok");
    }

    #[test]
    fn what_came_before_the_end_is_given_however_late_it_is_read() {
        let (put, next) = ends();
        let (mut host, _) = relay(Side::Calling { life: 5 }, next).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        put.send(ours.into()).unwrap();
        let mut hello = [0; 16];
        theirs.read_exact(&mut hello).unwrap();
        theirs.write_all(&5u64.to_le_bytes()).unwrap();
        theirs.write_all(&0u64.to_le_bytes()).unwrap();
        let whole = bytes(PIECE * 20);
        let sent = whole.clone();
        let sender = std::thread::spawn(move || {
            for piece in sent.chunks(PIECE) {
                theirs.write_all(&(piece.len() as u32).to_le_bytes()).unwrap();
                theirs.write_all(piece).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(put);
        let mut all = Vec::new();
        host.read_to_end(&mut all).unwrap();
        sender.join().unwrap();
        assert!(all == whole, "{} of {}", all.len(), whole.len());
    }
}
