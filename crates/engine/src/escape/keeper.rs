//! A process of the host's with a secret: in its environment, in its memory, and with a shared segment beside it.
//! It ends when its standard input does, so also with whoever started it, and leaves nothing.

use cofferdam_sys::probe::Segment;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The variable by which it gets the word. It stands in its environment from then on.
const PLANTED: &str = "COFFERDAM_PLANTED";

/// The number by which its shared segment is found.
pub(super) fn segment_key(pid: u32) -> i32 {
    0x0c0f_0000 ^ (pid as i32 & 0x00ff_ffff)
}

/// What the process holds.
pub struct Held {
    word: Vec<u8>,
    /// A host without shared memory of the old kind has none, and then nothing can be shown of it.
    _segment: Option<Segment>,
}

impl Held {
    /// In the process itself.
    pub fn take() -> Self {
        let word = std::env::var_os(PLANTED).map(OsStringExt::into_vec).unwrap_or_default();
        Self { word, _segment: Segment::create(segment_key(std::process::id())).ok() }
    }

    /// Where in memory the word is, for as long as this lives.
    pub fn address(&self) -> u64 {
        self.word.as_ptr() as u64
    }
}

/// The same seen from whoever started it.
pub(super) struct Keeper {
    child: Child,
    pub(super) address: u64,
    stdin: Option<ChildStdin>,
}

impl Keeper {
    pub(super) fn start(program: &Path, word: &str) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(["probe", "hold"]).env(PLANTED, word);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        let read = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line)).transpose();
        let keeper = Self { address: line.trim().parse().unwrap_or(0), child, stdin };
        match read {
            Ok(_) if keeper.address != 0 => Ok(keeper),
            Ok(_) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it did not say where it keeps it")),
            Err(error) => Err(error),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}
