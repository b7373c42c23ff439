//! A path as the kernel gives it: bytes, not text. In JSON it is a string where that loses nothing,
//! else `{"bytes": "<hex>"}`, so that a name that is not UTF-8 survives a trace unchanged.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawPath(Vec<u8>);

impl RawPath {
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&Path> for RawPath {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<&str> for RawPath {
    fn from(path: &str) -> Self {
        Self(path.as_bytes().to_vec())
    }
}

/// For people: control characters and broken UTF-8 are escaped, so that a name cannot draw on a terminal.
impl fmt::Display for RawPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
                    write!(f, "{}", c.escape_default())?
                } else {
                    fmt::Write::write_char(f, c)?
                }
            }
            chunk.invalid().iter().try_for_each(|b| write!(f, "\\x{b:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for RawPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Text(String),
    Raw { bytes: String },
}

impl Serialize for RawPath {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => Wire::Raw { bytes: self.0.iter().map(|b| format!("{b:02x}")).collect() }.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for RawPath {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Wire::deserialize(from)? {
            Wire::Text(text) => Ok(Self(text.into_bytes())),
            Wire::Raw { bytes } => {
                unhex(&bytes).map(Self).ok_or_else(|| D::Error::custom("path bytes are not hexadecimal"))
            }
        }
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_json() {
        for name in [&b"plain"[..], b"new\nline", b"\xff\xfe", b"", "ü".as_bytes()] {
            let path = RawPath(name.to_vec());
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<RawPath>(&json).unwrap(), path, "{json}");
        }
    }

    #[test]
    fn a_name_cannot_draw_on_the_terminal() {
        assert_eq!(RawPath(b"a\x1b[31m\xff".to_vec()).to_string(), "a\\u{1b}[31m\\xff");
    }
}
