//! Groundedness: how well words rest on what was read before them, with the reasons. It is lexical by intent: the same
//! bytes give the same score on every machine, and each score can be redone by hand. It does not understand; where the
//! evidence does not decide it says so, and a judge can be asked, who may doubt but never overrule an exact finding.

mod cues;
mod features;
mod index;
mod judge;
mod model;
mod score;
mod session;
mod terms;

pub use features::{FEATURES, Features, features};
pub use index::Index;
pub(crate) use index::sentences;
pub use judge::{
    Combined, JudgeAnswer, JudgeFailure, JudgeRecord, JudgeRequest, Opinion, combine, judge_prompt,
    read_answer,
};
pub use model::{INTERCEPT, WEIGHTS, Weight};
pub use score::{
    Band, Conflict, ConflictKind, Driver, Groundedness, Missing, MissingKind, Score, Span, Unscored, score,
};
pub use session::{GroundReport, Said, Step, check};
