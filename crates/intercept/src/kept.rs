//! Texts on record: short ones stand in the event, long ones are kept by their digest. An event has room for only
//! so much text.

use cofferdam_model::{Content, NotRecorded, Record};

/// The longest text that stands in an event.
const INLINE: usize = 1024;
/// All texts that stand in one event; the format allows a million bytes, and a byte can take six.
const ROOM: usize = 64 << 10;

pub(crate) struct Texts<'a> {
    record: &'a dyn Record,
    room: usize,
}

impl<'a> Texts<'a> {
    /// For one event.
    pub(crate) fn new(record: &'a dyn Record) -> Self {
        Self { record, room: ROOM }
    }

    pub(crate) fn put(&mut self, text: String) -> Result<Content, NotRecorded> {
        match self.room.checked_sub(text.len()).filter(|_| text.len() <= INLINE) {
            Some(left) => {
                self.room = left;
                Ok(Content::Text(text))
            }
            None => self.record.keep(text.as_bytes()).map(Content::Kept),
        }
    }
}

/// At most `most` bytes of a text, cut between characters.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use cofferdam_model::{BlobRef, Body, Digest};
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// Keeps all that it is told, and can be made to fail.
    #[derive(Default)]
    pub(crate) struct Kept {
        pub(crate) events: Mutex<Vec<(Option<u64>, Body)>>,
        blobs: Mutex<HashMap<Digest, Vec<u8>>>,
        pub(crate) is_broken: AtomicBool,
    }

    impl Kept {
        pub(crate) fn bytes(&self, blob: &BlobRef) -> Vec<u8> {
            self.blobs.lock().unwrap()[&blob.digest].clone()
        }

        pub(crate) fn bodies(&self) -> Vec<Body> {
            self.events.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
        }
    }

    impl Record for Kept {
        fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded> {
            if self.is_broken.load(Relaxed) {
                return Err(NotRecorded { kind: body.kind(), reason: "the disk is full".into() });
            }
            let mut events = self.events.lock().unwrap();
            events.push((parent, body.clone()));
            Ok(events.len() as u64 - 1)
        }

        fn keep(&self, bytes: &[u8]) -> Result<BlobRef, NotRecorded> {
            let digest = cofferdam_seal::digest(bytes);
            self.blobs.lock().unwrap().insert(digest, bytes.to_vec());
            Ok(BlobRef { digest, size: bytes.len() as u64 })
        }
    }

    #[test]
    fn an_event_holds_only_so_much() {
        let record = Kept::default();
        let mut texts = Texts::new(&record);
        assert_eq!(texts.put("short".into()).unwrap(), Content::Text("short".into()));
        assert!(
            matches!(texts.put("x".repeat(INLINE + 1)).unwrap(), Content::Kept(blob) if blob.size == 1025)
        );
        let inline =
            (0..200).filter(|_| matches!(texts.put("y".repeat(INLINE)).unwrap(), Content::Text(_))).count();
        assert_eq!(inline, (ROOM - 5) / INLINE);
        assert_eq!(clipped("aé", 2), "a");
    }
}
