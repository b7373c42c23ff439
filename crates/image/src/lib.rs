//! Images of the Open Container Initiative, and Docker's archives: found in a directory, an archive or a registry,
//! verified and unpacked into one tree of files.
//!
//! All of it is hostile: every digest and every size is checked, no path leads out of the tree, nothing is made that
//! grants anything (set-id bits, file capabilities, devices), and how much is taken is bounded. What was unpacked when
//! something turns out to be wrong is for the caller to remove: nothing refers to it yet.

mod error;
mod fit;
mod import;
mod oci;
mod reference;
mod source;
mod unpack;

pub use error::ImageError;
pub use import::{Imported, import};
pub use reference::Reference;
pub use source::{Access, Place, Source, open};
pub use unpack::Most;
