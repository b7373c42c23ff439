//! A bundle in one file: a zstd-compressed tar of `<id>/events.jsonl` and then `<id>/blobs/…` in the order of
//! their names. Equal bundles give equal files.
//!
//! Reading takes the file apart itself, entry by entry: only plain files of exactly these names in exactly this
//! order, nothing that could name another place, no extension headers. Names are never used as paths: they are
//! parsed into an id and digests, and paths are made from those.

use crate::blob::{file_name, max_compressed, parse_file_name};
use crate::reader::{ReadError, open_regular};
use crate::{BLOBS_DIR, EVENTS_FILE, MAX_BLOB};
use cofferdam_model::{Digest, SessionId};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tar::{Archive, Builder, EntryType, Header};

/// The most that a file may unfold to.
pub const MAX_ARCHIVE: u64 = 16 << 30;

const LEVEL: i32 = 3;
/// 8 MiB: what our own level needs, so that reading cannot be made to hold more.
const WINDOW_LOG: u32 = 23;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("cannot read the bundle file: {0}")]
    Read(#[from] io::Error),
    #[error("cannot write the bundle file: {0}")]
    Pack(io::Error),
    #[error("cannot write `{path}`: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Bundle(#[from] ReadError),
    #[error(
        "`{0}` does not belong in a bundle: it holds plain files named ID/{EVENTS_FILE} and ID/{BLOBS_DIR}/SHA256.zst, in that order"
    )]
    Entry(String),
    #[error("the bundle file holds no events")]
    Empty,
    #[error("the bundle unfolds to more than {0} bytes")]
    TooLarge(u64),
    #[error("the trace {id} is here already: to take it in anew, remove `{dir}` first")]
    Exists { id: SessionId, dir: PathBuf },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Events,
    Blob(Digest),
}

/// Writes the bundle in `dir` as one file. A trace that is still being written is taken as it stands.
pub fn pack<W: Write>(dir: &Path, id: &SessionId, to: W) -> Result<W, ArchiveError> {
    // Events first: whatever payload they name was stored before them.
    let events = open_regular(&dir.join(EVENTS_FILE))?;
    let mut encoder = zstd::Encoder::new(to, LEVEL).map_err(ArchiveError::Pack)?;
    encoder.include_checksum(true).map_err(ArchiveError::Pack)?;
    let mut tar = Builder::new(encoder);
    append(&mut tar, &format!("{id}/{EVENTS_FILE}"), events)?;
    for digest in stored(&dir.join(BLOBS_DIR))? {
        let name = file_name(&digest);
        let file = open_regular(&dir.join(BLOBS_DIR).join(&name))?;
        append(&mut tar, &format!("{id}/{BLOBS_DIR}/{name}"), file)?;
    }
    tar.into_inner().and_then(zstd::Encoder::finish).map_err(ArchiveError::Pack)
}

fn append(tar: &mut Builder<impl Write>, name: &str, file: File) -> Result<(), ArchiveError> {
    let size = file.metadata()?.len();
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    tar.append(&header, file.take(size)).map_err(ArchiveError::Pack)
}

fn stored(blobs: &Path) -> Result<Vec<Digest>, ArchiveError> {
    let mut digests = Vec::new();
    let entries = match fs::read_dir(blobs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(digests),
        entries => entries?,
    };
    for entry in entries {
        digests.extend(entry?.file_name().to_str().and_then(parse_file_name));
    }
    digests.sort_unstable();
    Ok(digests)
}

