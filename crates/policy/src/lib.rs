//! Parse, check and evaluate policy: typed rules with CEL conditions over what is about to happen.
//!
//! Deny beats review beats allow; nothing matched is deny; what cannot be judged is deny. Every decision names
//! its rule. Pure: no I/O, no clock, and on the way of a request no allocation until a condition is reached.
//! Acting on a decision is others' business.

mod action;
mod check;
mod condition;
mod contract;
mod cover;
mod decision;
mod example;
mod explain;
mod facts;
mod flow;
mod glob;
mod host;
mod json;
mod judge;
mod mistake;
mod octets;
mod path;
mod policy;
mod problem;
mod read;
mod redact;
mod request;
mod rule;
mod schema;
mod settings;
pub mod sql;
mod ssh;
mod suggest;

pub use action::{Access, Action, Browser, Exec, File, Headers, Http, Sql, Ssh, Step, Tool};
pub use check::{Finding, Kind, Severity};
pub use condition::{ConditionError, Expression, ExpressionError, InputSchema};
pub use decision::Decision;
pub use example::Tried;
pub use explain::{Candidate, Explanation, Part};
pub use flow::{Baseline, Deviation, Flow, Known, Origin, Sink, Source, ValueKind};
pub use glob::GlobError;
pub use host::{HostError, HostPattern, Hosts, canonical};
pub use json::{MAX_BODY, parameters, parse as read_json};
pub use mistake::{Mistake, PolicyError, PolicyErrors, Spot};
pub use path::PathProblem;
pub use policy::{Policy, SqlTerms};
pub use problem::Problem;
pub use redact::redact;
pub use request::{Request, RequestError};
pub use rule::{Effect, RuleName};
pub use schema::MAX_RULES;
pub use settings::{
    Alarm, Alert, AlertFormat, AlertTo, Budget, Change, Class, DeclaredTool, Deed, Exemption, Guard,
    GuardAction, HostClaim, KnownHost, Notice, Occasion, Rewrite, Trigger, Upstream, micro_dollars,
};
pub use ssh::{CommandError, GitService, MAX_COMMAND, SshCommand, SshKind};
