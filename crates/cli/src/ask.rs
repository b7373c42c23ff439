//! Asks the person at the terminal for something that is not shown while it is typed. It talks to the terminal
//! itself: stdin and stdout are the caller's, and may be pipes.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{self, Read, Write};
use zeroize::Zeroizing;

const LONGEST: usize = 64 << 10;

pub(crate) fn hidden(what: &str) -> io::Result<Zeroizing<Vec<u8>>> {
    let open = File::options().read(true).write(true).open("/dev/tty");
    let terminal = open.map_err(|source| {
        let why = "there is no terminal to type it at; give it on stdin or from another source, a passphrase with COFFERDAM_VAULT_PASSPHRASE_FILE";
        io::Error::new(source.kind(), why)
    })?;
    let typed = {
        // Before the question: who answers at once is neither shown nor lost.
        let _dark = Dark::enter(&terminal)?;
        (&terminal).write_all(format!("cofferdam: {what}: ").as_bytes())?;
        line(&terminal)
    };
    // What the person's return key would have shown.
    writeln!(&terminal)?;
    typed
}

/// No echo for as long as this lives.
struct Dark<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> Dark<'t> {
    fn enter(terminal: &'t File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut dark = before.clone();
        dark.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &dark)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Dark<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing restored.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

fn line(mut from: &File) -> io::Result<Zeroizing<Vec<u8>>> {
    // Room for all of it at once, so that no copy is left behind.
    let mut typed = Zeroizing::new(Vec::with_capacity(LONGEST));
    let mut byte = [0];
    while typed.len() < LONGEST && from.read(&mut byte)? == 1 && byte[0] != b'\n' {
        typed.push(byte[0]);
    }
    Ok(typed)
}
