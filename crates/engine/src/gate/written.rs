//! The files of a result: each is there whole or not at all, and what proves it is written last.

use super::keys::{Keys, trusted};
use super::panel::ASKED;
use super::{GateError, GateResult};
use crate::{Engine, EngineError};
use cofferdam_gate::{sign, verify, verify_result};
use cofferdam_report::markdown;
use cofferdam_seal::Hasher;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub(super) const RESULT: &str = "gate.json";
pub(super) const ARTIFACT: &str = "gate.dsse.json";
pub(super) const APPROVAL: &str = "approval.dsse.json";
pub(super) const SUMMARY: &str = "summary.md";
pub(super) const TRACES: &str = "traces";

pub(super) fn write(out: &Path, result: &GateResult, keys: &Keys) -> Result<(), EngineError> {
    // An approval is of the artifact that was here before.
    let _ = fs::remove_file(out.join(APPROVAL));
    replace(&out.join(SUMMARY), markdown(result).as_bytes())?;
    let digest = replace_with(&out.join(RESULT), |file| {
        let mut hashing = Hashing { to: file, hasher: Hasher::new() };
        serde_json::to_writer_pretty(&mut hashing, result)?;
        hashing.write_all(b"\n")?;
        Ok(hashing.hasher.finish())
    })?;
    let artifact = sign(result, &digest, &[&keys.signer], &keys.nonces).map_err(GateError::from)?;
    replace_with(&out.join(ARTIFACT), |file| {
        serde_json::to_writer(&mut *file, &artifact)?;
        file.write_all(b"\n")
    })?;
    Ok(())
}

/// Passes on what is written, and has its digest in the end.
struct Hashing<'a> {
    to: &'a mut dyn Write,
    hasher: Hasher,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
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
    replace_with(path, |file| file.write_all(bytes))
}

/// The same, as it comes.
pub(super) fn replace_with<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> Result<T, GateError> {
    let failed = |source| GateError::Write { path: path.to_owned(), source };
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(failed)?;
    let mut file = BufWriter::new(tempfile::NamedTempFile::new_in(dir).map_err(failed)?);
    let made = write(&mut file).map_err(failed)?;
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    // It is for CI to collect, and the temporary file is its maker's only.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(made)
}
