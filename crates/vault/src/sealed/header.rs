//! The readable beginning of a vault: a line that says what the file is, and one that says how to open it. Both
//! are authenticated with the rest.
//!
//! ```text
//! cofferdam-vault 1
//! {"key":{"file":{"id":"…"}},"salt":"…"}
//! …sealed bytes…
//! ```

use super::VaultError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cofferdam_seal::{SALT_LEN, Stretch};
use serde::{Deserialize, Serialize};
use std::path::Path;

const MAGIC: &str = "cofferdam-vault ";
const VERSION: u32 = 1;
/// More than either line has.
const MAX_LINE: usize = 1 << 10;

/// Where the key is that opens the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Lock {
    File { id: String },
    Keyring { id: String },
    Passphrase { salt: Salt, memory_kib: u32, passes: u32, lanes: u32 },
}

impl Lock {
    pub(super) fn passphrase(salt: [u8; SALT_LEN], stretch: Stretch) -> Self {
        let Stretch { memory_kib, passes, lanes } = stretch;
        Self::Passphrase { salt: Salt(salt), memory_kib, passes, lanes }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Salt(pub(super) [u8; SALT_LEN]);

impl From<Salt> for String {
    fn from(salt: Salt) -> Self {
        BASE64.encode(salt.0)
    }
}

impl TryFrom<String> for Salt {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = BASE64.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("a salt is 32 bytes in base64")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) key: Lock,
    pub(super) salt: Salt,
}

impl Header {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok(format!("{MAGIC}{VERSION}\n{}\n", serde_json::to_string(self)?).into_bytes())
    }

    /// The header and its length.
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<(Self, usize), VaultError> {
        let foreign = || VaultError::Foreign(path.to_owned());
        let first = line(bytes).ok_or_else(foreign)?;
        let version =
            std::str::from_utf8(first).ok().and_then(|text| text.strip_prefix(MAGIC)).ok_or_else(foreign)?;
        if version != VERSION.to_string() {
            return Err(VaultError::Version {
                path: path.to_owned(),
                version: version.chars().take(20).collect(),
            });
        }
        let damaged = |why: &str| VaultError::Damaged { path: path.to_owned(), why: why.to_owned() };
        let second = line(&bytes[first.len() + 1..]).ok_or_else(|| damaged("its second line is cut off"))?;
        let header =
            serde_json::from_slice(second).map_err(|error| damaged(&format!("its second line: {error}")))?;
        Ok((header, first.len() + second.len() + 2))
    }
}

fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().take(MAX_LINE).position(|&b| b == b'\n')?;
    bytes.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Result<(Header, usize), VaultError> {
        Header::parse(Path::new("vault.sealed"), bytes)
    }

    #[test]
    fn a_header_reads_back() {
        for key in [
            Lock::File { id: "00ff".into() },
            Lock::Keyring { id: "00ff".into() },
            Lock::passphrase([3; SALT_LEN], Stretch::DEFAULT),
        ] {
            let header = Header { key, salt: Salt([9; SALT_LEN]) };
            let bytes = [header.to_bytes().unwrap(), b"sealed".to_vec()].concat();
            let (read, length) = parse(&bytes).unwrap();
            assert_eq!((read, &bytes[length..]), (header, &b"sealed"[..]));
        }
    }

    #[test]
    fn another_file_is_told_from_a_damaged_one() {
        let check = |bytes: &[u8], expected: &str| {
            let error = parse(bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(b"", "is not a vault");
        check(b"\n", "is not a vault");
        check(b"-----BEGIN PRIVATE KEY-----\n", "is not a vault");
        check(&[0; 5000], "is not a vault");
        check(b"cofferdam-vault 2\n{}\n", "format `2`");
        check(b"cofferdam-vault 01\n{}\n", "format `01`");
        check(b"cofferdam-vault 1\n", "cut off");
        check(b"cofferdam-vault 1\n{}\n", "missing field");
        check(b"cofferdam-vault 1\n{\"key\":{\"file\":{\"id\":\"\"}},\"salt\":\"AA==\"}\n", "32 bytes");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), json in ".{0,80}") {
            let _ = parse(&bytes);
            let text = format!("cofferdam-vault 1\n{json}\n");
            prop_assert!(parse(text.as_bytes()).is_err());
        }
    }
}
