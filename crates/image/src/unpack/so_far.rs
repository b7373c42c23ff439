//! What has to be known of a layer until all of it is unpacked, and how much of that may be.

use super::entry::One;
use crate::error::ImageError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Bytes of names and attributes.
const KEPT: usize = 256 << 20;

/// What has to be known of a layer until its end.
#[derive(Default)]
pub(super) struct SoFar {
    /// What this layer has brought: it takes away only what those beneath had.
    pub(super) brought: BTreeSet<PathBuf>,
    /// Directories, which get what they are to have when all is in them.
    pub(super) later: BTreeMap<PathBuf, One>,
    /// Directories in which nothing of the layers beneath is left.
    pub(super) emptied: BTreeSet<PathBuf>,
    /// Bytes of all of these.
    size: usize,
}

impl SoFar {
    pub(super) fn keep(&mut self, size: usize) -> Result<(), ImageError> {
        self.size = self.size.saturating_add(size);
        match self.size <= KEPT {
            true => Ok(()),
            false => {
                let what = "its names and attributes are more than can be kept".to_owned();
                Err(ImageError::Format { part: "layer", what })
            }
        }
    }

    /// A path, with all above it.
    pub(super) fn bring(&mut self, path: &Path) -> Result<(), ImageError> {
        for path in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            if !self.brought.insert(path.to_owned()) {
                break;
            }
            self.keep(weight(path))?;
        }
        Ok(())
    }

    pub(super) fn is_emptied(&self, dir: &Path) -> bool {
        dir.ancestors().any(|dir| self.emptied.contains(dir))
    }
}

/// What a path takes in one of these sets.
pub(super) fn weight(path: &Path) -> usize {
    path.as_os_str().len() + size_of::<PathBuf>()
}
