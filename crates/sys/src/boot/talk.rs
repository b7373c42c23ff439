//! What the boot child and its supervisor say to each other: one byte or one small record a packet, some with
//! descriptors.

use crate::late::{PROBE, WAITING, record};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

const GO: u8 = b'!';
const LISTENER: u8 = b'l';
const LAYER: u8 = b'd';
const DOORS: u8 = b'o';
const PLACE: u8 = b'n';
const FAILED: u8 = b'x';
const DONE: u8 = b'e';
const SETTLED: u8 = b's';

/// How many sockets can be handed over at once.
pub const DOORS_MAX: usize = 8;

/// What the supervisor hears.
#[derive(Debug)]
pub enum Message {
    /// Its namespaces, mounts and limits are what they will be when the guest runs.
    Settled,
    /// What a write outside all Landlock rules gave: nothing means that it succeeded.
    LandlockProbe(Option<Errno>),
    /// The seccomp listener.
    Listener(OwnedFd),
    /// A directory that was to be handed over.
    Layer(OwnedFd),
    /// The sockets that were to be made, in order.
    Doors(Vec<OwnedFd>),
    /// The mount, network and user namespaces that were to be kept.
    Place([OwnedFd; 3]),
    /// The guest's image is running, and waits to be bound.
    Waiting,
    /// Whoever was to make something has made all of it, and ends.
    Done,
    /// The operation at this position failed.
    Failed { at: usize, errno: Errno },
    /// The guest's image is running: the socket closed on exec.
    Started,
}

/// Descriptors that the supervisor makes while the child is already at work.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given<'a> {
    /// A user namespace whose maps translate owners on idmapped mounts.
    pub id_map: Option<BorrowedFd<'a>>,
    /// The user namespace to end up in.
    pub user_namespace: Option<BorrowedFd<'a>>,
    /// A file system that is mounted nowhere yet, for the scratch space.
    pub scratch: Option<BorrowedFd<'a>>,
}

/// How many there can be.
const GIVEN: usize = 3;

/// The same as they arrive.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) id_map: Option<OwnedFd>,
    pub(super) user_namespace: Option<OwnedFd>,
    pub(super) scratch: Option<OwnedFd>,
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
    pub(super) fn await_go(&self) -> Result<Received, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GIVEN))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut word = [0u8; 2];
        let mut slices = [IoSliceMut::new(&mut word)];
        let heard =
            rustix::net::recvmsg(&self.socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        if (heard, word[0]) != (2, GO) {
            return Err(Errno::CANCELED);
        }
        let mut rights = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let mut next = |bit: usize| if word[1] & 1 << bit == 0 { None } else { rights.as_mut()?.next() };
        Ok(Received { id_map: next(0), user_namespace: next(1), scratch: next(2) })
    }

    pub(super) fn tell_probe(&self, errno: i32) -> Result<(), Errno> {
        self.send_record(PROBE, 0, errno)
    }

    pub(super) fn tell_failure(&self, at: usize, errno: Errno) {
        // If even this fails, the supervisor sees the socket close without an exec and says so.
        let _ = self.send_record(FAILED, at as u32, errno.raw_os_error());
    }

    fn send_record(&self, tag: u8, at: u32, errno: i32) -> Result<(), Errno> {
        rustix::net::send(&self.socket, &record(tag, at, errno), SendFlags::NOSIGNAL).map(drop)
    }

    pub(super) fn tell_done(&self) -> Result<(), Errno> {
        rustix::net::send(&self.socket, &[DONE], SendFlags::NOSIGNAL).map(drop)
    }

    pub(super) fn tell_settled(&self) -> Result<(), Errno> {
        rustix::net::send(&self.socket, &[SETTLED], SendFlags::NOSIGNAL).map(drop)
    }

    pub(super) fn hand_over_listener(&self, listener: &OwnedFd) -> Result<(), Errno> {
        self.hand_over(LISTENER, &[listener.as_fd()])
    }

    pub(super) fn hand_over_layer(&self, directory: &OwnedFd) -> Result<(), Errno> {
        self.hand_over(LAYER, &[directory.as_fd()])
    }

    pub(super) fn hand_over_place(&self, namespaces: [BorrowedFd<'_>; 3]) -> Result<(), Errno> {
        self.hand_over(PLACE, &namespaces)
    }

    pub(super) fn hand_over_doors(&self, doors: &[Option<OwnedFd>; DOORS_MAX]) -> Result<(), Errno> {
        let mut open = [self.socket.as_fd(); DOORS_MAX];
        let mut count = 0;
        for (place, door) in open.iter_mut().zip(doors.iter().flatten()) {
            *place = door.as_fd();
            count += 1;
        }
        self.hand_over(DOORS, &open[..count])
    }

    fn hand_over(&self, tag: u8, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DOORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::NOBUFS);
        }
        let data = [tag];
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&data)], &mut control, SendFlags::NOSIGNAL)
            .map(drop)
    }
}

impl Supervisor {
    /// Tells the child to go on, with what it will need, and which of it there is.
    pub(super) fn go(&self, given: Given<'_>) -> Result<(), Errno> {
        let mut which = 0;
        let mut descriptors = [self.socket.as_fd(); GIVEN];
        let mut count = 0;
        for (bit, given) in [given.id_map, given.user_namespace, given.scratch].into_iter().enumerate() {
            if let Some(given) = given {
                which |= 1 << bit;
                descriptors[count] = given;
                count += 1;
            }
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GIVEN))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if count > 0 && !control.push(SendAncillaryMessage::ScmRights(&descriptors[..count])) {
            return Err(Errno::NOBUFS);
        }
        let word = [GO, which];
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&word)], &mut control, SendFlags::NOSIGNAL)
            .map(drop)
    }

    /// Waits for the next message. The child runs our code only, but a short packet is still an error.
    pub(super) fn hear(&self) -> Result<Message, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DOORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut data = [0u8; 9];
        let mut slices = [IoSliceMut::new(&mut data)];
        let received = rustix::net::recvmsg(&self.socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC);
        let length = match received {
            Ok(message) => message.bytes,
            // It ended with words of ours unread. What it said before that comes after this.
            Err(Errno::CONNRESET) => return self.hear(),
            Err(errno) => return Err(errno),
        };
        let number =
            |from: usize| i32::from_le_bytes([data[from], data[from + 1], data[from + 2], data[from + 3]]);
        match (length, data[0]) {
            (0, _) => Ok(Message::Started),
            (1, LISTENER) => take_descriptors(&mut control).pop().map(Message::Listener).ok_or(Errno::BADMSG),
            (1, LAYER) => take_descriptors(&mut control).pop().map(Message::Layer).ok_or(Errno::BADMSG),
            (1, PLACE) => {
                take_descriptors(&mut control).try_into().map(Message::Place).map_err(|_| Errno::BADMSG)
            }
            (1, WAITING) => Ok(Message::Waiting),
            (1, DONE) => Ok(Message::Done),
            (1, SETTLED) => Ok(Message::Settled),
            (1, DOORS) => Ok(Message::Doors(take_descriptors(&mut control))),
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

fn take_descriptors(control: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let mut taken = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            taken.extend(descriptors);
        }
    }
    taken
}
