//! The double of the kernel: it does nothing, remembers everything, and fails where it is told to.

use super::{Kernel, Op};
use rustix::io::Errno;

#[derive(Default)]
pub struct Recorder {
    pub performed: Vec<String>,
    /// The operation (by position) that fails, and how.
    pub fault: Option<(usize, Errno)>,
}

impl Kernel for Recorder {
    fn perform(&mut self, op: &Op) -> Result<(), Errno> {
        match self.fault {
            Some((at, errno)) if at == self.performed.len() => Err(errno),
            _ => {
                self.performed.push(op.to_string());
                Ok(())
            }
        }
    }
}
