//! Everything that can go wrong with a request, and the one place where it becomes an answer: a status, words
//! that say what to do, and what is put on record.

use crate::address::Forbidden;
use crate::approvals::ApprovalError;
use crate::front::BadOpening;
use crate::front::framing::Malformed;
use crate::host::BadHost;
use crate::http::flow::Flow;
use crate::swap::{Refusal, Why};
use crate::upstream::dial::DialError;
use bytes::Bytes;
use cofferdam_model::{Ending, NotRecorded, Stop};
use cofferdam_policy::{Alarm, HostError};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode};
use std::sync::Arc;
use thiserror::Error;

/// A no by the policy or by a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    /// Who says no and why, in one line.
    pub(crate) line: String,
    pub(crate) rule: Option<String>,
    pub(crate) reason: String,
    /// Whom to ask.
    pub(crate) contact: String,
    /// The rule that would allow it, as text of a policy.
    pub(crate) allow: Option<String>,
}

#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("{}", .0.line)]
    Denied(Box<Denial>),
    #[error("{0}")]
    Malformed(Malformed),
    #[error(transparent)]
    Authority(#[from] BadHost),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("`{host}` is refused as a destination: {why}")]
    Address { host: String, why: Forbidden },
    #[error("the request names `{one}` and `{other}`: name one host")]
    TwoNames { one: Arc<str>, other: Arc<str> },
    #[error("the request is for `{asked}`, and the connection is to `{bound}`: open one to `{asked}`")]
    Misdirected { asked: String, bound: String },
    #[error("`{0}:` is not carried here: use https through CONNECT, or http")]
    Scheme(String),
    #[error("this is a proxy: send a full URL or CONNECT")]
    NotAbsolute,
    #[error("{0} is never forwarded: use another method")]
    Method(Method),
    #[error("{0}: ask our own DNS for names")]
    Doh(&'static str),
    #[error("`{0}` cannot be upgraded to: use a WebSocket")]
    Upgrade(String),
    #[error("a rewrite sets a field of the body, which is no JSON object: send one")]
    NotJson,
    #[error(transparent)]
    Leak(#[from] Refusal),
    #[error(transparent)]
    Opening(#[from] BadOpening),
    #[error("the body holds a secret of its own ({0}): send it without")]
    Secret(String),
    #[error(
        "the request's {at} holds a secret of its own ({what}): keep it in the vault (`cofferdam secret add`), or let it pass by `[[guard.allow]]` in the policy"
    )]
    SecretIn { at: String, what: String },
    #[error("a message is not the text it says it is: send UTF-8")]
    NotText,
    #[error("{0}")]
    Stopped(String),
    #[error(transparent)]
    Tapped(#[from] Stop),
    #[error("egress is paused: wait until it is resumed")]
    Paused,
    #[error("the body is over {limit} bytes, and a rule looks at it: send less")]
    TooLarge { limit: usize },
    #[error("{0}")]
    OverBudget(String),
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("`{host}` broke off before it answered ({source}): try again")]
    Upstream { host: Arc<str>, source: hyper::Error },
    #[error("`{0}` closed the connection before the request was sent: try again")]
    BrokeOff(Arc<str>),
    #[error("`{host}` answers with what cannot be read and vouched for: {reason}")]
    Unreadable { host: Arc<str>, reason: String },
    #[error("there is no token for the credential `{name}`: {why}")]
    Token { name: String, why: String },
    #[error("{0}")]
    Postgres(Box<crate::postgres::Refused>),
    #[error("{0}")]
    Ssh(Box<crate::ssh::Refused>),
    #[error("the client's body broke off: {0}")]
    Body(hyper::Error),
    #[error("it was cut while it was under way ({0:?}): ask whoever runs this session")]
    Cut(Ending),
}

impl Failure {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(Malformed::TooLarge) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Malformed(_)
            | Self::Authority(_)
            | Self::Host(_)
            | Self::TwoNames { .. }
            | Self::NotAbsolute
            | Self::Scheme(_) => StatusCode::BAD_REQUEST,
            Self::Body(_) | Self::Upgrade(_) | Self::NotJson => StatusCode::BAD_REQUEST,
            Self::Misdirected { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::OverBudget(_) | Self::Approval(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Paused | Self::NotRecorded(_) | Self::Cut(Ending::Paused | Ending::SessionEnded) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Denied(_) | Self::Address { .. } | Self::Doh(_) | Self::Leak(_) | Self::Opening(_) => {
                StatusCode::FORBIDDEN
            }
            Self::Cut(_) | Self::Secret(_) | Self::SecretIn { .. } | Self::NotText => StatusCode::FORBIDDEN,
            Self::Stopped(_) | Self::Tapped(_) | Self::Postgres(_) | Self::Ssh(_) => StatusCode::FORBIDDEN,
            Self::Dial(DialError::Forbidden { .. } | DialError::ThisHost { .. }) => StatusCode::FORBIDDEN,
            Self::Dial(_)
            | Self::Upstream { .. }
            | Self::BrokeOff(_)
            | Self::Unreadable { .. }
            | Self::Token { .. } => StatusCode::BAD_GATEWAY,
        }
    }

    /// A word that stays the same, for the record and for programs.
    pub(crate) fn cause(&self) -> &str {
        match self {
            Self::Denied(_) => "denied",
            Self::Malformed(why) => why.code(),
            Self::Authority(_) | Self::Host(_) => "bad-host",
            Self::Address { .. } => "forbidden-address",
            Self::TwoNames { .. } | Self::Misdirected { .. } => "name-mismatch",
            Self::Scheme(_) | Self::NotAbsolute => "request-target",
            Self::Method(_) => "method",
            Self::Doh(_) => "dns-over-https",
            Self::Upgrade(_) => "upgrade",
            Self::NotJson => "body-not-json",
            Self::Leak(_) => "credential-misused",
            Self::Opening(why) => why.cause(),
            Self::Secret(_) | Self::SecretIn { .. } => "secret",
            Self::NotText => "message-not-text",
            Self::Stopped(_) => "refused",
            Self::Tapped(stop) => &stop.cause,
            Self::Paused => "paused",
            Self::TooLarge { .. } => "body-too-large",
            Self::OverBudget(_) => "over-budget",
            Self::Approval(_) => "too-many-held",
            Self::NotRecorded(_) => "not-recorded",
            Self::Dial(DialError::Forbidden { .. } | DialError::ThisHost { .. }) => "forbidden-address",
            Self::Dial(_) | Self::Upstream { .. } | Self::BrokeOff(_) => "upstream",
            Self::Unreadable { .. } => "unreadable-answer",
            Self::Token { .. } => "token",
            Self::Postgres(refused) => refused.cause(),
            Self::Ssh(refused) => refused.cause(),
            Self::Body(_) => "client-body",
            Self::Cut(_) => "cut",
        }
    }

    /// What it looks like, if it looks like an attempt to get around something and not like a mistake.
    pub(crate) fn alarm(&self) -> Option<Alarm> {
        match self {
            Self::Malformed(Malformed::TooLarge | Malformed::Version) => None,
            Self::Malformed(_) | Self::TwoNames { .. } => Some(Alarm::Smuggling),
            Self::Opening(why) => why.hides().then_some(Alarm::Evasion),
            Self::Misdirected { .. } | Self::Doh(_) => Some(Alarm::Evasion),
            Self::Address { .. } | Self::Dial(DialError::Forbidden { .. } | DialError::ThisHost { .. }) => {
                Some(Alarm::ForbiddenAddress)
            }
            Self::Leak(refusal) if refusal.is_alarm() => Some(match refusal.why {
                Why::RealValue => Alarm::SecretLeak,
                _ => Alarm::PlaceholderMisused,
            }),
            Self::Secret(_) | Self::SecretIn { .. } => Some(Alarm::SecretLeak),
            Self::OverBudget(_) => Some(Alarm::Budget),
            Self::Tapped(stop) if stop.cause == Stop::SPEND_CAP => Some(Alarm::Budget),
            Self::Denied(_) => Some(Alarm::Denied),
            Self::Ssh(refused) if refused.is_other_host() => Some(Alarm::HostKey),
            _ => None,
        }
    }

    /// The credential that it is about, by name.
    pub(crate) fn credential(&self) -> Option<&str> {
        match self {
            Self::Leak(refusal) => refusal.credential.as_deref(),
            _ => None,
        }
    }

    /// Whether it is recorded as a refusal of its own: not what a decision or the end of an exchange tells already.
    pub(crate) fn is_own_event(&self) -> bool {
        match self {
            Self::Denied(_) | Self::NotRecorded(_) | Self::Body(_) | Self::Cut(_) | Self::Stopped(_) => false,
            Self::Upstream { .. } | Self::BrokeOff(_) => false,
            // Told with the end of its session.
            Self::Postgres(refused) => refused.cause() != "upstream",
            Self::Ssh(refused) => refused.cause() != "upstream",
            Self::Dial(error) => matches!(error, DialError::Forbidden { .. } | DialError::ThisHost { .. }),
            _ => true,
        }
    }
}

const CAUSE: HeaderName = HeaderName::from_static("x-cofferdam-refused");

/// What the client gets, in the form its request asks for.
pub(crate) fn answer(failure: &Failure, asked: &Asked) -> Response<Flow> {
    let cause = HeaderValue::from_str(failure.cause()).unwrap_or(HeaderValue::from_static("refused"));
    let mut response = match asked {
        Asked::Grpc => grpc(failure),
        Asked::Json => json(failure),
        Asked::Text => body(failure.status(), "text/plain; charset=utf-8", text(failure)),
    };
    response.headers_mut().insert(CAUSE, cause);
    if matches!(failure, Failure::Malformed(_)) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The form of answer that a client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Text,
    Json,
    Grpc,
}

impl Asked {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let has = |name, word: &str| {
            headers.get(name).and_then(|v| v.to_str().ok()).is_some_and(|v| v.contains(word))
        };
        if has(header::CONTENT_TYPE, "application/grpc") {
            Self::Grpc
        } else if has(header::ACCEPT, "json") || has(header::CONTENT_TYPE, "json") {
            Self::Json
        } else {
            Self::Text
        }
    }
}

