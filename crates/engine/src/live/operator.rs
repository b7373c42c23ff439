//! What the operator of this state directory allows: the file `operator.toml` in it. Without one, or without a
//! key, the defaults below hold. A mistake in it refuses every new session: a bound that cannot be read is not
//! one that is not there.

use crate::error::EngineError;
use cofferdam_model::{Lifetime, Live, Span};
use cofferdam_store::Home;
use serde::Deserialize;
use std::time::Duration;

const FILE: &str = "operator.toml";
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Settings {
    sessions: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Operator {
    /// The longest that a session may have left.
    max_ttl: Span,
    /// What one has that does not say.
    default_ttl: Span,
    /// Whether one may stay for ever.
    perpetual: bool,
    /// How many there may be at a time.
    pub(super) most: usize,
    /// How long it stays written down what an ended one has used.
    keep_usage: Span,
    /// How long the inside's versions stay of what a commit left out.
    keep_conflicts: Span,
}

impl Default for Operator {
    fn default() -> Self {
        Self {
            max_ttl: Span(7 * 24 * HOUR),
            default_ttl: Span(HOUR),
            perpetual: false,
            most: 256,
            keep_usage: Span(90 * 24 * HOUR),
            keep_conflicts: Span(30 * 24 * HOUR),
        }
    }
}

/// How long what commits left out is kept; nothing where that cannot be told.
pub(crate) fn conflicts_kept(home: &Home) -> Option<Duration> {
    Operator::load(home).ok().map(|operator| operator.keep_conflicts.0.max(HOUR))
}

impl Operator {
    pub(super) fn load(home: &Home) -> Result<Self, EngineError> {
        let path = home.path().join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str::<Settings>(&text)
                .map(|settings| settings.sessions)
                .map_err(|error| EngineError::Operator { path, message: error.message().to_owned() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(EngineError::Unreadable { path, source }),
        }
    }

    /// How long a session may last that asks for this; nothing: for ever.
    pub(super) fn ttl(&self, live: &Live) -> Result<Option<Duration>, EngineError> {
        let declined = |text: String| Err(EngineError::Declined(text));
        match (live.lifetime, live.ttl) {
            (Lifetime::Perpetual, Some(_)) => {
                declined("a perpetual session has no TTL: leave one of the two out".into())
            }
            (Lifetime::Perpetual, None) if !self.perpetual => declined(format!(
                "perpetual sessions are not allowed here: the operator would have to write `perpetual = true` under [sessions] in {FILE} of the state directory"
            )),
            (Lifetime::Perpetual, None) => Ok(None),
            (_, asked) => self.within(asked.unwrap_or(self.default_ttl).0).map(Some),
        }
    }

    pub(super) fn longest(&self) -> Duration {
        self.max_ttl.0
    }

    /// Removes what was written down of sessions so long ago. Those that live write to theirs every minute.
    pub(super) fn prune_usage(&self, home: &Home) {
        for entry in std::fs::read_dir(home.usage_dir()).into_iter().flatten().flatten() {
            let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > self.keep_usage.0.max(HOUR)) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    pub(super) fn within(&self, ttl: Duration) -> Result<Duration, EngineError> {
        if ttl <= self.max_ttl.0 {
            return Ok(ttl);
        }
        let (asked, most) = (Span(ttl), self.max_ttl);
        Err(EngineError::Declined(format!(
            "a TTL of {asked} is more than the {most} that are allowed here (`max-ttl` under [sessions] in {FILE} of the state directory)"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<Operator, EngineError> {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        std::fs::write(home.path().join(FILE), text).unwrap();
        Operator::load(&home)
    }

    #[test]
    fn what_was_used_long_ago_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        std::fs::create_dir_all(home.usage_dir()).unwrap();
        for (name, days) in [("old", 91), ("new", 89)] {
            let file = std::fs::File::create(home.usage_dir().join(name)).unwrap();
            let at = std::time::SystemTime::now() - Duration::from_secs(days * 24 * 3600);
            file.set_modified(at).unwrap();
        }
        Operator::default().prune_usage(&home);
        let left: Vec<_> =
            std::fs::read_dir(home.usage_dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["new"]);
    }

    #[test]
    fn an_operator_bounds_every_lifetime() {
        let check = |operator: &Operator, live: Live, expected: Result<Option<u64>, &str>| match (
            operator.ttl(&live),
            expected,
        ) {
            (Ok(found), Ok(expected)) => assert_eq!(found.map(|ttl| ttl.as_secs()), expected),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, _) => panic!("{found:?}, expected {expected:?}"),
        };
        let perpetual = Live { lifetime: Lifetime::Perpetual, ..Live::default() };
        let long = Live { ttl: Some(Span(48 * HOUR)), ..Live::default() };
        let (none, some) =
            (Operator::default(), with("[sessions]\nmax-ttl = \"24h\"\nperpetual = true").unwrap());
        check(&none, Live::default(), Ok(Some(3600)));
        check(&none, perpetual.clone(), Err("perpetual = true"));
        check(&none, long.clone(), Ok(Some(48 * 3600)));
        check(&some, perpetual.clone(), Ok(None));
        check(&some, Live { ttl: Some(Span(HOUR)), ..perpetual }, Err("leave one"));
        check(&some, long, Err("max-ttl"));
        assert!(with("[sessions]\nmax_ttl = \"1h\"").is_err());
        assert!(with("nonsense").is_err());
    }
}
