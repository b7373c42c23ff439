//! Requests that wait for a person. Nothing is sent while one waits; no answer in time is a no, and a client
//! that goes away takes its question with it.

use cofferdam_model::Answer;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use thiserror::Error;
use tokio::sync::oneshot;

/// More than this many at once are denied: nobody reads them.
pub(crate) const MOST: usize = 1024;

/// A question, as it is shown to whoever may answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Held {
    pub id: u64,
    pub rule: String,
    pub reason: String,
    pub method: String,
    /// As it came from inside: with placeholders.
    pub url: String,
    pub program: Option<String>,
    /// What would be spent, as far as the head tells.
    pub credentials: Vec<String>,
    /// Seconds since the Unix epoch.
    pub since: u64,
    /// When it will be denied.
    pub until: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Allowed { by: String },
    Denied { by: String },
    TimedOut,
    Withdrawn,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum ApprovalError {
    #[error("no request {0} is waiting: it was answered, timed out or its client is gone; list them again")]
    Unknown(u64),
    #[error("{MOST} requests wait already: answer some first")]
    TooMany,
}

struct Waiting {
    held: Held,
    reply: oneshot::Sender<Reply>,
}

#[derive(Default)]
pub struct Approvals {
    waiting: Mutex<(u64, BTreeMap<u64, Waiting>)>,
}

/// Takes the question back when the one who asked is dropped.
pub(crate) struct Question {
    id: u64,
    until: u64,
    queue: Arc<Approvals>,
    answer: oneshot::Receiver<Reply>,
}

impl Approvals {
    /// What waits, oldest first.
    pub fn pending(&self) -> Vec<Held> {
        self.lock().1.values().map(|waiting| waiting.held.clone()).collect()
    }

    pub fn allow(&self, id: u64, by: &str) -> Result<(), ApprovalError> {
        self.answer(id, Reply::Allowed { by: by.to_owned() })
    }

    pub fn deny(&self, id: u64, by: &str) -> Result<(), ApprovalError> {
        self.answer(id, Reply::Denied { by: by.to_owned() })
    }

    fn answer(&self, id: u64, reply: Reply) -> Result<(), ApprovalError> {
        let waiting = self.lock().1.remove(&id).ok_or(ApprovalError::Unknown(id))?;
        waiting.reply.send(reply).map_err(|_| ApprovalError::Unknown(id))
    }

    /// Takes a question back: whoever waits for its answer learns that.
    pub fn withdraw(&self, id: u64) {
        let _ = self.answer(id, Reply::Withdrawn);
    }

    /// Denies all that wait, as when the session ends.
    pub(crate) fn deny_all(&self, by: &str) {
        for (_, waiting) in std::mem::take(&mut self.lock().1) {
            let _ = waiting.reply.send(Reply::Denied { by: by.to_owned() });
        }
    }

    /// Puts a question; `held` is completed with its number and times.
    pub(crate) fn ask(
        self: &Arc<Self>,
        mut held: Held,
        patience: Duration,
    ) -> Result<Question, ApprovalError> {
        let (reply, answer) = oneshot::channel();
        let mut queue = self.lock();
        if queue.1.len() >= MOST {
            return Err(ApprovalError::TooMany);
        }
        queue.0 += 1;
        held.id = queue.0;
        held.since = epoch_seconds();
        held.until = held.since + patience.as_secs();
        let (id, until) = (held.id, held.until);
        queue.1.insert(id, Waiting { held, reply });
        drop(queue);
        Ok(Question { id, until, queue: self.clone(), answer })
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Waiting>)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// By which it can be answered, and until when (in seconds since the Unix epoch).
    pub(crate) fn number(&self) -> (u64, u64) {
        (self.id, self.until)
    }

    pub(crate) async fn wait(mut self, patience: Duration) -> Reply {
        match tokio::time::timeout(patience, &mut self.answer).await {
            Ok(Ok(reply)) => reply,
            _ => Reply::TimedOut,
        }
    }
}

/// A question of someone who has a thread to wait on.
pub struct Put {
    pub(crate) question: Question,
    pub(crate) patience: Duration,
}

impl Put {
    /// By which it is answered or withdrawn.
    pub fn id(&self) -> u64 {
        self.question.id
    }

    /// Waits, and says who answered; nobody where the time was up, or it was withdrawn.
    pub fn wait(self) -> (Answer, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let reply = match runtime {
            Ok(runtime) => runtime.block_on(self.question.wait(self.patience)),
            // Nothing to wait with: nobody has said yes.
            Err(_) => Reply::TimedOut,
        };
        match reply {
            Reply::Allowed { by } => (Answer::Allowed, by),
            Reply::Denied { by } => (Answer::Denied, by),
            Reply::TimedOut => (Answer::TimedOut, String::new()),
            Reply::Withdrawn => (Answer::Withdrawn, String::new()),
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.queue.lock().1.remove(&self.id);
    }
}

fn epoch_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Held {
        Held {
            id: 0,
            rule: "r".into(),
            reason: String::new(),
            method: "GET".into(),
            url: "https://a.example/".into(),
            program: None,
            credentials: vec![],
            since: 0,
            until: 0,
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn f3_only_a_yes_in_time_is_a_yes() {
        let queue = Arc::new(Approvals::default());
        let long = Duration::from_secs(60);
        let yes = queue.ask(held(), long).unwrap();
        queue.allow(yes.id, "me").unwrap();
        assert_eq!(yes.wait(long).await, Reply::Allowed { by: "me".into() });
        let no = queue.ask(held(), long).unwrap();
        queue.deny(no.id, "me").unwrap();
        assert_eq!(no.wait(long).await, Reply::Denied { by: "me".into() });
        let late = queue.ask(held(), long).unwrap();
        let id = late.id;
        assert_eq!(late.wait(Duration::ZERO).await, Reply::TimedOut);
        assert_eq!(queue.allow(id, "me"), Err(ApprovalError::Unknown(id)));
        let gone = queue.ask(held(), long).unwrap();
        assert_eq!(queue.pending().len(), 1);
        drop(gone);
        assert_eq!(queue.pending(), []);
    }

    #[test]
    fn a_question_of_a_thread_is_answered_withdrawn_or_out_of_time() {
        let queue = Arc::new(Approvals::default());
        let long = Duration::from_secs(60);
        for (expected, patience) in [
            (Answer::Allowed, long),
            (Answer::Denied, long),
            (Answer::Withdrawn, long),
            (Answer::TimedOut, Duration::ZERO),
        ] {
            let put = Put { question: queue.ask(held(), patience).unwrap(), patience };
            let id = put.id();
            match expected {
                Answer::Allowed => queue.allow(id, "me").unwrap(),
                Answer::Denied => queue.deny(id, "me").unwrap(),
                Answer::Withdrawn => queue.withdraw(id),
                Answer::TimedOut => {}
            }
            assert_eq!(put.wait().0, expected);
            assert!(queue.pending().is_empty());
        }
    }

    #[test]
    fn the_queue_is_bounded() {
        let queue = Arc::new(Approvals::default());
        let all: Vec<_> = (0..MOST).map(|_| queue.ask(held(), Duration::ZERO).unwrap()).collect();
        assert!(matches!(queue.ask(held(), Duration::ZERO), Err(ApprovalError::TooMany)));
        drop(all);
        assert!(queue.ask(held(), Duration::ZERO).is_ok());
    }
}
