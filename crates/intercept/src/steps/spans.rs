//! Spans of OpenTelemetry as steps: each is over when it comes, so it is told whole, parents before children. Its
//! own times are claims and stand beside ours.

use super::{Steps, refused, too_fast};
use crate::body::decoded;
use crate::otlp::{self, Span};
use cofferdam_model::{Body, NotRecorded, OwnAnswer, OwnRequest, StepEnded, StepStarted, StepVia};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const PROTOBUF: &str = "application/x-protobuf";

/// What an exporter expects to hear.
pub(super) fn accepted(request: &OwnRequest<'_>, rejected: usize) -> OwnAnswer {
    let is_protobuf = request.content_type.is_some_and(|text| text.starts_with(PROTOBUF));
    if is_protobuf {
        let body = otlp::answer(rejected, "steps come too fast");
        return OwnAnswer { status: 200, content_type: PROTOBUF, body };
    }
    match rejected {
        0 => OwnAnswer::json(200, &json!({})),
        _ => OwnAnswer::json(
            200,
            &json!({ "partialSuccess": { "rejectedSpans": rejected.to_string(), "errorMessage": "steps come too fast" } }),
        ),
    }
}

impl Steps {
    pub(super) fn spans(
        &self,
        request: &OwnRequest<'_>,
    ) -> Result<Result<OwnAnswer, OwnAnswer>, NotRecorded> {
        let coding = request.content_encoding.unwrap_or("identity");
        let body = match decoded(request.body, coding) {
            Ok(body) => body,
            Err(wrong) => return Ok(Err(refused(400, "content-encoding", &wrong.to_string()))),
        };
        let media = request.content_type.unwrap_or_default();
        let read = match media.split(';').next().unwrap_or_default().trim() {
            PROTOBUF => otlp::from_protobuf(&body),
            "application/json" => otlp::from_json(&body),
            _ => {
                let why = "application/x-protobuf or application/json";
                return Ok(Err(refused(415, "content-type", why)));
            }
        };
        let mut spans = match read {
            Ok(spans) => spans,
            Err(wrong) => return Ok(Err(refused(400, "body", &wrong.to_string()))),
        };
        spans.sort_by_key(|span| span.start_us);
        if !self.known().pace.takes(spans.len()) {
            return Ok(Err(too_fast()));
        }
        for span in parents_first(spans) {
            self.span(span)?;
        }
        Ok(Ok(accepted(request, 0)))
    }

    fn span(&self, span: Span) -> Result<(), NotRecorded> {
        let mut known = self.known();
        let within = span.parent.as_ref().and_then(|parent| known.steps.get(parent)).map(|(event, _)| *event);
        let input = span.input();
        let ruling = self.judge(&span.name, input.as_ref().unwrap_or(&Value::Null));
        let output = self.content(span.output().as_ref())?;
        let fact = StepStarted {
            via: StepVia::Otlp,
            id: span.id.clone(),
            name: span.name.clone(),
            parent: span.parent.clone(),
            input: self.content(input.as_ref())?,
            sort: span.sort(),
            effect: ruling.effect,
            rule: ruling.rule,
            reason: ruling.reason,
            claimed_us: Some(span.start_us),
        };
        let event = self.record.append(within, &Body::StepStarted(Box::new(fact)))?;
        if known.has_room() {
            known.steps.insert(span.id.clone(), (event, true));
        }
        let fact = StepEnded { id: span.id, output, error: span.error, claimed_us: Some(span.end_us) };
        self.record.append(Some(event), &Body::StepEnded(fact))?;
        Ok(())
    }
}

/// A parent that began with its child, or by another clock, may stand behind it.
fn parents_first(spans: Vec<Span>) -> Vec<Span> {
    let places: BTreeMap<String, usize> =
        spans.iter().enumerate().map(|(at, span)| (span.id.clone(), at)).collect();
    let mut left: Vec<Option<Span>> = spans.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(left.len());
    for at in 0..left.len() {
        let (mut chain, mut next) = (Vec::new(), Some(at));
        // Each is taken once, so spans that are each other's parents end it too.
        while let Some(span) = next.and_then(|at| left.get_mut(at)?.take()) {
            next = span.parent.as_ref().and_then(|parent| places.get(parent)).copied();
            chain.push(span);
        }
        ordered.extend(chain.into_iter().rev());
    }
    ordered
}
