//! Joins the endpoints for steps and for the browser to the door by which the inside reaches the proxy: what is
//! asked of the proxy itself is told to `intercept`. Without a policy there are doors only where one of them is
//! wanted.

use crate::browser::Browser;
use cofferdam_egress::{Held, Own, OwnNext, Talk};
use cofferdam_intercept::browser::Mediator;
use cofferdam_intercept::steps::{self, Next, Steps};
use cofferdam_model::{NotRecorded, OwnAnswer, OwnRequest};
use cofferdam_policy::Policy;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// The policy that is in force, for those who must not know who holds it.
#[derive(Clone)]
pub(crate) struct InForce(Arc<RwLock<(Arc<Policy>, bool)>>);

impl InForce {
    /// `is_named` is whether somebody named it: one that is only there because nothing may leave says nothing of
    /// what happens inside.
    pub(crate) fn new(policy: Arc<Policy>, is_named: bool) -> Self {
        Self(Arc::new(RwLock::new((policy, is_named))))
    }

    pub(crate) fn get(&self) -> Arc<Policy> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub(crate) fn named(&self) -> Option<Arc<Policy>> {
        let (policy, is_named) = &*self.0.read().unwrap_or_else(PoisonError::into_inner);
        is_named.then(|| policy.clone())
    }

    pub(crate) fn set(&self, policy: Arc<Policy>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (policy, true);
    }
}

pub(crate) struct Endpoint {
    pub(crate) steps: Arc<Steps>,
    pub(crate) browser: Option<Browser>,
}

impl Own for Endpoint {
    fn longest(&self) -> usize {
        steps::LONGEST
    }

    fn take(&self, request: &OwnRequest<'_>) -> Result<OwnNext, NotRecorded> {
        if let Some(browser) = self.browser.as_ref().filter(|_| Mediator::is_own(request.path)) {
            return Ok(browser.take(request));
        }
        Ok(match self.steps.take(request)? {
            Next::Answer(response) => OwnNext::Answer(response),
            Next::Hold(step) => {
                let held = Held {
                    id: 0,
                    rule: step.rule.clone(),
                    reason: step.reason.clone(),
                    method: "step".into(),
                    url: format!("{} {}", step.name, step.input),
                    program: None,
                    credentials: vec![],
                    since: 0,
                    until: 0,
                };
                let (steps, event) = (self.steps.clone(), step.event);
                let then =
                    Box::new(move |answer, by: &str, waited| steps.answered(&step, answer, by, waited));
                OwnNext::Ask { held, event, then }
            }
        })
    }

    fn talk(&self, request: &OwnRequest<'_>) -> Talk {
        match &self.browser {
            Some(browser) if Mediator::is_own(request.path) => browser.talk(request),
            _ => {
                let words =
                    serde_json::json!({ "error": { "message": "cofferdam: there is no browser here" } });
                Talk::Refuse(OwnAnswer::json(404, &words))
            }
        }
    }
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
