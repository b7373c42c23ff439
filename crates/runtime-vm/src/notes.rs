//! Hears of system calls in a machine: each is put on record before its caller goes on. The machine is hostile: what
//! it says is bounded, and only ever recorded.

use crate::watch::Tail;
use cofferdam_inside::wire::{Frame, HEARD, Note, receive};
use cofferdam_runtime::{Heard, Witness};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Of one note.
const MOST: u32 = 256 << 10;

/// Listens until the machine is gone. What cannot be recorded is not answered, so its caller never goes on; the
/// witness has the session ended by then. A machine that says something else has nobody to speak to any more: its
/// session ends.
pub(crate) fn listen(
    mut from: UnixStream,
    others: [UnixStream; 2],
    tail: Tail,
    witness: Arc<dyn Witness>,
) -> io::Result<()> {
    from.set_nonblocking(false)?;
    let hear = move || {
        loop {
            let heard = match receive::<Note>(&mut from, MOST) {
                Ok(Frame::Message(Note::Refused(attempt))) => Heard::Refused(attempt),
                Ok(Frame::Message(Note::Passed(seen))) => Heard::Passed(seen),
                Err(error) if error.kind() != io::ErrorKind::InvalidData => return,
                Ok(Frame::Piece(_) | Frame::Entry(_) | Frame::Renewal(_)) | Err(_) => {
                    tail.add(b"\nthe machine broke the protocol where it tells of system calls\n");
                    others.iter().for_each(|stream| _ = stream.shutdown(std::net::Shutdown::Both));
                    return;
                }
            };
            if !witness.hear(heard) || from.write_all(&[HEARD]).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("vm-notes".into()).spawn(hear).map(drop)
}
