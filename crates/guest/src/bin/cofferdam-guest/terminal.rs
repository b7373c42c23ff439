//! A terminal of the sandbox's own. The caller's never comes inside: whoever holds it could type into it.

use cofferdam_guest::wire::Size;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

pub(crate) struct Terminal {
    /// Our side, which never blocks.
    pub(crate) master: OwnedFd,
    /// The command's. Held open as long as the exec lives, or a command that closes its own for a while would
    /// look like one that is gone.
    pub(crate) slave: OwnedFd,
}

impl Terminal {
    pub(crate) fn open(size: Size) -> Result<Self, Errno> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        unlockpt(&master)?;
        // From the master itself, not by a path that someone inside could have prepared.
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        resize(&master, size)?;
        fcntl_setfl(&master, OFlags::NONBLOCK)?;
        Ok(Self { master, slave })
    }
}

pub(crate) fn resize(master: impl AsFd, size: Size) -> Result<(), Errno> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size)
}
