//! The examples that a policy carries, and trying them: a policy is tested by what it says of itself.

use crate::decision::Decision;
use crate::mistake::Spot;
use crate::policy::Policy;
use crate::read::At;
use crate::request::Request;
use crate::rule::Effect;
use std::fmt;

#[derive(Debug)]
pub(crate) struct Example {
    pub(crate) text: String,
    pub(crate) request: Request,
    pub(crate) expect: Effect,
    pub(crate) rule: Option<At<String>>,
    pub(crate) spot: Spot,
}

/// An example, and what came of it.
#[derive(Debug)]
pub struct Tried {
    pub request: String,
    pub expect: Effect,
    pub expect_rule: Option<String>,
    pub decision: Decision,
    pub line: usize,
}

impl Tried {
    pub fn passed(&self) -> bool {
        let same_rule = self.expect_rule.as_deref().is_none_or(|rule| self.decision.rule_id() == Some(rule));
        self.expect == self.decision.effect && same_rule
    }
}

/// What was expected and what was found.
impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.expect_rule.as_ref().map_or_else(String::new, |rule| format!(" by {rule}"));
        match self.passed() {
            true => write!(f, "{}{by}", self.expect),
            false => write!(f, "expected {}{by}, but it is {}", self.expect, self.decision),
        }
    }
}

impl Policy {
    /// Runs the examples of every layer, each against its own layer: the others were not there when it was
    /// written.
    pub fn test(&self) -> Vec<Tried> {
        let alone = |layer: &std::sync::Arc<_>| Policy { layers: vec![std::sync::Arc::clone(layer)] };
        let each = self.layers.iter().flat_map(|layer| {
            let policy = alone(layer);
            layer.document.examples.iter().map(move |example| Tried {
                request: example.text.clone(),
                expect: example.expect,
                expect_rule: example.rule.as_ref().map(|rule| rule.value.clone()),
                decision: example.request.with(|action| policy.decide(action)),
                line: example.spot.line,
            })
        });
        each.collect()
    }
}
