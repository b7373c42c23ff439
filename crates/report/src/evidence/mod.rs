//! `evidence.tar.zst`: everything that a verdict rests on in one file, for whoever asks in a year. Its first entry is
//! a signed list of all others by digest; the rest follows in the order of that list. Equal inputs give equal files.
//!
//! It is read entry by entry: only plain files of exactly the names that were signed, in their order, and nothing is
//! unpacked.

mod controls;
mod list;

pub use controls::{Control, controls};
pub use list::{Described, LIST, Listed, list, read_list};

use cofferdam_model::Digest;
use cofferdam_seal::Hasher;
use std::io::{self, Read, Write};
use tar::{Archive, Builder, EntryType, Header};

const LEVEL: i32 = 3;
/// 8 MiB: what our own level needs, so that reading cannot be made to hold more.
const WINDOW_LOG: u32 = 23;
/// Of the list.
const MOST_HELD: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    #[error("cannot read the evidence: {0}")]
    Io(#[from] io::Error),
    #[error("its first entry is `{0}` and should be `{LIST}`: this is not an evidence bundle")]
    NoList(String),
    #[error("its list is not sound: {0}")]
    List(String),
    #[error("`{found}` stands where the signed list has `{wanted}`")]
    Order { wanted: String, found: String },
    #[error("`{0}` was added: it is not on the signed list")]
    Added(String),
    #[error("`{0}` is missing, which the signed list names")]
    Missing(String),
    #[error("`{name}` is not what was signed: signed was {signed}, found is {found}")]
    Changed { name: String, signed: Digest, found: Digest },
    #[error("`{0}` is not a plain file")]
    NotAFile(String),
    #[error("`{0}` is larger than {MOST_HELD} bytes")]
    TooLarge(String),
}

/// A file of the evidence.
pub struct Part<R> {
    pub name: String,
    pub size: u64,
    pub content: R,
}

/// Writes the list and then the parts, which have to be those of the list in its order.
pub fn pack<W: Write, R: Read>(
    to: W,
    list: &[u8],
    parts: impl IntoIterator<Item = io::Result<Part<R>>>,
) -> io::Result<W> {
    let mut encoder = zstd::Encoder::new(to, LEVEL)?;
    encoder.include_checksum(true)?;
    let mut tar = Builder::new(encoder);
    append(&mut tar, LIST, list.len() as u64, list)?;
    for part in parts {
        let Part { name, size, content } = part?;
        append(&mut tar, &name, size, content)?;
    }
    tar.into_inner()?.finish()
}

fn append<W: Write>(tar: &mut Builder<W>, name: &str, size: u64, content: impl Read) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_size(size);
    header.set_mode(0o644);
    // The date of nothing in particular: equal inputs give equal files.
    header.set_mtime(0);
    tar.append_data(&mut header, name, content)
}

/// Goes through a file: hands the list to `check`, which says what was signed, and each entry to `visit`, and holds
/// the entry against what was signed. An entry that was visited is proved only when this returns without an error.
pub fn read<R: Read>(
    from: R,
    check: impl FnOnce(&[u8]) -> Result<Vec<Listed>, String>,
    mut visit: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<(), EvidenceError> {
    let mut decoder = zstd::Decoder::new(from)?;
    decoder.window_log_max(WINDOW_LOG)?;
    let mut archive = Archive::new(decoder);
    let mut entries = archive.entries()?;
    let Some(first) = entries.next() else { return Err(EvidenceError::NoList(String::new())) };
    let (name, mut first) = plain(first?)?;
    if name != LIST {
        return Err(EvidenceError::NoList(name));
    }
    let mut expected = check(&held(&name, &mut first)?).map_err(EvidenceError::List)?.into_iter();
    for entry in entries {
        let (name, entry) = plain(entry?)?;
        let Some(signed) = expected.next() else { return Err(EvidenceError::Added(name)) };
        if signed.name != name {
            return Err(EvidenceError::Order { wanted: signed.name, found: name });
        }
        let mut hashing = Hashing { inner: entry, hasher: Hasher::new() };
        visit(&name, &mut hashing)?;
        // Whatever was not looked at counts too.
        io::copy(&mut hashing, &mut io::sink())?;
        let found = hashing.hasher.finish();
        if found != signed.digest {
            return Err(EvidenceError::Changed { name, signed: signed.digest, found });
        }
    }
    match expected.next() {
        Some(missing) => Err(EvidenceError::Missing(missing.name)),
        None => Ok(()),
    }
}

struct Hashing<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        Ok(n)
    }
}

type Entry<'a, R> = tar::Entry<'a, R>;

fn plain<R: Read>(entry: Entry<'_, R>) -> Result<(String, Entry<'_, R>), EvidenceError> {
    let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    match entry.header().entry_type() {
        EntryType::Regular => Ok((name, entry)),
        _ => Err(EvidenceError::NotAFile(name)),
    }
}

fn held(name: &str, from: &mut impl Read) -> Result<Vec<u8>, EvidenceError> {
    let mut bytes = Vec::new();
    from.take(MOST_HELD + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_HELD { Err(EvidenceError::TooLarge(name.to_owned())) } else { Ok(bytes) }
}

/// The digest of all that can be read.
pub fn hashed(from: impl Read) -> io::Result<Digest> {
    let mut hashing = Hashing { inner: from, hasher: Hasher::new() };
    io::copy(&mut hashing, &mut io::sink())?;
    Ok(hashing.hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_seal::digest;

    fn listed(name: &str, content: &[u8]) -> Listed {
        Listed { name: name.into(), digest: digest(content) }
    }

    fn packed(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let parts = parts.iter().map(|(name, content)| {
            Ok(Part { name: (*name).into(), size: content.len() as u64, content: *content })
        });
        pack(Vec::new(), b"list", parts).unwrap()
    }

    fn check(packed: &[u8], signed: &[Listed], expected: &str) {
        let mut first = Vec::new();
        let found = read(
            packed,
            |_| Ok(signed.to_vec()),
            |name, from| match name {
                "a" => from.read_to_end(&mut first).map(drop),
                _ => Ok(()),
            },
        );
        match found {
            Ok(()) => assert_eq!(("sound", &first[..]), (expected, &b"one"[..])),
            Err(error) => assert!(error.to_string().contains(expected), "{error}"),
        }
    }

    #[test]
    fn every_entry_is_the_one_that_was_signed() {
        let both = packed(&[("a", b"one"), ("b/c", b"two")]);
        let (a, b) = (listed("a", b"one"), listed("b/c", b"two"));
        check(&both, &[a.clone(), b.clone()], "sound");
        check(&both, std::slice::from_ref(&a), "`b/c` was added");
        check(&both, &[a.clone(), b.clone(), listed("d", b"")], "`d` is missing");
        check(&both, &[b.clone(), a.clone()], "`a` stands where the signed list has `b/c`");
        check(&both, &[a.clone(), listed("b/c", b"other")], "`b/c` is not what was signed");
        assert_eq!(both, packed(&[("a", b"one"), ("b/c", b"two")]), "equal inputs give equal files");
    }

    #[test]
    fn what_is_no_evidence_is_refused() {
        assert!(read(&b"plain text"[..], |_| Ok(Vec::new()), |_, _| Ok(())).is_err());
        let unsigned = read(&packed(&[])[..], |_| Err("nobody signed it".into()), |_, _| Ok(()));
        assert!(unsigned.unwrap_err().to_string().contains("nobody signed it"));
    }
}
