//! One request and its answer while they are under way: what is counted, who waits, and how it can be cut.
//! It is recorded as ended when the last of its parts lets go of it, whatever that part was.

use crate::budget::Meter;
use crate::rescue::Failure;
use crate::swap::UsedCredential;
use cofferdam_model::{Body, EgressDecided, EgressEnded, Ending, Record, Watcher};
use cofferdam_policy::Alarm;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Which part of an exchange waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// What goes out: the request's body.
    Up = 0,
    /// What comes back: the wait for an answer, then its body.
    Down = 1,
}

const ENDINGS: [Ending; 9] = [
    Ending::Complete,
    Ending::ClientGone,
    Ending::UpstreamFailed,
    Ending::Revoked,
    Ending::Paused,
    Ending::PolicyChanged,
    Ending::OverBudget,
    Ending::Refused,
    Ending::SessionEnded,
];

/// What else is found is no news.
const MOST_FLAGS: usize = 16;

/// Stands for "not ended" in the place of an index into [`ENDINGS`].
const OPEN: u8 = u8::MAX;

pub(crate) struct Exchange {
    id: u64,
    /// The decision that let it go out.
    parent: u64,
    live: Arc<Live>,
    /// What was asked for, so that it can be judged again when the policy changes.
    pub(crate) asked: Box<EgressDecided>,
    pub(crate) spent: Vec<UsedCredential>,
    meter: Meter,
    /// From so many bytes on it is flagged.
    large: Option<u64>,
    began: Instant,
    status: AtomicU16,
    first_us: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    scrubbed: AtomicU64,
    /// The request's body went out to its end.
    uploaded: AtomicBool,
    ending: AtomicU8,
    cut: AtomicBool,
    wakers: [Mutex<Option<Waker>>; 2],
    detail: OnceLock<String>,
    flags: Mutex<Vec<String>>,
    /// Who follows it; told of its end before that is recorded.
    watcher: Mutex<Option<Box<dyn Watcher>>>,
    is_watched: AtomicBool,
}

/// Who is told of what is found while an exchange is under way.
pub(crate) trait Watch: Send + Sync {
    /// Something in this exchange must not pass, and it was cut.
    fn stopped(&self, failure: &Failure, asked: &EgressDecided);
    /// Something about this exchange, which the event `event` allowed, is worth an alarm.
    fn noticed(&self, alarm: Alarm, why: &str, asked: &EgressDecided, event: u64);
    fn raise(&self, alarm: Alarm);
}

impl Exchange {
    /// Counts bytes that are about to pass; an exchange that goes over a budget is cut, these bytes included.
    pub(crate) fn count(&self, side: Side, bytes: usize) {
        let bytes = bytes as u64;
        let within = match side {
            Side::Up => {
                self.sent.fetch_add(bytes, Relaxed);
                self.meter.up(bytes)
            }
            Side::Down => {
                self.received.fetch_add(bytes, Relaxed);
                self.meter.down(bytes)
            }
        };
        if let Err(why) = within {
            self.explain(why.clone());
            self.cut(Ending::OverBudget);
            self.noticed(Alarm::Budget, &why);
        }
        if let Some(large) = self.large {
            let all = self.sent.load(Relaxed) + self.received.load(Relaxed);
            // Only the bytes that reach the mark do so.
            if all >= large && all - bytes < large {
                let why = format!("a transfer of more than {large} bytes");
                self.noticed(Alarm::LargeTransfer, &why);
                self.flag(why);
            }
        }
    }

    fn noticed(&self, alarm: Alarm, why: &str) {
        if let Some(watch) = self.live.watch() {
            watch.noticed(alarm, why, &self.asked, self.parent);
        }
    }

    pub(crate) fn flag(&self, text: String) {
        let mut flags = lock(&self.flags);
        if flags.len() < MOST_FLAGS && !flags.contains(&text) {
            flags.push(text);
        }
    }

    /// Something in it must not pass: it is cut on both sides, told and recorded.
    pub(crate) fn stop(&self, failure: &Failure) {
        self.explain(failure.to_string());
        self.cut(Ending::Refused);
        if let Some(watch) = self.live.watch() {
            watch.stopped(failure, &self.asked);
        }
    }

    /// The event of the decision that let it go out.
    pub(crate) fn parent(&self) -> u64 {
        self.parent
    }

