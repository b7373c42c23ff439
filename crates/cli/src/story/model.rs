//! A call of a model as a line: who was asked, what it took and cost, and what came of it.

use super::fit;
use crate::output::Paint;
use cofferdam_model::{Content, ModelCalled, Span};
use std::time::Duration;

/// How much of what was said is shown.
const SHOWN: usize = 100;

pub(super) fn called(fact: &ModelCalled) -> (&'static str, Paint, String) {
    let mut text =
        format!("{} {}", fact.provider, if fact.model.is_empty() { "(no model)" } else { &fact.model });
    if let Some(event) = fact.retries {
        text.push_str(&format!(", event {event} again"));
    }
    let tokens = &fact.tokens;
    if tokens.input + tokens.output > 0 {
        let about = if fact.estimated { "about " } else { "" };
        text.push_str(&format!(": {about}{} tokens in, {} out", tokens.input, tokens.output));
        let parts = [(tokens.cached, "cached"), (tokens.reasoning, "thought")];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if !parts.is_empty() {
            text.push_str(&format!(" ({})", parts.join(", ")));
        }
        match fact.cost_micros {
            Some(micros) => text.push_str(&format!(", {}", dollars(micros))),
            None => text.push_str(", price not known"),
        }
    }
    if let Some(first) = fact.first_token_us {
        text.push_str(&format!(", first after {}", Span(Duration::from_micros(first))));
    }
    let paint = outcome(fact, &mut text);
    ("model", paint, text)
}

/// What came of it.
fn outcome(fact: &ModelCalled, text: &mut String) -> Paint {
    if let Some(answer) = &fact.answer {
        for call in &answer.calls {
            let arguments = match &call.arguments {
                Content::Text(text) => fit(text, SHOWN),
                Content::Kept(blob) => format!("{} bytes", blob.size),
            };
            text.push_str(&format!("; asks for {}({arguments})", call.name));
        }
        match &answer.text {
            Some(Content::Text(said)) => text.push_str(&format!("; says \"{}\"", fit(said, SHOWN))),
            Some(Content::Kept(blob)) => text.push_str(&format!("; says {} bytes", blob.size)),
            None => {}
        }
    }
    if let Some(error) = &fact.error {
        let status = error.status.map(|status| format!("{status} ")).unwrap_or_default();
        let kind = if error.kind.is_empty() { String::new() } else { format!("{}: ", error.kind) };
        text.push_str(&format!("; failed: {status}{kind}{}", fit(&error.message, SHOWN)));
    }
    for problem in &fact.problems {
        text.push_str(&format!("; {problem}"));
    }
    match (&fact.error, fact.problems.is_empty()) {
        (Some(_), _) => Paint::Bad,
        (None, false) => Paint::Care,
        (None, true) => Paint::Good,
    }
}

fn dollars(micros: u64) -> String {
    let part = format!("{:06}", micros % 1_000_000);
    format!("${}.{:0<2}", micros / 1_000_000, part.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::{ModelCall, ModelError, ModelMessage, Tokens};

    #[test]
    fn a_line_tells_the_call_and_what_came_of_it() {
        let call = ModelCall { id: "c".into(), name: "refund".into(), arguments: Content::Text("{}".into()) };
        let mut fact = ModelCalled {
            provider: "openai".into(),
            model: "gpt-4o".into(),
            tokens: Tokens { input: 20, output: 9, cached: 8, cache_written: 0, reasoning: 3 },
            cost_micros: Some(120),
            first_token_us: Some(12_000),
            answer: Some(ModelMessage { calls: vec![call], ..ModelMessage::default() }),
            ..ModelCalled::default()
        };
        assert_eq!(
            called(&fact).2,
            "openai gpt-4o: 20 tokens in, 9 out (8 cached, 3 thought), $0.00012, first after 12 ms; asks for refund({})"
        );
        fact.tokens = Tokens::default();
        (fact.answer, fact.first_token_us, fact.retries) = (None, None, Some(7));
        fact.error =
            Some(ModelError { status: Some(529), kind: "overloaded_error".into(), message: "later".into() });
        assert_eq!(called(&fact).2, "openai gpt-4o, event 7 again; failed: 529 overloaded_error: later");
    }
}
