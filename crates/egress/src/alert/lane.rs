//! One destination: what is noticed is folded, a task of its own delivers. One that is dead costs its own task
//! its time and nobody else's.

use super::fold::{Due, Fold};
use super::message::Message;
use super::send::SendError;
use super::{FLUSH, House, Route, Sighting};
use cofferdam_model::{AlertSent, Body};
use cofferdam_policy::Notice;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long one attempt may take, and the pauses before the others.
const ATTEMPT: Duration = Duration::from_secs(10);
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

pub(super) struct Lane {
    route: Arc<Route>,
    fold: Mutex<Fold>,
    wake: Notify,
    closing: CancellationToken,
    /// Set when it is told to end.
    end: OnceLock<Instant>,
}

impl Lane {
    pub(super) fn new(route: Arc<Route>, closing: CancellationToken) -> Arc<Self> {
        let fold = Mutex::new(Fold::new(route.alert.every));
        Arc::new(Self { route, fold, wake: Notify::new(), closing, end: OnceLock::new() })
    }

    pub(super) fn wants(&self, notice: Notice) -> bool {
        self.route.alert.wants(notice)
    }

    pub(super) fn note(&self, notice: Notice, sighting: Sighting) {
        if self.fold().note(notice, sighting, now_ms()) {
            self.wake.notify_one();
        }
    }

    /// Delivers what it holds, and ends.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    fn fold(&self) -> MutexGuard<'_, Fold> {
        self.fold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn run(self: Arc<Self>, house: Arc<House>) {
        // While it does not answer, each gets one attempt only.
        let mut is_well = true;
        while !self.closing.is_cancelled() {
            let now = Instant::now();
            let due = self.fold().due(now);
            for due in due {
                is_well = self.deliver(&house, due, is_well).await;
            }
            let next = self.fold().next(Instant::now());
            tokio::select! {
                () = self.closing.cancelled() => {}
                () = self.wake.notified() => {}
                () = until(next) => {}
            }
        }
        let rest = self.fold().rest(Instant::now());
        for due in rest {
            self.deliver(&house, due, false).await;
        }
    }

    /// When an attempt that began now has lasted long enough.
    async fn late(&self) {
        tokio::select! {
            () = tokio::time::sleep(ATTEMPT) => {}
            () = async {
                self.closing.cancelled().await;
                tokio::time::sleep_until((*self.end.get_or_init(|| Instant::now() + FLUSH)).into()).await;
            } => {}
        }
    }

    /// Delivers and records; whether it was delivered.
    async fn deliver(&self, house: &House, due: Due, patient: bool) -> bool {
        let number = house.numbers.fetch_add(1, Relaxed) + 1;
        let message = Message::new(&self.route.alert, house, &due, number, now_ms());
        let mut attempts = 0;
        let error = loop {
            attempts += 1;
            let sent = tokio::select! {
                sent = message.send(&self.route, house) => sent,
                () = self.late() => Err(SendError::Late),
            };
            let Err(error) = sent else { break String::new() };
            let pause = PAUSES.get(attempts - 1).filter(|_| patient && error.may_pass());
            let Some(pause) = pause else { break error.to_string() };
            tokio::select! {
                // Nobody waits any longer: the last attempt is now.
                () = self.closing.cancelled() => if attempts > 1 { break error.to_string() },
                () = tokio::time::sleep(*pause) => {}
            }
        };
        let is_sent = error.is_empty();
        let fact = AlertSent {
            alert: self.route.alert.id.clone(),
            to: self.route.alert.to.to_string(),
            about: due.notice.name().to_owned(),
            times: due.sighting.times,
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            error,
        };
        // If this is not on record, then neither is what it is about, and the session knows.
        let _ = house.record.append(due.sighting.event, &Body::AlertSent(fact));
        is_sent
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep_until(next.into()).await,
        None => std::future::pending().await,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
