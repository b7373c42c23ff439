//! Runs commands in a sandbox. A tier does not know what its guest says, so the few frames that are needed of
//! docs/guest-protocol.md are written and read here by hand.

use cofferdam_runtime::{Heard, Sandbox, Witness};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
const EXEC: u8 = 2;
const DATA: u8 = 4;
const EXITED: u8 = 9;

pub(crate) struct Inside {
    _sandbox: Box<dyn Sandbox>,
    channel: File,
    execs: u32,
    pub(crate) heard: Arc<Calls>,
}

/// System calls that were told of so far.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Vec<Heard>>);

impl Witness for Calls {
    fn hear(&self, heard: Heard) -> bool {
        self.0.lock().unwrap().push(heard);
        true
    }
}

impl Calls {
    /// Those since the last time.
    pub(crate) fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The names of those that were refused.
    pub(crate) fn refused(&self) -> Vec<String> {
        let name = |heard: Heard| match heard {
            Heard::Refused(attempt) => Some(attempt.syscall),
            Heard::Passed(_) => None,
        };
        self.take().into_iter().filter_map(name).collect()
    }
}

/// What a command wrote, stdout and stderr in the order they came.
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) success: bool,
}

fn bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    let mut length = bytes.len();
    while length >= 0x80 {
        into.push(length as u8 | 0x80);
        length >>= 7;
    }
    into.push(length as u8);
    into.extend_from_slice(bytes);
}

fn list(into: &mut Vec<u8>, items: &[&str]) {
    into.push(items.len() as u8);
    items.iter().for_each(|item| bytes(into, item.as_bytes()));
}

impl Inside {
    pub(crate) fn new(mut sandbox: Box<dyn Sandbox>) -> Self {
        let channel = File::from(sandbox.take_channel().unwrap());
        let heard = Arc::new(Calls::default());
        sandbox.listen(heard.clone()).unwrap();
        Self { _sandbox: sandbox, channel, execs: 0, heard }
    }

    pub(crate) fn run(&mut self, argv: &[&str]) -> Said {
        self.execs += 1;
        let mut body = Vec::new();
        list(&mut body, argv);
        list(
            &mut body,
            &["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
        );
        bytes(&mut body, b"/");
        // No other user, no terminal, nothing on its input.
        body.extend_from_slice(&[0, 0, 1]);
        let mut frame = [(body.len() as u32).to_le_bytes(), self.execs.to_le_bytes()].concat();
        frame.extend_from_slice(&[EXEC, 0, 1, 0]);
        frame.append(&mut body);
        self.channel.write_all(&frame).unwrap();
        self.listen()
    }

    /// A Python program. It must succeed.
    #[track_caller]
    pub(crate) fn python(&mut self, source: &str) -> String {
        let said = self.run(&["python3", "-c", source]);
        assert!(said.success, "{}", said.text);
        said.text.trim().to_owned()
    }

    fn listen(&mut self) -> Said {
        let mut text = Vec::new();
        loop {
            let (kind, body) = self.frame();
            match kind {
                DATA => text.extend_from_slice(&body),
                EXITED => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    return Said { text, success: body.starts_with(&[0, 0]) };
                }
                _ => {}
            }
        }
    }

    fn frame(&mut self) -> (u8, Vec<u8>) {
        self.wait();
        let mut header = [0u8; 12];
        self.channel.read_exact(&mut header).unwrap();
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let mut body = vec![0; length as usize];
        self.channel.read_exact(&mut body).unwrap();
        (header[8], body)
    }

    /// Until the guest says something. Whoever makes a refused call waits for us meanwhile.
    fn wait(&mut self) {
        loop {
            let mut set = [PollFd::from_borrowed_fd(self.channel.as_fd(), PollFlags::IN)];
            assert!(poll(&mut set, Some(&PATIENCE)).unwrap() > 0, "the guest says nothing");
            if !set[0].revents().is_empty() {
                return;
            }
        }
    }
}
