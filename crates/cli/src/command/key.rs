//! `cofferdam key`: the keys that sign traces, and those that are believed.

use crate::args::{Key as Args, KeyCommand};
use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use serde_json::json;
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, args: Args, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    match args.command {
        KeyCommand::Show => {
            let key = engine.public_key()?;
            match output.json {
                true => output.value(&json!({ "id": key.id(), "pem": key.to_pem() }))?,
                false => output.data(&key.to_pem())?,
            }
        }
        KeyCommand::Rotate => {
            let rotated = engine.rotate_key()?;
            let old = rotated.old.as_ref().map(|key| key.id());
            match output.json {
                true => output.value(&json!({ "old": old, "new": rotated.new.id() }))?,
                false => output.data(&format!("new key {}\n", rotated.new.id()))?,
            }
            output.remark("traces signed with the old key stay valid here; others need the new public key (`cofferdam key show`)");
        }
        KeyCommand::Trust { file } => {
            let key = engine.trust_key(&file)?;
            match output.json {
                true => output.value(&json!({ "trusted": key.id() }))?,
                false => output.data(&format!("trusted {}\n", key.id()))?,
            }
        }
    }
    Ok(0)
}
