//! What was recorded of a session: one file for each time, under names that follow from the session's.

use super::side::{Side, Unread};
use cofferdam_trace::Held;
use std::path::{Path, PathBuf};

/// Of a trace in one file.
pub const EXTENSION: &str = "tar.zst";

/// Nobody records a session more often than this.
pub(super) const MOST: usize = 100;

pub(super) fn file(dir: &Path, id: &str, time: usize) -> PathBuf {
    dir.join(format!("{id}.{time}.{EXTENSION}"))
}

/// The files that are there, in order; the first is always number one.
pub(super) fn files(dir: &Path, id: &str) -> Vec<PathBuf> {
    (1..=MOST).map(|time| file(dir, id, time)).take_while(|path| path.is_file()).collect()
}

/// What a session is compared with, and what was wrong with the rest.
#[derive(Default)]
pub(super) struct Found {
    pub(super) sides: Vec<Side>,
    /// The traces that those are of, where sessions are answered from them.
    pub(super) held: Vec<Held>,
    pub(super) unread: Vec<Unread>,
}
