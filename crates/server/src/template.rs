//! What a sandbox begins as, by the name of its template.

use crate::app::State;
use crate::disk;
use cofferdam_model::{Changes, LayerPlace, Profile, SessionSpec};
use std::io;
use std::path::PathBuf;

/// Those that exist out of the box.
pub(crate) const BUILT_IN: [&str; 2] = ["base", "code-interpreter-v1"];

pub(crate) fn exists(template: &str) -> bool {
    BUILT_IN.contains(&template)
}

/// Where the user of a sandbox is at home; all that is there is kept with it.
const HOME: &str = "/home/user";

/// Whether sandboxes of this template run code by themselves.
pub(crate) fn has_interpreter(template: &str) -> bool {
    template == "code-interpreter-v1"
}

/// The session that a template asks for. Nothing where there is no such template.
pub(crate) fn spec(app: &State, template: &str) -> io::Result<Option<SessionSpec>> {
    let Some(name) = BUILT_IN.into_iter().find(|name| *name == template) else { return Ok(None) };
    let workdir = app.engine.home().path().join("service").join("templates").join(name);
    disk::make_dir(&workdir)?;
    // What several users inside write on disk only root could remove; a plain user's sandboxes live in memory.
    let layer = match rustix::process::geteuid().is_root() {
        true => LayerPlace::Disk,
        false => LayerPlace::Memory,
    };
    Ok(Some(SessionSpec {
        workdir: Some(workdir),
        shown_at: Some(PathBuf::from(HOME)),
        profile: Profile::Box,
        layer,
        changes: Changes::Discard,
        ..SessionSpec::default()
    }))
}
