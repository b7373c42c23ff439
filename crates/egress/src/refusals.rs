//! Keeps a flood of refusals from flooding the record: the first of each is told at once, its repetitions as one
//! fact with a count when its window ends. So many different ones are told in a window; the rest is counted too.

use cofferdam_model::{EgressRefused, Via};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);
/// Different ones that are told by themselves in a window.
const MOST: usize = 256;
const REST: &str = "more refusals than are told one by one";

#[derive(Default)]
pub(crate) struct Refusals(Mutex<Window>);

#[derive(Default)]
struct Window {
    since: Option<Instant>,
    /// Those that were told, and how often they came again.
    told: HashMap<EgressRefused, u64>,
    rest: u64,
    rest_alarm: bool,
}

/// What to do about a refusal.
pub(crate) struct Heard {
    pub(crate) is_new: bool,
    /// What is to be told of the window that ended before it.
    pub(crate) ended: Vec<EgressRefused>,
}

impl Refusals {
    pub(crate) fn hear(&self, refused: &EgressRefused, now: Instant) -> Heard {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = window.take(Some(now));
        window.since.get_or_insert(now);
        let is_full = window.told.len() >= MOST;
        match window.told.get_mut(refused) {
            Some(again) => *again += 1,
            None if is_full => {
                window.rest += 1;
                window.rest_alarm |= refused.alarm;
            }
            None => {
                window.told.insert(refused.clone(), 0);
                return Heard { is_new: true, ended };
            }
        }
        Heard { is_new: false, ended }
    }

    /// What has come again: of a window that is over at `now`, or of any.
    pub(crate) fn take(&self, now: Option<Instant>) -> Vec<EgressRefused> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(now)
    }
}

impl Window {
    fn take(&mut self, now: Option<Instant>) -> Vec<EgressRefused> {
        let is_over = |now: Instant| self.since.is_none_or(|since| now.duration_since(since) >= WINDOW);
        if !now.is_none_or(is_over) {
            return Vec::new();
        }
        let Self { told, rest, rest_alarm, .. } = std::mem::take(self);
        let again = told.into_iter().filter(|(_, times)| *times > 0);
        let mut all: Vec<_> = again.map(|(refused, times)| EgressRefused { times, ..refused }).collect();
        all.sort_by(|a, b| {
            (&a.destination, &a.request, &a.detail).cmp(&(&b.destination, &b.request, &b.detail))
        });
        if rest > 0 {
            all.push(EgressRefused {
                cause: "flood".to_owned(),
                via: Via::Proxy,
                destination: String::new(),
                request: String::new(),
                detail: REST.to_owned(),
                alarm: rest_alarm,
                times: rest,
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(request: &str) -> EgressRefused {
        EgressRefused {
            cause: "method".into(),
            via: Via::Proxy,
            destination: "a.example:443".into(),
            request: request.into(),
            detail: "TRACE is never forwarded".into(),
            alarm: false,
            times: 1,
        }
    }

    #[test]
    fn the_same_is_told_once_and_counted() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let told = (0..1_000).filter(|_| refusals.hear(&refused("TRACE /"), start).is_new).count();
        assert_eq!(told, 1);
        assert!(refusals.hear(&refused("TRACE /other"), start).is_new);
        assert!(refusals.take(Some(start)).is_empty());
        let later = refusals.hear(&refused("TRACE /"), start + WINDOW);
        assert!(later.is_new);
        assert_eq!(later.ended, [EgressRefused { times: 999, ..refused("TRACE /") }]);
        assert!(refusals.take(None).is_empty());
    }

    #[test]
    fn no_flood_of_different_ones_is_told_one_by_one_and_none_is_lost() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let told = (0..10_000).filter(|n| refusals.hear(&refused(&n.to_string()), start).is_new).count();
        assert_eq!(told, MOST);
        let rest = refusals.take(None);
        assert_eq!((rest.len(), rest[0].times, rest[0].cause.as_str()), (1, 10_000 - MOST as u64, "flood"));
    }
}