    /// What was said about its end.
    pub(crate) fn detail(&self) -> Option<&str> {
        self.detail.get().map(String::as_str)
    }

    pub(crate) fn count_scrubbed(&self, values: u64) {
        self.scrubbed.fetch_add(values, Relaxed);
    }

    pub(crate) fn answered(&self, status: u16) {
        self.status.store(status, Relaxed);
        self.first_us.store(micros(self.began), Relaxed);
    }

    pub(crate) fn uploaded(&self) {
        self.uploaded.store(true, Relaxed);
    }

    /// From here on `watcher` follows it.
    pub(crate) fn watched_by(&self, watcher: Box<dyn Watcher>) {
        *lock(&self.watcher) = Some(watcher);
        self.is_watched.store(true, Relaxed);
    }

    /// What the watcher says, if there is one.
    pub(crate) fn watch<T>(&self, look: impl FnOnce(&mut dyn Watcher) -> T) -> Option<T> {
        if !self.is_watched.load(Relaxed) {
            return None;
        }
        lock(&self.watcher).as_mut().map(|watcher| look(watcher.as_mut()))
    }

    pub(crate) fn is_uploaded(&self) -> bool {
        self.uploaded.load(Relaxed)
    }

    /// The first ending that is told is the one that is recorded.
    pub(crate) fn end(&self, ending: Ending) {
        let index = ENDINGS.iter().position(|e| *e == ending).unwrap_or(1) as u8;
        let _ = self.ending.compare_exchange(OPEN, index, Relaxed, Relaxed);
    }

    pub(crate) fn explain(&self, detail: String) {
        let _ = self.detail.set(detail);
    }

    /// Ends it from outside: both sides are woken and find out.
    pub(crate) fn cut(&self, why: Ending) {
        self.end(why);
        self.cut.store(true, Relaxed);
        for waker in &self.wakers {
            // Locked after the flag is set: whoever registers later sees the flag.
            if let Some(waker) = lock(waker).take() {
                waker.wake();
            }
        }
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        ENDINGS.get(usize::from(self.ending.load(Relaxed))).copied()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }

    /// Whether it was cut; if not, this side is woken when it is.
    pub(crate) fn poll_cut(&self, side: Side, cx: &Context<'_>) -> Poll<()> {
        if !self.is_cut() {
            let mut waker = lock(&self.wakers[side as usize]);
            match &mut *waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                other => *other = Some(cx.waker().clone()),
            }
        }
        if self.is_cut() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until it is cut.
    pub(crate) async fn until_cut(&self, side: Side) {
        poll_fn(|cx| self.poll_cut(side, cx)).await;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        lock(&self.live.open).remove(&self.id);
        let status = self.status.load(Relaxed);
        // Nobody told an end: the client took its connection away.
        let ending = self.ending().unwrap_or(Ending::ClientGone);
        let watcher = lock(&self.watcher).take();
        if watcher.is_some_and(|watcher| watcher.ended(ending).is_err()) {
            self.live.unrecorded.store(true, Relaxed);
        }
        let body = Body::EgressEnded(EgressEnded {
            ending,
            status: (status != 0).then_some(status),
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            first_us: self.first_us.load(Relaxed),
            total_us: micros(self.began),
            scrubbed: self.scrubbed.load(Relaxed),
            flags: std::mem::take(&mut *lock(&self.flags)),
            detail: self.detail.take().unwrap_or_default(),
        });
        if self.live.record.append(Some(self.parent), &body).is_err() {
            self.live.unrecorded.store(true, Relaxed);
        }
    }
}

/// All exchanges of a session that are under way.
pub(crate) struct Live {
    open: Mutex<HashMap<u64, Weak<Exchange>>>,
    next: AtomicU64,
    record: Arc<dyn Record>,
    /// An end could not be recorded: nothing more may begin.
    unrecorded: AtomicBool,
    watch: OnceLock<Weak<dyn Watch>>,
}

