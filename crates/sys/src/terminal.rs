//! The caller's terminal: its size, and raw mode that is undone however the scope is left.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

pub use rustix::termios::isatty;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// `ENOTTY` if the descriptor is no terminal.
pub fn size(terminal: impl AsFd) -> Result<Size, Errno> {
    tcgetwinsize(terminal).map(|size| Size { rows: size.ws_row, columns: size.ws_col })
}

/// Raw mode for as long as this lives: keys go through as they are typed, and so does what would be signals.
pub struct RawMode<'fd> {
    terminal: BorrowedFd<'fd>,
    before: Termios,
}

impl<'fd> RawMode<'fd> {
    pub fn enter(terminal: BorrowedFd<'fd>) -> Result<Self, Errno> {
        let before = tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        // At once: what was typed ahead is kept, and a terminal that is stopped holds nothing up.
        tcsetattr(terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for RawMode<'_> {
    fn drop(&mut self) {
        // The terminal may be gone already; then nothing is left to restore.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
    use rustix::termios::{LocalModes, Winsize, tcsetwinsize};

    #[test]
    fn raw_mode_ends_with_its_scope() {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        unlockpt(&master).unwrap();
        let terminal = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let canonical = || tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ICANON);
        assert!(canonical());
        {
            let _raw = RawMode::enter(terminal.as_fd()).unwrap();
            assert!(!canonical());
        }
        assert!(canonical());
        let winsize = Winsize { ws_row: 7, ws_col: 9, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, winsize).unwrap();
        assert_eq!(size(&terminal), Ok(Size { rows: 7, columns: 9 }));
        assert_eq!(size(std::fs::File::open("/dev/null").unwrap()), Err(Errno::NOTTY));
    }
}
