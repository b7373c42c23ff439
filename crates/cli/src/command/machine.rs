//! What this program is to a virtual machine: what makes the inside in it, and what starts its VMM. People have no
//! need to call either.

use crate::output::Failure;
use std::path::Path;

pub(crate) fn inside() -> Result<u8, Failure> {
    cofferdam_engine::inside_machine()?;
    Ok(0)
}

pub(crate) fn launch(meeting: &Path) -> Result<u8, Failure> {
    let code = cofferdam_engine::launch_machine(meeting)?;
    Ok(u8::try_from(code).unwrap_or(1))
}
