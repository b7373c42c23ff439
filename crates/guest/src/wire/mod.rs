//! What passes between host and guest: frames of a fixed header and a bounded body, over any byte stream.
//!
//! Everything here is pure and knows no state: a header is judged by itself, before its body has come. What
//! may be said *when* is for `host::rules` and the guest to judge. Described in docs/guest-protocol.md.

mod message;
mod plea;
mod reader;
mod task;

pub use message::{
    Attach, Exec, Exited, Fault, Hello, Outcome, Resize, SECONDS_TO_BEGIN, Signal, Size, Started, Stdin,
    Step, Stopped, Target, ToGuest, ToHost, Tty, Usage, User, Warm, Window, put, put_empty,
};
pub use plea::{
    Answer, DENY_MAX, Deny, Grant, Invite, PLEA_MAX, PLEAS_MAX, Plea, REQUEST_MAX, Request, SOCKET,
};
pub use reader::{Part, Reader};
pub use task::{
    Account, Change, Entry, FileKind, NOTES_MAX, RECORD_MAX, RecordError, Said, TASK_MAX, Task, WATCHES_MAX,
    Why, Work,
};

/// In every header. Both sides must speak the same: the guest is embedded in the host.
pub const VERSION: u8 = 1;
pub const HEADER_LEN: usize = 12;
/// Of one data frame: short enough that another stream soon gets its turn.
pub const DATA_MAX: u32 = 64 * 1024;
/// How much of one stream may be under way, in each direction, before the receiver says it can take more.
pub const WINDOW: u32 = 512 * 1024;
/// Of a request to execute. The kernel's own limit for arguments and environment is about as much.
pub const EXEC_MAX: u32 = 4 * 1024 * 1024;
/// Of any other message.
pub const CONTROL_MAX: u32 = 64;
/// Running at once in one guest: commands and tasks.
pub const EXECS_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Guest: I am here. The first frame, once.
    Hello = 1,
    /// Host: execute this.
    Exec = 2,
    /// Guest: it runs.
    Started = 3,
    /// Bytes of a stream, as they are.
    Data = 4,
    /// No more of this stream. From the guest for an input: nobody reads it any more.
    Eof = 5,
    /// So many more bytes of this stream may come.
    Window = 6,
    /// Host: the terminal has another size.
    Resize = 7,
    /// Host: send this signal.
    Signal = 8,
    /// Guest: it has ended, or never began.
    Exited = 9,
    /// Guest: the host broke the protocol, and the guest ends.
    Fault = 10,
    /// Host: do this. From here on it is as an exec that has one output.
    Task = 11,
    /// Host: I am another one than you have spoken to. What runs goes on, and belongs to nobody; the guest begins
    /// anew, after the mark, with its first frame.
    Attach = 12,
    /// Host: those inside may ask for commands by you.
    Invite = 13,
    /// Guest: somebody inside asks for a command, with descriptors of their own. Its number is the guest's.
    Plea = 14,
    /// Host: execute this for one who asked. It has no streams: its descriptors are the asker's.
    Grant = 15,
    /// Host: no.
    Deny = 16,
    /// Host: keep this interpreter, and copy it for scripts that could be its copies.
    Warm = 17,
    /// Guest: the command on a terminal was stopped, and waits for CONT.
    Stopped = 18,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stream {
    Stdin = 1,
    Stdout = 2,
    Stderr = 3,
    /// A terminal, in both directions.
    Tty = 4,
}

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Host,
    Guest,
}

