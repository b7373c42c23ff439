//! Policies as people write them: what they decide, what they refuse, what they say about themselves.

#[cfg(test)]
mod actions;
#[cfg(test)]
mod check;
#[cfg(test)]
mod conditions;
#[cfg(test)]
mod contracts;
#[cfg(test)]
mod explain;
#[cfg(test)]
mod flows;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod presets;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod ssh;
#[cfg(test)]
mod tools;

#[cfg(test)]
use cofferdam_policy::{Decision, Policy, Request};

#[cfg(test)]
#[track_caller]
fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// A rule of this effect with these fields.
#[cfg(test)]
fn rule(id: &str, effect: &str, fields: &str) -> String {
    format!("[[rule]]\nid = \"{id}\"\nreason = \"because of {id}\"\neffect = \"{effect}\"\n{fields}\n")
}

#[cfg(test)]
fn decide(policy: &Policy, request: &str) -> Decision {
    Request::parse(request).unwrap().with(|action| policy.decide(action))
}

/// The decision as `effect rule`.
#[cfg(test)]
fn told(decision: &Decision) -> String {
    format!("{} {}", decision.effect, decision.rule_id().unwrap_or("-"))
}
