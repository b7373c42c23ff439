//! Payloads: zstd files named by the digest of what is in them.
//!
//! A payload gets its name only once it is whole, and is believed only once its bytes have that digest.

use crate::{BLOBS_DIR, MAX_BLOB};
use cofferdam_model::{BlobRef, Digest};
use cofferdam_seal::digest;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zstd::bulk::Compressor;

/// The fastest level that still folds logs and JSON to a fraction.
const LEVEL: i32 = 1;
const SUFFIX: &str = ".zst";
/// There is one writer per bundle, so one name for what is not whole yet is enough.
const PARTIAL: &str = ".partial";

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("payload {0} is missing")]
    Missing(Digest),
    #[error("payload {digest} claims {size} bytes: the format allows {MAX_BLOB}")]
    TooLarge { digest: Digest, size: u64 },
    #[error("payload {0} is damaged: its bytes do not have that digest or size")]
    Damaged(Digest),
    #[error("payload {digest} cannot be read: {source}")]
    Read { digest: Digest, source: io::Error },
}

pub(crate) fn file_name(digest: &Digest) -> String {
    format!("{digest}{SUFFIX}")
}

pub(crate) fn parse_file_name(name: &str) -> Option<Digest> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

/// How long a compressed payload may be; what is longer hides something.
pub(crate) fn max_compressed(size: u64) -> u64 {
    usize::try_from(size).map_or(0, |size| zstd::zstd_safe::compress_bound(size) as u64 + 1024)
}

/// The plain bytes, if `compressed` holds exactly those that `wanted` names.
pub(crate) fn open(compressed: &[u8], wanted: &BlobRef) -> Result<Vec<u8>, BlobError> {
    let damaged = || BlobError::Damaged(wanted.digest);
    let capacity = usize::try_from(wanted.size).map_err(|_| damaged())?;
    let plain = zstd::bulk::decompress(compressed, capacity).map_err(|_| damaged())?;
    if plain.len() == capacity && digest(&plain) == wanted.digest { Ok(plain) } else { Err(damaged()) }
}

/// Reads a payload of a bundle and checks it. No more is held than the reference allows.
pub(crate) fn read(bundle: &Path, wanted: &BlobRef) -> Result<Vec<u8>, BlobError> {
    let BlobRef { digest, size } = *wanted;
    if size > MAX_BLOB {
        return Err(BlobError::TooLarge { digest, size });
    }
    let path = bundle.join(BLOBS_DIR).join(file_name(&digest));
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => BlobError::Missing(digest),
        _ => BlobError::Read { digest, source },
    };
    // Not following a link and not opening a pipe: the bundle may come from anyone.
    let meta = fs::symlink_metadata(&path).map_err(failed)?;
    if !meta.is_file() || meta.len() > max_compressed(size) {
        return Err(BlobError::Damaged(digest));
    }
    let mut compressed = Vec::with_capacity(meta.len() as usize);
    let file = File::open(&path).map_err(failed)?;
    file.take(max_compressed(size)).read_to_end(&mut compressed).map_err(failed)?;
    open(&compressed, wanted)
}

pub(crate) struct BlobWriter {
    dir: PathBuf,
    made: bool,
    unsynced: bool,
    compressor: Option<Compressor<'static>>,
}

impl BlobWriter {
    pub(crate) fn new(bundle: &Path) -> Self {
        Self { dir: bundle.join(BLOBS_DIR), made: false, unsynced: false, compressor: None }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn put(&mut self, bytes: &[u8], durable: bool) -> io::Result<BlobRef> {
        let blob = BlobRef { digest: digest(bytes), size: bytes.len() as u64 };
        let path = self.dir.join(file_name(&blob.digest));
        if !self.made {
            DirBuilder::new().mode(0o700).create(&self.dir)?;
            self.made = true;
        } else if path.try_exists()? {
            return Ok(blob);
        }
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            empty => empty.insert(Compressor::new(LEVEL)?),
        };
        let compressed = compressor.compress(bytes)?;
        let partial = self.dir.join(PARTIAL);
        let stored = store(&partial, &compressed, durable).and_then(|()| fs::rename(&partial, &path));
        if stored.is_err() {
            let _ = fs::remove_file(&partial);
        }
        stored?;
        self.unsynced = true;
        Ok(blob)
    }

    /// Makes the names durable; their content is so since `put`.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            File::open(&self.dir)?.sync_all()?;
            if let Some(bundle) = self.dir.parent() {
                File::open(bundle)?.sync_all()?;
            }
            self.unsynced = false;
        }
        Ok(())
    }
}

fn store(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    if durable { file.sync_data() } else { Ok(()) }
}