/// Unfolds a bundle file into `traces/<id>`, which appears whole or not at all. Whether it is to be believed
/// is [`verify`](crate::verify)'s to say, of the file before or of the directory after.
pub fn unpack(from: impl Read, traces: &Path, max: u64) -> Result<SessionId, ArchiveError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ArchiveError::Write { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(traces).map_err(failed(traces))?;
    let staging = tempfile::Builder::new().prefix(".import-").tempdir_in(traces).map_err(failed(traces))?;
    let blobs = staging.path().join(BLOBS_DIR);
    let id = walk(from, max, |part, _, content| {
        let path = match part {
            Part::Events => staging.path().join(EVENTS_FILE),
            Part::Blob(digest) => {
                if !blobs.exists() {
                    DirBuilder::new().mode(0o700).create(&blobs).map_err(failed(&blobs))?;
                }
                blobs.join(file_name(&digest))
            }
        };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        io::copy(content, &mut file.map_err(failed(&path))?).map_err(failed(&path))?;
        Ok(())
    })?;
    let target = traces.join(id.as_str());
    match fs::rename(staging.path(), &target) {
        Ok(()) => {
            // There is nothing left at its name to remove.
            let _ = staging.keep();
            Ok(id)
        }
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            Err(ArchiveError::Exists { id, dir: target })
        }
        Err(error) => Err(failed(&target)(error)),
    }
}

pub(crate) fn is_archive(file: &mut File) -> io::Result<bool> {
    let mut magic = Vec::with_capacity(MAGIC.len());
    file.take(MAGIC.len() as u64).read_to_end(&mut magic)?;
    Ok(magic == MAGIC)
}

/// Shows each part of a bundle file, with its size, to `visit`. Returns whose trace the file says it is.
pub(crate) fn walk(
    from: impl Read,
    max: u64,
    mut visit: impl FnMut(Part, u64, &mut dyn Read) -> Result<(), ArchiveError>,
) -> Result<SessionId, ArchiveError> {
    let mut decoder = zstd::Decoder::new(from)?;
    decoder.window_log_max(WINDOW_LOG)?;
    let mut archive = Archive::new(decoder.take(max));
    let (mut id, mut last, mut total) = (None, None, 0u64);
    // Raw: extension headers come to us as entries, and are refused, instead of being read into memory.
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let alien = || ArchiveError::Entry(name.escape_debug().take(200).collect());
        let (owner, part) = parse_name(&name).ok_or_else(alien)?;
        let in_order = match (&part, last) {
            (Part::Events, last) => last.is_none(),
            (Part::Blob(digest), Some(Part::Blob(before))) => *digest > before,
            (Part::Blob(_), last) => last == Some(Part::Events),
        };
        let same_trace = id.as_ref().is_none_or(|id| *id == owner);
        if entry.header().entry_type() != EntryType::Regular || !in_order || !same_trace {
            return Err(alien());
        }
        let size = entry.size();
        total = total.saturating_add(size);
        let blob_too_large = matches!(part, Part::Blob(_)) && size > max_compressed(MAX_BLOB);
        if total > max || blob_too_large {
            return Err(ArchiveError::TooLarge(max));
        }
        visit(part, size, &mut entry)?;
        (id, last) = (Some(owner), Some(part));
    }
    read_to_its_end(archive.into_inner())?;
    id.ok_or(ArchiveError::Empty)
}

/// The archive's entries end before its file does. The rest says whether the file was cut, and holds the
/// checksum over all of it; it must hold nothing else.
fn read_to_its_end(mut rest: impl Read) -> Result<(), ArchiveError> {
    let mut buffer = [0u8; 4096];
    loop {
        match rest.read(&mut buffer)? {
            0 => return Ok(()),
            count if buffer[..count].iter().all(|&byte| byte == 0) => {}
            _ => return Err(ArchiveError::Entry("something after the last entry".into())),
        }
    }
}

fn parse_name(name: &str) -> Option<(SessionId, Part)> {
    let (id, rest) = name.split_once('/')?;
    let part = match rest.split_once('/') {
        None if rest == EVENTS_FILE => Part::Events,
        Some((BLOBS_DIR, file)) => Part::Blob(parse_file_name(file)?),
        _ => return None,
    };
    Some((id.parse().ok()?, part))
}
