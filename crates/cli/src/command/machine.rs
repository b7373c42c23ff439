//! What this program is to a virtual machine: what starts its VMM, and what finds out who executes it. People have no
//! need to call either.

use crate::output::Failure;
use std::path::Path;

pub(crate) fn launch(meeting: &Path) -> Result<u8, Failure> {
    let code = cofferdam_engine::launch_machine(meeting)?;
    Ok(u8::try_from(code).unwrap_or(1))
}

pub(crate) fn count(rounds: u32) -> Result<u8, Failure> {
    Ok(u8::from(!cofferdam_engine::count_in_machine(rounds)?))
}
