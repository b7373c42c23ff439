//! What this program is to a virtual machine: what starts its VMM.

use crate::error::EngineError;
use std::path::Path;

/// Starts a VMM as it is told on this socket, and says how it ended.
pub fn launch_machine(meeting: &Path) -> Result<i32, EngineError> {
    let doing = "start the VMM";
    cofferdam_runtime_vm::launch(meeting).map_err(|source| EngineError::Io { doing, source })
}

/// Has a guest of the kernel's own machines count, and says whether it did.
pub fn count_in_machine(rounds: u32) -> Result<bool, EngineError> {
    let doing = "run a guest on /dev/kvm";
    cofferdam_runtime_vm::count(rounds).map_err(|source| EngineError::Io { doing, source })
}