/// What a frame can be by itself, without regard to what was said before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("version {0} instead of {VERSION}")]
    Version(u8),
    #[error("kind {0} is unknown")]
    Kind(u8),
    #[error("{0:?} is not for this side to send")]
    Side(Kind),
    #[error("stream {stream} cannot go with {kind:?} from this side")]
    Stream { kind: Kind, stream: u8 },
    #[error("reserved bits are set")]
    Reserved,
    #[error("exec {id} cannot go with {kind:?}")]
    Id { kind: Kind, id: u32 },
    #[error("{length} bytes are not a length of {kind:?}")]
    Length { kind: Kind, length: u32 },
    #[error("the body of {0:?} cannot be read")]
    Body(Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub stream: Option<Stream>,
    /// Which exec it is about; chosen by the host, zero for none. Of a plea its own number, chosen by the guest.
    pub id: u32,
    pub length: u32,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::{
            Attach, Data, Deny, Eof, Exec, Exited, Fault, Grant, Hello, Invite, Plea, Resize, Signal,
            Started, Stopped, Task, Warm, Window,
        };
        [
            Hello, Exec, Started, Data, Eof, Window, Resize, Signal, Exited, Fault, Task, Attach, Invite,
            Plea, Grant, Deny, Warm, Stopped,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }

    const fn may_come_from(self, side: Side) -> bool {
        match self {
            Self::Data | Self::Eof | Self::Window => true,
            Self::Exec | Self::Resize | Self::Signal | Self::Task | Self::Attach | Self::Warm => {
                matches!(side, Side::Host)
            }
            Self::Invite | Self::Grant | Self::Deny => matches!(side, Side::Host),
            Self::Hello | Self::Started | Self::Exited | Self::Fault | Self::Plea | Self::Stopped => {
                matches!(side, Side::Guest)
            }
        }
    }

    /// Bytes flow in the direction of the stream, and so does its end; permission flows against it. Only the
    /// guest may also end what it was to read.
    const fn may_have(self, stream: Option<Stream>, from: Side) -> bool {
        let Some(stream) = stream else {
            return !matches!(self, Self::Data | Self::Eof | Self::Window);
        };
        let input = matches!(stream, Stream::Stdin | Stream::Tty);
        let output = !matches!(stream, Stream::Stdin);
        match (self, from) {
            (Self::Data, Side::Host) | (Self::Eof, Side::Host) | (Self::Window, Side::Guest) => input,
            (Self::Data, Side::Guest) | (Self::Window, Side::Host) => output,
            (Self::Eof, Side::Guest) => true,
            _ => false,
        }
    }

    const fn may_have_length(self, length: u32) -> bool {
        match self {
            Self::Data => length > 0 && length <= DATA_MAX,
            Self::Eof => length == 0,
            Self::Exec | Self::Grant | Self::Warm => length > 0 && length <= EXEC_MAX,
            Self::Task => length > 0 && length <= TASK_MAX,
            Self::Plea => length > 0 && length <= PLEA_MAX,
            Self::Deny => length > 0 && length <= DENY_MAX,
            _ => length > 0 && length <= CONTROL_MAX,
        }
    }

    /// Or about a plea, which has a number too.
    const fn is_about_an_exec(self) -> bool {
        !matches!(self, Self::Hello | Self::Fault | Self::Attach | Self::Invite | Self::Warm)
    }
}

impl Stream {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Stdin, Self::Stdout, Self::Stderr, Self::Tty].into_iter().find(|s| *s as u8 == byte)
    }
}

impl Header {
    pub const fn encode(self) -> [u8; HEADER_LEN] {
        let [l0, l1, l2, l3] = self.length.to_le_bytes();
        let [i0, i1, i2, i3] = self.id.to_le_bytes();
        let stream = match self.stream {
            Some(stream) => stream as u8,
            None => 0,
        };
        [l0, l1, l2, l3, i0, i1, i2, i3, self.kind as u8, stream, VERSION, 0]
    }

    /// Everything that can be wrong with a header alone.
    pub fn decode(bytes: [u8; HEADER_LEN], from: Side) -> Result<Self, FrameError> {
        let [l0, l1, l2, l3, i0, i1, i2, i3, kind, stream_byte, version, reserved] = bytes;
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if reserved != 0 {
            return Err(FrameError::Reserved);
        }
        let kind = Kind::from_byte(kind).ok_or(FrameError::Kind(kind))?;
        if !kind.may_come_from(from) {
            return Err(FrameError::Side(kind));
        }
        let stream = Stream::from_byte(stream_byte);
        if stream.is_none() && stream_byte != 0 || !kind.may_have(stream, from) {
            return Err(FrameError::Stream { kind, stream: stream_byte });
        }
        let (length, id) = (u32::from_le_bytes([l0, l1, l2, l3]), u32::from_le_bytes([i0, i1, i2, i3]));
        if kind.is_about_an_exec() != (id != 0) {
            return Err(FrameError::Id { kind, id });
        }
        if !kind.may_have_length(length) {
            return Err(FrameError::Length { kind, length });
        }
        Ok(Self { kind, stream, id, length })
    }
}

#[cfg(test)]
mod tests;
