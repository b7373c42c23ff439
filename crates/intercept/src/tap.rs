//! The tap of a session: every exchange is put on record with its bytes, and told as a call of a model where it is
//! one. It delays nothing: bytes are copied as they pass and understood at the end. Only a call that a budget of
//! money or tokens counts is held until its request is there, because what it can cost stands in it.

use crate::body::capture::micros;
use crate::body::{Capture, Room, decoded};
use crate::budget::{Amount, Aside, CAP, Ledger};
use crate::exchange::{self, Answering, Request};
use crate::mcp::Servers;
use crate::model::{Api, Asked};
use crate::price::{Prices, usual_output_limit};
use crate::socket::{self, Socket};
use crate::told::{Call, Calls, tell};
use cofferdam_model::{Cap, Ending, Next, NotRecorded, Outgoing, Record, Stop, Tap, Watcher};
use cofferdam_policy::{Budget, Hosts, Policy};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// A token is hardly ever shorter than this many bytes of a request.
const BYTES_PER_TOKEN: u64 = 2;

/// One for a session.
pub struct Observer(Arc<Shared>, Option<Arc<Servers>>);

pub(crate) struct Shared {
    pub(crate) record: Arc<dyn Record>,
    pub(crate) prices: Prices,
    policy: RwLock<Arc<Policy>>,
    cap: RwLock<Option<Arc<Budget>>>,
    ledger: Ledger,
    pub(crate) room: Room,
    pub(crate) calls: Mutex<Calls>,
}

impl Observer {
    pub fn new(record: Arc<dyn Record>, policy: Arc<Policy>, prices: Prices) -> Self {
        Self(
            Arc::new(Shared {
                record,
                prices,
                policy: RwLock::new(policy),
                cap: RwLock::default(),
                ledger: Ledger::default(),
                room: Room::default(),
                calls: Mutex::default(),
            }),
            None,
        )
    }

    /// Calls of tools that pass are judged and told too.
    pub fn with_tools(self, servers: Arc<Servers>) -> Self {
        Self(self.0, Some(servers))
    }

    /// What calls of models may cost from here on, whatever the policy says.
    pub fn set_cap(&self, cap: &Cap) {
        let budget = (cap.spend.is_some() || cap.tokens.is_some()).then(|| Budget {
            id: CAP.to_owned(),
            hosts: Hosts::default(),
            requests: None,
            bytes_up: None,
            bytes_down: None,
            spend: cap.spend,
            tokens: cap.tokens,
            line: 0,
        });
        let mut in_force = self.0.cap.write().unwrap_or_else(PoisonError::into_inner);
        self.0.ledger.begin_cap();
        *in_force = budget.map(Arc::new);
    }

    /// Another policy is in force from here on; what was spent stays spent.
    pub fn set_policy(&self, policy: Arc<Policy>) {
        *self.0.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }
}

impl Shared {
    /// The most that a call of so many bytes can cost, before it goes.
    pub(crate) fn set_aside(&self, asked: &Asked, host: &str, sent: u64) -> Result<Aside, Stop> {
        let policy = self.policy();
        let price = self.prices.find(&asked.model).map(|(price, _)| price);
        let limit = price.map_or(usual_output_limit(), crate::price::Price::output_limit);
        let tokens = cofferdam_model::Tokens {
            input: sent.div_ceil(BYTES_PER_TOKEN),
            output: asked.most.unwrap_or(limit),
            ..Default::default()
        };
        let most = price.map(|price| price.worst(&tokens));
        let cap = self.cap();
        let counting = counting(&policy, cap.as_deref(), host);
        self.ledger.set_aside(counting, tokens.input.saturating_add(tokens.output), most, &asked.model)
    }

