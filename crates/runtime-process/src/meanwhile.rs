//! Somebody who does a part of what is to be done for a session while its own thread goes on: one thread for the process,
//! which waits for work. Where it is busy, or there is none, whoever wanted it done does it when it is needed.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::Builder;

type Job = Box<dyn FnOnce() + Send>;

/// More is not touched by what is done here.
const STACK: usize = 256 << 10;

static HELPER: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();

/// Something that is being done, or is yet to be.
pub(crate) struct Meanwhile<T> {
    told: Receiver<T>,
    /// Nobody took it.
    left: Option<Job>,
}

/// Has the thread there before it is needed. Whoever never prepares anything has none.
pub(crate) fn employ() {
    HELPER.get_or_init(|| {
        // Without room: what is handed over is handed to who waits for it.
        let (to, jobs) = sync_channel::<Job>(0);
        let work = move || jobs.iter().for_each(|job| job());
        let started = Builder::new().name("meanwhile".into()).stack_size(STACK).spawn(work);
        started.ok().map(|_| to)
    });
}

pub(crate) fn begin<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Meanwhile<T> {
    let (tell, told) = sync_channel(1);
    let job: Job = Box::new(move || drop(tell.send(what())));
    let left = match HELPER.get().and_then(Option::as_ref) {
        Some(helper) => match helper.try_send(job) {
            Ok(()) => None,
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => Some(job),
        },
        None => Some(job),
    };
    Meanwhile { told, left }
}

impl<T> Meanwhile<T> {
    /// What came of it. Nothing where whoever did it has failed.
    pub(crate) fn get(self) -> Option<T> {
        self.left.into_iter().for_each(|job| job());
        self.told.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn what_is_begun_is_done_whether_or_not_somebody_is_free() {
        assert_eq!(begin(|| 1).get(), Some(1));
        employ();
        let own = thread::current().id();
        // It waits for work a moment after it is there.
        let elsewhere = || begin(|| thread::current().id()).get().unwrap() != own;
        while !elsewhere() {
            thread::sleep(Duration::from_millis(1));
        }
        let (go, busy) = loop {
            let (go, wait) = channel::<()>();
            let begun = begin(move || wait.recv().is_ok());
            if begun.left.is_none() {
                break (go, begun);
            }
        };
        assert!(!elsewhere(), "while it is busy the one who asks does it");
        go.send(()).unwrap();
        assert_eq!(busy.get(), Some(true));
    }
}
