//! `[[on]]`: what happens by itself after a sensitive call or an alarm. It can only narrow.

use crate::glob::Pattern;
use crate::read::At;
use serde::Serialize;

/// What was refused or seen that someone should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alarm {
    /// A placeholder where it does not belong.
    PlaceholderMisused,
    /// A secret of the vault, or the shape of one, on its way out.
    SecretLeak,
    /// An address that is never reached: metadata, private, loopback.
    ForbiddenAddress,
    /// Names that do not agree, or a hidden channel: fronting, DNS over HTTPS, QUIC.
    Evasion,
    /// A request that two parsers would read differently.
    Smuggling,
    /// A budget is used up.
    Budget,
    /// A large transfer.
    LargeTransfer,
    /// A request that no rule allows.
    Denied,
    /// A host shows another key than the one that it is known by.
    HostKey,
}

impl Alarm {
    pub const ALL: [Alarm; 9] = [
        Self::PlaceholderMisused,
        Self::SecretLeak,
        Self::ForbiddenAddress,
        Self::Evasion,
        Self::Smuggling,
        Self::Budget,
        Self::LargeTransfer,
        Self::Denied,
        Self::HostKey,
    ];
    pub(crate) const NAMES: &'static [&'static str] = &[
        "placeholder-misused",
        "secret-leak",
        "forbidden-address",
        "evasion",
        "smuggling",
        "budget",
        "large-transfer",
        "denied",
        "host-key",
    ];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|alarm| alarm.name() == name)
    }
}

/// What sets a trigger off.
#[derive(Debug, Clone, PartialEq)]
pub enum Occasion<'a> {
    /// This rule fired.
    Rule(&'a str),
    /// This tool was called.
    Tool(&'a str),
    Alarm(Alarm),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum After {
    Rule(At<String>),
    Tool(Pattern),
    Alarm(Alarm),
}

/// What happens then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// From now on only these tools may be called.
    Narrow(Vec<String>),
    /// Nothing more leaves until someone resumes.
    Pause,
    /// These credentials are taken back.
    Revoke(Vec<String>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Trigger {
    pub id: String,
    pub(crate) after: After,
    pub deeds: Vec<Deed>,
    pub line: usize,
}

impl Trigger {
    pub fn fires_on(&self, occasion: &Occasion<'_>) -> bool {
        match (&self.after, occasion) {
            (After::Rule(id), Occasion::Rule(fired)) => id.value == *fired,
            (After::Tool(pattern), Occasion::Tool(called)) => pattern.matches_str(called),
            (After::Alarm(alarm), Occasion::Alarm(raised)) => alarm == raised,
            _ => false,
        }
    }

    pub(crate) fn rule_reference(&self) -> Option<&At<String>> {
        match &self.after {
            After::Rule(id) => Some(id),
            _ => None,
        }
    }
}
