//! `[[alert]]`: whom to tell of what was refused, held or spent. The operator's word, like `[[upstream]]`: it is
//! this machine that speaks, not the sandbox.

use super::Alarm;
use std::fmt;
use std::time::Duration;

/// Something worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notice {
    Alarm(Alarm),
    /// Refused before any policy was asked, and more likely a mistake than an attempt.
    Refused,
    /// A request waits for a person.
    Held,
}

impl Notice {
    /// Their number, for whoever keeps something for each.
    pub const COUNT: usize = Alarm::ALL.len() + 2;
    /// `alarm` stands for all alarms but `denied`, which ordinary work causes too.
    pub(crate) const WORDS: &'static [&'static str] = &[
        "alarm",
        "refused",
        "held",
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
        match self {
            Self::Alarm(alarm) => alarm.name(),
            Self::Refused => "refused",
            Self::Held => "held",
        }
    }

    pub fn index(self) -> usize {
        match self {
            Self::Alarm(alarm) => alarm as usize,
            Self::Refused => Alarm::ALL.len(),
            Self::Held => Alarm::ALL.len() + 1,
        }
    }

    pub(crate) fn named(word: &str) -> Option<Vec<Self>> {
        match word {
            "alarm" => {
                let alarms = Alarm::ALL.into_iter().filter(|alarm| *alarm != Alarm::Denied);
                Some(alarms.map(Self::Alarm).collect())
            }
            "refused" => Some(vec![Self::Refused]),
            "held" => Some(vec![Self::Held]),
            word => Alarm::named(word).map(|alarm| vec![Self::Alarm(alarm)]),
        }
    }
}

/// Where an alert goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlertTo {
    /// A POST; without TLS only to this machine.
    Web {
        tls: bool,
        host: String,
        port: u16,
        target: String,
    },
    /// A syslog daemon's socket on this machine.
    Local(String),
    Udp {
        host: String,
        port: u16,
    },
    Tcp {
        host: String,
        port: u16,
    },
    /// One line each, appended.
    File(String),
}

/// As it stands on record: a webhook's path is often what lets one post there, so it is left out.
impl fmt::Display for AlertTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Web { host, port, .. } => write!(f, "webhook {host}:{port}"),
            Self::Local(path) => write!(f, "syslog {path}"),
            Self::Udp { host, port } => write!(f, "syslog udp {host}:{port}"),
            Self::Tcp { host, port } => write!(f, "syslog tcp {host}:{port}"),
            Self::File(path) => write!(f, "file {path}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertFormat {
    Json,
    /// A Detection Finding of the Open Cybersecurity Schema Framework.
    Ocsf,
    /// One text, as incoming webhooks of chat services take it.
    Slack,
}

impl AlertFormat {
    pub(crate) const NAMES: &'static [&'static str] = &["json", "ocsf", "slack"];

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "ocsf" => Some(Self::Ocsf),
            "slack" => Some(Self::Slack),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    pub id: String,
    pub to: AlertTo,
    /// All, where the file names none.
    pub(crate) on: Option<Vec<Notice>>,
    pub format: AlertFormat,
    /// The same thing is told at most once in this time, with how often it happened.
    pub every: Duration,
    /// A file with the key that a webhook's posts are signed with.
    pub key: Option<String>,
    /// A PEM file with the certificates to trust there; none for the usual ones.
    pub ca: Option<String>,
    pub line: usize,
}

impl Alert {
    pub fn wants(&self, notice: Notice) -> bool {
        self.on.as_ref().is_none_or(|on| on.contains(&notice))
    }
}
