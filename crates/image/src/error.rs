//! What can be wrong with an image.

use cofferdam_model::{Bytes, Digest};
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(
        "{place}: this is no image: {what}; give an OCI layout, an OCI or Docker archive, or docker://HOST/REPO:TAG"
    )]
    NoImage { place: String, what: String },
    #[error("`{0}` is no reference of a registry: write docker://HOST[:PORT]/REPO[:TAG|@sha256:DIGEST]")]
    Reference(String),
    #[error("the image's {part} is not understood: {what}")]
    Format { part: &'static str, what: String },
    #[error("the image has no variant for {wanted}, only for {have}")]
    Platform { wanted: String, have: String },
    #[error("several images are there: name one with --ref: {0}")]
    Several(String),
    #[error("nothing there is called `{wanted}`; there are: {have}")]
    NoRef { wanted: String, have: String },
    #[error("{part} is not what its digest says: {expected} is wanted, {found} came")]
    Digest { part: String, expected: Digest, found: Digest },
    #[error("{part} has another size than is said of it ({said} bytes)")]
    Size { part: String, said: u64 },
    #[error("the digest `{0}` is none of SHA-256")]
    Unknown(String),
    #[error("the image's entry `{path}` is refused: {what}")]
    Entry { path: String, what: &'static str },
    #[error("the image holds more than {}: allow more with --most, or in a service with `e2b.image-space`", Bytes(*.0))]
    TooMuch(u64),
    #[error("the image holds more than {0} files")]
    TooMany(u64),
    #[error("the registry {host} cannot be reached: {why}")]
    Unreachable { host: String, why: String },
    #[error("the registry {host} answered {status} to {what}: {hint}")]
    Answer { host: String, status: u16, what: String, hint: &'static str },
    #[error("{0}: a registry that is not on this host is spoken to by TLS only")]
    ClearText(String),
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
}

impl ImageError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn format(part: &'static str) -> impl Fn(serde_json::Error) -> Self {
        move |error| Self::Format { part, what: error.to_string() }
    }
}
