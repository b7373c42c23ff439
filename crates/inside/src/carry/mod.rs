//! Carries connections from a machine to the network around its VMM, over one stream. Inside, whatever is sent
//! anywhere comes to doors; each connection is opened again on the other side, to the same address, where it comes
//! to doors again: those that the host serves. So a machine's traffic meets what every sandbox's meets.
//!
//! The machine is hostile, and so is what it reaches: numbers are looked up and never trusted, every stream may have
//! only so much under way, and there are only so many of them.

mod frame;
mod near;
mod outside;
mod pump;

use cofferdam_runtime::Doors;
use pump::Pump;
use std::io;
use std::os::fd::OwnedFd;

/// Which end of the stream this is.
#[derive(Debug)]
pub enum Far {
    /// In the machine, where connections come from.
    Inside(Box<Doors>),
    /// Around the VMM, where they are opened.
    Outside,
}

/// Carries until the stream, or what `ended` stands for, has ended.
pub fn carry(stream: OwnedFd, far: Far, ended: Option<OwnedFd>) -> io::Result<()> {
    let mut pump = Pump::new(stream, ended)?;
    match far {
        Far::Inside(doors) => near::Near::new(*doors)?.run(&mut pump),
        Far::Outside => outside::Outside::default().run(&mut pump),
    }
}
