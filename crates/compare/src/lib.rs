//! Comparison of runs: pure functions from reduced runs to what differs, what a policy says, what is claimed
//! without evidence, and a verdict with its reasons. It knows no trace, sandbox or proxy, does no I/O and reads
//! no clock.
//!
//! ```text
//! foreign   someone else's format          → Run
//! effects   which acts change the world
//! align     two runs                       → which act answers to which
//! delta     the alignment                  → what changed, where, and what is mere noise
//! enforce, claims, ground                  → reasons of their own
//! verdict   baselines, a run, all reasons  → pass, fail or review, in order of weight
//! compare   all of it, for one session
//! ```

pub mod align;
pub mod claims;
pub mod custom;
pub mod delta;
pub mod effects;
pub mod enforce;
pub mod foreign;
pub mod ground;
pub mod reason;
pub mod verdict;
mod whole;

pub use reason::{Outcome, Place, Reason, Scorer, Side};
pub use whole::{Setup, compare};
