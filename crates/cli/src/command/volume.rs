//! `cofferdam volume`: directories that sessions share and that outlive them.

use crate::args::VolumeCommand;
use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use cofferdam_model::{Bytes, VolumeInfo};
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, command: VolumeCommand, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    match command {
        VolumeCommand::Create { name } => engine.create_volume(&name)?,
        VolumeCommand::Rm { name } => engine.remove_volume(&name)?,
        VolumeCommand::Show { name } => {
            let volume = engine.volume(&name)?;
            match output.json {
                true => output.value(&volume)?,
                false => output.data(&line(&volume))?,
            }
        }
        VolumeCommand::Ls => {
            let volumes = engine.volumes();
            if output.json {
                output.value(&volumes)?;
            } else {
                for volume in &volumes {
                    output.data(&line(volume))?;
                }
            }
        }
    }
    Ok(0)
}

fn line(volume: &VolumeInfo) -> String {
    let used = if volume.in_use { "in use" } else { "" };
    let line = format!(
        "{:<32} {:>10}  {:>9} files  {used}",
        volume.name.to_string(),
        Bytes(volume.bytes).to_string(),
        volume.files
    );
    format!("{}\n", line.trim_end())
}
