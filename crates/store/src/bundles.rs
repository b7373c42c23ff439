//! Where bundles are kept: a directory here; an object store can stand behind the same trait.

use cofferdam_model::SessionId;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum BundlesError {
    #[error("cannot read the traces in `{path}`: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot remove the trace `{path}`: {source}")]
    Remove { path: PathBuf, source: io::Error },
    #[error("there is no trace {0}: see `cofferdam trace ls`")]
    NotFound(SessionId),
}

/// Changes whenever a bundle does. What it is made of is the storage's business.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stamp(pub String);

pub trait Bundles: Send {
    /// All bundles, with their stamps, in no particular order.
    fn list(&self) -> Result<Vec<(SessionId, Stamp)>, BundlesError>;
    /// A local directory that holds the bundle; a remote storage brings it there first.
    fn local(&self, id: &SessionId) -> Result<PathBuf, BundlesError>;
    fn remove(&self, id: &SessionId) -> Result<(), BundlesError>;
}

/// What a bundle is called while it is being removed.
pub(crate) const DOOMED: &str = ".removed-";

/// Bundles where the writer puts them: `<dir>/<id>/`.
#[derive(Debug, Clone)]
pub struct LocalBundles {
    dir: PathBuf,
    /// The file whose size and time tell that a bundle has changed.
    watched: &'static str,
}

impl LocalBundles {
    pub(crate) fn new(dir: PathBuf, watched: &'static str) -> Self {
        Self { dir, watched }
    }
}

impl Bundles for LocalBundles {
    fn list(&self) -> Result<Vec<(SessionId, Stamp)>, BundlesError> {
        let failed = |source| BundlesError::Read { path: self.dir.clone(), source };
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(DOOMED.as_bytes()) {
                let _ = fs::remove_dir_all(entry.path());
                continue;
            }
            let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // One that is just being made or removed is not there.
            let Ok(meta) = fs::metadata(entry.path().join(self.watched)) else { continue };
            let stamp = format!("{}:{}.{:09}", meta.len(), meta.mtime(), meta.mtime_nsec());
            found.push((id, Stamp(stamp)));
        }
        Ok(found)
    }

    fn local(&self, id: &SessionId) -> Result<PathBuf, BundlesError> {
        let path = self.dir.join(id.as_str());
        if path.is_dir() { Ok(path) } else { Err(BundlesError::NotFound(id.clone())) }
    }

    fn remove(&self, id: &SessionId) -> Result<(), BundlesError> {
        let path = self.dir.join(id.as_str());
        // Out of sight first: a removal that is cut short leaves no half of a trace, and is finished by whoever
        // lists next, perhaps at this moment.
        let doomed = self.dir.join(format!("{DOOMED}{id}"));
        let moved = match fs::rename(&path, &doomed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BundlesError::NotFound(id.clone()));
            }
            moved => moved,
        };
        match moved.and_then(|()| fs::remove_dir_all(&doomed)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(BundlesError::Remove { path, source })
            }
            _ => Ok(()),
        }
    }
}
