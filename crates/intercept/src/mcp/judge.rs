//! Whether a tool may be called: by the policy in force now, less what was narrowed on the way. Without a policy
//! nothing is judged, as nothing is for a command of `run`: what the server can do is its sandbox's business.

use cofferdam_model::{Outgoing, Verdict};
use cofferdam_policy::{Action, Deed, Effect, Http, Occasion, Policy, Tool};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// The policy in force at the moment it is asked for; nothing where there is none.
pub type InForce = Arc<dyn Fn() -> Option<Arc<Policy>> + Send + Sync>;
/// Told what has happened, for what the policy wants done by itself.
pub type Happened = Arc<dyn Fn(&Occasion<'_>) + Send + Sync>;

/// One for a session, however many servers it has.
pub struct Judge {
    in_force: InForce,
    happened: Happened,
    /// Tools that are left, where a trigger narrowed them; an empty list is none.
    narrowed: Mutex<Option<Vec<String>>>,
    /// Credentials of the session, by name: whose authority a call has.
    pub(super) credentials: Vec<String>,
}

/// What was decided, and the words for whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ruling {
    pub(super) effect: Verdict,
    pub(super) rule: Option<String>,
    pub(super) reason: String,
    pub(super) words: String,
}

impl Ruling {
    pub(super) fn no(reason: String) -> Self {
        let words = format!("denied: {reason}");
        Self { effect: Verdict::Deny, rule: None, reason, words }
    }
}

impl Judge {
    pub fn new(in_force: InForce, happened: Happened, credentials: Vec<String>) -> Self {
        Self { in_force, happened, narrowed: Mutex::default(), credentials }
    }

    pub(super) fn decide(&self, tool: &str, args: &Value) -> Ruling {
        if let Some(ruling) = self.narrowed_out(tool) {
            return ruling;
        }
        let Some(policy) = (self.in_force)() else {
            let reason = "there is no policy".to_owned();
            return Ruling { effect: Verdict::Allow, rule: None, reason, words: String::new() };
        };
        let decision = policy.decide(&Action::Tool(Tool { name: tool, args }));
        let effect = decision.effect.into();
        let reason = decision.reason().to_owned();
        Ruling { effect, rule: decision.rule_id().map(str::to_owned), reason, words: decision.to_string() }
    }

    /// The tool that the policy declares this request to be a call of.
    pub(super) fn declared(&self, request: &Outgoing<'_>) -> Option<String> {
        let policy = (self.in_force)()?;
        let http = Http {
            scheme: request.scheme,
            host: request.host,
            port: request.port,
            sni: None,
            method: request.method,
            path: request.path,
            query: request.query,
            headers: &(),
            body: None,
            content_type: None,
            length: None,
            program: None,
        };
        policy.declared_tool(&http).map(str::to_owned)
    }

    /// Why nobody could call it, whatever with; nothing where somebody could.
    pub(super) fn rules_out(&self, tool: &str) -> Option<String> {
        if let Some(ruling) = self.narrowed_out(tool) {
            return Some(ruling.reason);
        }
        let policy = (self.in_force)()?;
        let told = policy.explain(&Action::Tool(Tool { name: tool, args: &json!({}) }));
        if let Some(rule) = told.candidates.iter().find(|rule| rule.effect == Effect::Deny && rule.matched) {
            return Some(format!("rule {} denies it", rule.id));
        }
        let some = told.candidates.iter().any(|rule| rule.effect != Effect::Deny);
        (!some).then(|| "no rule names it".to_owned())
    }

    fn narrowed_out(&self, tool: &str) -> Option<Ruling> {
        let narrowed = self.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        let left = narrowed.as_ref()?;
        let gone = !left.iter().any(|name| name == tool);
        gone.then(|| Ruling::no("after what was called before, this tool is closed ([[on]] narrow)".into()))
    }

    /// A call goes its way: whatever the policy wants after it holds for the next one.
    pub(super) fn goes(&self, tool: &str, rule: Option<&str>) {
        self.after(&Occasion::Tool(tool));
        if let Some(rule) = rule {
            self.after(&Occasion::Rule(rule));
        }
    }

    /// What the policy wants after this; also for what others have seen happen.
    pub fn after(&self, occasion: &Occasion<'_>) {
        let Some(policy) = (self.in_force)() else { return };
        let mut narrowed = self.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        for deed in policy.triggers(occasion).flat_map(|trigger| &trigger.deeds) {
            if let Deed::Narrow(tools) = deed {
                // Only ever fewer.
                let before = narrowed.take();
                let left =
                    tools.iter().filter(|tool| before.as_ref().is_none_or(|before| before.contains(tool)));
                *narrowed = Some(left.cloned().collect());
            }
        }
        drop(narrowed);
        (self.happened)(occasion);
    }
}
