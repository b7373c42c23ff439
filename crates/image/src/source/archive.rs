//! One file: an OCI layout in a tar archive, or what `docker save` writes. It is read where it lies; one that is
//! compressed as a whole is unpacked first, next to what becomes of it.

use super::{Blobs, Found, FoundImage, Layer, LayerOf, Source, resolve};
use crate::error::ImageError;
use crate::oci::{self, Descriptor, Index, Saved};
use crate::unpack::{Most, decoded, tar_most};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use tar::EntryType;

/// Headers that an archive may have.
const MEMBERS: usize = 100_000;

enum Member {
    At { from: u64, size: u64 },
    Link(String),
}

pub(super) struct Archive {
    file: File,
    place: String,
    members: BTreeMap<String, Member>,
}

impl Archive {
    pub(super) fn open(path: &Path, scratch: &Path, most: Most) -> Result<Self, ImageError> {
        let place = path.display().to_string();
        let file = File::open(path).map_err(ImageError::io(format!("open {place}")))?;
        let file = plain(file, &place, scratch, most)?;
        let members = index(&file).map_err(|error| ImageError::NoImage {
            place: place.clone(),
            what: format!("it cannot be read as an archive ({error})"),
        })?;
        Ok(Self { file, place, members })
    }

    fn member(&mut self, name: &str) -> Result<(u64, u64), ImageError> {
        let mut name = clean(name);
        // Older archives have a layer once and links to it.
        for _ in 0..4 {
            match self.members.get(&name) {
                Some(Member::At { from, size }) => return Ok((*from, *size)),
                Some(Member::Link(to)) => {
                    let above = Path::new(&name).parent().unwrap_or(Path::new("")).to_path_buf();
                    name = flat(&above.join(to));
                }
                None => break,
            }
        }
        Err(ImageError::NoImage { place: self.place.clone(), what: format!("it has no `{name}`") })
    }

    fn read(&mut self, name: &str) -> Result<Box<dyn Read + '_>, ImageError> {
        let (from, size) = self.member(name)?;
        self.file.seek(SeekFrom::Start(from)).map_err(ImageError::io("read the archive"))?;
        Ok(Box::new((&self.file).take(size)))
    }

    fn small(&mut self, name: &str) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        self.read(name)?
            .take(oci::DOCUMENT)
            .read_to_end(&mut bytes)
            .map_err(ImageError::io("read the archive"))?;
        Ok(bytes)
    }

    fn saved(&mut self, wanted: Option<&str>) -> Result<Found, ImageError> {
        let text = self.small("manifest.json")?;
        let all: Vec<Saved> = serde_json::from_slice(&text).map_err(ImageError::format("manifest.json"))?;
        let tags = |one: &Saved| one.repo_tags.clone().unwrap_or_default();
        let called = |one: &&Saved| {
            wanted.is_none_or(|wanted| {
                tags(one).iter().any(|tag| tag == wanted || tag.rsplit(':').next() == Some(wanted))
            })
        };
        let names = all.iter().flat_map(tags).collect::<Vec<_>>().join(", ");
        let fits: Vec<&Saved> = all.iter().filter(called).collect();
        let one = match (fits.as_slice(), wanted) {
            ([one], _) => *one,
            ([], Some(wanted)) => return Err(ImageError::NoRef { wanted: wanted.to_owned(), have: names }),
            _ => return Err(ImageError::Several(names)),
        };
        let config = self.small(&one.config)?;
        let named = Path::new(&one.config).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if let Ok(expected) = named.parse() {
            let found = cofferdam_seal::digest(&config);
            if found != expected {
                return Err(ImageError::Digest { part: "the image's config".into(), expected, found });
            }
        }
        let layer = |name: &String| Layer { member: Some(name.clone()), descriptor: None };
        Ok(Found { manifest: None, config, layers: one.layers.iter().map(layer).collect() })
    }
}

