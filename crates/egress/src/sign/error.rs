//! Why a request is not signed anew.

use super::frames::FrameError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    #[error("its signature cannot be read ({0}): sign with a client of the service's own")]
    Malformed(&'static str),
    #[error(
        "signatures of version 2 are not made anew: use version 4, as with `signature_version='s3v4'` of boto3"
    )]
    Version2,
    #[error("the request is signed twice: sign it in the head or in the query")]
    Twice,
    #[error("it may not sign for `{service}` in `{region}`: add a --scope to the credential, if it is right")]
    Scope { service: String, region: String },
    #[error("`{0}` gives out credentials: name it with --scope {0}, if the agent may have them")]
    Mints(String),
    #[error("it is not declared for {0}: add `--as {0}` to the credential, if it is right")]
    Undeclared(&'static str),
    #[error("`{0}` has to be signed, and is not: sign with a client of the service's own")]
    Unsigned(&'static str),
    #[error(
        "the signature does not fit the request: it covers another one, or this one was changed on its way"
    )]
    Mismatch,
    #[error("the body is not the one whose hash was signed: sign what is sent")]
    OtherBody,
    #[error("it is valid until {until}, and now is {now}: sign it anew")]
    Expired { until: String, now: String },
    #[error("it is valid from {from}, and now is {now}: set the clock")]
    Early { from: String, now: String },
    #[error("a body of `{0}` is not signed anew: upload it in another way")]
    Mode(String),
    #[error("the body is not framed as its head says ({0}): send it as signed")]
    Frames(#[from] FrameError),
    #[error("a key for this signature cannot be derived: give the credential another value")]
    NoKey,
}
