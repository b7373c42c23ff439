//! Joins a session to the egress layer: its policy, its credentials, its authority, the doors of its sandbox and
//! its trace. Without a policy there is nothing to join, and nothing leaves.

use crate::Engine;
use crate::browser::{Browser, CDP_URL, Wanted};
use crate::denials::Denials;
use crate::error::EngineError;
use crate::mcp::{Later, Pinning};
use crate::record::Recorder;
use crate::replay::answers::{Decided, hearing};
use crate::secrets::{Ask, placeholder_variables};
use crate::steps::{self, InForce};
use crate::tools::Derived;
use crate::{policy, trust};
use cofferdam_egress::names::Names;
use cofferdam_egress::swap::Coffer;
use cofferdam_egress::{Alerting, Ca, Callers, Config, Handle, KnownHosts, Limits, Listeners, Rules, serve};
use cofferdam_intercept::mcp::{PinStore, Servers};
use cofferdam_intercept::replay::Replay;
use cofferdam_intercept::steps::Steps;
use cofferdam_intercept::{Observer, Prices};
use cofferdam_model::{
    Body, Control, CredentialBound, EgressOpened, Record, SessionId, SessionSpec, State, Tap,
};
use cofferdam_policy::Policy;
use cofferdam_runtime::{Doors, ShownFile};
use cofferdam_vault::{Bound, Place};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Everything that is read and made before there is a sandbox, so that what is wrong with it is said first.
pub(crate) struct Prepared {
    rules: Rules,
    coffer: Coffer,
    ca: Arc<Ca>,
    known_hosts: KnownHosts,
    files: Vec<ShownFile>,
    variables: Vec<(String, String)>,
    placeholders: Vec<String>,
    line: Control,
    session: SessionId,
    text: String,
    credentials: Vec<CredentialBound>,
    replay: Option<(Arc<Replay>, Vec<Decided>)>,
    prices: Prices,
    /// What tool servers outside offered before, where that is kept.
    pins: Option<Arc<dyn PinStore>>,
    /// What tools may reach, which holds whatever policy is set.
    derived: Derived,
    /// Whether somebody named the policy.
    is_named: bool,
    browser: Option<Wanted>,
}

/// What egress is made from: as a spec names it, or as a recording has it.
pub(crate) struct Terms {
    /// Of the policy.
    pub(crate) text: String,
    pub(crate) rules: Rules,
    pub(crate) bound: Vec<Bound>,
    /// What answers in the world's place, and in people's.
    pub(crate) replay: Option<(Arc<Replay>, Vec<Decided>)>,
}

/// Where files stand inside that providers' own clients read.
const CLIENT_FILES: &str = "/.cofferdam/credentials";

/// What models cost, in the state directory.
const PRICES: &str = "prices.toml";

/// The longest request that a replay looks at: it has to have all of it before there is an answer.
const LONGEST_REPLAYED: usize = 64 << 20;

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
    /// What tools may reach, beneath every policy.
    pub(crate) derived: Derived,
    pub(crate) browser: Option<Browser>,
    /// What it is made of, to be put on record.
    pub(crate) opened: Body,
}

impl Prepared {
    pub(crate) fn new(
        engine: &Engine,
        spec: &SessionSpec,
        derived: Option<(Arc<Policy>, String)>,
        session: &SessionId,
        ask: &Ask,
    ) -> Result<Option<Self>, EngineError> {
        let (derived, made) = derived.unzip();
        let (text, rules) = match (&spec.policy, &derived) {
            (Some(path), _) => (policy::read(path)?, policy::rules(path, derived.as_deref())?),
            (None, Some(tools)) => {
                (made.unwrap_or_default(), Rules::new(tools.clone(), &|file| std::fs::read(file))?)
            }
            (None, None) => {
                return match spec.secrets.first() {
                    Some(name) => Err(EngineError::SecretWithoutPolicy(name.clone())),
                    None if spec.browser || spec.steps => Self::unnamed(spec, session).map(Some),
                    None => Ok(None),
                };
            }
        };
        let bound = match spec.secrets.is_empty() {
            true => Vec::new(),
            false => engine.secrets(ask)?.bind(&spec.secrets, session)?,
        };
        let prepared = Self::of(Terms { text, rules, bound, replay: None }, spec, session)?;
        let prepared = prepared.priced(engine)?.pinning(engine);
        if let Some(derived) = derived {
            prepared.derived.set(derived);
        }
        Ok(Some(prepared))
    }

