//! The tap that holds every request until its answer is found. What watches a session otherwise watches this one
//! too, so that a repetition leaves a trace like any other.

use super::identity::replace_word;
use super::recording::{Answered, Request, Response};
use super::rules::Rules;
use super::shelf::{Missed, Shelf};
use cofferdam_model::{
    Answer, Body, Difference, Ending, Fallback, Mended, Miss, Nearest, Next, NotRecorded, Outgoing, Question,
    Record, ReplayMissed, ReplayServed, Reply, Speed, Stop, Tap, Watcher,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Differences that a client is told; the record has more.
const TOLD: usize = 3;

/// What became of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Requests that got a recorded answer.
    pub served: u64,
    /// Of those, how many were the same but for what is volatile, and how many got an answer for the second time.
    pub normalised: u64,
    pub repeated: u64,
    pub missed: Vec<ReplayMissed>,
    /// Recorded requests that nobody made, each with its event in the recording.
    pub unused: Vec<(u64, String)>,
    /// How many exchanges were recorded.
    pub recorded: u64,
}

/// One for a session.
pub struct Replay {
    rules: Rules,
    shelf: Mutex<Shelf>,
    tally: Mutex<Tally>,
    /// Texts of this session with those that stood for them in the recorded one: its id, its work dir.
    places: Vec<(String, String)>,
}

impl Replay {
    pub fn new(shelf: Shelf, rules: Rules, places: Vec<(String, String)>) -> Self {
        let tally = Mutex::new(Tally { recorded: shelf.len() as u64, ..Tally::default() });
        Self { rules, shelf: Mutex::new(shelf), tally, places }
    }

    /// What answers the session's requests. `inner` is asked about every exchange as if this were not here.
    pub fn tap(self: &Arc<Self>, record: Arc<dyn Record>, inner: Option<Arc<dyn Tap>>) -> Arc<dyn Tap> {
        Arc::new(Replaying { replay: self.clone(), record, inner })
    }

    /// How far the recording went, by now.
    pub fn tally(&self) -> Tally {
        let mut tally = lock(&self.tally).clone();
        let unused = |recorded: &super::Recorded| (recorded.seq, recorded.request.line());
        tally.unused = lock(&self.shelf).unused().map(unused).collect();
        tally
    }
}

struct Replaying {
    replay: Arc<Replay>,
    record: Arc<dyn Record>,
    inner: Option<Arc<dyn Tap>>,
}

impl Tap for Replaying {
    fn open(&self, request: &Outgoing<'_>) -> Result<Option<Box<dyn Watcher>>, Stop> {
        let inner = match &self.inner {
            Some(inner) => inner.open(request)?,
            None => None,
        };
        let header = |(name, value): &(&str, &[u8])| (name.to_ascii_lowercase(), value.to_vec());
        let asked = Request {
            scheme: request.scheme.to_owned(),
            host: request.host.to_owned(),
            port: request.port,
            method: request.method.to_owned(),
            path: request.path.to_owned(),
            query: request.query.map(str::to_owned),
            headers: request.headers.iter().map(header).collect(),
            body: Vec::new(),
        };
        let (replay, record) = (self.replay.clone(), self.record.clone());
        Ok(Some(Box::new(Held { replay, record, event: request.event, asked, inner, unrecorded: None })))
    }
}

/// A request that waits for its recorded answer.
struct Held {
    replay: Arc<Replay>,
    record: Arc<dyn Record>,
    event: u64,
    asked: Request,
    inner: Option<Box<dyn Watcher>>,
    unrecorded: Option<NotRecorded>,
}

impl Watcher for Held {
    fn holds(&self) -> bool {
        true
    }

    fn sent(&mut self, chunk: &[u8]) {
        self.asked.body.extend_from_slice(chunk);
        if let Some(inner) = &mut self.inner {
            inner.sent(chunk);
        }
    }

    fn sent_all(&mut self) -> Next {
        if let Some(inner) = &mut self.inner {
            let holds = inner.holds();
            match inner.sent_all() {
                Next::Forward => {}
                other if holds => return other,
                _ => {}
            }
        }
        self.found()
    }

