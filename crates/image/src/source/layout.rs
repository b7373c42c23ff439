//! A directory as the Open Container Initiative lays one out: `index.json` and `blobs/sha256/…`.

use super::{Blobs, FoundImage, LayerOf, Source, resolve};
use crate::error::ImageError;
use crate::oci::{self, Descriptor, Index};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub(super) struct Layout {
    dir: PathBuf,
}

impl Layout {
    pub(super) fn open(dir: &Path) -> Result<Self, ImageError> {
        match dir.join("index.json").is_file() {
            true => Ok(Self { dir: dir.to_owned() }),
            false => Err(ImageError::NoImage {
                place: dir.display().to_string(),
                what: "it is a directory without `index.json`".into(),
            }),
        }
    }
}

impl Blobs for Layout {
    fn blob(&mut self, of: &Descriptor) -> Result<Box<dyn Read + '_>, ImageError> {
        let path = self.dir.join("blobs/sha256").join(of.digest()?.to_string());
        let file = File::open(&path).map_err(ImageError::io(format!("open {}", path.display())))?;
        Ok(Box::new(file))
    }
}

impl Source for Layout {
    fn find(&mut self, wanted: Option<&str>) -> Result<FoundImage, ImageError> {
        let path = self.dir.join("index.json");
        let failed = || ImageError::io(format!("read {}", path.display()));
        let mut text = Vec::new();
        File::open(&path).map_err(failed())?.take(oci::DOCUMENT).read_to_end(&mut text).map_err(failed())?;
        let index: Index = serde_json::from_slice(&text).map_err(ImageError::format("index.json"))?;
        resolve(self, index, wanted).map(FoundImage)
    }

    fn layer(&mut self, layer: &LayerOf) -> Result<Box<dyn Read + '_>, ImageError> {
        match &layer.0.descriptor {
            Some(descriptor) => self.blob(descriptor),
            None => Err(ImageError::Format { part: "manifest", what: "a layer has no digest".into() }),
        }
    }
}
