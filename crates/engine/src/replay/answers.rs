//! Answers requests that wait for a person as the person answered who was asked then. What was not asked then is
//! answered by nobody, and that is a no.

use cofferdam_egress::{Approvals, Held};
use cofferdam_model::{BlobRef, Body, EgressDecided, NotRecorded, Record, Verdict};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// A question stands on record a moment before it can be answered.
const MOMENT: Duration = Duration::from_millis(2);
const MOMENTS: u32 = 500;

/// How a recorded request that was held came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decided {
    method: String,
    url: String,
    allowed: bool,
    by: String,
}

impl Decided {
    pub(crate) fn new(asked: &EgressDecided, allowed: bool, by: &str) -> Self {
        let query = asked.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        let usual = matches!((asked.scheme.as_str(), asked.port), ("https" | "tls", 443) | ("http", 80));
        let port = if usual { String::new() } else { format!(":{}", asked.port) };
        let url = format!("{}://{}{port}{}{query}", asked.scheme, asked.host, asked.path);
        Self { method: asked.method.clone(), url, allowed, by: by.to_owned() }
    }

    fn is_about(&self, held: &Held) -> bool {
        self.method == held.method && self.url == held.url
    }
}

/// Hears from the record that something waits.
pub(crate) struct Hearing {
    record: Arc<dyn Record>,
    heard: Mutex<Sender<()>>,
}

/// Who answers, once there is something to answer at.
pub(crate) struct Answering {
    known: Vec<Decided>,
    hear: Receiver<()>,
}

/// The same record, and who hears it.
pub(crate) fn hearing(record: Arc<dyn Record>, known: Vec<Decided>) -> (Arc<dyn Record>, Answering) {
    let (heard, hear) = channel();
    (Arc::new(Hearing { record, heard: Mutex::new(heard) }), Answering { known, hear })
}

impl Record for Hearing {
    fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded> {
        let seq = self.record.append(parent, body)?;
        if matches!(body, Body::EgressDecided(fact) if fact.effect == Verdict::Review) {
            // Who does not hear it any more is gone with the session.
            let _ = self.heard.lock().unwrap_or_else(PoisonError::into_inner).send(());
        }
        Ok(seq)
    }

    fn keep(&self, bytes: &[u8]) -> Result<BlobRef, NotRecorded> {
        self.record.keep(bytes)
    }
}

impl Answering {
    /// Answers until the session's record is let go of.
    pub(crate) fn at(mut self, approvals: Arc<Approvals>) {
        thread::spawn(move || {
            while self.hear.recv().is_ok() {
                for _ in 0..MOMENTS {
                    let waiting = approvals.pending();
                    waiting.iter().for_each(|held| self.answer(&approvals, held));
                    if !waiting.is_empty() {
                        break;
                    }
                    thread::sleep(MOMENT);
                }
            }
        });
    }

    fn answer(&mut self, approvals: &Approvals, held: &Held) {
        let known = self.known.iter().position(|decided| decided.is_about(held));
        let answer = known.map(|at| self.known.remove(at));
        // One that was withdrawn meanwhile needs no answer.
        let _ = match answer {
            Some(Decided { allowed: true, by, .. }) => {
                approvals.allow(held.id, &format!("{by}, as recorded"))
            }
            Some(Decided { by, .. }) if !by.is_empty() => {
                approvals.deny(held.id, &format!("{by}, as recorded"))
            }
            _ => approvals.deny(held.id, "the replay: nobody is asked"),
        };
    }
}
