//! Why a value has no canonical bytes, and where in it.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("a floating-point number has many texts: record an integer of a smaller unit, or a string")]
    Float,
    #[error("{0} is not exact in every JSON reader: record numbers beyond 2^53 - 1 as strings")]
    Integer(i128),
    #[error("a member's name is not a string: use text as the key of a map")]
    Key,
    #[error("the member `{0}` appears twice: give each its own name")]
    Duplicate(String),
    #[error("the value is nested too deep: keep it under {} levels", super::MAX_DEPTH)]
    Depth,
    #[error("the value cannot be written as JSON ({0}): record it in another form")]
    Unwritable(String),
}

/// A [`Problem`] and the path to it, as in `controls[3].value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalError {
    path: String,
    problem: Problem,
}

impl CanonicalError {
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// Paths are put together while the error travels outwards, so that the good case pays nothing.
    pub(crate) fn inside(mut self, name: &str) -> Self {
        let joint = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{joint}{}", self.path);
        self
    }

    pub(super) fn at_index(mut self, index: usize) -> Self {
        let joint = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("[{index}]{joint}{}", self.path);
        self
    }
}

impl From<Problem> for CanonicalError {
    fn from(problem: Problem) -> Self {
        Self { path: String::new(), problem }
    }
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return self.problem.fmt(f);
        }
        write!(f, "`{}`: {}", self.path, self.problem)
    }
}

impl std::error::Error for CanonicalError {}

impl serde::ser::Error for CanonicalError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Problem::Unwritable(message.to_string()).into()
    }
}