    fn asked(&mut self, question: &Question, answer: Answer, by: &str, waited_us: u64) -> Next {
        let said = self.inner.as_mut().map(|inner| inner.asked(question, answer, by, waited_us));
        match said {
            Some(Next::Forward) => self.found(),
            Some(other) => other,
            None => {
                Next::Refuse(Stop { cause: Stop::NOT_RECORDED.to_owned(), reason: question.reason.clone() })
            }
        }
    }

    fn answered(&mut self, status: u16, headers: &[(&str, &[u8])]) {
        if let Some(inner) = &mut self.inner {
            inner.answered(status, headers);
        }
    }

    fn received(&mut self, chunk: &[u8]) {
        if let Some(inner) = &mut self.inner {
            inner.received(chunk);
        }
    }

    fn mends(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.mends())
    }

    fn mend(&mut self, chunk: &[u8]) -> Mended {
        self.inner.as_mut().map(|inner| inner.mend(chunk)).unwrap_or_default()
    }

    fn mend_asked(&mut self, question: &Question, answer: Answer, by: &str, waited_us: u64) -> Mended {
        let inner = self.inner.as_mut();
        inner.map(|inner| inner.mend_asked(question, answer, by, waited_us)).unwrap_or_default()
    }

    fn mend_end(&mut self) -> Mended {
        self.inner.as_mut().map(|inner| inner.mend_end()).unwrap_or_default()
    }

    fn hears(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.hears())
    }

    fn heard(&mut self, is_sent: bool, message: &[u8]) -> Result<(), Stop> {
        self.inner.as_mut().map_or(Ok(()), |inner| inner.heard(is_sent, message))
    }

    fn ended(self: Box<Self>, ending: Ending) -> Result<(), NotRecorded> {
        let told = self.inner.map_or(Ok(()), |inner| inner.ended(ending));
        self.unrecorded.map_or(told, Err)
    }
}

impl Held {
    fn found(&mut self) -> Next {
        match self.find() {
            Ok(next) => next,
            Err(error) => {
                let stop = Stop { cause: Stop::NOT_RECORDED.to_owned(), reason: error.to_string() };
                self.unrecorded = Some(error);
                Next::Refuse(stop)
            }
        }
    }

    /// Finds the answer, on record before anybody gets it.
    fn find(&mut self) -> Result<Next, NotRecorded> {
        let asked = self.as_then();
        // One at a time, with the event: who is served first stands first in the record.
        let mut shelf = lock(&self.replay.shelf);
        match shelf.take(&asked) {
            Ok(found) => {
                let Some(recorded) = shelf.get(found.index) else { return Ok(Next::Forward) };
                let Answered::Whole(response) = &recorded.answer else { return Ok(Next::Forward) };
                let fact = ReplayServed {
                    recorded: recorded.seq,
                    matching: found.matching,
                    repeated: found.repeated,
                };
                let normalised = fact.matching == cofferdam_model::Matching::Normalised;
                self.record.append(Some(self.event), &Body::ReplayServed(fact))?;
                let mut tally = lock(&self.replay.tally);
                tally.served += 1;
                tally.normalised += u64::from(normalised);
                tally.repeated += u64::from(found.repeated);
                let renamed: Vec<(&str, &str)> = shelf.renamed().collect();
                Ok(Next::Answer(self.reply(response, &renamed)))
            }
            Err(missed) => {
                drop(shelf);
                self.missed(missed)
            }
        }
    }

    /// The request as it would have been in the recorded session.
    fn as_then(&self) -> Request {
        if self.replay.places.is_empty() {
            return self.asked.clone();
        }
        let then = |bytes: &[u8]| {
            self.replay.places.iter().fold(bytes.to_vec(), |bytes: Vec<u8>, (here, then)| {
                replace_word(&bytes, here.as_bytes(), then.as_bytes())
            })
        };
        let text = |text: &str| String::from_utf8_lossy(&then(text.as_bytes())).into_owned();
        Request {
            path: text(&self.asked.path),
            query: self.asked.query.as_deref().map(text),
            headers: self.asked.headers.iter().map(|(name, value)| (name.clone(), then(value))).collect(),
            body: then(&self.asked.body),
            ..self.asked.clone()
        }
    }