impl Blobs for Archive {
    fn blob(&mut self, of: &Descriptor) -> Result<Box<dyn Read + '_>, ImageError> {
        self.read(&format!("blobs/sha256/{}", of.digest()?))
    }
}

impl Source for Archive {
    fn find(&mut self, wanted: Option<&str>) -> Result<FoundImage, ImageError> {
        // Newer ones of Docker's are both.
        if !self.members.contains_key("index.json") {
            return self.saved(wanted).map(FoundImage);
        }
        let text = self.small("index.json")?;
        let index: Index = serde_json::from_slice(&text).map_err(ImageError::format("index.json"))?;
        resolve(self, index, wanted).map(FoundImage)
    }

    fn layer(&mut self, layer: &LayerOf) -> Result<Box<dyn Read + '_>, ImageError> {
        match (&layer.0.descriptor, &layer.0.member) {
            (Some(descriptor), _) => self.blob(descriptor),
            (None, Some(member)) => self.read(member),
            (None, None) => Err(ImageError::Format { part: "manifest", what: "a layer has no name".into() }),
        }
    }
}

fn clean(name: &str) -> String {
    flat(Path::new(name))
}

/// By the letter: these are names in an archive, and nothing is opened by them.
fn flat(path: &Path) -> String {
    use std::path::Component;
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => out.push(part),
            Component::ParentDir => drop(out.pop()),
            _ => {}
        }
    }
    out.to_string_lossy().into_owned()
}

/// The file itself, or what it holds.
fn plain(mut file: File, place: &str, scratch: &Path, most: Most) -> Result<File, ImageError> {
    let failed = || ImageError::io(format!("read {place}"));
    let mut magic = [0u8; 4];
    let read = file.read(&mut magic).map_err(failed())?;
    file.rewind().map_err(failed())?;
    if !crate::unpack::is_compressed(&magic[..read]) {
        return Ok(file);
    }
    let path = scratch.join("archive");
    let mut to = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(ImageError::io("unpack the archive"))?;
    // Its name is not needed any more.
    std::fs::remove_file(&path).map_err(ImageError::io("unpack the archive"))?;
    let room = tar_most(most);
    let written = decoded(file).and_then(|from| io::copy(&mut from.take(room.saturating_add(1)), &mut to));
    match written.map_err(ImageError::io(format!("unpack {place}")))? {
        size if size > room => Err(ImageError::TooMuch(most.bytes)),
        _ => to.rewind().map(|()| to).map_err(failed()),
    }
}

fn index(file: &File) -> io::Result<BTreeMap<String, Member>> {
    let mut members = BTreeMap::new();
    let mut archive = tar::Archive::new(file);
    let mut long = None;
    let mut headers = 0;
    // Raw: a long name is read by us, and not more of it than a name has.
    for entry in archive.entries_with_seek()?.raw(true) {
        let mut entry = entry?;
        headers += 1;
        if headers > MEMBERS {
            return Err(io::Error::other("it has too many members"));
        }
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::GNULongName | EntryType::XHeader) {
            long = crate::unpack::long_name(&mut entry, kind)?;
            continue;
        }
        let given = long.take().unwrap_or_else(|| String::from_utf8_lossy(&entry.path_bytes()).into_owned());
        let name = clean(&given);
        match kind {
            EntryType::Regular | EntryType::Continuous => {
                members.insert(name, Member::At { from: entry.raw_file_position(), size: entry.size() });
            }
            EntryType::Symlink | EntryType::Link => {
                let to = entry.link_name_bytes().unwrap_or_default();
                let to = String::from_utf8_lossy(&to).into_owned();
                // A hard link is named from the top.
                let to = if kind == EntryType::Link { format!("/{to}") } else { to };
                members.insert(name, Member::Link(to));
            }
            _ => {}
        }
    }
    match members.contains_key("index.json") || members.contains_key("manifest.json") {
        true => Ok(members),
        false => Err(io::Error::other("it has neither `index.json` nor `manifest.json`")),
    }
}
