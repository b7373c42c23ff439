//! `cofferdam session`: sessions that live, and changes to them that take effect on their next byte.

mod copy;
pub(super) mod list;
mod stay;
mod transact;

pub(super) use stay::staying;
pub(super) use transact::told;

use crate::args::{Session, SessionCommand, SessionPolicyCommand, SessionToolsCommand, Switch};
use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use cofferdam_model::Cap;
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
        SessionCommand::Cp { user, from, to } => copy::run(&engine, &from, &to, user.as_deref(), output),
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
        SessionCommand::Archive { session, file } => archive(&engine, &session, &file, output),
        SessionCommand::Unarchive { file, name } => Ok(engine.unarchive(&file, &name).map(|()| 0)?),
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
        SessionCommand::Logs { session, exec, follow } => {
            stay::logs(&engine, &find(&session)?, (exec, follow), output)
        }
        SessionCommand::Policy { command: SessionPolicyCommand::Set { session, file } } => {
            changed(engine.set_policy(&find(&session)?, file)?, output)
        }
        SessionCommand::Tools { command: SessionToolsCommand::Set { session, file } } => {
            Ok(engine.set_tools(&find(&session)?, &file).map(|()| 0)?)
        }
        SessionCommand::Revoke { session, secret } => {
            changed(engine.revoke_live(&find(&session)?, &secret)?, output)
        }
        SessionCommand::Rotate { session, secret } => {
            changed(engine.rotate_live(&find(&session)?, &secret)?, output)
        }
        SessionCommand::Cap { session, spend, tokens, requests, bytes_up, bytes_down } => {
            let spend = spend.as_deref().map(dollars).transpose()?;
            let (bytes_up, bytes_down) = (bytes_up.map(|size| size.0), bytes_down.map(|size| size.0));
            let cap = Cap { requests, bytes_up, bytes_down, spend, tokens };
            engine.cap_live(&find(&session)?, cap)?;
            if output.json {
                output.value(&cap)?;
            }
            Ok(0)
        }
        SessionCommand::Egress { session, to } => {
            changed(engine.set_egress(&find(&session)?, to == Switch::On)?, output)
        }
    }
}

fn dollars(text: &str) -> Result<u64, Failure> {
    let wrong =
        || Failure::Usage(format!("--spend {text}: write dollars as 2.50, with at most six decimals"));
    cofferdam_engine::micro_dollars(text).ok_or_else(wrong)
}

fn changed(cut: u64, output: &Output) -> Result<u8, Failure> {
    match output.json {
        true => output.value(&json!({ "cut": cut }))?,
        false if cut > 0 => output.remark(format!("{cut} requests under way were cut")),
        false => {}
    }
    Ok(0)
}

/// Of a session that lives, or else of a snapshot of that name.
fn archive(engine: &Engine, of: &str, file: &std::path::Path, output: &Output) -> Result<u8, Failure> {
    let is_snapshot = engine.snapshots().iter().any(|snapshot| snapshot.name == of);
    let omitted = match engine.find_session(of) {
        Ok(session) => engine.archive_session(&session, file)?,
        Err(_) if is_snapshot => engine.archive_snapshot(of, file)?,
        Err(error) => return Err(error.into()),
    };
    if omitted > 0 {
        output.remark(format!("{omitted} sockets or devices were left out"));
    }
    Ok(0)
}
