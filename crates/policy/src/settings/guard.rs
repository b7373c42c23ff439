//! `[guard]`: what happens when a body carries something that looks like a secret. The vault's own secrets and
//! placeholders are not among the classes: those are always refused.

use crate::host::Hosts;
use serde::Serialize;

/// Shapes that are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    Cloud,
    Vcs,
    Payment,
    Llm,
    PrivateKey,
    Jwt,
    /// Long random text without a known shape.
    Entropy,
}

impl Class {
    pub const ALL: [Class; 7] =
        [Self::Cloud, Self::Vcs, Self::Payment, Self::Llm, Self::PrivateKey, Self::Jwt, Self::Entropy];
    pub(crate) const NAMES: &'static [&'static str] =
        &["cloud", "vcs", "payment", "llm", "private-key", "jwt", "entropy"];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// What happens then, the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuardAction {
    Deny,
    Review,
    /// Sent without it.
    Redact,
    /// Sent, and told.
    Flag,
}

impl GuardAction {
    pub(crate) const NAMES: &'static [&'static str] = &["deny", "review", "redact", "flag"];

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "deny" => Some(Self::Deny),
            "review" => Some(Self::Review),
            "redact" => Some(Self::Redact),
            "flag" => Some(Self::Flag),
            _ => None,
        }
    }
}

/// `[[guard.allow]]`: classes that may pass to some hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemption {
    pub hosts: Hosts,
    pub classes: Vec<Class>,
    pub reason: String,
    pub line: usize,
}

impl Exemption {
    fn covers(&self, class: Class, host: &str) -> bool {
        self.classes.contains(&class) && self.hosts.matches_raw(host)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    actions: [GuardAction; 7],
    pub allow: Vec<Exemption>,
    /// A transfer of more bytes than this is flagged.
    pub large: Option<u64>,
}

impl Default for Guard {
    /// Secrets with a certain shape are refused; what is often harmless is told.
    fn default() -> Self {
        let mut guard = Self { actions: [GuardAction::Deny; 7], allow: Vec::new(), large: None };
        guard.set(Class::Jwt, GuardAction::Flag);
        guard.set(Class::Entropy, GuardAction::Flag);
        guard
    }
}

impl Guard {
    pub(crate) fn set(&mut self, class: Class, action: GuardAction) {
        self.actions[class as usize] = action;
    }

    /// What is to be done about this class on the way to this host; nothing if it may pass.
    pub fn action(&self, class: Class, host: &str) -> Option<GuardAction> {
        let exempt = self.allow.iter().any(|exemption| exemption.covers(class, host));
        (!exempt).then_some(self.actions[class as usize])
    }
}
