//! What a session did to its work dir, in order, told as often as anybody asks. There may be millions: the first ones are
//! held in memory, the others in a file without a name, which goes with who holds it.

use cofferdam_model::{ChangeOp, FileChange};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;

/// So many are held in memory.
const HELD: usize = 8192;
const BUFFER: usize = 64 << 10;

#[derive(Debug, Default)]
pub struct ChangeList {
    held: Vec<FileChange>,
    /// A line of JSON for each of the others.
    rest: Option<File>,
    counts: [u64; 4],
}

impl ChangeList {
    pub fn len(&self) -> usize {
        self.counts.iter().sum::<u64>() as usize
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn count(&self, op: ChangeOp) -> u64 {
        self.counts[op as usize]
    }

    /// Those that are held in memory: the first, and all if there are few.
    pub fn first(&self) -> &[FileChange] {
        &self.held
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = io::Result<Cow<'_, FileChange>>> {
        let lines = self.rest.as_ref().map(|file| Lines {
            from: BufReader::with_capacity(BUFFER, At { file, at: 0 }),
            line: Vec::new(),
        });
        let held = self.held.iter().map(|change| Ok(Cow::Borrowed(change)));
        held.chain(lines.into_iter().flatten().map(|line| line.map(Cow::Owned)))
    }
}

impl From<Vec<FileChange>> for ChangeList {
    fn from(held: Vec<FileChange>) -> Self {
        let mut counts = [0; 4];
        held.iter().for_each(|change| counts[change.op as usize] += 1);
        Self { held, rest: None, counts }
    }
}

/// Reads from a place of its own, so that several can read at once.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(to, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

struct Lines<'a> {
    from: BufReader<At<'a>>,
    line: Vec<u8>,
}

impl Iterator for Lines<'_> {
    type Item = io::Result<FileChange>;

    fn next(&mut self) -> Option<Self::Item> {
        self.line.clear();
        match self.from.read_until(b'\n', &mut self.line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_slice(&self.line).map_err(Into::into)),
            Err(error) => Some(Err(error)),
        }
    }
}

/// Takes changes as they are found.
pub struct Gathering<'a> {
    changes: ChangeList,
    /// Makes the file, if there has to be one.
    room: &'a dyn Fn() -> io::Result<File>,
    to: Option<BufWriter<File>>,
}

impl<'a> Gathering<'a> {
    pub fn new(room: &'a dyn Fn() -> io::Result<File>) -> Self {
        Self { changes: ChangeList::default(), room, to: None }
    }

    pub fn push(&mut self, change: FileChange) -> io::Result<()> {
        self.changes.counts[change.op as usize] += 1;
        if self.changes.held.len() < HELD {
            self.changes.held.push(change);
            return Ok(());
        }
        let to = match &mut self.to {
            Some(to) => to,
            None => self.to.insert(BufWriter::with_capacity(BUFFER, (self.room)()?)),
        };
        serde_json::to_writer(&mut *to, &change)?;
        to.write_all(b"\n")
    }

    pub fn finish(mut self) -> io::Result<ChangeList> {
        if let Some(to) = self.to {
            self.changes.rest = Some(to.into_inner().map_err(io::IntoInnerError::into_error)?);
        }
        Ok(self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::{FileKind, RawPath};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn change(at: usize) -> FileChange {
        let mut name = format!("file {at}\n").into_bytes();
        // No text.
        name.push(0xff);
        FileChange {
            op: if at.is_multiple_of(3) { ChangeOp::Deleted } else { ChangeOp::Created },
            kind: FileKind::File,
            path: RawPath::from(Path::new(OsStr::from_bytes(&name))),
            from: None,
            changed: Vec::new(),
            mode: Some(0o644),
            size: Some(at as u64),
            digest: None,
        }
    }

    #[test]
    fn all_come_back_in_order_however_many() {
        let room = tempfile::tempfile;
        for count in [0, 1, HELD, HELD + 1, 3 * HELD] {
            let mut gathering = Gathering::new(&room);
            (0..count).for_each(|at| gathering.push(change(at)).unwrap());
            let changes = gathering.finish().unwrap();
            assert_eq!((changes.len(), changes.is_empty()), (count, count == 0));
            assert_eq!(changes.count(ChangeOp::Deleted), count.div_ceil(3) as u64);
            assert_eq!(changes.first().len(), count.min(HELD));
            for _ in 0..2 {
                let all: Vec<_> = changes.iter().map(|change| change.unwrap().into_owned()).collect();
                assert!(all.into_iter().eq((0..count).map(change)), "{count}");
            }
        }
    }
}
