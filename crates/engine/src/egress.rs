//! Joins a session to the egress layer: its policy, its credentials, its authority, the doors of its sandbox and
//! its trace. Without a policy there is nothing to join, and nothing leaves.

use crate::Engine;
use crate::denials::Denials;
use crate::error::EngineError;
use crate::record::Recorder;
use crate::secrets::{Ask, placeholder_variables};
use crate::{policy, trust};
use cofferdam_egress::names::Names;
use cofferdam_egress::swap::Coffer;
use cofferdam_egress::{Alerting, Ca, Callers, Config, Handle, Limits, Listeners, Rules, serve};
use cofferdam_model::{Control, SessionId, SessionSpec, State};
use cofferdam_policy::Policy;
use cofferdam_runtime::{Doors, ShownFile};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// Everything that is read and made before there is a sandbox, so that what is wrong with it is said first.
pub(crate) struct Prepared {
    rules: Rules,
    coffer: Coffer,
    ca: Arc<Ca>,
    files: Vec<ShownFile>,
    variables: Vec<(String, String)>,
    placeholders: Vec<String>,
    line: Control,
    session: SessionId,
}

/// A session's egress, in force. Ends when it is dropped.
pub(crate) struct Egress {
    pub(crate) handle: Arc<Handle>,
    /// What programs inside are told: where the proxy is, whom to trust, and a placeholder for each credential.
    pub(crate) variables: Vec<(String, String)>,
    /// Which of them hold placeholders.
    pub(crate) placeholders: Vec<String>,
    /// For the enforcement report.
    pub(crate) line: Control,
    /// What it did not let through, and the policy that says so.
    pub(crate) denials: Denials,
    pub(crate) policy: Arc<Policy>,
}

impl Prepared {
    pub(crate) fn new(
        engine: &Engine,
        spec: &SessionSpec,
        session: &SessionId,
        ask: &Ask,
    ) -> Result<Option<Self>, EngineError> {
        let Some(path) = &spec.policy else {
            return match spec.secrets.first() {
                Some(name) => Err(EngineError::SecretWithoutPolicy(name.clone())),
                None => Ok(None),
            };
        };
        let rules = policy::rules(path)?;
        let bound = match spec.secrets.is_empty() {
            true => Vec::new(),
            false => engine.secrets(ask)?.bind(&spec.secrets, session)?,
        };
        let mut variables = placeholder_variables(&bound);
        if let Some(at) = variables.iter().position(|(name, _)| spec.env.contains_key(name)) {
            let (secret, variable) = (bound[at].credential.name.clone(), variables[at].0.clone());
            return Err(EngineError::SecretInEnvironment { secret, variable });
        }
        let placeholders = variables.iter().map(|(name, _)| name.clone()).collect();
        let line = line(rules.policy(), &spec.secrets);
        let ca = Arc::new(Ca::new(&format!("Cofferdam session {session}"))?);
        let trust = trust::spread(ca.pem());
        variables.extend(trust.variables.iter().map(|(name, path)| ((*name).into(), (*path).into())));
        let (coffer, session) = (Coffer::new(bound)?, session.clone());
        Ok(Some(Self { rules, coffer, ca, files: trust.files, variables, placeholders, line, session }))
    }

    /// What is to be shown inside.
    pub(crate) fn take_files(&mut self) -> Vec<ShownFile> {
        std::mem::take(&mut self.files)
    }

    /// Begins to serve the doors of the sandbox.
    pub(crate) fn open(self, doors: Doors, recorder: &Recorder) -> Result<Egress, EngineError> {
        let failed = |source| EngineError::Io { doing: "serve the sandbox's doors", source };
        make_room();
        let proxy = doors.proxy.local_addr().map_err(failed)?;
        let receive = |socket: std::os::fd::BorrowedFd<'_>| Ok(cofferdam_sys::door::receive(socket)?);
        let listeners = Listeners {
            proxy: doors.proxy,
            transparent: doors.transparent,
            dns_udp: Some(doors.dns_udp),
            dns_tcp: Some(doors.dns_tcp),
            stray_udp: doors.stray_udp.into_iter().map(|socket| (socket, receive as _)).collect(),
        };
        let (denials, policy) = (Denials::default(), self.rules.policy().clone());
        let config = Config {
            rules: self.rules,
            coffer: self.coffer,
            names: Arc::new(Names::default()),
            ca: self.ca,
            record: denials.noting(recorder.clone()),
            limits: Limits::default(),
            alerting: Alerting { session: self.session.to_string(), sign: cofferdam_seal::authenticate },
        };
        let callers: Arc<dyn Callers> = Arc::new(Inside(doors.callers));
        let handle = Arc::new(serve(listeners, config, Some(callers)).map_err(failed)?);
        let mut variables = self.variables;
        variables.extend(proxy_variables(proxy));
        let placeholders = self.placeholders;
        Ok(Egress { handle, variables, placeholders, line: self.line, denials, policy })
    }
}

/// A connection of the sandbox's takes two descriptors of ours, and the usual limit is 1024.
pub(crate) fn make_room() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it cannot be had, fewer connections are taken at a time, and the others wait.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Programs of the sandbox, as the tier knows them.
struct Inside(Arc<dyn cofferdam_runtime::Callers>);

impl Callers for Inside {
    fn program(&self, peer: SocketAddr, local: SocketAddr) -> Option<Arc<str>> {
        // A path that is no text names no program of a rule.
        self.0.program(peer, local)?.to_str().map(Arc::from)
    }
}

/// Both spellings: some programs read only the one, some only the other.
fn proxy_variables(proxy: SocketAddr) -> impl Iterator<Item = (String, String)> {
    let url = format!("http://{proxy}");
    let local = "localhost,127.0.0.1,::1".to_owned();
    [("http_proxy", &url), ("https_proxy", &url), ("all_proxy", &url), ("no_proxy", &local)]
        .map(|(name, value)| [(name.to_owned(), value.clone()), (name.to_uppercase(), value.clone())])
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .into_iter()
}

fn line(policy: &cofferdam_policy::Policy, secrets: &[String]) -> Control {
    let upstreams: Vec<Value> =
        policy.upstreams().map(|u| json!({ "host": u.host, "connect": u.connect, "ca": u.ca })).collect();
    let rules: Vec<&str> = policy.rules().map(|rule| rule.id.as_str()).collect();
    let mut detail = format!("deny by default; {} rules", rules.len());
    if !secrets.is_empty() {
        detail.push_str(&format!("; placeholders for {}", secrets.join(", ")));
    }
    if !upstreams.is_empty() {
        detail.push_str(&format!("; {} hosts at addresses that the operator names", upstreams.len()));
    }
    let alerts: Vec<Value> =
        policy.alerts().map(|alert| json!({ "id": alert.id, "to": alert.to.to_string() })).collect();
    if !alerts.is_empty() {
        detail.push_str(&format!("; alerts to {} places", alerts.len()));
    }
    let value = json!({ "rules": rules, "credentials": secrets, "upstreams": upstreams, "alerts": alerts });
    Control { name: "egress".into(), state: State::Enforced, detail, value }
}
