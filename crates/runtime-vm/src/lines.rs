//! A machine's streams, where they are called for over its vsock: each outlives the connections that it goes over.

use crate::ask::Want;
use crate::machine::readable;
use cofferdam_inside::relay::{Held, Side, relay};
use cofferdam_inside::{GUEST, HOUSE, NET, NOTES, number};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = [HOUSE, GUEST, NOTES];
/// How soon it is seen that there will be no other connection.
const LOOK: Duration = Duration::from_millis(50);

struct Line {
    name: &'static str,
    connections: Sender<OwnedFd>,
    held: Arc<Held>,
}

pub(crate) struct Lines {
    /// Of this machine and no copy of it.
    life: u64,
    lines: Vec<Line>,
}

impl Lines {
    /// With the ends to speak on, in the order of their names.
    pub(crate) fn new(ended: BorrowedFd<'_>) -> io::Result<(Self, [UnixStream; 3])> {
        let mut life = [0; 8];
        rustix::rand::getrandom(&mut life, rustix::rand::GetRandomFlags::empty())?;
        let life = u64::from_le_bytes(life);
        let mut lines = Vec::new();
        let mut one = |name| -> io::Result<UnixStream> {
            let (connections, take) = channel();
            let (stream, held) = relay(Side::Calling { life }, next(take, ended.try_clone_to_owned()?))?;
            lines.push(Line { name, connections, held });
            Ok(stream)
        };
        let [house, guest, notes] = NAMES;
        let streams = [one(house)?, one(guest)?, one(notes)?];
        Ok((Self { life, lines }, streams))
    }

    /// Connects all of them to the machine.
    pub(crate) fn call(&self, ask: impl Fn(Want) -> io::Result<Option<UnixStream>>) -> io::Result<()> {
        for line in &self.lines {
            if let Some(stream) = ask(Want::Port(number(line.name)))? {
                line.connections.send(stream.into()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            }
        }
        ask(Want::Carry { port: number(NET), life: self.life }).map(drop)
    }

    pub(crate) fn is_all_got(&self) -> bool {
        self.lines.iter().all(|line| line.name != GUEST || line.held.is_all_got())
    }
}

/// The next connection; none once the VMM has ended, or nobody will call any more.
fn next(take: Receiver<OwnedFd>, ended: OwnedFd) -> impl FnMut() -> io::Result<OwnedFd> {
    move || loop {
        match take.recv_timeout(LOOK) {
            Ok(connection) => return Ok(connection),
            Err(RecvTimeoutError::Timeout) if readable(&[ended.as_fd()], Instant::now())?.is_none() => {}
            Err(_) => return Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_sys::machine::listen_to_host;
    use rustix::io::Errno;

    /// As it is done in a machine, on this host's own kernel where that can.
    #[test]
    fn a_number_is_listened_to_by_one_alone() {
        let _alone = crate::launch::tests::alone();
        let number = 1_000_000 + std::process::id();
        match listen_to_host(number) {
            Err(Errno::AFNOSUPPORT) => println!("not run: this kernel has no vsock"),
            first => {
                let first = first.unwrap();
                assert_eq!(listen_to_host(number).err(), Some(Errno::ADDRINUSE));
                drop(listen_to_host(number + 1).unwrap());
                drop(first);
                listen_to_host(number).unwrap();
            }
        }
    }
}
