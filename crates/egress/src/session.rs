//! What all connections of a session share: its rules, credentials, names and record, and what has been
//! switched on it while it runs.

use crate::alert::{Alerting, Alerts, Sighting};
use crate::approvals::Approvals;
use crate::budget::Tallies;
use crate::exchange::{Exchange, Live, Watch};
use crate::http::service::WITHHELD;
use crate::names::Names;
use crate::own::Own;
use crate::postgres::Cancels;
use crate::refusals::Refusals;
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::ssh::KnownHosts;
use crate::swap::Coffer;
use crate::tls::Ca;
use crate::upstream::pool::Pool;
use arc_swap::ArcSwap;
use cofferdam_model::{
    Body, Cap, ControlChanged, EgressDecided, EgressRefused, Ending, NotRecorded, Record, Tap, Via,
};
use cofferdam_policy::{Alarm, Deed, Notice, Occasion, Policy};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Bounds that protect us from the inside.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections from inside at one time; more wait until one ends.
    pub connections: usize,
    /// How long a client may take for its first bytes, a handshake or a head.
    pub head_time: Duration,
    /// How long a held request waits for a person, where the policy does not say.
    pub review_time: Duration,
    /// The largest body that is collected because a rule looks at it.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            head_time: Duration::from_secs(30),
            review_time: Duration::from_secs(300),
            body: cofferdam_policy::MAX_BODY,
        }
    }
}

/// What a session's egress is made of.
pub struct Config {
    pub rules: Rules,
    pub coffer: Coffer,
    pub names: Arc<Names>,
    pub ca: Arc<Ca>,
    /// What the operator's own OpenSSH knows of hosts.
    pub known_hosts: KnownHosts,
    pub record: Arc<dyn Record>,
    pub limits: Limits,
    pub alerting: Alerting,
    /// Who looks at what is let go.
    pub tap: Option<Arc<dyn Tap>>,
    /// Who answers what is asked of the proxy itself; without anyone it is refused.
    pub own: Option<Arc<dyn Own>>,
    /// Hears of every other policy that is put in force, before it is.
    pub on_policy: Option<OnPolicy>,
    /// Hears of a cap: what models cost is counted by who understands them.
    pub on_cap: Option<OnCap>,
}

pub type OnPolicy = Box<dyn Fn(&Arc<Policy>) + Send + Sync>;

pub type OnCap = Box<dyn Fn(&Cap) + Send + Sync>;

/// Counters since the session began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub connections: u64,
    pub requests: u64,
    pub denied: u64,
    pub refused: u64,
    /// Exchanges that are under way now.
    pub open: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) refused: AtomicU64,
}

pub(crate) struct Session {
    pub(crate) rules: ArcSwap<Rules>,
    pub(crate) coffer: Coffer,
    pub(crate) names: Arc<Names>,
    pub(crate) ca: Arc<Ca>,
    pub(crate) known_hosts: KnownHosts,
    pub(crate) record: Arc<dyn Record>,
    pub(crate) limits: Limits,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) alerts: Alerts,
    pub(crate) tap: Option<Arc<dyn Tap>>,
    pub(crate) own: Option<Arc<dyn Own>>,
    pub(crate) on_policy: Option<OnPolicy>,
    pub(crate) on_cap: Option<OnCap>,
    pub(crate) live: Arc<Live>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) tallies: Tallies,
    pub(crate) cancels: Cancels,
    /// A place for each connection over SSH that is let in.
    pub(crate) ssh: Arc<Semaphore>,
    pub(crate) counters: Counters,
    refusals: Refusals,
    paused: AtomicBool,
}

