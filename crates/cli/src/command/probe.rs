//! `cofferdam probe`: what `cofferdam escape` runs inside a sandbox and outside of it. Not for people.

use crate::args::{ProbeCommand, Surroundings};
use crate::output::{Failure, Output};
use cofferdam_engine::escape;
use std::io::Read;

pub(crate) fn run(command: ProbeCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        ProbeCommand::All { facts, ids } => output.value(&escape::probe_all(&facts, &ids))?,
        ProbeCommand::One { facts, id, surroundings } => {
            let surroundings = match surroundings {
                Surroundings::AsIs => escape::Surroundings::AsIs,
                Surroundings::Apart => escape::Surroundings::Apart,
                Surroundings::World => escape::Surroundings::World,
            };
            output.value(&escape::probe_one(&facts, &id, surroundings)?)?;
        }
        ProbeCommand::Hold => {
            let held = escape::Held::take();
            output.data(&format!("{}\n", held.address()))?;
            std::io::stdin().read_to_end(&mut Vec::new())?;
            drop(held);
        }
    }
    Ok(0)
}
