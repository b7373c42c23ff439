//! The files of a result: each is there whole or not at all, and what proves it is written last.

use super::keys::{Keys, trusted};
use super::panel::ASKED;
use super::{GateError, GateResult};
use crate::{Engine, EngineError};
use cofferdam_gate::{sign, verify, verify_result};
use cofferdam_report::markdown;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) const RESULT: &str = "gate.json";
pub(super) const ARTIFACT: &str = "gate.dsse.json";
pub(super) const APPROVAL: &str = "approval.dsse.json";
pub(super) const SUMMARY: &str = "summary.md";
pub(super) const TRACES: &str = "traces";

pub(super) fn write(out: &Path, result: &GateResult, keys: &Keys) -> Result<(), EngineError> {
    let mut json = serde_json::to_vec_pretty(result)
        .map_err(|error| GateError::Write { path: out.join(RESULT), source: error.into() })?;
    json.push(b'\n');
    let artifact = sign(result, &json, &[&keys.signer], &keys.nonces).map_err(GateError::from)?;
    // An approval is of the artifact that was here before.
    let _ = fs::remove_file(out.join(APPROVAL));
    replace(&out.join(SUMMARY), markdown(result).as_bytes())?;
    replace(&out.join(RESULT), &json)?;
    replace(&out.join(ARTIFACT), artifact.as_bytes())?;
    Ok(())
}

/// A result that this machine or a key that it believes has signed.
pub(super) fn read(engine: &Engine, dir: &Path) -> Result<GateResult, EngineError> {
    let load = |name: &str| {
        let path = dir.join(name);
        fs::read(&path).map_err(|source| GateError::Read { path, source })
    };
    let (artifact, json) = (load(ARTIFACT)?, load(RESULT)?);
    let mut keys = trusted(engine, &[])?;
    keys.push(Keys::find(engine, None)?.signer.public());
    let unsound = |source| GateError::Unsound { path: dir.join(ARTIFACT), source };
    let verified = verify(&artifact, &keys).map_err(unsound)?;
    Ok(verify_result(&verified, &json).map_err(unsound)?)
}

/// Brings the traces of shards together.
pub(super) fn gather(dirs: &[PathBuf], out: &Path) -> Result<(), EngineError> {
    copied(dirs, out, TRACES)?;
    let asked = dirs.iter().any(|dir| dir.join(ASKED).is_dir());
    if asked { copied(dirs, out, ASKED) } else { Ok(()) }
}

fn copied(dirs: &[PathBuf], out: &Path, what: &str) -> Result<(), EngineError> {
    let to = out.join(what);
    fs::create_dir_all(&to).map_err(|source| GateError::Write { path: to.clone(), source })?;
    for from in dirs.iter().map(|dir| dir.join(what)) {
        let Ok(entries) = fs::read_dir(&from) else { continue };
        // A link in a directory that came from elsewhere would be followed to files of this machine.
        let is_plain = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
        let other = |entry: &fs::DirEntry| entry.path() != to.join(entry.file_name());
        for entry in entries.flatten().filter(|entry| is_plain(entry) && other(entry)) {
            let target = to.join(entry.file_name());
            fs::copy(entry.path(), &target).map_err(|source| GateError::Write { path: target, source })?;
        }
    }
    Ok(())
}

/// Writes a file whole, or leaves what was there.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), GateError> {
    let failed = |source| GateError::Write { path: path.to_owned(), source };
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    // It is for CI to collect, and the temporary file is its maker's only.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
