//! What a check is: one attempt, what it stands for, what should stop it, and how it is shown that it would
//! succeed where nothing does.

use super::facts::Facts;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// What makes an attempt.
pub(crate) type Attempt = fn(&Facts) -> Finding;

/// One attempt to get out.
pub struct Check {
    /// `SCENARIO.NAME`.
    pub id: &'static str,
    /// What is tried.
    pub tries: &'static str,
    /// What should stop it.
    pub because: &'static str,
    pub(crate) setting: Setting,
    pub(crate) probe: Attempt,
    /// Where the harm would show only after the session's changes were kept: a look at the host's work dir.
    pub(crate) after: Option<fn(&Facts, &Path) -> Finding>,
    pub(crate) host: Host,
    /// Controls that all have to be left out for the attempt to succeed; nothing if no such set is known.
    pub(crate) weakened: &'static [&'static str],
}

impl Check {
    pub fn scenario(&self) -> &'static str {
        self.id.split('.').next().unwrap_or(self.id)
    }

    pub(crate) const fn of(id: &'static str, probe: Attempt) -> Self {
        let setting = Setting::Alone;
        Self { id, tries: "", because: "", setting, probe, after: None, host: Host::Same, weakened: &[] }
    }
}

/// In which session it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Without a policy: nothing leaves.
    Alone,
    /// With one that allows every host, and a credential for one of them: only what no policy can allow is left
    /// to hold.
    Policy,
}

/// How the same attempt is made outside of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    /// As it is, by the same user.
    Same,
    /// In throw-away namespaces, so that what it does ends with it.
    Apart,
    /// In a throw-away network, in which we answer at every address of the world.
    World,
    /// As it is; then a careless shell is given the names of the files that it left.
    Shell,
    /// Not at all: inside, a request of the same kind that is allowed has to go through.
    Road,
}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub open: bool,
    pub how: String,
}

impl Finding {
    pub(crate) fn open(how: impl Into<String>) -> Self {
        Self { open: true, how: how.into() }
    }

    pub(crate) fn blocked(how: impl Into<String>) -> Self {
        Self { open: false, how: how.into() }
    }

    /// Whether a call was let through.
    pub(crate) fn of<T, E: Into<io::Error>>(what: &str, result: Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::open(what),
            Err(error) => Self::blocked(words(&error.into())),
        }
    }

    /// The first that is open, or all that stopped the others.
    pub(crate) fn any(ways: impl IntoIterator<Item = Self>) -> Self {
        let mut stopped: Vec<String> = Vec::new();
        for way in ways {
            if way.open {
                return way;
            }
            if !stopped.contains(&way.how) {
                stopped.push(way.how);
            }
        }
        Self::blocked(stopped.join(", "))
    }
}

/// An error without its number.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_open_way_is_enough() {
        let (a, b, c) = (Finding::blocked("x"), Finding::blocked("x"), Finding::open("y"));
        assert_eq!(Finding::any([a.clone(), b.clone(), c]), Finding::open("y"));
        assert_eq!(Finding::any([a, b, Finding::blocked("z")]), Finding::blocked("x, z"));
    }

    #[test]
    fn errors_are_told_in_words() {
        let refused: Result<(), io::Error> = Err(io::Error::from_raw_os_error(1));
        assert_eq!(Finding::of("done", refused), Finding::blocked("operation not permitted"));
    }
}
