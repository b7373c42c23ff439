//! Tool calls that were carried out, and the steps that the agent told of. A call that a model asked for and that
//! was then made as asked is one act; one that was made otherwise stands beside what was asked for, within it, so
//! that the difference is there to be seen.

use super::Reducer;
use cofferdam_model::{
    Act, ActKind, Content, Decided, Event, Status, StepEnded, StepReplanned, StepStarted, ToolCalled,
    ToolOutcome, ToolReturned, Verdict,
};
use serde_json::Value;

impl Reducer<'_> {
    pub(super) fn tool(&mut self, event: &Event, fact: &ToolCalled) {
        let arguments = self.content(&fact.arguments);
        let args = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
        let decided =
            Some(Decided { effect: fact.effect, rule: fact.rule.clone(), reason: fact.reason.clone() });
        let status = if fact.effect == Verdict::Deny { Status::Refused } else { Status::Unanswered };
        let is_open =
            |act: &Act| act.kind == ActKind::Tool && act.decided.is_none() && names(&act.name, &fact.tool);
        let same = self.run.acts.iter().rposition(|act| is_open(act) && act.args == args);
        if let Some(act) = same.and_then(|index| self.run.acts.get_mut(index)) {
            (act.decided, act.status) = (decided, status);
            self.acts.extend(same.map(|index| (event.seq, index)));
            return;
        }
        let asked = self.run.acts.iter().rposition(|act| is_open(act) && act.status == Status::Unanswered);
        let act = self.push(event, ActKind::Tool, fact.tool.clone());
        (act.args, act.status, act.decided) = (args, status, decided);
        act.within = asked.or(act.within);
    }

    pub(super) fn returned(&mut self, event: &Event, fact: &ToolReturned) {
        let text = fact.result.as_ref().map(|result| self.content(result)).unwrap_or_default();
        if let Some(act) = self.parent(event) {
            act.text = text;
            act.status = match fact.outcome {
                ToolOutcome::Ok => Status::Ok,
                ToolOutcome::Refused => Status::Refused,
                ToolOutcome::Failed | ToolOutcome::Error | ToolOutcome::ServerGone => Status::Failed,
                ToolOutcome::Cancelled => Status::Unanswered,
            };
        }
    }

    pub(super) fn step(&mut self, event: &Event, fact: &StepStarted) {
        let args = fact.input.as_ref().map(|input| self.json(input)).unwrap_or_default();
        let decided = fact.rule.is_some().then(|| Decided {
            effect: fact.effect,
            rule: fact.rule.clone(),
            reason: fact.reason.clone(),
        });
        let status = if fact.effect == Verdict::Deny { Status::Refused } else { Status::Unanswered };
        let act = self.push(event, ActKind::Step, fact.name.clone());
        (act.args, act.status, act.decided) = (args, status, decided);
    }

    pub(super) fn step_ended(&mut self, event: &Event, fact: &StepEnded) {
        let text = fact.output.as_ref().map(|output| self.content(output)).unwrap_or_default();
        if let Some(act) = self.parent(event).filter(|act| act.status != Status::Refused) {
            let failed = !fact.error.is_empty();
            act.text = if failed { fact.error.clone() } else { text };
            act.status = if failed { Status::Failed } else { Status::Ok };
        }
    }

    pub(super) fn replanned(&mut self, event: &Event, fact: &StepReplanned) {
        let args = fact.input.as_ref().map(|input| self.json(input)).unwrap_or_default();
        let text = fact.output.as_ref().map(|output| self.content(output)).unwrap_or_default();
        let act = self.push(event, ActKind::Step, format!("replan: {}", fact.name));
        (act.args, act.text) = (args, text);
    }

    pub(super) fn json(&self, content: &Content) -> Value {
        let text = self.content(content);
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    pub(super) fn content(&self, content: &Content) -> String {
        match content {
            Content::Text(text) => text.clone(),
            Content::Kept(blob) => match (self.payload)(blob) {
                Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                None => format!("{} bytes, {}", blob.size, blob.digest),
            },
        }
    }
}

/// Whether a model's name for a tool is a server's: clients put the server's name before it.
fn names(asked: &str, tool: &str) -> bool {
    let rest = asked.strip_suffix(tool);
    rest.is_some_and(|before| {
        before.is_empty() || before.ends_with("__") || before.ends_with(['.', '/', ':'])
    })
}

#[cfg(test)]
mod tests {
    use super::super::to_run;
    use super::*;
    use cofferdam_model::{Body, Digest, StepVia, ToolVia};
    use serde_json::json;

    #[test]
    fn a_clients_prefix_makes_no_other_tool() {
        for (asked, tool, same) in [
            ("lookup", "lookup", true),
            ("mcp__desk__lookup", "lookup", true),
            ("desk.lookup", "lookup", true),
            ("relookup", "lookup", false),
            ("lookup", "look", false),
        ] {
            assert_eq!(names(asked, tool), same, "{asked} {tool}");
        }
    }

    fn events(bodies: &[(Option<u64>, Body)]) -> Vec<Event> {
        let one = |(seq, (parent, body)): (usize, &(Option<u64>, Body))| Event {
            body: serde_json::to_value(body).unwrap()["body"].take(),
            hash: Digest::ZERO,
            kind: body.kind().into(),
            parent: *parent,
            prev: Digest::ZERO,
            seq: seq as u64,
            time: 0,
        };
        bodies.iter().enumerate().map(one).collect()
    }

    fn called(tool: &str, arguments: &str, effect: Verdict) -> Body {
        Body::ToolCalled(Box::new(ToolCalled {
            via: ToolVia::McpStdio,
            server: "desk".into(),
            tool: tool.into(),
            call: "1".into(),
            arguments: Content::Text(arguments.into()),
            effect,
            rule: Some("r".into()),
            reason: String::new(),
            credentials: Vec::new(),
        }))
    }

    fn returned(outcome: ToolOutcome, text: &str) -> Body {
        Body::ToolReturned(ToolReturned { outcome, result: Some(Content::Text(text.into())), total_us: 1 })
    }

    #[test]
    fn calls_and_steps_are_acts_with_their_ends() {
        let step = StepStarted {
            via: StepVia::Endpoint,
            id: "s".into(),
            name: "plan".into(),
            parent: None,
            input: Some(Content::Text("{\"goal\":1}".into())),
            sort: String::new(),
            effect: Verdict::Allow,
            rule: None,
            reason: String::new(),
            claimed_us: None,
        };
        let ended = StepEnded { id: "s".into(), output: None, error: "no way".into(), claimed_us: None };
        let run = to_run(
            &events(&[
                (None, Body::StepStarted(Box::new(step))),
                (None, called("lookup", "{\"q\":1}", Verdict::Allow)),
                (Some(1), returned(ToolOutcome::Ok, "found")),
                (None, called("wipe", "{}", Verdict::Deny)),
                (Some(3), returned(ToolOutcome::Refused, "no")),
                (Some(0), Body::StepEnded(ended)),
            ]),
            &|_| None,
        );
        let told: Vec<_> =
            run.acts.iter().map(|act| (act.kind, act.name.as_str(), act.status, act.text.as_str())).collect();
        assert_eq!(
            told,
            [
                (ActKind::Step, "plan", Status::Failed, "no way"),
                (ActKind::Tool, "lookup", Status::Ok, "found"),
                (ActKind::Tool, "wipe", Status::Refused, "no"),
            ]
        );
        assert_eq!((&run.acts[0].args, &run.acts[1].args), (&json!({"goal": 1}), &json!({"q": 1})));
    }
}
