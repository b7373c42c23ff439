//! What a policy says besides allow, deny and review: where hosts are reached, what is changed on the way, how
//! much may pass, what is looked for, what happens by itself, and who is told. Plain data; others act on it.

mod alert;
mod budget;
mod guard;
mod known_host;
mod rewrite;
mod tool;
mod trigger;
mod upstream;

pub use alert::{Alert, AlertFormat, AlertTo, Notice};
pub use budget::{Budget, micro_dollars};
pub use guard::{Class, Exemption, Guard, GuardAction};
pub use known_host::{HostClaim, KnownHost};
pub use rewrite::{Change, Rewrite};
pub use tool::DeclaredTool;
pub(crate) use trigger::After;
pub use trigger::{Alarm, Deed, Occasion, Trigger};
pub use upstream::Upstream;
