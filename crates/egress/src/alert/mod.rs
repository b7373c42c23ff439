//! Tells people outside of what was refused, held or spent: `[[alert]]` of the policy.
//!
//! Whoever notices something hands it over and goes on; nothing waits for a webhook. The same thing within a
//! window becomes one alert with a count (`fold`), a task for each destination delivers (`lane`), and what was
//! delivered or could not be stands on record. What is told is what the inside has sent, so it holds
//! placeholders; a real value that should be in it all the same is covered before it is kept.

mod finding;
mod fold;
mod lane;
mod message;
mod route;
mod send;
mod syslog;

pub(crate) use route::Route;
pub use route::{Alerting, BadRoute, Sign};

use crate::swap::Coffer;
use crate::upstream::trust::SystemTrust;
use arc_swap::ArcSwap;
use cofferdam_model::{EgressDecided, Record};
use cofferdam_policy::Notice;
use lane::Lane;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the end of a session waits for what has not been delivered.
pub(crate) const FLUSH: Duration = Duration::from_secs(2);

/// Something noticed, as far as it may be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// The rule, or the word of a refusal.
    pub(crate) cause: String,
    /// A name or an address with the port, as far as it was known.
    pub(crate) destination: String,
    /// Method and path, where there was a request.
    pub(crate) request: String,
    pub(crate) detail: String,
    pub(crate) program: Option<String>,
    pub(crate) credential: Option<String>,
    /// The number by which it can be approved, and until when (in seconds).
    pub(crate) held: Option<(u64, u64)>,
    /// Where it stands on record.
    pub(crate) event: Option<u64>,
    pub(crate) times: u64,
}

impl Sighting {
    /// A request that a policy was asked about.
    pub(crate) fn of(asked: &EgressDecided, event: Option<u64>) -> Self {
        let query = asked.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        Self {
            cause: asked.rule.clone().unwrap_or_else(|| "no-rule".to_owned()),
            destination: format!("{}:{}", asked.host, asked.port),
            request: format!("{} {}{query}", asked.method, asked.path).trim().to_owned(),
            detail: asked.reason.clone(),
            program: asked.program.clone(),
            credential: asked.credentials.first().cloned(),
            held: None,
            event,
            times: 1,
        }
    }

    fn covered(mut self, coffer: &Coffer) -> Self {
        let texts = [&mut self.cause, &mut self.destination, &mut self.request, &mut self.detail];
        for text in texts.into_iter().chain(&mut self.program) {
            *text = coffer.cover(text);
            let end = text.char_indices().nth(MOST_TEXT).map_or(text.len(), |(at, _)| at);
            text.truncate(end);
        }
        self
    }
}

/// Characters of each part; the record has more.
const MOST_TEXT: usize = 500;

/// What all alerts of a session share.
pub(crate) struct House {
    alerting: Alerting,
    record: Arc<dyn Record>,
    trust: SystemTrust,
    hostname: String,
    numbers: AtomicU64,
}

/// The destinations that are in force.
pub(crate) struct Alerts {
    house: Arc<House>,
    lanes: ArcSwap<Vec<Arc<Lane>>>,
    runtime: OnceLock<Handle>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl Alerts {
    pub(crate) fn new(alerting: Alerting, record: Arc<dyn Record>) -> Self {
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (trust, numbers) = (SystemTrust::default(), AtomicU64::new(0));
        Self {
            house: Arc::new(House { alerting, record, trust, hostname, numbers }),
            lanes: ArcSwap::default(),
            runtime: OnceLock::new(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Tells these from now on. Destinations that were there before deliver what they hold, and end.
    pub(crate) fn open(&self, routes: &[Arc<Route>], runtime: Option<Handle>) {
        if let Some(runtime) = runtime {
            let _ = self.runtime.set(runtime);
        }
        let Some(runtime) = self.runtime.get() else { return };
        let start = |route: &Arc<Route>| {
            let lane = Lane::new(route.clone(), self.closing.child_token());
            self.tasks.spawn_on(lane.clone().run(self.house.clone()), runtime);
            lane
        };
        let before = self.lanes.swap(Arc::new(routes.iter().map(start).collect()));
        before.iter().for_each(|lane| lane.close());
    }

    /// Never waits. `sighting` is asked for only if someone wants to hear.
    pub(crate) fn tell(&self, notice: Notice, coffer: &Coffer, sighting: impl FnOnce() -> Sighting) {
        let lanes = self.lanes.load();
        let mut wanting = lanes.iter().filter(|lane| lane.wants(notice)).peekable();
        if wanting.peek().is_none() {
            return;
        }
        let sighting = sighting().covered(coffer);
        wanting.for_each(|lane| lane.note(notice, sighting.clone()));
    }

    /// Delivers what is left, for as long as [`FLUSH`] and no longer.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        // Each lane keeps the time itself; this is for one that does not.
        let _ = tokio::time::timeout(FLUSH * 2, self.tasks.wait()).await;
    }
}
