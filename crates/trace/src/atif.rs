//! A reduced run as an ATIF trajectory: what was told, said and called, in order, as tools that know agents and not
//! sandboxes read it. Requests, commands, browser actions and files stand there as calls too: nothing that was done is
//! left out. A policy's decisions, which the format has no word for, stand in `extra`.

use cofferdam_model::{Act, ActKind, Run, Spent, Status};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The version of the format that is written.
const SCHEMA: &str = "ATIF-v1.4";

pub fn to_atif(run: &Run, by: &str) -> Value {
    let mut making = Making::default();
    for (at, act) in run.acts.iter().enumerate() {
        making.take(at, act);
    }
    let steps: Vec<Value> = making.steps.into_iter().map(Step::finish).collect();
    let mut agent = json!({ "name": "cofferdam", "version": by });
    if let Some(model) = making.model {
        agent["model_name"] = model.into();
    }
    let mut whole = json!({
        "schema_version": SCHEMA,
        "session_id": run.id,
        "agent": agent,
        "steps": steps,
        "final_metrics": metrics(&run.spent, steps.len()),
    });
    if !run.gaps.is_empty() {
        whole["notes"] = run.gaps.join("; ").into();
    }
    whole
}

fn metrics(spent: &Spent, steps: usize) -> Value {
    json!({
        "total_prompt_tokens": spent.tokens_in,
        "total_completion_tokens": spent.tokens_out,
        "total_cached_tokens": spent.tokens_cached,
        "total_cost_usd": spent.cost_micros as f64 / 1e6,
        "total_steps": steps,
    })
}

#[derive(Default)]
struct Making {
    steps: Vec<Step>,
    /// The step in which the words at an index of the run stand.
    said: BTreeMap<usize, usize>,
    model: Option<String>,
}

struct Step {
    id: usize,
    source: &'static str,
    message: String,
    calls: Vec<Value>,
    results: Vec<Value>,
}

impl Step {
    fn finish(self) -> Value {
        let Self { id, source, message, calls, results } = self;
        let mut step = json!({ "step_id": id, "source": source, "message": message });
        if !calls.is_empty() {
            step["tool_calls"] = calls.into();
            step["observation"] = json!({ "results": results });
        }
        step
    }
}

impl Making {
    fn take(&mut self, at: usize, act: &Act) {
        match act.kind {
            ActKind::Instructed => self.words(at, "system", &act.text),
            ActKind::Told => self.words(at, "user", &act.text),
            ActKind::Said => self.words(at, "agent", &act.text),
            // Its words and calls are acts of their own.
            ActKind::Model => self.model = self.model.take().or_else(|| Some(act.name.clone())),
            kind => self.call(at, act, kind),
        }
    }

    fn words(&mut self, at: usize, source: &'static str, text: &str) {
        self.said.insert(at, self.steps.len());
        self.open(source, text);
    }

    fn open(&mut self, source: &'static str, text: &str) {
        let id = self.steps.len() + 1;
        let message = text.to_owned();
        self.steps.push(Step { id, source, message, calls: Vec::new(), results: Vec::new() });
    }

    /// A call stands in the step that asked for it, as long as that is the last one; else it has one of its own.
    fn call(&mut self, at: usize, act: &Act, kind: ActKind) {
        let asked = act.within.and_then(|within| self.said.get(&within)).copied();
        let last = self.steps.len().checked_sub(1);
        let fits = last.filter(|last| asked.is_none_or(|asked| asked == *last));
        if fits.and_then(|at| self.steps.get(at)).is_none_or(|step| step.source != "agent") {
            self.open("agent", "");
        }
        let Some(step) = self.steps.last_mut() else { return };
        let id = format!("call_{at}");
        let name = match kind {
            ActKind::Tool => act.name.clone(),
            other => format!("{}: {}", word(other), act.name),
        };
        let arguments = if act.args.is_object() { act.args.clone() } else { json!({ "value": act.args }) };
        let arguments = if act.args.is_null() { json!({}) } else { arguments };
        step.calls.push(json!({ "tool_call_id": id, "function_name": name, "arguments": arguments }));
        if act.status == Status::Unanswered {
            return;
        }
        let mut result = json!({ "source_call_id": id, "content": act.text });
        if act.status != Status::Ok || act.decided.is_some() {
            result["extra"] = json!({ "status": act.status, "decided": act.decided });
        }
        step.results.push(result);
    }
}

fn word(kind: ActKind) -> &'static str {
    match kind {
        ActKind::Egress => "request",
        ActKind::Exec => "exec",
        ActKind::File => "file",
        ActKind::Browser => "browser",
        ActKind::Step => "step",
        _ => "act",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(kind: ActKind, name: &str, within: Option<usize>, text: &str) -> Act {
        Act {
            at: 0,
            within,
            kind,
            name: name.into(),
            args: Value::Null,
            text: text.into(),
            status: Status::Ok,
            effect: cofferdam_model::EffectOf::Unknown,
            decided: None,
        }
    }

    #[test]
    fn calls_stand_with_what_asked_for_them() {
        let mut lookup = act(ActKind::Tool, "lookup", Some(2), "found");
        lookup.args = json!({ "id": 7 });
        let mut never = act(ActKind::Tool, "refund", Some(2), "");
        never.status = Status::Unanswered;
        let run = Run {
            id: "s1".into(),
            acts: vec![
                act(ActKind::Instructed, "", None, "be kind"),
                act(ActKind::Told, "", None, "where is it?"),
                act(ActKind::Said, "", None, "I will look"),
                lookup,
                never,
                act(ActKind::Exec, "git status", None, "clean"),
                act(ActKind::Said, "", None, "it is here"),
            ],
            ..Run::default()
        };
        let made = to_atif(&run, "1.0");
        let steps = made["steps"].as_array().unwrap();
        let shape: Vec<(&str, usize, usize)> = steps
            .iter()
            .map(|step| {
                let len = |value: &Value| value.as_array().map_or(0, Vec::len);
                let results = len(&step["observation"]["results"]);
                (step["source"].as_str().unwrap(), len(&step["tool_calls"]), results)
            })
            .collect();
        assert_eq!(shape, [("system", 0, 0), ("user", 0, 0), ("agent", 3, 2), ("agent", 0, 0)]);
        assert_eq!(steps[2]["tool_calls"][0]["arguments"], json!({ "id": 7 }));
        assert_eq!(steps[2]["tool_calls"][2]["function_name"], "exec: git status");
        assert_eq!(made["final_metrics"]["total_steps"], 4);
    }
}
