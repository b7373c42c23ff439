//! Whether something may be asked of the browser: by the policy in force now. Without a policy nothing is judged.

use crate::mcp::InForce;
use cofferdam_model::Verdict;
use cofferdam_policy::{Action, Browser};
use serde_json::Value;

/// What was decided, and the words for whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ruling {
    pub(super) effect: Verdict,
    pub(super) rule: Option<String>,
    pub(super) reason: String,
    pub(super) words: String,
}

/// `url` is where the action leads, or else the page that it is done on.
pub(super) fn decide(in_force: &InForce, action: &str, url: &str, args: &Value) -> Ruling {
    let Some(policy) = in_force() else {
        let reason = "there is no policy".to_owned();
        return Ruling { effect: Verdict::Allow, rule: None, reason, words: String::new() };
    };
    let url = (!url.is_empty()).then_some(url);
    let decision = policy.decide(&Action::Browser(Browser { name: action, url, args }));
    let effect = decision.effect.into();
    let (rule, reason) = (decision.rule_id().map(str::to_owned), decision.reason().to_owned());
    Ruling { effect, rule, reason, words: decision.to_string() }
}
