//! Another registry of tools for a session that lives: from the next command on. Programs and paths are mounts, and
//! mounts cannot change under who uses them, so nothing may run meanwhile; what leaves is judged anew at once.

use super::holder::Holder;
use crate::Engine;
use crate::control::Question;
use crate::error::EngineError;
use crate::policy;
use crate::session::toolbox;
use cofferdam_egress::Rules;
use cofferdam_model::{SessionId, SessionSpec};
use std::path::{Path, PathBuf};

fn declined(text: &str) -> EngineError {
    EngineError::Declined(text.into())
}

impl Holder {
    pub(super) fn set_tools(&mut self, path: PathBuf, by: &str) -> Result<(), EngineError> {
        if self.spec.tools.is_none() {
            return Err(declined(
                "it was made without a registry of tools, and has all programs: make another",
            ));
        }
        let spec = SessionSpec { tools: Some(path.clone()), ..self.spec.clone() };
        let Some(tools) = toolbox(&spec, &self.standing.caller)? else { return Ok(()) };
        let before = toolbox(&self.spec, &self.standing.caller).ok().flatten();
        let rights = before.map_or((false, false), |before| (before.nested, before.tracing));
        if (tools.nested && !rights.0 && !self.spec.nested) || (tools.tracing && !rights.1) {
            return Err(declined(
                "its tools would need system calls that the session was not made with: make another",
            ));
        }
        let derived = tools.derived.as_ref().map(|(policy, _)| policy.clone());
        match (&self.standing.egress, &derived) {
            (None, Some(_)) => {
                return Err(declined("it was made without anything that leaves: make another"));
            }
            (Some(_), None) => {
                return Err(declined(
                    "no tool may reach anything any more: use `cofferdam session egress off`",
                ));
            }
            _ => {}
        }
        self.make_ready(false, by)?;
        let mounts = self.spec.mounts.iter().cloned();
        let mounts = mounts.chain(self.standing.volumes.iter().map(|volume| volume.mount.clone())).collect();
        let changed = self.standing.sandbox.refurnish(&mut |asked| {
            asked.mounts = Vec::clone(&mounts);
            tools.clone().furnish(asked);
        });
        self.meet_guest()?;
        changed?;
        if let (Some(egress), Some(derived)) = (&self.standing.egress, derived) {
            let rules = match &self.spec.policy {
                Some(own) => policy::rules(own, Some(&derived))?,
                None => Rules::new(derived.clone(), &|file| std::fs::read(file))?,
            };
            egress.derived.set(derived);
            egress
                .handle
                .replace_policy(rules, by)
                .map_err(|error| EngineError::Declined(error.to_string()))?;
        }
        self.spec.tools = Some(path.clone());
        self.changed("tools", by, path.display().to_string()).map(drop)
    }
}

impl Engine {
    /// Gives a session that lives another registry of tools.
    pub fn set_tools(&self, session: &SessionId, path: &Path) -> Result<(), EngineError> {
        let unreadable = |source| EngineError::Unreadable { path: path.to_owned(), source };
        let path = path.canonicalize().map_err(unreadable)?;
        self.command(session, &Question::SetTools { path }).map(drop)
    }
}
