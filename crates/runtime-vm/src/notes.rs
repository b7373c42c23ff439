//! Hears of system calls in a machine: each is put on record before its caller goes on. The machine is hostile: what
//! it says is bounded, and only ever recorded.

use cofferdam_inside::wire::{Frame, HEARD, Note, receive};
use cofferdam_runtime::{Heard, Witness};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Of one note.
const MOST: u32 = 256 << 10;

/// Listens until the machine is gone. What cannot be recorded is not answered, so its caller never goes on; the
/// witness has the session ended by then.
pub(crate) fn listen(mut from: UnixStream, witness: Arc<dyn Witness>) -> io::Result<()> {
    from.set_nonblocking(false)?;
    let hear = move || {
        while let Ok(Frame::Message(note)) = receive::<Note>(&mut from, MOST) {
            let heard = match note {
                Note::Refused(attempt) => Heard::Refused(attempt),
                Note::Passed(seen) => Heard::Passed(seen),
            };
            if !witness.hear(heard) || from.write_all(&[HEARD]).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("vm-notes".into()).spawn(hear).map(drop)
}
