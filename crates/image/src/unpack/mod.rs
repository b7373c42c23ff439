//! One layer after the other, into one tree. A layer says what is added and what of the layers beneath goes.
//!
//! Paths are looked up as if the tree were the root of everything: a link on the way is followed within it, as those who
//! made the image meant it, and never out of it. What a name stands for is replaced, never written through.

mod entry;
mod so_far;
mod spot;

pub(crate) use entry::long_name;
pub(crate) use spot::{Tree, plain};

use crate::error::ImageError;
use cofferdam_model::{Digest, ImageNotes};
use cofferdam_seal::Hasher;
use entry::Unpacking;
use so_far::SoFar;
use std::io::{self, BufReader, Read};

/// How much is taken of an image before it is refused.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// Of all files together.
    pub bytes: u64,
    pub entries: u64,
}

impl Default for Most {
    fn default() -> Self {
        Self { bytes: 16 << 30, entries: 2_000_000 }
    }
}

/// So many paths of files that lost their set-id bits are kept.
const TOLD: usize = 200;

/// What has been taken so far.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    /// Headers of any kind.
    pub(crate) entries: u64,
    /// Bytes of all layers so far, as they are when nothing is compressed.
    pub(crate) read: u64,
    pub(crate) notes: ImageNotes,
}

impl Taken {
    fn set_id(&mut self, path: String) {
        if self.notes.set_id.len() < TOLD {
            self.notes.set_id.push(path);
        }
    }
}

/// What a layer is to be, where that is known.
pub(crate) struct Expected {
    pub(crate) digest: Option<Digest>,
    pub(crate) size: Option<u64>,
    pub(crate) diff: Digest,
}

/// Counts and hashes what passes.
struct Watched<R> {
    from: R,
    hasher: Hasher,
    count: u64,
    most: u64,
}

impl<R: Read> Watched<R> {
    fn new(from: R, most: u64) -> Self {
        Self { from, hasher: Hasher::new(), count: 0, most }
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.count += count as u64;
        if self.count > self.most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "there is more than is allowed"));
        }
        self.hasher.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

pub(crate) fn is_compressed(magic: &[u8]) -> bool {
    magic.starts_with(&[0x1f, 0x8b]) || magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
}

/// What a stream holds, by its first bytes: what is said of it may be wrong.
pub(crate) fn decoded<'a>(from: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut from = BufReader::with_capacity(128 << 10, from);
    let magic = io::BufRead::fill_buf(&mut from)?;
    if magic.starts_with(&[0x1f, 0x8b]) {
        Ok(Box::new(flate2::bufread::MultiGzDecoder::new(from)))
    } else if is_compressed(magic) {
        let mut decoder = zstd::Decoder::with_buffer(from)?;
        // Of memory; more is for those who have made the file themselves.
        decoder.window_log_max(27)?;
        Ok(Box::new(decoder))
    } else {
        Ok(Box::new(from))
    }
}

/// Headers and padding of the entries that are allowed, beside what they hold; of all layers together.
pub(crate) fn tar_most(most: Most) -> u64 {
    most.bytes.saturating_add(most.entries.saturating_mul(4096))
}

/// Unpacks a layer, and says whether it was the one that is wanted. What it has put into the tree before stays.
pub(crate) fn layer(
    tree: &Tree,
    from: &mut dyn Read,
    expected: &Expected,
    taken: &mut Taken,
    most: Most,
) -> Result<(), ImageError> {
    let size = expected.size.unwrap_or(most.bytes.saturating_mul(2));
    let part =
        || expected.digest.map_or_else(|| "a layer".to_owned(), |digest| format!("the layer {digest}"));
    let mut raw = Watched::new(from, size);
    let left = tar_most(most).saturating_sub(taken.read);
    let mut content = Watched::new(decoded(&mut raw).map_err(ImageError::io("read a layer"))?, left);
    let so_far = SoFar::default();
    let read = Unpacking { tree, taken, most, so_far }.all(&mut content).and_then(|()| drain(&mut content));
    let (found, over) = (content.hasher.clone().finish(), content.count > content.most);
    taken.read = taken.read.saturating_add(content.count);
    drop(content);
    // What it is matters more than what could be made of it.
    let rest = read.and_then(|()| drain(&mut raw));
    if raw.count > size {
        return Err(ImageError::Size { part: part(), said: size });
    }
    if over {
        return Err(ImageError::TooMuch(most.bytes));
    }
    rest?;
    if expected.size.is_some_and(|size| raw.count != size) {
        return Err(ImageError::Size { part: part(), said: size });
    }
    let whole = raw.hasher.finish();
    if let Some(digest) = expected.digest.filter(|digest| *digest != whole) {
        return Err(ImageError::Digest { part: part(), expected: digest, found: whole });
    }
    match found == expected.diff {
        true => Ok(()),
        false => {
            let part = format!("what {} holds", part());
            Err(ImageError::Digest { part, expected: expected.diff, found })
        }
    }
}

fn drain(from: &mut impl Read) -> Result<(), ImageError> {
    io::copy(from, &mut io::sink()).map(drop).map_err(ImageError::io("read a layer"))
}

#[cfg(test)]
pub(crate) mod tests;
