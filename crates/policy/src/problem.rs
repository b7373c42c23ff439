//! Why something could not be judged; then it is denied. Texts of the request stay out of the words: these go
//! on record and back to the agent.

use crate::path::PathProblem;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the host has no certain spelling")]
    Host,
    #[error("{0}")]
    Path(#[from] PathProblem),
    #[error("the file's path is not absolute or has a `.` or `..` in it; ask for the path it leads to")]
    FilePath,
    #[error("the query has a broken escape or is not text")]
    Query,
    #[error("the query has a `;`, which some servers split at, and a condition looks at it; write %3B")]
    Semicolon,
    #[error("the parameter `{0}` stands twice in the query; send it once")]
    RepeatedParameter(String),
    #[error("the header `{0}` stands twice or is not text; send it once")]
    RepeatedHeader(String),
    #[error("the body was not collected")]
    BodyUnseen,
    #[error("the length of the body is not known; send a content-length")]
    LengthUnknown,
    #[error("the body is longer than the {max} bytes that are looked at; send less", max = crate::MAX_BODY)]
    BodyTooLong,
    #[error("the body is neither JSON nor a form by its content type")]
    BodyType,
    #[error("the body is not JSON at line {line}, column {column}")]
    BodyNotJson { line: usize, column: usize },
    #[error("the body can be read in two ways, or has too many values; name each field once")]
    BodyAmbiguous,
    #[error("{at}: {what} (schema: {rule})")]
    Contract { at: String, what: String, rule: String },
    #[error("the condition asks for `{0}`, which is not there; test it with has() first")]
    NoSuchKey(String),
    #[error("the condition applies {function} to {types}")]
    Types { function: String, types: String },
    #[error("the condition is neither true nor false but {0}")]
    NotBoolean(&'static str),
    #[error("the condition cannot convert what it is given with {0}()")]
    Conversion(String),
    #[error("the condition takes too many steps for a request of this size")]
    Steps,
    #[error("the condition cannot be computed: {0}")]
    Computation(&'static str),
}
