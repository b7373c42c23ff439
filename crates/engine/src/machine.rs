//! What this program is to a virtual machine: in it, and around its VMM.

use crate::error::EngineError;
use std::path::Path;

/// Makes the inside of the machine that this is the program of, and serves the host until it is gone.
pub fn inside_machine() -> Result<(), EngineError> {
    Ok(cofferdam_runtime_vm::serve()?)
}

/// Starts a VMM as it is told on this socket, and says how it ended.
pub fn launch_machine(meeting: &Path) -> Result<i32, EngineError> {
    let doing = "start the VMM";
    cofferdam_runtime_vm::launch(meeting).map_err(|source| EngineError::Io { doing, source })
}
