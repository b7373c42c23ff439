//! What a policy says about a run, as data and as a sentence for whoever has to look at it.

use crate::reason::{Outcome, Place, Reason, Scorer};
use cofferdam_model::{Decided, Verdict};
use cofferdam_policy::{Deviation, Known, Sink, ValueKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that is not simply allowed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The act's index; none where it is about what was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<usize>,
    pub effect: Verdict,
    /// None where no rule matched, or the record itself is the matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub reason: String,
    /// How often the same was found; the first is told.
    pub times: usize,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "kebab-case")]
pub enum What {
    /// The act itself, by the rules that are also enforced live.
    Act {
        /// As `tool send_money`.
        name: String,
        /// Why it could not be judged, where that is so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
        /// What was decided when it happened, where that is another effect: the policy has changed since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        live: Option<Decided>,
    },
    Flow(Box<Traced>),
    Baseline {
        finds: Deviation,
        tool: String,
        /// How many there are to compare with.
        baselines: usize,
    },
    /// The record is not whole, so that nothing can be said for what it lacks.
    Incomplete {
        gaps: Vec<String>,
    },
}

/// A value, from where it first came up to where it was used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Traced {
    pub kind: ValueKind,
    /// As it is compared, cut to a length that can be shown.
    pub value: String,
    pub from: From,
    /// The tool that returned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Where it first came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Place>,
    pub to: Sink,
    /// The tool it was given to.
    pub tool: String,
    /// The argument, and the exact place.
    pub arg: String,
    pub place: Place,
    pub known: Known,
    /// What the baselines put in this argument, a few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usual: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum From {
    Told,
    Own,
    Returned,
    Model,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.effect {
            Verdict::Allow => "allowed",
            Verdict::Deny => "denied",
            Verdict::Review => "for review",
        };
        match &self.what {
            What::Act { name, problem, .. } => {
                write!(f, "{name} is {verb}")?;
                problem.iter().try_for_each(|problem| write!(f, ": it could not be judged: {problem}"))?;
            }
            What::Flow(traced) => write!(f, "{traced}")?,
            What::Baseline { finds, tool, baselines } => {
                let tool = shown(tool);
                match finds {
                    Deviation::Unseen => {
                        write!(f, "{tool} changes something, and none of the {baselines} baselines used it")?
                    }
                    Deviation::Missing => write!(
                        f,
                        "{tool} was not used, and all {baselines} baselines changed something with it"
                    )?,
                    Deviation::More => {
                        write!(f, "{tool} was used more often than in any of the {baselines} baselines")?
                    }
                }
            }
            What::Incomplete { gaps } => {
                write!(f, "the record is not whole: {}", shown(&gaps.join("; ")))?;
            }
        }
        if self.times > 1 {
            write!(f, " ({} times)", self.times)?;
        }
        match (&self.rule, &self.what) {
            (Some(rule), What::Act { live: Some(live), .. }) => {
                let by = live.rule.as_ref().map_or_else(String::new, |rule| format!(" by {rule}"));
                write!(f, "; {verb} by {rule}: {}; live it was {}{by}", self.reason, word(live.effect))
            }
            (Some(rule), What::Act { .. }) => write!(f, " by {rule}: {}", self.reason),
            (Some(rule), _) => write!(f, "; {verb} by {rule}: {}", self.reason),
            (None, What::Act { .. }) => write!(f, ": {}", self.reason),
            (None, _) => Ok(()),
        }
    }
}

impl fmt::Display for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = shown(&self.value);
        let (tool, arg) = (shown(&self.tool), shown(&self.arg));
        match self.to {
            Sink::Answer => write!(f, "the answer names {value}")?,
            Sink::Changes | Sink::Destination if arg.is_empty() => write!(f, "{tool} was given {value}")?,
            Sink::Changes | Sink::Destination => write!(f, "{tool} was given {value} as {arg}")?,
        }
        let source = self.source.as_deref().map_or_else(|| "a tool".to_owned(), shown);
        match self.from {
            From::Told => write!(f, ", which was in the request"),
            From::Own => write!(f, ", which {source} returned for a change of this run"),
            From::Returned => write!(f, ", which came from what {source} returned and from nobody's words"),
            From::Model => write!(f, ", which is in nothing that the model was given"),
        }?;
        match self.known {
            Known::Never => write!(f, "; no baseline met it")?,
            Known::Read => write!(f, "; baselines read it, and used it nowhere")?,
            Known::Called => write!(f, "; baselines used it, and not here")?,
            Known::Used => {}
        }
        match self.usual.as_slice() {
            [] => Ok(()),
            usual => {
                let usual: Vec<String> = usual.iter().map(|value| shown(value)).collect();
                write!(f, " (here they have {})", usual.join(", "))
            }
        }
    }
}

fn word(effect: Verdict) -> &'static str {
    match effect {
        Verdict::Allow => "allowed",
        Verdict::Deny => "denied",
        Verdict::Review => "held for review",
    }
}

const MAX_SHOWN: usize = 100;

/// Strangers wrote it, and it goes to a terminal or a page: no control characters, not without end.
pub(super) fn shown(text: &str) -> String {
    let mask = |c: char| if c.is_control() || is_invisible(c) { char::REPLACEMENT_CHARACTER } else { c };
    let mut cut: String = text.chars().take(MAX_SHOWN).map(mask).collect();
    if cut.len() < text.len() && text.chars().count() > MAX_SHOWN {
        cut.push('…');
    }
    cut
}

/// Signs that reorder or hide what stands around them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

impl Finding {
    /// As the verdict takes it.
    pub fn reason(&self) -> Reason {
        let (code, weight) = match (&self.what, self.effect) {
            (What::Act { .. }, Verdict::Deny) => ("policy-denied", 1.0),
            (What::Act { .. }, _) => ("policy-held", 0.8),
            (What::Flow(_), Verdict::Deny) => ("flow-denied", 1.0),
            (What::Flow(_), _) => ("flow-held", 0.9),
            (What::Baseline { finds: Deviation::Unseen, .. }, _) => ("effect-unseen", 0.9),
            (What::Baseline { finds: Deviation::Missing, .. }, _) => ("effect-missing", 0.7),
            (What::Baseline { finds: Deviation::More, .. }, _) => ("effect-more", 0.5),
            (What::Incomplete { .. }, _) => ("run-incomplete", 0.6),
        };
        let outcome = match self.effect {
            Verdict::Allow => Outcome::Pass,
            Verdict::Review => Outcome::Review,
            Verdict::Deny => Outcome::Fail,
        };
        let places = match &self.what {
            What::Flow(traced) => std::iter::once(traced.place.clone()).chain(traced.first.clone()).collect(),
            _ => self.act.map(Place::new).into_iter().collect(),
        };
        let scorer = match self.what {
            What::Incomplete { .. } => Scorer::Trace,
            _ => Scorer::Policy,
        };
        let rule = self.rule.clone();
        Reason { scorer, code: code.to_owned(), rule, outcome, weight, text: self.to_string(), places }
    }
}