/// The words for people.
pub(crate) fn text(failure: &Failure) -> String {
    match failure {
        Failure::Denied(denial) if denial.allow.is_some() => {
            let allow = denial.allow.as_deref().unwrap_or_default().trim_end();
            format!("cofferdam: {failure}\nthis rule would allow it:\n\n{allow}\n")
        }
        _ => format!("cofferdam: {failure}\n"),
    }
}

fn json(failure: &Failure) -> Response<Flow> {
    let mut error = serde_json::json!({ "type": failure.cause(), "message": failure.to_string() });
    if let Failure::Denied(denial) = failure {
        error["rule"] = denial.rule.clone().into();
        error["reason"] = denial.reason.clone().into();
        error["contact"] = denial.contact.clone().into();
        error["allow"] = denial.allow.clone().into();
    }
    body(failure.status(), "application/json", serde_json::json!({ "error": error }).to_string())
}

/// A client of gRPC reads the status from fields of its own and ignores the one of HTTP.
fn grpc(failure: &Failure) -> Response<Flow> {
    let status = match failure.status() {
        StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => "7",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY => "14",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => "8",
        _ => "3",
    };
    let is_plain = |c: &char| matches!(c, ' '..='~') && *c != '%';
    let message: String = format!("cofferdam: {failure}").chars().filter(is_plain).collect();
    let mut response = body(StatusCode::OK, "application/grpc", String::new());
    let headers = response.headers_mut();
    headers.insert("grpc-status", HeaderValue::from_static(status));
    if let Ok(message) = HeaderValue::from_str(&message) {
        headers.insert("grpc-message", message);
    }
    response
}

fn body(status: StatusCode, kind: &'static str, text: String) -> Response<Flow> {
    let mut response = Response::new(Flow::whole(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_the_rule_and_what_to_do() {
        let denied = Failure::Denied(Box::new(Denial {
            line: "denied by rule r: money leaves; ask #agents".into(),
            rule: Some("r".into()),
            reason: "money leaves".into(),
            contact: "ask #agents".into(),
            allow: Some("[[rule]]\n".into()),
        }));
        let expected = "cofferdam: denied by rule r: money leaves; ask #agents\n\
            this rule would allow it:\n\n[[rule]]\n";
        assert_eq!(text(&denied), expected);
        assert_eq!(answer(&denied, &Asked::Json).status(), 403);
        let grpc = answer(&denied, &Asked::Grpc);
        assert_eq!(
            (grpc.status(), &grpc.headers()["grpc-status"]),
            (StatusCode::OK, &HeaderValue::from_static("7"))
        );
    }
}
