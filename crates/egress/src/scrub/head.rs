//! A response's head: its values covered, and what it says about a body that we change.

use super::coding::{Coding, CodingError};
use super::mask::Mask;
use http::header::{ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderValue};
use http::{StatusCode, response};

/// They tell of the compressed bytes, which nobody will see.
const DIGESTS: &[&str] = &["content-md5", "digest", "content-digest", "repr-digest"];

/// Covers the head and says how the body has to be decoded. `bodiless`: an answer to HEAD, whose head speaks of a
/// body that does not come.
pub(crate) fn scrub_head(
    mask: &mut Mask,
    head: &mut response::Parts,
    bodiless: bool,
) -> Result<Option<Coding>, CodingError> {
    mask.headers(&mut head.headers);
    // A reason phrase is free text from the other side, and nobody reads it.
    head.extensions.remove::<hyper::ext::ReasonPhrase>();
    let none = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED, StatusCode::SWITCHING_PROTOCOLS];
    if bodiless || head.status.is_informational() || none.contains(&head.status) {
        return Ok(None);
    }
    let Some(coding) = Coding::of(&head.headers)? else { return Ok(None) };
    if head.status == StatusCode::PARTIAL_CONTENT {
        return Err(CodingError::Partial);
    }
    for name in [CONTENT_ENCODING, CONTENT_LENGTH, ACCEPT_RANGES] {
        head.headers.remove(name);
    }
    for name in DIGESTS {
        head.headers.remove(*name);
    }
    weaken(head);
    Ok(Some(coding))
}

/// A strong tag names exact bytes, which are others now.
fn weaken(head: &mut response::Parts) {
    let Some(tag) = head.headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/")) else { return };
    match HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()) {
        Ok(weak) => head.headers.insert(ETAG, weak),
        Err(_) => head.headers.remove(ETAG),
    };
}
