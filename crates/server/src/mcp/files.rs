//! Files of the sandbox, read and written whole or in pieces.

use super::told::{Done, Fault};
use super::work::ToolSandbox;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_api::mcp::{Encoding, FileRead, FileWritten, MOST_READ, ReadFile, WriteFile};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What a file system calls a path; more is refused there as well.
const LONGEST_PATH: usize = 4096;

impl ToolSandbox<'_> {
    pub(super) fn read_file(&self, asked: &ReadFile) -> Result<Done, Fault> {
        let path = located(&self.workdir, &asked.path)?;
        let limit = limit_of(asked)?;
        let offset = asked.offset.unwrap_or(0);
        let (from, to) = io::pipe()?;
        let to = File::from(OwnedFd::from(to));
        let (copied, read) = std::thread::scope(|scope| {
            let reader = scope.spawn(move || part(from, offset, limit));
            let copied = self.engine.copy_out(&self.session, &path, &to);
            drop(to);
            (copied, reader.join())
        });
        let (bytes, more) = read.map_err(|_| Fault("the file could not be read".into()))??;
        // Whoever copies is told that nobody reads any more, once enough was read.
        if !more {
            copied?;
        }
        file_read(asked.encoding, bytes, more, offset)
    }

    pub(super) fn write_file(&self, asked: &WriteFile) -> Result<Done, Fault> {
        let path = located(&self.workdir, &asked.path)?;
        let content = content_of(asked)?;
        let (from, mut to) = io::pipe()?;
        let from = File::from(OwnedFd::from(from));
        std::thread::scope(|scope| {
            // Where the copy is refused nobody reads it.
            let content = &content;
            scope.spawn(move || drop(to.write_all(content)));
            let copied = self.engine.copy_in(&self.session, &from, &path, None);
            drop(from);
            copied
        })?;
        file_written(&path, content.len() as u64)
    }
}

/// From the work dir, if it is not absolute.
pub(crate) fn located(workdir: &Path, path: &str) -> Result<PathBuf, Fault> {
    match path.is_empty() || path.contains('\0') || path.len() > LONGEST_PATH {
        true => Err(Fault(format!("`path`: from 1 to {LONGEST_PATH} bytes without NUL"))),
        false => Ok(workdir.join(path)),
    }
}

pub(crate) fn limit_of(asked: &ReadFile) -> Result<u32, Fault> {
    let limit = asked.limit.unwrap_or(MOST_READ);
    match (1..=MOST_READ).contains(&limit) {
        true => Ok(limit),
        false => Err(Fault(format!("`limit`: from 1 to {MOST_READ} bytes"))),
    }
}

pub(crate) fn content_of(asked: &WriteFile) -> Result<Vec<u8>, Fault> {
    match asked.encoding {
        Encoding::Utf8 => Ok(asked.content.clone().into_bytes()),
        Encoding::Base64 => STANDARD
            .decode(&asked.content)
            .map_err(|error| Fault(format!("`content` is not base64: {error}"))),
    }
}

pub(crate) fn file_written(path: &Path, bytes: u64) -> Result<Done, Fault> {
    let written = FileWritten { path: path.display().to_string(), bytes };
    Done::of(format!("{bytes} bytes written to {}", written.path), &written)
}

/// So many bytes from there on, and whether there are more.
fn part(mut from: impl Read, offset: u64, limit: u32) -> io::Result<(Vec<u8>, bool)> {
    io::copy(&mut from.by_ref().take(offset), &mut io::sink())?;
    let mut bytes = Vec::new();
    from.take(u64::from(limit) + 1).read_to_end(&mut bytes)?;
    let more = bytes.len() > limit as usize;
    bytes.truncate(limit as usize);
    Ok((bytes, more))
}

pub(crate) fn file_read(
    encoding: Encoding,
    mut bytes: Vec<u8>,
    more: bool,
    offset: u64,
) -> Result<Done, Fault> {
    if encoding == Encoding::Base64 {
        let next_offset = more.then(|| offset + bytes.len() as u64);
        let read = FileRead { content: STANDARD.encode(&bytes), encoding, next_offset };
        return Done::of(read.content.clone(), &read);
    }
    if let Err(error) = std::str::from_utf8(&bytes)
        && more
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        // The next piece begins with the character that does not fit into this one.
        bytes.truncate(error.valid_up_to());
    }
    let next_offset = more.then(|| offset + bytes.len() as u64);
    let content = String::from_utf8(bytes)
        .map_err(|_| Fault("this is no UTF-8: ask with `encoding` = \"base64\"".into()))?;
    let mut text = content.clone();
    if let Some(next) = next_offset {
        text.push_str(&format!("\n[there is more: go on with `offset` = {next}]"));
    }
    Done::of(text, &FileRead { content, encoding, next_offset })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_join_to_the_whole() {
        let all = "a\u{e4}\u{20ac}b".repeat(5);
        for limit in 4..9 {
            let (mut offset, mut joined) = (0, String::new());
            loop {
                let (bytes, more) = part(all.as_bytes(), offset, limit).unwrap();
                let Ok(done) = file_read(Encoding::Utf8, bytes, more, offset) else { panic!("{offset}") };
                joined.push_str(done.data["content"].as_str().unwrap());
                match done.data["next_offset"].as_u64() {
                    Some(next) => offset = next,
                    None => break,
                }
            }
            assert_eq!(joined, all, "{limit}");
        }
    }

    #[test]
    fn what_is_no_text_is_had_as_base64() {
        assert!(file_read(Encoding::Utf8, vec![0xff], false, 0).is_err());
        let Ok(done) = file_read(Encoding::Base64, vec![0xff], false, 0) else { panic!() };
        assert_eq!(done.data, json!({"content": "/w==", "encoding": "base64"}));
    }
}
