//! Calls of models: who was told what, what the model said, and which tools it asked for. A conversation is sent
//! again with every call; here each word of it stands once.

use super::Reducer;
use cofferdam_model::{Act, ActKind, Content, EffectOf, Event, ModelCalled, ModelMessage, Status};
use serde_json::{Value, json};

impl Reducer<'_> {
    pub(super) fn model(&mut self, event: &Event, fact: &ModelCalled) {
        for message in &fact.messages {
            self.told(event, message);
        }
        let name = format!("{} {}", fact.provider, fact.model);
        let is_failed = fact.error.is_some();
        let args = json!({ "parameters": fact.parameters, "tools": fact.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>() });
        // The request that carried it is the call, and no act besides it.
        let index = event.parent.and_then(|parent| self.acts.get(&parent).copied());
        let index = match index {
            Some(index) => index,
            None => {
                self.push(event, ActKind::Model, String::new());
                self.run.acts.len() - 1
            }
        };
        self.acts.insert(event.seq, index);
        if let Some(act) = self.run.acts.get_mut(index) {
            // It is a POST, and still asks only.
            (act.kind, act.name, act.args, act.effect) = (ActKind::Model, name, args, EffectOf::Unknown);
            act.status = if is_failed { Status::Failed } else { Status::Ok };
        }
        if let Some(answer) = &fact.answer {
            self.said(event, answer);
        }
        let spent = &mut self.run.spent;
        spent.tokens_in += fact.tokens.input;
        spent.tokens_out += fact.tokens.output;
        spent.tokens_cached += fact.tokens.cached;
        spent.tokens_reasoning += fact.tokens.reasoning;
        spent.cost_micros += fact.cost_micros.unwrap_or(0);
        for problem in &fact.problems {
            self.run.gaps.push(format!("call {} of {}: {problem}", event.seq, fact.model));
        }
    }

    /// A message that the call sent and none before it.
    fn told(&mut self, event: &Event, message: &ModelMessage) {
        let text = message.text.as_ref().map(|text| self.text(text)).unwrap_or_default();
        let kind = match message.role.as_str() {
            "system" | "developer" => ActKind::Instructed,
            "tool" | "function" => return self.result(&message.answers, text),
            // What the model said was told when it said it.
            "assistant" if self.run.acts.iter().any(|act| act.kind == ActKind::Said && act.text == text) => {
                return;
            }
            "assistant" if text.is_empty() => return,
            "assistant" => ActKind::Said,
            _ => ActKind::Told,
        };
        let act = self.push(event, kind, message.role.clone());
        act.text = text;
    }

    fn said(&mut self, event: &Event, message: &ModelMessage) {
        if let Some(text) = &message.text {
            let text = self.text(text);
            self.push_within(event, ActKind::Said, "assistant".to_owned()).text = text;
        }
        for call in &message.calls {
            let arguments = self.text(&call.arguments);
            let args = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
            let id = if call.id.is_empty() { call.name.clone() } else { call.id.clone() };
            let index = self.run.acts.len();
            let act = self.push_within(event, ActKind::Tool, call.name.clone());
            (act.args, act.status) = (args, Status::Unanswered);
            self.asked.insert(id, index);
        }
    }

    /// What came of a call that the model asked for.
    fn result(&mut self, id: &str, text: String) {
        let index = self.asked.remove(id);
        if let Some(act) = index.and_then(|index| self.run.acts.get_mut(index)) {
            (act.text, act.status) = (text, Status::Ok);
        }
    }

    /// An act that belongs to the call of a model that `event` tells.
    fn push_within(&mut self, event: &Event, kind: ActKind, name: String) -> &mut Act {
        let model = self.acts.get(&event.seq).copied();
        let index = self.run.acts.len();
        self.push(event, kind, name).within = model;
        if let Some(model) = model {
            self.acts.insert(event.seq, model);
        }
        &mut self.run.acts[index]
    }

    fn text(&self, content: &Content) -> String {
        match content {
            Content::Text(text) => text.clone(),
            Content::Kept(blob) => match (self.payload)(blob) {
                Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                None => format!("{} bytes, {}", blob.size, blob.digest),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::to_run;
    use super::*;
    use cofferdam_model::{Body, Digest, ModelCall, ModelError, Run, Tokens};

    fn run(calls: Vec<ModelCalled>) -> Run {
        let event = |(seq, call): (usize, ModelCalled)| {
            let body = Body::ModelCalled(Box::new(call));
            Event {
                body: serde_json::to_value(&body).unwrap()["body"].take(),
                hash: Digest::ZERO,
                kind: body.kind().into(),
                parent: None,
                prev: Digest::ZERO,
                seq: seq as u64,
                time: 0,
            }
        };
        let events: Vec<Event> = calls.into_iter().enumerate().map(event).collect();
        to_run(&events, &|_| None)
    }

    fn message(role: &str, text: &str, answers: &str) -> ModelMessage {
        let text = Some(Content::Text(text.into())).filter(|_| !text.is_empty());
        ModelMessage { role: role.into(), text, calls: vec![], answers: answers.into() }
    }

    #[test]
    fn each_word_stands_once_and_a_result_with_its_call() {
        let arguments = Content::Text("{\"amount\":5}".into());
        let asks = ModelMessage {
            calls: vec![ModelCall { id: "c1".into(), name: "refund".into(), arguments }],
            ..message("assistant", "On it.", "")
        };
        let first = ModelCalled {
            provider: "openai".into(),
            model: "gpt-4o".into(),
            messages: vec![message("system", "be kind", ""), message("user", "refund it", "")],
            answer: Some(asks.clone()),
            tokens: Tokens { input: 20, output: 9, ..Tokens::default() },
            cost_micros: Some(7),
            ..ModelCalled::default()
        };
        let second = ModelCalled {
            messages: vec![asks, message("tool", "done", "c1")],
            answer: Some(message("assistant", "It is done.", "")),
            ..first.clone()
        };
        let run = run(vec![first, second]);
        let told: Vec<String> =
            run.acts.iter().map(|act| format!("{:?} {}: {}", act.kind, act.name, act.text)).collect();
        assert_eq!(
            told,
            [
                "Instructed system: be kind",
                "Told user: refund it",
                "Model openai gpt-4o: ",
                "Said assistant: On it.",
                "Tool refund: done",
                "Model openai gpt-4o: ",
                "Said assistant: It is done.",
            ]
        );
        let tool = &run.acts[4];
        assert_eq!((&tool.args, tool.status, tool.within), (&json!({ "amount": 5 }), Status::Ok, Some(2)));
        assert_eq!((run.spent.tokens_in, run.spent.cost_micros), (40, 14));
    }

    #[test]
    fn a_call_that_failed_and_a_tool_that_never_ran_are_told() {
        let error = Some(ModelError { status: Some(529), kind: String::new(), message: "later".into() });
        let failed = ModelCalled { error, problems: vec!["cut".into()], ..ModelCalled::default() };
        let call = ModelCall { id: String::new(), name: "x".into(), arguments: Content::Text("{".into()) };
        let answer = ModelMessage { calls: vec![call], ..message("assistant", "", "") };
        let run = run(vec![failed, ModelCalled { answer: Some(answer), ..ModelCalled::default() }]);
        let told: Vec<_> = run.acts.iter().map(|act| (act.kind, act.status)).collect();
        assert_eq!(
            told,
            [
                (ActKind::Model, Status::Failed),
                (ActKind::Model, Status::Ok),
                (ActKind::Tool, Status::Unanswered)
            ]
        );
        assert_eq!(run.acts[2].args, Value::String("{".into()));
        assert!(run.gaps.iter().any(|gap| gap.contains("cut")), "{:?}", run.gaps);
    }
}
