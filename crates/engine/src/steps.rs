//! Joins the endpoint for steps to the door by which the inside reaches the proxy: what is asked of the proxy
//! itself is told to `intercept`. Without a policy there are no doors, so there is no endpoint.

use cofferdam_egress::{Held, Own, OwnAnswer, OwnNext, OwnRequest};
use cofferdam_intercept::steps::{self, Next, Request, Response, Steps};
use cofferdam_model::NotRecorded;
use cofferdam_policy::Policy;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// The policy that is in force, for those who must not know who holds it.
#[derive(Clone)]
pub(crate) struct InForce(Arc<RwLock<Arc<Policy>>>);

impl InForce {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self(Arc::new(RwLock::new(policy)))
    }

    pub(crate) fn get(&self) -> Arc<Policy> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, policy: Arc<Policy>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }
}

pub(crate) struct Endpoint(pub(crate) Arc<Steps>);

impl Own for Endpoint {
    fn longest(&self) -> usize {
        steps::LONGEST
    }

    fn take(&self, request: &OwnRequest<'_>) -> Result<OwnNext, NotRecorded> {
        let OwnRequest { method, path, content_type, content_encoding, body } = *request;
        let next = self.0.take(&Request { method, path, content_type, content_encoding, body })?;
        Ok(match next {
            Next::Answer(response) => OwnNext::Answer(told(response)),
            Next::Hold(step) => {
                let held = Held {
                    id: 0,
                    rule: step.rule.clone(),
                    reason: step.reason.clone(),
                    method: "step".into(),
                    url: format!("{} {}", step.name, step.input),
                    program: None,
                    since: 0,
                    until: 0,
                };
                let (steps, event) = (self.0.clone(), step.event);
                let then = Box::new(move |answer, by: &str, waited| {
                    steps.answered(&step, answer, by, waited).map(told)
                });
                OwnNext::Ask { held, event, then }
            }
        })
    }
}

fn told(response: Response) -> OwnAnswer {
    let Response { status, content_type, body } = response;
    OwnAnswer { status, content_type, body }
}

/// Where programs inside find it: ours by its own name, exporters of OpenTelemetry by theirs.
pub(crate) fn variables(proxy: SocketAddr) -> [(String, String); 3] {
    [
        (STEPS_URL.into(), format!("http://{proxy}/v1/steps")),
        ("OTEL_EXPORTER_OTLP_ENDPOINT".into(), format!("http://{proxy}")),
        ("OTEL_EXPORTER_OTLP_PROTOCOL".into(), "http/protobuf".into()),
    ]
}

/// Names the endpoint, inside.
pub const STEPS_URL: &str = "COFFERDAM_STEPS_URL";
