//! What a vault holds, and how it becomes bytes: descriptions as JSON, then the values one after another. The
//! serialiser never sees a value, and all values lie in one buffer that is wiped.
//!
//! ```text
//! mark key (32 bytes) · length of the descriptions (4 bytes, big endian) · descriptions · values
//! ```

use crate::{Credential, Plain, Source};
use cofferdam_seal::{KEY_LEN, TAG_LEN};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ContentsError {
    #[error("it is cut off")]
    Short,
    #[error("descriptions: {0}")]
    Descriptions(String),
    #[error("bytes follow the last value")]
    Surplus,
}

pub(crate) struct Contents {
    /// What values are marked with, to tell whether two are the same.
    pub(crate) mark_key: Zeroizing<[u8; KEY_LEN]>,
    pub(crate) records: Vec<Record>,
}

pub(crate) struct Record {
    pub(crate) about: About,
    /// Absent if it is read anew for every session, or was revoked.
    pub(crate) value: Option<Plain>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    pub(crate) credential: Credential,
    pub(crate) source: Source,
    /// Read from its source for every session.
    pub(crate) live: bool,
    /// Milliseconds since 1970, as all times here.
    pub(crate) added: u64,
    pub(crate) changed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked: Option<u64>,
    pub(crate) generation: u64,
    /// Tells whether a value is the one that was here last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<[u8; 32]>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    about: About,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<u32>,
}

impl Contents {
    pub(super) fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, ContentsError> {
        let describe = |record: &Record| Described {
            about: record.about.clone(),
            value: record.value.as_ref().map(|plain| plain.reveal().len() as u32),
        };
        let described: Vec<Described> = self.records.iter().map(describe).collect();
        let described =
            serde_json::to_vec(&described).map_err(|error| ContentsError::Descriptions(error.to_string()))?;
        let values = || self.records.iter().filter_map(|record| record.value.as_ref());
        let room =
            KEY_LEN + 4 + described.len() + values().map(|v| v.reveal().len()).sum::<usize>() + TAG_LEN;
        // In one piece: growing would leave values behind in freed memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend_from_slice(&*self.mark_key);
        bytes.extend_from_slice(&(described.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&described);
        values().for_each(|value| bytes.extend_from_slice(value.reveal()));
        Ok(bytes)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ContentsError> {
        let mut rest = bytes;
        let mut take = |length: usize| -> Result<&[u8], ContentsError> {
            let (taken, left) = rest.split_at_checked(length).ok_or(ContentsError::Short)?;
            rest = left;
            Ok(taken)
        };
        let mut mark_key = Zeroizing::new([0; KEY_LEN]);
        mark_key.copy_from_slice(take(KEY_LEN)?);
        let mut length = [0; 4];
        length.copy_from_slice(take(4)?);
        let described = take(u32::from_be_bytes(length) as usize)?;
        let described: Vec<Described> = serde_json::from_slice(described)
            .map_err(|error| ContentsError::Descriptions(error.to_string()))?;
        let mut records = Vec::with_capacity(described.len());
        for Described { about, value } in described {
            let value = value.map(|length| take(length as usize)).transpose()?;
            records.push(Record { about, value: value.map(|bytes| Plain::new(bytes.to_vec())) });
        }
        if rest.is_empty() { Ok(Self { mark_key, records }) } else { Err(ContentsError::Surplus) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use proptest::prelude::*;

    fn record(name: &str, value: Option<&str>) -> Record {
        let credential = Credential {
            name: name.into(),
            env: "X".into(),
            hosts: vec!["a.example".into()],
            places: vec![Place::Bearer, Place::Header("x-key".into())],
            ..Credential::default()
        };
        let about = About {
            credential,
            source: Source::Vault { path: "secret/x".into(), field: "y".into() },
            live: value.is_none(),
            added: 1,
            changed: 2,
            revoked: None,
            generation: 3,
            mark: value.map(|_| [7; 32]),
        };
        Record { about, value: value.map(|text| Plain::new(text.into())) }
    }

    fn contents() -> Contents {
        let records =
            vec![record("one", Some("the first value")), record("two", None), record("three", Some("third"))];
        Contents { mark_key: Zeroizing::new([5; 32]), records }
    }

    #[test]
    fn contents_read_back() {
        let read = Contents::parse(&contents().to_bytes().unwrap()).unwrap();
        assert_eq!(read.mark_key, contents().mark_key);
        let told = |c: &Contents| -> Vec<(About, Option<Vec<u8>>)> {
            c.records
                .iter()
                .map(|r| (r.about.clone(), r.value.as_ref().map(|v| v.reveal().to_vec())))
                .collect()
        };
        assert_eq!(told(&read), told(&contents()));
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        let bytes = contents().to_bytes().unwrap();
        for length in 0..bytes.len() {
            assert!(Contents::parse(&bytes[..length]).is_err(), "{length}");
        }
        let more = [&bytes[..], b"x"].concat();
        assert_eq!(Contents::parse(&more).err(), Some(ContentsError::Surplus));
    }

    proptest! {
        #[test]
        fn any_bytes_are_contents_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Contents::parse(&bytes);
        }

        #[test]
        fn a_changed_byte_is_no_panic(at in 0usize..200, to: u8) {
            let mut bytes = contents().to_bytes().unwrap().to_vec();
            if let Some(byte) = bytes.get_mut(at) { *byte = to; }
            let _ = Contents::parse(&bytes);
        }
    }
}
