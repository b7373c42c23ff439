//! What the host asks of the program that has started a VMM, in the sandbox around it: to be connected to the sockets
//! that the VMM makes there. So no directory of the host has to be written to, and no path that a VMM could bend is ever
//! followed outside.

use cofferdam_inside::carry::{self, Far};
use cofferdam_inside::relay::{Side, relay};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// The sockets that a VMM makes.
pub(crate) const API: &str = "api";
pub(crate) const VSOCK: &str = "vsock";
/// A VMM gives up a call that the machine does not take after two seconds.
const CALL: Duration = Duration::from_secs(4);
/// Of the line by which a call is taken.
const LINE: usize = 32;
/// Of a reason.
const REASON: usize = 1024;
const DONE: u8 = 0;
const FAILED: u8 = 1;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// To speak to the VMM itself.
    Api,
    /// To speak to the machine, at a number of its vsock.
    Port(u32),
    /// The machine's connections, at such a number, to be carried from now on or on another line.
    Carry { port: u32, life: u64 },
}

impl Want {
    fn bytes(self) -> [u8; 16] {
        let (kind, port, life) = match self {
            Self::Api => (0u32, 0, 0),
            Self::Port(port) => (1, port, 0),
            Self::Carry { port, life } => (2, port, life),
        };
        let mut bytes = [0; 16];
        let parts = kind.to_le_bytes().into_iter().chain(port.to_le_bytes()).chain(life.to_le_bytes());
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        bytes
    }

    fn of(bytes: [u8; 16]) -> io::Result<Self> {
        let [k0, k1, k2, k3, p0, p1, p2, p3, life @ ..] = bytes;
        let port = u32::from_le_bytes([p0, p1, p2, p3]);
        match u32::from_le_bytes([k0, k1, k2, k3]) {
            0 => Ok(Self::Api),
            1 => Ok(Self::Port(port)),
            2 => Ok(Self::Carry { port, life: u64::from_le_bytes(life) }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The host's part: asks, and is given a stream, unless it was asked to be carried.
pub(crate) fn ask(mut stream: &UnixStream, want: Want) -> io::Result<Option<UnixStream>> {
    stream.write_all(&want.bytes())?;
    let mut status = [FAILED];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut status)];
    let got = rustix::net::recvmsg(stream.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    if status != [DONE] {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut text = vec![0; usize::from(u16::from_le_bytes(length)).min(REASON)];
        stream.read_exact(&mut text)?;
        return Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()));
    }
    match (want, rights) {
        (Want::Carry { .. }, _) => Ok(None),
        // Who answers is in the sandbox with the VMM, and believed as little: a file could be waited for for ever.
        (_, Some(given)) if is_stream(&given) => Ok(Some(given.into())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "no stream was given")),
    }
}

fn is_stream(given: &OwnedFd) -> bool {
    sockopt::socket_domain(given) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(given) == Ok(SocketType::STREAM)
}

/// The part in the sandbox: answers until nobody asks any more, or the VMM has ended.
pub(crate) fn answer(mut stream: &UnixStream, place: &Path, vmm: &Child) -> io::Result<()> {
    let pid = rustix::process::Pid::from_child(vmm);
    let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    let mut network: Option<(u64, Sender<OwnedFd>)> = None;
    loop {
        let mut set =
            [PollFd::new(&stream, PollFlags::IN), PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN)];
        match poll(&mut set, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [asked, is_over] = set.map(|fd| !fd.revents().is_empty());
        if is_over {
            return Ok(());
        }
        if !asked {
            continue;
        }
        let mut bytes = [0; 16];
        match stream.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let answer = match Want::of(bytes)? {
            Want::Api => UnixStream::connect(place.join(API)).map(Some),
            Want::Port(port) => call(place, port).map(Some),
            Want::Carry { port, life } => {
                let called = call(place, port);
                called.and_then(|line| carried(&mut network, line, life, ended.try_clone()?)).map(|()| None)
            }
        };
        tell(stream, answer)?;
    }
}

/// Calls the machine: a line there, and a line back when somebody has taken the call.
pub(crate) fn call(place: &Path, port: u32) -> io::Result<UnixStream> {
    let mut line = UnixStream::connect(place.join(VSOCK))?;
    line.set_read_timeout(Some(CALL))?;
    line.write_all(format!("CONNECT {port}\n").as_bytes())?;
    let mut said = Vec::new();
    // Byte by byte: what comes after it is the machine's.
    loop {
        let mut byte = [0];
        // It ends the call where nobody listens, and says nothing where nobody is there yet.
        if !matches!(line.read(&mut byte), Ok(1)) {
            let what = format!("nobody in the machine takes a call at {port}");
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, what));
        }
        match byte {
            [b'\n'] => break,
            [byte] => said.push(byte),
        }
        if said.len() > LINE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the VMM answers a call with something else",
            ));
        }
    }
    let taken =
        said.strip_prefix(b"OK ").is_some_and(|port| !port.is_empty() && port.iter().all(u8::is_ascii_digit));
    if !taken {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the VMM answers a call with something else"));
    }
    line.set_read_timeout(None)?;
    Ok(line)
}

/// Carries the machine's connections, or goes on with that on another line.
fn carried(
    network: &mut Option<(u64, Sender<OwnedFd>)>,
    line: UnixStream,
    life: u64,
    ended: OwnedFd,
) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    let lines = match network {
        Some((known, lines)) if *known == life => lines,
        _ => {
            let (lines, take) = channel::<OwnedFd>();
            let (stream, _) = relay(Side::Calling { life }, move || take.recv().map_err(|_| gone()))?;
            let carry = move || _ = carry::carry(stream.into(), Far::Outside, Some(ended));
            std::thread::Builder::new().name("vm-carry".into()).spawn(carry)?;
            &network.insert((life, lines)).1
        }
    };
    lines.send(line.into()).map_err(|_| gone())
}

fn tell(mut stream: &UnixStream, answer: io::Result<Option<UnixStream>>) -> io::Result<()> {
    let given = match answer {
        Ok(given) => given,
        Err(error) => {
            let text: String = error.to_string().chars().take(REASON / 4).collect();
            let mut bytes = vec![FAILED];
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
            return stream.write_all(&bytes);
        }
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights: Vec<_> = given.iter().map(AsFd::as_fd).collect();
    if !rights.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&rights));
    }
    rustix::net::sendmsg(stream.as_fd(), &[IoSlice::new(&[DONE])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