impl Session {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        let pool = if config.rules.is_offline() { Pool::offline() } else { Pool::default() };
        let session = Arc::new(Self {
            rules: ArcSwap::from_pointee(config.rules),
            coffer: config.coffer,
            names: config.names,
            ca: config.ca,
            known_hosts: config.known_hosts,
            live: Live::new(config.record.clone()),
            alerts: Alerts::new(config.alerting, config.record.clone()),
            record: config.record,
            tap: config.tap,
            own: config.own,
            on_policy: config.on_policy,
            on_cap: config.on_cap,
            limits: config.limits,
            approvals: Arc::default(),
            pool: Arc::new(pool),
            tallies: Tallies::default(),
            cancels: Cancels::default(),
            ssh: Arc::new(Semaphore::new(crate::ssh::MOST_CONNECTIONS)),
            counters: Counters::default(),
            refusals: Refusals::default(),
            paused: AtomicBool::new(false),
        });
        let watch: Weak<dyn Watch> = Arc::downgrade(&(session.clone() as Arc<dyn Watch>));
        session.live.watched_by(watch);
        session
    }

    /// Whether anything may go out at all now.
    pub(crate) fn is_open(&self) -> Result<(), Failure> {
        if self.paused.load(Relaxed) {
            return Err(Failure::Paused);
        }
        if self.live.is_unrecorded() {
            let reason = "the end of an earlier exchange could not be recorded".to_owned();
            return Err(NotRecorded { kind: "egress.decided", reason }.into());
        }
        Ok(())
    }

    /// How long a person has to answer, by the policy that is in force.
    pub(crate) fn patience(&self) -> Duration {
        self.rules.load().policy().review_timeout().unwrap_or(self.limits.review_time)
    }

    /// A name as the record may hold it.
    pub(crate) fn tellable_name(&self, name: String) -> String {
        if self.coffer.check_name(&name).is_ok() { name } else { WITHHELD.to_owned() }
    }

    /// Records a refusal that no policy was asked about. It is refused whether or not this works.
    pub(crate) fn tell_refused(
        &self,
        failure: &Failure,
        (via, program): (Via, Option<&str>),
        destination: String,
        request: String,
    ) {
        self.counters.refused.fetch_add(1, Relaxed);
        let destination = self.tellable_name(destination);
        let refused = EgressRefused {
            cause: failure.cause().to_owned(),
            via,
            destination,
            request,
            detail: failure.to_string(),
            alarm: failure.alarm().is_some(),
            times: 1,
        };
        let heard = self.refusals.hear(&refused, Instant::now());
        heard.ended.into_iter().for_each(|repeated| self.record_refused(repeated));
        let (mut event, mut refused) = (None, refused);
        if heard.is_new {
            let body = Body::EgressRefused(Box::new(refused));
            event = self.record.append(None, &body).ok();
            let Body::EgressRefused(back) = body else { return };
            refused = *back;
        }
        let notice = failure.alarm().map_or(Notice::Refused, Notice::Alarm);
        self.alerts.tell(notice, &self.coffer, || Sighting {
            cause: refused.cause,
            destination: refused.destination,
            request: refused.request,
            detail: refused.detail,
            program: program.map(str::to_owned),
            credential: failure.credential().map(str::to_owned),
            held: None,
            event,
            times: 1,
        });
        if let Some(alarm) = failure.alarm() {
            self.raise(alarm);
        }
    }

    /// Puts on record how often refusals came again: those whose window is over at `now`, or all.
    pub(crate) fn tell_repeated(&self, now: Option<Instant>) {
        self.refusals.take(now).into_iter().for_each(|repeated| self.record_refused(repeated));
    }

    fn record_refused(&self, refused: EgressRefused) {
        let _ = self.record.append(None, &Body::EgressRefused(Box::new(refused)));
    }

    /// What the policy wants done by itself after this.
    pub(crate) fn act_on(&self, occasion: &Occasion<'_>) {
        let rules = self.rules.load();
        for trigger in rules.policy().triggers(occasion) {
            let by = format!("[[on]] {}", trigger.id);
            for deed in &trigger.deeds {
                match deed {
                    // Tools are called by the model, not through here.
                    Deed::Narrow(_) => {}
                    Deed::Pause => drop(self.pause(&by)),
                    Deed::Revoke(names) => {
                        names.iter().for_each(|name| drop(self.revoke(name, &by)));
                    }
                }
            }
        }
    }

    pub(crate) fn pause(&self, by: &str) -> Result<u64, NotRecorded> {
        if self.paused.swap(true, Relaxed) {
            return Ok(0);
        }
        let cut = self.live.cut(Ending::Paused, |_| true);
        self.changed("pause", String::new(), by, cut)
    }

    pub(crate) fn resume(&self, by: &str) -> Result<u64, NotRecorded> {
        self.changed("resume", String::new(), by, 0)?;
        self.paused.store(false, Relaxed);
        Ok(0)
    }

    pub(crate) fn revoke(&self, name: &str, by: &str) -> Result<u64, ControlError> {
        self.coffer.revoke(name)?;
        let cut = self.cut_spent(name);
        Ok(self.changed("revoke", name.to_owned(), by, cut)?)
    }

    /// Cuts everything that was sent under a credential's value.
    pub(crate) fn cut_spent(&self, name: &str) -> u64 {
        self.live.cut(Ending::Revoked, |exchange: &Exchange| {
            exchange.spent.iter().any(|spent| *spent.name == *name)
        })
    }

    pub(crate) fn changed(&self, what: &str, detail: String, by: &str, cut: u64) -> Result<u64, NotRecorded> {
        let fact = ControlChanged { what: what.to_owned(), detail, by: by.to_owned(), cut };
        self.record.append(None, &Body::ControlChanged(fact))?;
        Ok(cut)
    }

    pub(crate) fn stats(&self) -> Stats {
        let Counters { connections, requests, denied, refused } = &self.counters;
        Stats {
            connections: connections.load(Relaxed),
            requests: requests.load(Relaxed),
            denied: denied.load(Relaxed),
            refused: refused.load(Relaxed),
            open: self.live.count() as u64,
        }
    }
}

impl Watch for Session {
    fn stopped(&self, failure: &Failure, asked: &EgressDecided) {
        let destination = format!("{}:{}", asked.host, asked.port);
        let from = (asked.via, asked.program.as_deref());
        self.tell_refused(failure, from, destination, format!("{} {}", asked.method, asked.path));
    }

    fn noticed(&self, alarm: Alarm, why: &str, asked: &EgressDecided, event: u64) {
        self.alerts.tell(Notice::Alarm(alarm), &self.coffer, || Sighting {
            detail: why.to_owned(),
            ..Sighting::of(asked, Some(event))
        });
        self.raise(alarm);
    }

    fn raise(&self, alarm: Alarm) {
        self.act_on(&Occasion::Alarm(alarm));
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    Unknown(#[from] crate::swap::Unknown),
    #[error(transparent)]
    Unfit(#[from] crate::swap::Unfit),
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
}
