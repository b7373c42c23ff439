//! `cofferdam session`: what runs now, and changes to it that take effect on its next byte.

use crate::args::{Session, SessionCommand, SessionPolicyCommand, Switch};
use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use serde_json::json;
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, session: Session, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    match session.command {
        SessionCommand::Ls => list(&engine, output),
        SessionCommand::Policy { command: SessionPolicyCommand::Set { session, file } } => {
            let id = engine.find_live(&session)?;
            changed(engine.set_policy(&id, file)?, output)
        }
        SessionCommand::Revoke { session, secret } => {
            let id = engine.find_live(&session)?;
            changed(engine.revoke_live(&id, &secret)?, output)
        }
        SessionCommand::Rotate { session, secret } => {
            let id = engine.find_live(&session)?;
            changed(engine.rotate_live(&id, &secret)?, output)
        }
        SessionCommand::Egress { session, to } => {
            let id = engine.find_live(&session)?;
            changed(engine.set_egress(&id, to == Switch::On)?, output)
        }
    }
}

fn list(engine: &Engine, output: &Output) -> Result<u8, Failure> {
    let live = engine.live()?;
    match output.json {
        true => output.value(&json!(live))?,
        false => output.data(&live.iter().map(|session| format!("{session}\n")).collect::<String>())?,
    }
    Ok(0)
}

fn changed(cut: u64, output: &Output) -> Result<u8, Failure> {
    match output.json {
        true => output.value(&json!({ "cut": cut }))?,
        false if cut > 0 => output.remark(format!("{cut} requests under way were cut")),
        false => {}
    }
    Ok(0)
}
