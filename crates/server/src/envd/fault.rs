//! What goes wrong, in the two forms that the SDKs read: Connect's, with a code in words, and that of the plain routes.

use axum::Json;
use axum::response::{IntoResponse, Response};
use cofferdam_api::e2b;
use cofferdam_engine::EngineError;
use cofferdam_engine::inside::{FileProblem, InsideError};
use http::StatusCode;
use rustix::io::Errno;
use serde_json::{Value, json};

/// Connect's codes, those that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    Unauthenticated,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    DeadlineExceeded,
    Unimplemented,
    Unavailable,
    Internal,
}

impl Code {
    const fn word(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Unimplemented => "unimplemented",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: Code,
    pub(super) message: String,
    /// On the plain routes, where that is another than the code's.
    status: StatusCode,
}

impl Fault {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), status: code.status() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The session is not there any more.
    pub(super) fn gone() -> Self {
        Self::new(Code::Unavailable, "the sandbox is not running any more")
    }

    /// What went wrong with a path.
    pub(super) fn of(error: InsideError, path: &str) -> Self {
        let kind = match error {
            InsideError::Gone | InsideError::Nonsense => return Self::gone(),
            InsideError::File { kind } => kind,
            InsideError::Refused(EngineError::Guest(problem)) => {
                return Self::new(Code::ResourceExhausted, problem.to_string());
            }
            InsideError::Refused(error) => return Self::new(Code::FailedPrecondition, error.to_string()),
            InsideError::TooMany(_) => return Self::new(Code::ResourceExhausted, error.to_string()),
        };
        let fault = |code, message: String| Self::new(code, message);
        match kind {
            FileProblem::Missing => fault(Code::NotFound, format!("path '{path}' does not exist")),
            FileProblem::Exists => fault(Code::AlreadyExists, format!("path '{path}' already exists")),
            FileProblem::IsDirectory => fault(Code::InvalidArgument, format!("path '{path}' is a directory")),
            FileProblem::NotDirectory => {
                fault(Code::InvalidArgument, format!("path '{path}' is not a directory"))
            }
            FileProblem::Special => {
                fault(Code::InvalidArgument, format!("path '{path}' is not a regular file"))
            }
            FileProblem::NoAccount => fault(Code::Unauthenticated, format!("invalid username: '{path}'")),
            FileProblem::NoSpace => Self {
                status: StatusCode::INSUFFICIENT_STORAGE,
                ..fault(Code::ResourceExhausted, "not enough disk space available".into())
            },
            FileProblem::Closed => fault(Code::Unavailable, "nothing listens there".into()),
            FileProblem::Other(number) => {
                let code = match Errno::from_raw_os_error(number) {
                    Errno::ACCESS | Errno::PERM | Errno::ROFS => Code::PermissionDenied,
                    Errno::NAMETOOLONG
                    | Errno::LOOP
                    | Errno::INVAL
                    | Errno::XDEV
                    | Errno::NOTEMPTY
                    | Errno::BUSY => Code::InvalidArgument,
                    Errno::FBIG | Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::MLINK => {
                        Code::ResourceExhausted
                    }
                    _ => Code::Internal,
                };
                fault(code, format!("path '{path}': {kind}"))
            }
        }
    }

    /// A plain route's answer.
    pub(super) fn plain(status: StatusCode, message: String) -> impl IntoResponse {
        let error = e2b::Error { code: status.as_u16(), message, error_code: None };
        (status, Json(error))
    }

    pub(super) fn into_plain(self) -> Response {
        Self::plain(self.status, self.message).into_response()
    }

    pub(super) fn json(&self) -> Value {
        json!({ "code": self.code.word(), "message": self.message })
    }
}

/// A call's that has one answer.
impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        (self.code.status(), Json(self.json())).into_response()
    }
}
