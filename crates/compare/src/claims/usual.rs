//! What accepted runs say too. A claim that is held against a run may be one of the checker's own mistakes: if a baseline
//! says the same value, and none says the one that should stand there instead, people have accepted it before.

use super::report::{Claim, ClaimReport, Why};
use super::scan::scan;

impl Claim {
    /// Whether a baseline says this as well, and none says what it is contradicted by.
    pub(crate) fn is_usual(&self, baselines: &[ClaimReport]) -> bool {
        let said = |by: &dyn Fn(&Claim) -> bool| baselines.iter().any(|one| one.claims.iter().any(by));
        let too = said(&|other| match (&self.value, &other.value) {
            (Some(mine), Some(theirs)) => mine.said_by(theirs) || theirs.said_by(mine),
            _ => self.text.eq_ignore_ascii_case(&other.text),
        });
        let (Why::OtherValue { found, .. } | Why::Likelier { found, .. }) = &self.why else { return too };
        let instead = scan(&found.text).into_iter().next().map(|f| f.value);
        too && !said(&|other| match (&instead, &other.value) {
            (Some(right), Some(theirs)) => theirs.said_by(right),
            _ => found.text.eq_ignore_ascii_case(&other.text),
        })
    }
}
