//! The threads that hold sessions. One whose session has ended waits a while for the next: it has its stack, and memory
//! to give out, and what it starts dies with it as it would with a new one. Nothing of a session is left in it: what a
//! session changes of itself, it changes in processes of its own.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, SendError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// So long one waits, and so many at most.
const IDLE: Duration = Duration::from_secs(5);
const MOST: usize = 32;

#[derive(Default)]
struct Waiting {
    /// Each by a number of its own; who came last stands last.
    threads: Vec<(u64, SyncSender<Job>)>,
    last: u64,
    /// No more jobs.
    closed: bool,
}

#[derive(Clone, Default)]
pub(super) struct Hands(Arc<Mutex<Waiting>>);

impl Hands {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread do this: one that waits, or a new one, which is for the caller to keep.
    pub(super) fn give(&self, mut job: Job) -> io::Result<Option<JoinHandle<()>>> {
        loop {
            let waits = self.waiting().threads.pop();
            let Some((_, thread)) = waits else { break };
            match thread.send(job) {
                Ok(()) => return Ok(None),
                Err(SendError(back)) => job = back,
            }
        }
        let this = self.clone();
        Builder::new().name("session".into()).spawn(move || this.work(job)).map(Some)
    }

    fn work(&self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            job();
            next = self.wait();
        }
    }

    fn wait(&self) -> Option<Job> {
        let (to, jobs) = sync_channel(1);
        let own = {
            let mut waiting = self.waiting();
            if waiting.closed || waiting.threads.len() >= MOST {
                return None;
            }
            waiting.last += 1;
            let own = waiting.last;
            waiting.threads.push((own, to));
            own
        };
        match jobs.recv_timeout(IDLE) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let mut waiting = self.waiting();
                let there = waiting.threads.len();
                waiting.threads.retain(|(number, _)| *number != own);
                let is_asked = waiting.threads.len() == there;
                drop(waiting);
                // Whoever took it off the list in this very moment has something for it.
                if is_asked { jobs.recv().ok() } else { None }
            }
        }
    }

    /// Those that wait end, and whoever still works ends after that.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        waiting.threads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread::{self, ThreadId};

    /// Until so many wait.
    fn until_idle(hands: &Hands, count: usize) {
        while hands.waiting().threads.len() != count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_thread_does_one_thing_after_the_other_and_never_two_at_once() {
        let hands = Hands::default();
        let (told, heard) = channel::<ThreadId>();
        let mut kept = Vec::new();
        let tell = |told: &std::sync::mpsc::Sender<ThreadId>| {
            let told = told.clone();
            Box::new(move || told.send(thread::current().id()).unwrap()) as Job
        };
        kept.extend(hands.give(tell(&told)).unwrap());
        let first = heard.recv().unwrap();
        until_idle(&hands, 1);
        kept.extend(hands.give(tell(&told)).unwrap());
        assert_eq!((heard.recv().unwrap(), kept.len()), (first, 1));
        until_idle(&hands, 1);
        // While it is busy, another comes.
        let (go, wait) = channel::<()>();
        kept.extend(hands.give(Box::new(move || _ = wait.recv())).unwrap());
        kept.extend(hands.give(tell(&told)).unwrap());
        assert!(heard.recv().unwrap() != first && kept.len() == 2);
        until_idle(&hands, 1);
        hands.close();
        drop(go);
        kept.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(hands.waiting().threads.is_empty(), "who comes after the end waits for nothing");
    }

    #[test]
    fn what_fails_takes_its_thread_with_it_and_no_other() {
        let hands = Hands::default();
        let failed = hands.give(Box::new(|| panic!("as a test does"))).unwrap().unwrap();
        assert!(failed.join().is_err());
        let (told, heard) = channel::<()>();
        let other = hands.give(Box::new(move || told.send(()).unwrap())).unwrap().unwrap();
        heard.recv().unwrap();
        until_idle(&hands, 1);
        hands.close();
        other.join().unwrap();
    }
}