    /// Doors by which nothing leaves, for the sake of what is asked of us.
    fn unnamed(spec: &SessionSpec, session: &SessionId) -> Result<Self, EngineError> {
        let text = String::new();
        let empty = policy::parse(&text, std::path::Path::new(""))?;
        let rules = Rules::new(Arc::new(empty), &|_| Err(std::io::ErrorKind::NotFound.into()))?;
        let terms = Terms { text, rules, bound: Vec::new(), replay: None };
        Ok(Self { is_named: false, ..Self::of(terms, spec, session)? })
    }

    pub(crate) fn of(terms: Terms, spec: &SessionSpec, session: &SessionId) -> Result<Self, EngineError> {
        let Terms { text, rules, bound, replay } = terms;
        let mut variables = placeholder_variables(&bound);
        if let Some(at) = variables.iter().position(|(name, _)| spec.env.contains_key(name)) {
            let variable = variables[at].0.clone();
            let holds = |bound: &&Bound| bound.variables().any(|(name, _)| name == variable);
            let secret =
                bound.iter().find(holds).map_or_else(String::new, |bound| bound.credential.name.clone());
            return Err(EngineError::SecretInEnvironment { secret, variable });
        }
        let placeholders = variables.iter().map(|(name, _)| name.clone()).collect();
        let line = line(rules.policy(), &spec.secrets);
        let ca = Arc::new(Ca::new(&format!("Cofferdam session {session}"))?);
        let trust = trust::spread(ca.pem(), &ca.known_hosts());
        variables.extend(trust.variables.iter().map(|(name, path)| ((*name).into(), (*path).into())));
        let (mut files, credentials) = (trust.files, bound.iter().map(told).collect());
        for bound in &bound {
            let Some((variable, content)) = bound.client_file() else { continue };
            let at = Path::new(CLIENT_FILES).join(format!("{}.json", bound.credential.name));
            variables.push((variable.to_owned(), at.display().to_string()));
            files.push(ShownFile { at, content: content.into_bytes() });
        }
        let speaks_ssh = bound.iter().any(|bound| bound.credential.places.contains(&Place::Ssh));
        let known_hosts = match speaks_ssh {
            true => KnownHosts::read(&trust::known_outside()?),
            false => KnownHosts::default(),
        };
        let (coffer, session) = (Coffer::new(bound)?, session.clone());
        Ok(Self {
            rules,
            coffer,
            ca,
            known_hosts,
            files,
            variables,
            placeholders,
            line,
            session,
            text,
            credentials,
            replay,
            prices: Prices::default(),
            pins: None,
            derived: Derived::default(),
            is_named: true,
            browser: spec.browser.then(|| Wanted::find(spec.nested)).transpose()?,
        })
    }

    /// Keeps what tool servers outside offer from session to session. Not for a repetition, which takes the tools as
    /// they come: those of the recording are not those of today.
    fn pinning(mut self, engine: &Engine) -> Self {
        self.pins = Some(Arc::new(Pinning(engine.home().clone())));
        self
    }

