//! Volumes of a tenant's: those of the state directory that bear its name. E2B's id of one is its name.

use crate::app::State;
use crate::disk;
use cofferdam_api::e2b;
use cofferdam_engine::EngineError;
use cofferdam_model::{VolumeInfo, VolumeMount, VolumeName};
use std::io;
use std::path::{Component, PathBuf};

/// A name of this tenant's; nothing for what cannot be one.
pub(crate) fn name(tenant: &str, name: &str) -> Option<VolumeName> {
    let name = VolumeName { owner: Some(tenant.to_owned()), name: name.to_owned() };
    name.to_string().parse().ok()
}

fn unknown(name: &str) -> EngineError {
    EngineError::Declined(format!("there is no volume `{}`", name.chars().take(80).collect::<String>()))
}

pub(crate) fn all(app: &State, tenant: &str) -> Vec<VolumeInfo> {
    let mut all = app.engine.volumes();
    all.retain(|volume| volume.name.owner.as_deref() == Some(tenant));
    all
}

pub(crate) fn find(app: &State, tenant: &str, wanted: &str) -> Option<VolumeInfo> {
    app.engine.volume(&name(tenant, wanted)?).ok()
}

/// Makes one. `None` says that the name is none.
pub(crate) fn create(app: &State, tenant: &str, wanted: &str) -> Option<Result<VolumeInfo, EngineError>> {
    let name = name(tenant, wanted)?;
    Some(app.engine.create_volume(&name).and_then(|()| app.engine.volume(&name)))
}

/// Whether there was one.
pub(crate) fn remove(app: &State, tenant: &str, wanted: &str) -> Result<bool, EngineError> {
    match find(app, tenant, wanted) {
        Some(found) => app.engine.remove_volume(&found.name).map(|()| true),
        None => Ok(false),
    }
}

/// What a session is to be shown, if there is all of it.
pub(crate) fn mounts<'a>(
    app: &State,
    tenant: &str,
    asked: impl Iterator<Item = (&'a str, &'a str, bool)>,
) -> Result<Vec<VolumeMount>, EngineError> {
    let one = |(wanted, path, read_only): (&str, &str, bool)| {
        let target = PathBuf::from(path);
        let plain = target.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !target.is_absolute() || !plain || path.contains('\0') || target.components().count() < 2 {
            let path: String = path.chars().take(80).collect();
            return Err(EngineError::Declined(format!(
                "a volume cannot stand at `{path}`: an absolute path without `..` is needed"
            )));
        }
        let found = find(app, tenant, wanted).ok_or_else(|| unknown(wanted))?;
        Ok(VolumeMount { volume: found.name, target, read_only })
    };
    asked.map(one).collect()
}

pub(crate) fn told(mount: &VolumeMount) -> e2b::VolumeMount {
    e2b::VolumeMount { name: mount.volume.name.clone(), path: mount.target.to_string_lossy().into_owned() }
}

/// Who has it may read and write the files of this volume, and of no other.
pub(crate) fn token(app: &State, tenant: &str, name: &str) -> io::Result<String> {
    let path = app.engine.home().path().join("service").join("volume.key");
    let key = match std::fs::read_to_string(&path) {
        Ok(key) => key,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = disk::random_hex::<32>()?;
            disk::write_text(&path, &key)?;
            key
        }
        Err(error) => return Err(error),
    };
    let mac = cofferdam_seal::authenticate(key.as_bytes(), format!("{tenant}/{name}").as_bytes());
    let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{tenant}.{mac}"))
}

/// The volume that a token is for.
pub(crate) fn opened(app: &State, wanted: &str, given: &str) -> Option<VolumeName> {
    let (tenant, _) = given.split_once('.')?;
    let name = name(tenant, wanted)?;
    let right = token(app, tenant, wanted).ok()?;
    cofferdam_seal::same(right.as_bytes(), given.as_bytes()).then_some(name)
}
