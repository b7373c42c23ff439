//! What was decided, by which rule, and what to tell whoever asked.

use crate::problem::Problem;
use crate::rule::{Effect, RuleName};
use std::fmt;
use std::sync::Arc;

/// Cheap to make and to keep: the texts are shared with the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub effect: Effect,
    /// The rule that fired; none where nothing matched.
    pub rule: Option<Arc<RuleName>>,
    /// Why it could not be judged, where that is the reason.
    pub problem: Option<Problem>,
    /// Whom to ask, as the policy's `[defaults]` say.
    pub contact: Option<Arc<str>>,
    /// Which layer decided, counted from the floor.
    pub layer: usize,
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        self.effect == Effect::Allow
    }

    pub fn rule_id(&self) -> Option<&str> {
        self.rule.as_ref().map(|rule| rule.id.as_str())
    }

    /// What stands on record as its reason: what made it impossible to judge goes first.
    pub fn told(&self) -> String {
        match &self.problem {
            Some(problem) => problem.to_string(),
            None => self.reason().to_owned(),
        }
    }

    /// The rule's reason; for what nothing matched, that.
    pub fn reason(&self) -> &str {
        let nothing = if self.is_allowed() { "no rule is against it" } else { "no rule allows it" };
        self.rule.as_ref().map_or(nothing, |rule| &rule.reason)
    }
}

/// One line for the agent: `denied by rule X: reason; ask for Y`.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.effect {
            Effect::Allow => "allowed",
            Effect::Deny => "denied",
            Effect::Review => "held for review",
        };
        match (&self.rule, &self.problem) {
            (Some(rule), Some(problem @ Problem::Contract { .. })) => {
                write!(f, "{verb} by rule {}: {problem}", rule.id)?
            }
            (Some(rule), Some(problem)) => {
                write!(f, "{verb}: rule {} could not be judged: {problem}", rule.id)?
            }
            (Some(rule), None) => write!(f, "{verb} by rule {}: {}", rule.id, rule.reason)?,
            (None, Some(problem)) => write!(f, "{verb}: {problem}")?,
            (None, None) if self.effect == Effect::Allow => write!(f, "{verb}: no rule is against it")?,
            (None, None) => write!(f, "{verb}: no rule allows it")?,
        }
        match &self.contact {
            Some(contact) if self.effect != Effect::Allow => write!(f, "; {contact}"),
            _ => Ok(()),
        }
    }
}
