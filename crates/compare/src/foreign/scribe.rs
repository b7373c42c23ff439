//! Writes acts in order and joins results to the calls they answer, by id where ids are unique and by name or
//! order where they are not: logs repeat ids, and a result must never land on a call that has one.

use cofferdam_model::{Act, ActKind, EffectOf, Run, Status};
use serde_json::Value;

#[derive(Default)]
pub(super) struct Scribe {
    run: Run,
    /// Calls without a result yet: their ids and indices.
    open: Vec<(String, usize)>,
}

/// What came back from a call.
pub(super) struct Answer<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) text: String,
    /// None where the format does not say: then the text may.
    pub(super) failed: Option<bool>,
}

impl Scribe {
    pub(super) fn named(id: &str) -> Self {
        Self { run: Run { id: id.to_owned(), ..Run::default() }, ..Self::default() }
    }

    pub(super) fn run(&mut self) -> &mut Run {
        &mut self.run
    }

    pub(super) fn words(&mut self, at: usize, kind: ActKind, text: String) -> Option<usize> {
        if text.is_empty() {
            return None;
        }
        let name = match kind {
            ActKind::Instructed => "system",
            ActKind::Told => "user",
            _ => "assistant",
        };
        Some(self.push(Act { text, ..blank(at, kind, name) }))
    }

    pub(super) fn call(
        &mut self,
        at: usize,
        within: Option<usize>,
        id: &str,
        name: &str,
        args: Value,
    ) -> usize {
        let act = Act { within, args, status: Status::Unanswered, ..blank(at, ActKind::Tool, name) };
        let index = self.push(act);
        self.open.push((id.to_owned(), index));
        index
    }

    pub(super) fn push(&mut self, act: Act) -> usize {
        self.run.acts.push(act);
        self.run.acts.len() - 1
    }

    /// Joins a result to its call; one that answers nothing stands alone, and the run says so.
    pub(super) fn answer(&mut self, at: usize, answer: Answer<'_>) -> usize {
        let index = self.claim(answer.id, answer.name).unwrap_or_else(|| {
            let name = if answer.name.is_empty() { "unknown" } else { answer.name };
            self.run.gaps.push(format!("result {at} (`{name}`) answers no call of this record"));
            self.push(blank(at, ActKind::Tool, name))
        });
        let failed = answer.failed.unwrap_or_else(|| looks_failed(&answer.text));
        if let Some(act) = self.run.acts.get_mut(index) {
            act.text = answer.text;
            act.status = if failed { Status::Failed } else { Status::Ok };
        }
        index
    }

    /// The oldest open call of this id, else of this name if the result has no id.
    pub(super) fn claim(&mut self, id: &str, name: &str) -> Option<usize> {
        let named = |index: &usize| self.run.acts.get(*index).is_some_and(|act| act.name == name);
        let by_id = |(open, index): &(String, usize)| open == id && (name.is_empty() || named(index));
        let place = if id.is_empty() {
            self.open.iter().position(|(_, index)| named(index))
        } else {
            let exact = self.open.iter().position(by_id);
            exact.or_else(|| self.open.iter().position(|(open, _)| open == id))
        };
        place.map(|place| self.open.remove(place).1)
    }

    pub(super) fn is_open(&self, id: &str) -> bool {
        self.open.iter().any(|(open, _)| open == id)
    }

    pub(super) fn finish(self) -> Run {
        self.run
    }
}

pub(super) fn blank(at: usize, kind: ActKind, name: &str) -> Act {
    Act {
        at: at as u64,
        within: None,
        kind,
        name: name.to_owned(),
        args: Value::Null,
        text: String::new(),
        status: Status::Ok,
        effect: EffectOf::Unknown,
        decided: None,
    }
}

/// Whether a result that carries no flag says of itself that it is an error.
fn looks_failed(text: &str) -> bool {
    let text = text.trim_start();
    let begins = |word: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if ["error:", "error -", "exception:", "traceback (most recent call last)"].into_iter().any(begins) {
        return true;
    }
    if !text.starts_with('{') {
        return false;
    }
    let Ok(Value::Object(map)) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let told = |key: &str| map.get(key).is_some_and(|v| !matches!(v, Value::Null | Value::Bool(false)));
    told("error") || told("isError") || map.get("success") == Some(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: bool) {
        assert_eq!(looks_failed(text), expected, "{text}");
    }

    #[test]
    fn errors_are_told_by_their_own_words() {
        check("Error: reservation not found", true);
        check(r#"{"error": "no such user"}"#, true);
        check(r#"{"isError": true}"#, true);
        check("Traceback (most recent call last):\n  …", true);
        check(r#"{"error": null, "id": 3}"#, false);
        check("Errors are rare on this route", false);
        check("é", false);
        check("", false);
    }

    #[test]
    fn repeated_ids_answer_in_order() {
        let mut scribe = Scribe::default();
        let answer = |text: &str| Answer { id: "a", name: "", text: text.into(), failed: None };
        scribe.call(0, None, "a", "first", Value::Null);
        scribe.answer(1, answer("one"));
        scribe.call(2, None, "a", "second", Value::Null);
        scribe.answer(3, answer("two"));
        scribe.answer(4, answer("three"));
        let run = scribe.finish();
        let texts: Vec<_> = run.acts.iter().map(|a| (a.name.as_str(), a.text.as_str())).collect();
        assert_eq!(texts, [("first", "one"), ("second", "two"), ("unknown", "three")]);
        assert_eq!(run.gaps, ["result 4 (`unknown`) answers no call of this record"]);
    }
}
