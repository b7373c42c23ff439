//! What a gate found, for each of its readers: a page for the engineer whose deploy was stopped, files for the CI
//! system, numbers for a monitor. A file for each format; each is made of a result and adds nothing to it.
//!
//! Everything in a report may have been written by an agent: it is text, and never markup, wherever it stands. It
//! writes to whatever it is handed and reads nothing.

pub mod evidence;
mod html;
mod junit;
mod markdown;
mod metrics;
mod sarif;

pub use html::Page;
pub use junit::junit;
pub use markdown::markdown;
pub use metrics::{Metrics, metrics};
pub use sarif::{PolicyRule, Sources, sarif};

use cofferdam_compare::verdict::Comparison;
use cofferdam_gate::SessionVerdict;
use cofferdam_model::Run;

/// One session with all that is known of it. The runs are there where someone has to look at them.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    pub verdict: &'a SessionVerdict,
    pub comparison: Option<&'a Comparison>,
    /// The baseline that it is nearest to.
    pub base: Option<&'a Run>,
    pub new: Option<&'a Run>,
}
