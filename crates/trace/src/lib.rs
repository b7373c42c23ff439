//! Traces: an append-only writer, a reader, a verifier, a reducer, and the one file a trace travels in.
//!
//! This crate is the sole owner of the bundle format (`docs/trace-format.md`). A bundle is a directory:
//!
//! ```text
//! <session id>/
//!   events.jsonl            one event per line, canonical JSON, hash-chained, with signed checkpoints
//!   blobs/<sha256>.zst      payloads named by the digest of their plain bytes; made with the first one
//! ```
//!
//! The writer hands every event to the kernel before it returns, so that a trace survives the death of its
//! writer at any instruction. It never rewrites what is written. The reader and the verifier take every byte
//! as hostile: lines, payloads and archives are bounded before they are held in memory.

mod archive;
mod atif;
mod blob;
mod lines;
mod otlp;
mod query;
mod reader;
mod reduce;
mod story;
mod verify;
mod writer;

pub use archive::{ArchiveError, MAX_ARCHIVE, pack, unpack};
pub use atif::to_atif;
pub use blob::BlobError;
pub use otlp::to_otlp;
pub use query::Query;
pub use reader::{ReadError, Reader};
pub use reduce::{Payload, to_run};
pub use story::{Exec, Story, Told, reduce};
pub use verify::{Bad, Check, Held, Payloads, Reason, State, Verification, verify, verify_held};
pub use writer::{Options, Sealed, WriteError, Writer, prepare};

/// The version of the format, as `session.started` tells it.
pub const FORMAT: u32 = 1;

pub const EVENTS_FILE: &str = "events.jsonl";
pub const BLOBS_DIR: &str = "blobs";

/// The longest line, with its line end. Larger things belong into payloads.
pub const MAX_EVENT: usize = 1 << 20;

/// The largest payload, uncompressed.
pub const MAX_BLOB: u64 = 64 << 20;

/// The writer signs after this many events…
pub const CHECKPOINT_EVENTS: u64 = 256;

/// …or with the first event that comes this long after the last signature, whichever is first.
pub const CHECKPOINT_US: u64 = 1_000_000;

/// A reader follows an unsigned chain no further than this, so that a forger cannot make it work for nothing.
pub const MAX_UNSIGNED: u64 = 4096;