    fn missed(&mut self, missed: Missed) -> Result<Next, NotRecorded> {
        let fallback = self.replay.rules.fallback;
        let Missed { why, nearest, detail } = missed;
        let request: String = self.asked.line().chars().take(500).collect();
        let fact = ReplayMissed { why, request, fallback, nearest };
        let reason = in_words(&fact, &detail);
        let body = Body::ReplayMissed(Box::new(fact.clone()));
        self.record.append(Some(self.event), &body)?;
        lock(&self.replay.tally).missed.push(fact);
        Ok(match fallback {
            Fallback::Live => Next::Forward,
            Fallback::Error | Fallback::Review => {
                Next::Refuse(Stop { cause: Stop::NOT_RECORDED.to_owned(), reason })
            }
        })
    }

    fn reply(&self, response: &Response, renamed: &[(&str, &str)]) -> Reply {
        let places = self.replay.places.iter().map(|(here, then)| (then.as_str(), here.as_str()));
        let changed: Vec<(&str, &str)> = renamed.iter().copied().chain(places).collect();
        let here = |bytes: &[u8]| {
            changed.iter().fold(bytes.to_vec(), |bytes: Vec<u8>, (then, now)| {
                replace_word(&bytes, then.as_bytes(), now.as_bytes())
            })
        };
        let wait = |wait: Duration| match self.replay.rules.speed {
            Speed::Full => Duration::ZERO,
            Speed::Recorded => wait,
        };
        let mut headers: Vec<(String, Vec<u8>)> =
            response.headers.iter().map(|(name, value)| (name.clone(), here(value))).collect();
        let mut parts = response.parts.clone();
        if response.coding().is_some() {
            let (plain, all) = (response.plain(), parts.iter().map(|(wait, _)| *wait).sum());
            // What is compressed stays so, unless a word in it has to be another.
            if here(&plain) != plain {
                headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-encoding"));
                parts = vec![(all, here(&plain))];
            }
        } else {
            parts.iter_mut().for_each(|(_, part)| *part = here(part));
        }
        if let Some((after, _)) = parts.first_mut() {
            *after += response.first;
        }
        parts.iter_mut().for_each(|(after, _)| *after = wait(*after));
        Reply { status: response.status, headers, parts }
    }
}

/// Why there is no answer, for whoever asked and for people.
pub(super) fn in_words(fact: &ReplayMissed, detail: &str) -> String {
    let near = |nearest: &Nearest| {
        let one = |d: &Difference| {
            let side = |text: &Option<String>| match text {
                Some(text) => format!("`{text}`"),
                None => "nothing".to_owned(),
            };
            format!("{}: {} was recorded, now {}", d.at, side(&d.recorded), side(&d.now))
        };
        let mut list: Vec<String> = nearest.differences.iter().take(TOLD).map(one).collect();
        let more = nearest.differences.len().saturating_sub(TOLD) as u64 + nearest.more;
        if more > 0 {
            list.push(format!("and {more} more"));
        }
        format!("event {} ({}); {}", nearest.recorded, nearest.request, list.join("; "))
    };
    let nearest = fact.nearest.as_ref();
    match fact.why {
        Miss::UnknownHost => "this run is a replay, and nothing was recorded for this host".to_owned(),
        Miss::Different => match nearest {
            Some(nearest) => format!(
                "this run is a replay, and this request was not recorded; nearest is {}",
                near(nearest)
            ),
            None => "this run is a replay, and this request was not recorded".to_owned(),
        },
        Miss::UsedUp => {
            "this run is a replay, and this request was recorded fewer times than it is made; let its method be \
             repeated with `repeat` in [replay] if that is meant"
                .to_owned()
        }
        Miss::NoAnswer => format!("this run is a replay, and the recording has no answer to this request: {detail}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