impl Live {
    pub(crate) fn new(record: Arc<dyn Record>) -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::default(),
            next: AtomicU64::new(0),
            record,
            unrecorded: AtomicBool::new(false),
            watch: OnceLock::new(),
        })
    }

    /// Who is told; set once, by the session that this belongs to.
    pub(crate) fn watched_by(&self, watch: Weak<dyn Watch>) {
        let _ = self.watch.set(watch);
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.watch.get().and_then(Weak::upgrade)
    }

    /// Begins what the event `parent` allowed.
    pub(crate) fn begin(
        self: &Arc<Self>,
        parent: u64,
        asked: Box<EgressDecided>,
        spent: Vec<UsedCredential>,
        (meter, large): (Meter, Option<u64>),
        began: Instant,
    ) -> Arc<Exchange> {
        let id = self.next.fetch_add(1, Relaxed);
        let exchange = Arc::new(Exchange {
            id,
            parent,
            live: self.clone(),
            asked,
            spent,
            meter,
            large,
            began,
            status: AtomicU16::new(0),
            first_us: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            scrubbed: AtomicU64::new(0),
            uploaded: AtomicBool::new(false),
            ending: AtomicU8::new(OPEN),
            cut: AtomicBool::new(false),
            wakers: Default::default(),
            detail: OnceLock::new(),
            flags: Mutex::default(),
            watcher: Mutex::default(),
            is_watched: AtomicBool::new(false),
        });
        lock(&self.open).insert(id, Arc::downgrade(&exchange));
        exchange
    }

    /// Cuts those that `which` picks, and says how many.
    pub(crate) fn cut(&self, why: Ending, which: impl Fn(&Exchange) -> bool) -> u64 {
        // Collected first: the last holder of an exchange may let go here, and that takes the lock.
        let open: Vec<_> = lock(&self.open).values().filter_map(Weak::upgrade).collect();
        let picked = open.iter().filter(|exchange| which(exchange));
        picked.map(|exchange| exchange.cut(why)).count() as u64
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.open).len()
    }

    pub(crate) fn is_unrecorded(&self) -> bool {
        self.unrecorded.load(Relaxed)
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::{BlobRef, NotRecorded, Verdict, Via};

    #[derive(Default)]
    struct Kept(Mutex<Vec<(Option<u64>, Body)>>);

    impl Record for Kept {
        fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded> {
            lock(&self.0).push((parent, body.clone()));
            Ok(0)
        }

        fn keep(&self, _: &[u8]) -> Result<BlobRef, NotRecorded> {
            Err(NotRecorded::bytes("there is no store here"))
        }
    }

    fn asked() -> Box<EgressDecided> {
        Box::new(EgressDecided {
            via: Via::Proxy,
            scheme: "https".into(),
            host: "a.example".into(),
            port: 443,
            method: "GET".into(),
            path: "/".into(),
            query: None,
            effect: Verdict::Allow,
            rule: None,
            reason: String::new(),
            program: None,
            credentials: vec![],
        })
    }

    fn begin(live: &Arc<Live>, parent: u64, spent: Vec<UsedCredential>) -> Arc<Exchange> {
        live.begin(parent, asked(), spent, (Meter::default(), None), Instant::now())
    }

    fn ended(kept: &Kept) -> (Option<u64>, EgressEnded) {
        match lock(&kept.0).pop() {
            Some((parent, Body::EgressEnded(ended))) => (parent, ended),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_holder_records_the_end() {
        let kept = Arc::new(Kept::default());
        let live = Live::new(kept.clone());
        let exchange = begin(&live, 7, vec![]);
        let other = exchange.clone();
        exchange.count(Side::Up, 3);
        exchange.end(Ending::Complete);
        exchange.end(Ending::Refused);
        drop(exchange);
        assert!(lock(&kept.0).is_empty());
        drop(other);
        let (parent, end) = ended(&kept);
        assert_eq!((parent, end.ending, end.sent), (Some(7), Ending::Complete, 3));
        assert_eq!(live.count(), 0);
    }

    #[test]
    fn a_cut_reaches_who_waits_and_who_comes_later() {
        let live = Live::new(Arc::new(Kept::default()));
        let spent = vec![UsedCredential { name: "k".into(), generation: 1 }];
        let exchange = begin(&live, 0, spent);
        let untouched = begin(&live, 0, vec![]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let waiting = tokio::spawn({
                let exchange = exchange.clone();
                async move { exchange.until_cut(Side::Down).await }
            });
            tokio::task::yield_now().await;
            assert_eq!(live.cut(Ending::Revoked, |e| !e.spent.is_empty()), 1);
            waiting.await.unwrap();
            exchange.until_cut(Side::Up).await;
        });
        assert_eq!(exchange.ending(), Some(Ending::Revoked));
        assert!(!untouched.is_cut());
    }
}
