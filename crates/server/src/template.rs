//! What a sandbox begins as, by the name of its template.

use crate::app::State;
use crate::disk;
use cofferdam_model::{Changes, Digest, ImageName, LayerPlace, Profile, SessionSpec};
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

/// What a sandbox is of whose root is an image: this, and the image's digest.
const IMAGE: &str = "image:";
/// What builds fetched from registries is named so.
pub(crate) const FETCHED: &str = "registry/";
/// Whose work dir it has: an empty one.
const EMPTY: &str = "base";

/// The template of an image that is there.
pub(crate) fn of_image(digest: &Digest) -> String {
    format!("{IMAGE}{digest}")
}

/// An image that whoever runs the service took in, by a name that was given to it. What a build fetched is not one of
/// them, and neither is what a digest names: it may be there by somebody else's password.
pub(crate) fn offered(app: &State, text: &str) -> Option<Digest> {
    let name: ImageName = text.parse().ok()?;
    if name.as_str().starts_with(FETCHED) {
        return None;
    }
    app.engine.image(text).ok().filter(|found| found.names.contains(&name)).map(|found| found.digest)
}

/// The session that a template asks for. Nothing where there is no such template.
pub(crate) fn spec(app: &State, template: &str) -> io::Result<Option<SessionSpec>> {
    let image = template.strip_prefix(IMAGE).map(str::to_owned);
    let wanted = if image.is_some() { EMPTY } else { template };
    let Some(name) = BUILT_IN.into_iter().find(|name| *name == wanted) else { return Ok(None) };
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
        image,
        profile: Profile::Box,
        sudo: app.config.e2b.sudo,
        layer,
        changes: Changes::Discard,
        ..SessionSpec::default()
    }))
}
