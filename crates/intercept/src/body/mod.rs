//! Bodies as they came over the wire: kept within a bound, and read where they are compressed. It refuses to
//! grow: what is too long is there with its first and last bytes, and its digest.

pub(crate) mod capture;
mod coding;
pub(crate) mod sse;

pub(crate) use capture::{Capture, Room};
pub(crate) use coding::decoded;
