//! `cofferdam session`: sessions that live, and changes to them that take effect on their next byte.

pub(super) mod list;
mod stay;
mod transact;

use crate::args::{Session, SessionCommand, SessionPolicyCommand, Switch};
use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use serde_json::json;
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, session: Session, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    let find = |name: &str| engine.find_session(name);
    match session.command {
        SessionCommand::Create(create) => stay::create(&engine, *create, output),
        SessionCommand::Ls => list::all(&engine, output),
        SessionCommand::Show { session } => list::one(&engine, &find(&session)?, output),
        SessionCommand::Exec(exec) => stay::exec(&engine, *exec, output),
        SessionCommand::Begin { session } => Ok(engine.begin_transaction(&find(&session)?).map(|()| 0)?),
        SessionCommand::Diff { session, brief } => transact::diff(&engine, &find(&session)?, brief, output),
        SessionCommand::Commit { session, force } => {
            transact::settle(&engine, &find(&session)?, true, force, output)
        }
        SessionCommand::Rollback { session, force } => {
            transact::settle(&engine, &find(&session)?, false, force, output)
        }
        SessionCommand::Snapshot { processes: true, .. } => Err(engine.keep_processes().into()),
        SessionCommand::Snapshot { session, name, .. } => {
            Ok(engine.snapshot_session(&find(&session)?, &name).map(|()| 0)?)
        }
        SessionCommand::Restore { session, name } => {
            Ok(engine.restore_session(&find(&session)?, &name).map(|()| 0)?)
        }
        SessionCommand::Snapshots { rm: Some(name) } => Ok(engine.remove_snapshot(&name).map(|()| 0)?),
        SessionCommand::Snapshots { rm: None } => list::snapshots(&engine, output),
        SessionCommand::Fork { session, count } => transact::fork(&engine, &find(&session)?, count, output),
        SessionCommand::Pause { session } => Ok(engine.pause_session(&find(&session)?).map(|()| 0)?),
        SessionCommand::Resume { session } => Ok(engine.resume_session(&find(&session)?).map(|()| 0)?),
        SessionCommand::Extend { session, by } => {
            Ok(engine.extend_session(&find(&session)?, by).map(|()| 0)?)
        }
        SessionCommand::Kill { session, exec: Some(exec), .. } => {
            Ok(engine.kill_exec(&find(&session)?, exec).map(|()| 0)?)
        }
        SessionCommand::Kill { session, changes, .. } => {
            stay::kill(&engine, &find(&session)?, changes, output)
        }
        SessionCommand::Logs { session, exec, follow } => stay::logs(&engine, &find(&session)?, exec, follow),
        SessionCommand::Policy { command: SessionPolicyCommand::Set { session, file } } => {
            changed(engine.set_policy(&find(&session)?, file)?, output)
        }
        SessionCommand::Revoke { session, secret } => {
            changed(engine.revoke_live(&find(&session)?, &secret)?, output)
        }
        SessionCommand::Rotate { session, secret } => {
            changed(engine.rotate_live(&find(&session)?, &secret)?, output)
        }
        SessionCommand::Egress { session, to } => {
            changed(engine.set_egress(&find(&session)?, to == Switch::On)?, output)
        }
    }
}

fn changed(cut: u64, output: &Output) -> Result<u8, Failure> {
    match output.json {
        true => output.value(&json!({ "cut": cut }))?,
        false if cut > 0 => output.remark(format!("{cut} requests under way were cut")),
        false => {}
    }
    Ok(0)
}
