//! Images that are not there: what of the host a machine sees is shown to it as a disk with a read-only file
//! system (EROFS), of which only the names are written down. A file's bytes are read from the host's own file when
//! the machine asks for that block, so making an image of a large tree takes as long as listing it, and no space.
//!
//! Layout: a superblock, the inodes with small directories, links and files in them, larger directories, our own
//! larger files, and then as many blocks as the host's files have. Where one of those has changed since it was
//! listed, reading it fails rather than giving out a mixture.

mod erofs;
mod kept;
mod tree;

pub(crate) use kept::{Image, Kept, check, check_once, holds, witness};
pub(crate) use tree::{Taken, Tree};

/// Of the file system, and of what a machine asks for.
pub(crate) const BLOCK: u64 = 4096;
