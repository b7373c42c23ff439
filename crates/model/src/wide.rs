//! Counts that may go beyond 2^53 - 1: system call arguments, sizes of sparse files, "no limit". A trace
//! holds only integers that every JSON reader keeps exactly, so the few larger ones are decimal strings.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Number(u64),
    Text(String),
}

impl From<u64> for Wire {
    fn from(value: u64) -> Self {
        if value < 1 << 53 { Self::Number(value) } else { Self::Text(value.to_string()) }
    }
}

fn read<E: de::Error>(wire: Wire) -> Result<u64, E> {
    match wire {
        Wire::Number(value) => Ok(value),
        Wire::Text(text) => {
            text.parse().map_err(|_| E::custom("a large number is not a string of decimal digits"))
        }
    }
}

pub(crate) mod one {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Wire, read};

    pub(crate) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        Wire::from(*value).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        read(Wire::deserialize(from)?)
    }
}

pub(crate) mod maybe {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Wire, read};

    pub(crate) fn serialize<S: Serializer>(value: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        value.map(Wire::from).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        Option::<Wire>::deserialize(from)?.map(read).transpose()
    }
}

pub(crate) mod many {
    use super::{Deserialize, Deserializer, Serializer, Wire, read};

    pub(crate) fn serialize<S: Serializer>(values: &[u64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(|&value| Wire::from(value)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
        Vec::<Wire>::deserialize(from)?.into_iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{BlockedAttempt, ChangeOp, FileChange, FileKind};

    #[test]
    fn a_large_number_is_a_string_and_reads_back() {
        let attempt = BlockedAttempt {
            argv: Vec::new(),
            syscall: "ptrace".into(),
            args: vec![0, (1 << 53) - 1, 1 << 53, u64::MAX],
            pid: 1,
            program: "x".into(),
            reason: "denied".into(),
            times: 1,
        };
        let json = serde_json::to_value(&attempt).unwrap();
        let expected =
            serde_json::json!([0, 9007199254740991u64, "9007199254740992", "18446744073709551615"]);
        assert_eq!(json["args"], expected);
        assert_eq!(serde_json::from_value::<BlockedAttempt>(json).unwrap(), attempt);
    }

    #[test]
    fn the_size_of_a_sparse_file_survives() {
        let (op, kind) = (ChangeOp::Created, FileKind::File);
        for size in [None, Some(5), Some(i64::MAX as u64)] {
            let (from, changed) = (None, Vec::new());
            let path = "hole".into();
            let change = FileChange { op, kind, path, from, changed, mode: None, size, digest: None };
            let json = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<FileChange>(&json).unwrap(), change, "{json}");
        }
    }
}
