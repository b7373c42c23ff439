//! A policy in force, with what it needs from outside read once: addresses and trust anchors of its
//! overrides. A policy that cannot be put in force as a whole is not put in force at all.

use crate::address;
use crate::alert::{BadRoute, Route};
use crate::rescue::Failure;
use crate::upstream::trust::{Trust, TrustError};
use cofferdam_policy::Policy;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum RulesError {
    #[error("[[upstream]] `{host}`: `{connect}` is no address with a port: write one as 127.0.0.1:8443")]
    Connect { host: String, connect: String },
    #[error("[[upstream]] `{host}`: cannot read `{path}` ({source}): give a readable PEM file")]
    Anchor { host: String, path: String, source: io::Error },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Alert(#[from] BadRoute),
}

pub struct Rules {
    policy: Arc<Policy>,
    overrides: HashMap<Box<str>, (SocketAddr, Option<Trust>)>,
    alerts: Vec<Arc<Route>>,
    offline: bool,
}

impl Rules {
    /// `read` gives the bytes of a file that the policy names.
    pub fn new(policy: Arc<Policy>, read: &dyn Fn(&str) -> io::Result<Vec<u8>>) -> Result<Self, RulesError> {
        let mut overrides = HashMap::new();
        for upstream in policy.upstreams() {
            let host = &upstream.host;
            let address = upstream
                .connect
                .parse()
                .map_err(|_| RulesError::Connect { host: host.clone(), connect: upstream.connect.clone() })?;
            let trust = match &upstream.ca {
                None => None,
                Some(path) => {
                    let pem = read(path).map_err(|source| RulesError::Anchor {
                        host: host.clone(),
                        path: path.clone(),
                        source,
                    })?;
                    Some(Trust::anchored(host, &pem)?)
                }
            };
            overrides.insert(host.as_str().into(), (address, trust));
        }
        let alerts = policy.alerts().map(|alert| Route::new(alert, read).map(Arc::new));
        Ok(Self { alerts: alerts.collect::<Result<_, _>>()?, overrides, policy, offline: false })
    }

    /// The same rules for a session that reaches nothing and tells nobody, whoever may change them later: the files
    /// that connections and alerts would need are not read.
    pub fn offline(policy: Arc<Policy>) -> Result<Self, RulesError> {
        let mut overrides = HashMap::new();
        for upstream in policy.upstreams() {
            let (host, connect) = (upstream.host.clone(), upstream.connect.clone());
            let address = connect.parse().map_err(|_| RulesError::Connect { host, connect })?;
            overrides.insert(upstream.host.as_str().into(), (address, None));
        }
        Ok(Self { policy, overrides, alerts: Vec::new(), offline: true })
    }

    pub(crate) fn is_offline(&self) -> bool {
        self.offline
    }

    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Whom to tell.
    pub(crate) fn alerts(&self) -> &[Arc<Route>] {
        &self.alerts
    }

    /// The operator's word on where this host is reached.
    pub(crate) fn fixed(&self, host: &str) -> Option<&(SocketAddr, Option<Trust>)> {
        self.overrides.get(host)
    }

    /// Refuses a host that is an address which is never reached; names are judged when they are resolved.
    pub(crate) fn may_lead_to(&self, host: &str) -> Result<(), Failure> {
        if self.fixed(host).is_some() {
            return Ok(());
        }
        let judged = address::host_literal(host).and_then(|ip| ip.map_or(Ok(()), address::judge));
        judged.map_err(|why| Failure::Address { host: host.to_owned(), why })
    }
}
