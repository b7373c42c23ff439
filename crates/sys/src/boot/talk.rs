//! What the boot child and its supervisor say to each other: one byte or one small record a packet, and
//! once a descriptor.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

const GO: u8 = b'!';
const PROBE: u8 = b'p';
const LISTENER: u8 = b'l';
const LAYER: u8 = b'd';
const FAILED: u8 = b'x';

/// What the supervisor hears.
#[derive(Debug)]
pub enum Message {
    /// What a write outside all Landlock rules gave: nothing means that it succeeded.
    LandlockProbe(Option<Errno>),
    /// The seccomp listener.
    Listener(OwnedFd),
    /// A directory that was to be handed over.
    Layer(OwnedFd),
    /// The operation at this position failed.
    Failed { at: usize, errno: Errno },
    /// The guest's image is running: the socket closed on exec.
    Started,
}

/// The supervisor's end.
pub(super) struct Supervisor {
    pub(super) socket: OwnedFd,
}

/// The child's end. It sends fixed buffers and never allocates.
pub(super) struct Child {
    pub(super) socket: OwnedFd,
}

impl Child {
    pub(super) fn await_go(&self) -> Result<(), Errno> {
        let mut answer = [0u8; 1];
        match rustix::net::recv(&self.socket, &mut answer, RecvFlags::empty())? {
            (_, 1) if answer[0] == GO => Ok(()),
            _ => Err(Errno::CANCELED),
        }
    }

    pub(super) fn tell_probe(&self, errno: i32) -> Result<(), Errno> {
        self.send_record(PROBE, 0, errno)
    }

    pub(super) fn tell_failure(&self, at: usize, errno: Errno) {
        // If even this fails, the supervisor sees the socket close without an exec and says so.
        let _ = self.send_record(FAILED, at as u32, errno.raw_os_error());
    }

    fn send_record(&self, tag: u8, at: u32, errno: i32) -> Result<(), Errno> {
        let mut record = [tag, 0, 0, 0, 0, 0, 0, 0, 0];
        record[1..5].copy_from_slice(&at.to_le_bytes());
        record[5..9].copy_from_slice(&errno.to_le_bytes());
        rustix::net::send(&self.socket, &record, SendFlags::NOSIGNAL).map(drop)
    }

    pub(super) fn hand_over_listener(&self, listener: &OwnedFd) -> Result<(), Errno> {
        self.hand_over(LISTENER, listener)
    }

    pub(super) fn hand_over_layer(&self, directory: &OwnedFd) -> Result<(), Errno> {
        self.hand_over(LAYER, directory)
    }

    fn hand_over(&self, tag: u8, descriptor: &OwnedFd) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(Errno::NOBUFS);
        }
        let data = [tag];
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&data)], &mut control, SendFlags::NOSIGNAL)
            .map(drop)
    }
}

impl Supervisor {
    /// Tells the child to go on.
    pub(super) fn go(&self) -> Result<(), Errno> {
        rustix::net::send(&self.socket, &[GO], SendFlags::NOSIGNAL).map(drop)
    }

    /// Waits for the next message. The child runs our code only, but a short packet is still an error.
    pub(super) fn hear(&self) -> Result<Message, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut data = [0u8; 9];
        let mut slices = [IoSliceMut::new(&mut data)];
        let received = rustix::net::recvmsg(&self.socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC);
        let length = match received {
            Ok(message) => message.bytes,
            Err(Errno::CONNRESET) => 0,
            Err(errno) => return Err(errno),
        };
        let number =
            |from: usize| i32::from_le_bytes([data[from], data[from + 1], data[from + 2], data[from + 3]]);
        match (length, data[0]) {
            (0, _) => Ok(Message::Started),
            (1, LISTENER) => take_descriptor(&mut control).map(Message::Listener).ok_or(Errno::BADMSG),
            (1, LAYER) => take_descriptor(&mut control).map(Message::Layer).ok_or(Errno::BADMSG),
            (9, PROBE) => {
                Ok(Message::LandlockProbe(Some(number(5)).filter(|&e| e != 0).map(Errno::from_raw_os_error)))
            }
            (9, FAILED) => {
                Ok(Message::Failed { at: number(1) as usize, errno: Errno::from_raw_os_error(number(5)) })
            }
            _ => Err(Errno::BADMSG),
        }
    }
}

fn take_descriptor(control: &mut RecvAncillaryBuffer<'_>) -> Option<OwnedFd> {
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}