    /// Reads what models cost: the operator's own table, if there is one, before the one that comes with us.
    pub(crate) fn priced(mut self, engine: &Engine) -> Result<Self, EngineError> {
        let path = engine.home().path().join(PRICES);
        let own = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(EngineError::Unreadable { path, source }),
        };
        let prices = Prices::new(own.as_deref());
        self.prices = prices.map_err(|source| EngineError::Prices { path, source })?;
        Ok(self)
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
        let mut record: Arc<dyn Record> = denials.noting(recorder.clone());
        let names = self.credentials.iter().map(|bound| bound.name.clone()).collect();
        let opened = opened(self.text, self.credentials, &*record)?;
        let in_force = InForce::new(policy.clone(), self.is_named);
        let (told, judged, later) = (in_force.clone(), in_force.clone(), Later::default());
        let servers = Servers::new(record.clone(), later.judge(judged, names), self.pins);
        let observer = Observer::new(record.clone(), policy.clone(), self.prices);
        let observer = Arc::new(observer.with_tools(Arc::new(servers)));
        let browser = self.browser.map(|wanted| {
            let told = told.clone();
            wanted.made(record.clone(), Arc::new(move || told.named()), proxy, &self.ca.leaf_key())
        });
        let steps = Arc::new(Steps::new(record.clone(), Arc::new(move || told.named())));
        let (mut limits, mut tap): (_, Option<Arc<dyn Tap>>) = (Limits::default(), Some(observer.clone()));
        let mut answering = None;
        if let Some((replay, decided)) = self.replay {
            limits.body = LONGEST_REPLAYED;
            tap = Some(replay.tap(record.clone(), tap));
            let (heard, answers) = hearing(record, decided);
            (record, answering) = (heard, Some(answers));
        }
        let config = Config {
            rules: self.rules,
            coffer: self.coffer,
            names: Arc::new(Names::default()),
            ca: self.ca,
            known_hosts: self.known_hosts,
            record,
            limits,
            alerting: Alerting { session: self.session.to_string(), sign: cofferdam_seal::authenticate },
            tap,
            own: Some(Arc::new(steps::Endpoint { steps, browser: browser.clone() })),
            on_cap: Some(Box::new({
                let observer = observer.clone();
                move |cap| observer.set_cap(cap)
            })),
            on_policy: Some(Box::new(move |policy| {
                observer.set_policy(policy.clone());
                in_force.set(policy.clone());
            })),
        };
        let callers: Arc<dyn Callers> = Arc::new(Inside(doors.callers));
        let handle = Arc::new(serve(listeners, config, Some(callers)).map_err(failed)?);
        later.is(&handle);
        if let Some(browser) = &browser {
            browser.is(&handle);
        }
        if let Some(answering) = answering {
            answering.at(handle.approvals().clone());
        }
        let mut variables = self.variables;
        variables.extend(proxy_variables(proxy));
        variables.extend(steps::variables(proxy));
        variables.extend(browser.as_ref().map(|_| (CDP_URL.to_owned(), format!("http://{proxy}"))));
        let (placeholders, derived) = (self.placeholders, self.derived);
        Ok(Egress {
            handle,
            variables,
            placeholders,
            line: self.line,
            denials,
            policy,
            derived,
            browser,
            opened,
        })
    }
}

/// A credential as a trace may hold it.
fn told(bound: &Bound) -> CredentialBound {
    let credential = &bound.credential;
    CredentialBound {
        name: credential.name.clone(),
        env: credential.env.clone(),
        hosts: credential.hosts.clone(),
        places: credential.places.iter().map(ToString::to_string).collect(),
        programs: credential.programs.clone(),
        placeholder: bound.placeholder.clone(),
        parts: bound.variables().skip(1).map(|(env, part)| (env.to_owned(), part.to_owned())).collect(),
    }
}

fn opened(
    text: String,
    credentials: Vec<CredentialBound>,
    record: &dyn Record,
) -> Result<Body, cofferdam_model::NotRecorded> {
    let policy = record.keep(cofferdam_policy::redact(&text).as_bytes())?;
    Ok(Body::EgressOpened(Box::new(EgressOpened { policy, credentials })))
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
