//! The L7 egress proxy: accept, identify, decide, scan, swap, forward, redact, record; a file per step.
//!
//! Streams come in at `serve`, are read at `front`, and every request runs through `http`; `upstream` knows
//! the outside. The inside is hostile, and so is every byte that comes back: what cannot be read in one way is
//! refused, what is not on record does not happen, and a credential's real value stands nowhere but in the
//! request it belongs to. It keeps no state beyond the session and prints nothing.

pub mod address;
mod alert;
mod approvals;
mod ask;
mod budget;
pub mod dns;
mod exchange;
mod forms;
mod front;
pub mod guard;
mod host;
mod http;
pub mod names;
mod own;
mod postgres;
mod quiet;
mod refusals;
mod rescue;
mod rules;
pub mod scrub;
mod serve;
mod session;
pub mod sign;
mod ssh;
mod stream;
pub mod swap;
mod tls;
mod upstream;

pub use alert::{Alerting, BadRoute, Sign};
pub use approvals::{ApprovalError, Approvals, Held, Put};
pub use ask::{AskError, Question};
pub use own::{Ear, Mouth, Near, Own, OwnNext, Talk, Then, line};
pub use rules::{Rules, RulesError};
pub use serve::{Callers, Handle, Listeners, serve};
pub use session::{Config, ControlError, Limits, OnCap, OnPolicy, Stats};
pub use ssh::KnownHosts;
pub use stream::{Accepted, Door, Io};
pub use tls::{Ca, CaError};
pub use upstream::trust::TrustError;
