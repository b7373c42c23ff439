//! `[replay]`: when a request counts as the recorded one, and what becomes of one that was never recorded. What is
//! volatile is declared; nothing is ignored because it would be convenient.

use super::volatile::Class;
use cofferdam_model::{Fallback, Matching, Speed};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    #[error("{0}")]
    Toml(String),
    #[error(
        "`replay.ignore.json`: `{0}` is not a path: write names with dots between, as in `metadata.*.id`; `**` is any depth"
    )]
    Path(String),
}

/// As the table `[replay]` of a suite or of a file of its own says it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    pub mode: Matching,
    pub fallback: Fallback,
    pub speed: Speed,
    /// Request headers that are part of a request's identity; by default none is.
    pub headers: Vec<String>,
    /// Methods whose last answer may be served again once all are used.
    pub repeat: Vec<String>,
    /// What is volatile wherever it stands, if the agent made it up.
    pub volatile: Vec<Class>,
    pub ignore: Ignore,
}

/// Counts in no request at all. Holds for `mode = "normalised"`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ignore {
    /// Parameters of a query or a form, by name.
    pub query: Vec<String>,
    /// Fields of a JSON body: `metadata.request_id`, `messages.*.id`, `**.nonce`.
    pub json: Vec<Path>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            mode: Matching::default(),
            fallback: Fallback::default(),
            speed: Speed::default(),
            headers: Vec::new(),
            repeat: Vec::new(),
            volatile: vec![Class::Uuid, Class::Date, Class::Id, Class::Tmp],
            ignore: Ignore::default(),
        }
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    replay: Rules,
}

impl Rules {
    /// Reads the table `[replay]` of a TOML file; the file's other tables are not looked at.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        let file: File = toml::from_str(text).map_err(|error| RulesError::Toml(error.to_string()))?;
        Ok(file.replay)
    }

    pub(super) fn is_normalised(&self) -> bool {
        self.mode == Matching::Normalised
    }

    pub(super) fn ignores_parameter(&self, name: &str) -> bool {
        self.is_normalised() && self.ignore.query.iter().any(|ignored| ignored == name)
    }

    pub(super) fn ignores_field(&self, at: &[String]) -> bool {
        self.is_normalised() && self.ignore.json.iter().any(|path| path.fits(at))
    }

    pub(super) fn may_repeat(&self, method: &str) -> bool {
        self.repeat.iter().any(|allowed| allowed.eq_ignore_ascii_case(method))
    }
}

/// A pattern over the places of a JSON document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Name(String),
    /// Any one name or index.
    One,
    /// Any number of them, also none.
    Any,
}

impl TryFrom<String> for Path {
    type Error = RulesError;

    fn try_from(text: String) -> Result<Self, RulesError> {
        let step = |word: &str| match word {
            "" => Err(RulesError::Path(text.chars().take(80).collect())),
            "*" => Ok(Step::One),
            "**" => Ok(Step::Any),
            name => Ok(Step::Name(name.to_owned())),
        };
        text.split('.').map(step).collect::<Result<_, _>>().map(Self)
    }
}

impl Path {
    fn fits(&self, at: &[String]) -> bool {
        fits(&self.0, at)
    }
}

fn fits(steps: &[Step], at: &[String]) -> bool {
    match (steps.split_first(), at.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((Step::Any, rest)), None) => fits(rest, at),
        (Some((Step::Any, rest)), Some((_, deeper))) => fits(rest, at) || fits(steps, deeper),
        (Some(_), None) => false,
        (Some((Step::One, rest)), Some((_, deeper))) => fits(rest, deeper),
        (Some((Step::Name(name), rest)), Some((first, deeper))) => name == first && fits(rest, deeper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_rules_or_an_error(text in "(\\[replay(\\.ignore)?\\]\n)?([a-z]{1,8} = [\\[\"a-z*.0-9,\\]]{0,20}\n){0,4}") {
            let _ = Rules::parse(&text);
        }

        /// A path fits the place that it spells, whatever the names are.
        #[test]
        fn a_path_without_stars_is_one_place(names in prop::collection::vec("[a-z]{1,5}", 1..6)) {
            let path = Path::try_from(names.join(".")).unwrap();
            prop_assert!(path.fits(&names));
            prop_assert!(!path.fits(&names[1..]));
        }
    }

    #[test]
    fn a_path_fits_places() {
        let check = |path: &str, at: &str, expected: bool| {
            let path = Path::try_from(path.to_owned()).unwrap();
            let at: Vec<String> = at.split('.').map(str::to_owned).collect();
            assert_eq!(path.fits(&at), expected, "{path:?} {at:?}");
        };
        check("a.b", "a.b", true);
        check("a.b", "a.b.c", false);
        check("a.*.id", "a.0.id", true);
        check("a.*.id", "a.id", false);
        check("**.id", "id", true);
        check("**.id", "a.0.b.id", true);
        check("**.id", "a.ids", false);
        check("a.**", "a.b.c", true);
        assert!(Path::try_from("a..b".to_owned()).is_err());
    }

    #[test]
    fn rules_are_a_table_of_a_file() {
        let text = "[agent]\ncommand = [\"x\"]\n[replay]\nmode = \"strict\"\nfallback = \"review\"\nrepeat = [\"GET\"]\n\
                    [replay.ignore]\njson = [\"**.nonce\"]\n";
        let rules = Rules::parse(text).unwrap();
        assert_eq!(
            (rules.mode, rules.fallback, rules.speed),
            (Matching::Strict, Fallback::Review, Speed::Full)
        );
        assert!(rules.may_repeat("get") && !rules.may_repeat("POST"));
        assert_eq!(Rules::parse("").unwrap(), Rules::default());
        for bad in ["[replay]\nmodus = 1", "[replay]\nmode = \"loose\"", "[replay.ignore]\njson = [\"a..b\"]"]
        {
            assert!(Rules::parse(bad).is_err(), "{bad}");
        }
    }
}