    /// Whether calls to this host are counted by a budget of money or tokens.
    pub(crate) fn counts(&self, host: &str) -> bool {
        let (policy, cap) = (self.policy(), self.cap());
        counting(&policy, cap.as_deref(), host).next().is_some()
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn cap(&self) -> Option<Arc<Budget>> {
        self.cap.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The budgets that a call to this host counts against; a cap is one of them, whatever the host.
fn counting<'p>(policy: &'p Policy, cap: Option<&'p Budget>, host: &str) -> impl Iterator<Item = &'p Budget> {
    let counts = |budget: &&Budget| budget.spend.is_some() || budget.tokens.is_some();
    policy.budgets(host).filter(counts).chain(cap)
}

impl Tap for Observer {
    fn open(&self, request: &Outgoing<'_>) -> Result<Option<Box<dyn Watcher>>, Stop> {
        let policy = self.0.policy();
        let is_socket = socket::is_one(request);
        let api = Api::of(if is_socket { "POST" } else { request.method }, request.path);
        let cap = self.0.cap();
        let budgets = || counting(&policy, cap.as_deref(), request.host);
        let is_counted = api.is_some() && budgets().next().is_some();
        if is_counted {
            self.0.ledger.check(budgets())?;
        }
        if is_socket && api == Some(Api::Responses) {
            return Ok(Some(Box::new(Socket::new(self.0.clone(), request))));
        }
        let following = Box::new(Following {
            event: request.event,
            request: Request::of(request),
            api,
            is_counted,
            without_bodies: policy.keeps_no_bodies(request.host),
            sent: Capture::new(&self.0.room),
            asked: None,
            aside: None,
            answer: None,
            is_stopped: false,
            began: Instant::now(),
            shared: self.0.clone(),
        });
        Ok(Some(match &self.1 {
            Some(servers) => servers.follow(request, following),
            None => following,
        }))
    }
}

struct Following {
    shared: Arc<Shared>,
    event: u64,
    request: Request,
    api: Option<Api>,
    is_counted: bool,
    without_bodies: bool,
    sent: Capture,
    asked: Option<Asked>,
    aside: Option<Aside>,
    answer: Option<Answering>,
    is_stopped: bool,
    began: Instant,
}

impl Watcher for Following {
    fn holds(&self) -> bool {
        self.is_counted
    }

    fn sent(&mut self, chunk: &[u8]) {
        self.sent.push(chunk);
    }

    fn sent_all(&mut self) -> Next {
        if !self.is_counted {
            return Next::Forward;
        }
        self.understand();
        match self.set_aside() {
            Ok(aside) => {
                self.aside = aside;
                Next::Forward
            }
            Err(stop) => {
                self.is_stopped = true;
                Next::Refuse(stop)
            }
        }
    }

    fn answered(&mut self, status: u16, headers: &[(&str, &[u8])]) {
        self.answer = Some(Answering::new(status, headers, micros(self.began.elapsed()), &self.shared.room));
    }

    fn received(&mut self, chunk: &[u8]) {
        if let Some(answer) = &mut self.answer {
            answer.body.push(chunk);
        }
    }

    fn ended(mut self: Box<Self>, ending: Ending) -> Result<(), NotRecorded> {
        let total_us = micros(self.began.elapsed());
        let shared = self.shared.clone();
        let record = &*shared.record;
        let fact = exchange::recorded(
            &self.request,
            &mut self.sent,
            self.answer.as_mut(),
            ending,
            self.without_bodies,
            record,
        )?;
        let exchange =
            record.append(Some(self.event), &cofferdam_model::Body::ExchangeRecorded(Box::new(fact)))?;
        self.understand();
        let (Some(api), Some(asked), false) = (self.api, self.asked.take(), self.is_stopped) else {
            return Ok(());
        };
        let spent = tell(
            &shared,
            Call {
                event: self.event,
                exchange,
                api,
                asked,
                request: &self.request,
                sent: &self.sent,
                answer: self.answer.as_ref(),
                ending,
                total_us,
                without_bodies: self.without_bodies,
            },
        )?;
        if let Some(aside) = self.aside.take() {
            // Without a count by the provider, the worst is assumed: breaking off early must not be a way around.
            let most = aside.amount();
            aside.spend(spent.unwrap_or(most));
        }
        Ok(())
    }
}

impl Following {
    /// Reads the request, if it may be one to a model and was not read yet.
    fn understand(&mut self) {
        let (Some(api), None) = (self.api, &self.asked) else { return };
        let body = self.sent.whole().and_then(|bytes| decoded(bytes, &self.request.coding()).ok());
        let value = body.and_then(|body| serde_json::from_slice::<serde_json::Value>(&body).ok());
        match value.filter(|value| api.fits(value)) {
            Some(value) => self.asked = Some(api.asked(&self.request.path, &value)),
            // Something else has a path like it, or it is no JSON: the bytes are on record.
            None => self.api = None,
        }
    }

    fn set_aside(&self) -> Result<Option<Aside>, Stop> {
        let Some(asked) = &self.asked else { return self.unreadable() };
        self.shared.set_aside(asked, &self.request.host, self.sent.len()).map(Some)
    }

    /// What cannot be read cannot be counted: a request that the provider may read otherwise does not go.
    fn unreadable(&self) -> Result<Option<Aside>, Stop> {
        let reason = format!(
            "{} has the path of a call of a model, and its body is none that can be counted: send it as JSON, uncompressed",
            self.request.path
        );
        Err(Stop { cause: Stop::SPEND_CAP.to_owned(), reason })
    }
}

/// What a call cost, where that is known.
pub(crate) type Spent = Option<Amount>;

#[cfg(test)]
mod tests;
