//! Makes few alerts of many sightings. The first of its kind is due at once, its repetitions when the window
//! ends; a kind that has too many different ones goes on as one that only counts, so that a flood neither
//! fills memory nor hides another kind. Takes the time as an argument and sends nothing.

use super::Sighting;
use cofferdam_policy::Notice;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Different ones of a kind that are told by themselves within a window.
const MOST: usize = 16;

/// Due to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) notice: Notice,
    pub(super) sighting: Sighting,
    /// Stays the same while the same thing goes on.
    pub(super) group: u64,
    /// It was told before, and has happened again since.
    pub(super) again: bool,
    /// Milliseconds since the Unix epoch.
    pub(super) first_ms: u64,
    pub(super) last_ms: u64,
}

struct Group {
    due: Due,
    told: Option<Instant>,
    is_rest: bool,
}

pub(super) struct Fold {
    every: Duration,
    groups: HashMap<u64, Group>,
    kinds: [usize; Notice::COUNT],
    /// With a key of its own: who is inside cannot choose two that look the same.
    hasher: RandomState,
    next_group: u64,
}

impl Fold {
    pub(super) fn new(every: Duration) -> Self {
        let (groups, hasher) = (HashMap::new(), RandomState::new());
        Self { every, groups, kinds: [0; Notice::COUNT], hasher, next_group: 0 }
    }

    /// Whether there is something new to wait for.
    pub(super) fn note(&mut self, notice: Notice, sighting: Sighting, at_ms: u64) -> bool {
        let Sighting { cause, destination, credential, held, .. } = &sighting;
        let key = self.hasher.hash_one((notice, cause, destination, credential, held));
        let is_full = self.kinds[notice.index()] >= MOST;
        let (key, is_rest) = match self.groups.contains_key(&key) || !is_full {
            true => (key, false),
            false => (self.hasher.hash_one(notice), true),
        };
        let times = sighting.times;
        if let Some(Group { due, .. }) = self.groups.get_mut(&key) {
            due.last_ms = at_ms;
            if due.sighting.times > 0 {
                due.sighting.times += times;
                return false;
            }
            due.first_ms = at_ms;
            due.sighting = if is_rest { rest(sighting) } else { sighting };
            return true;
        }
        self.next_group += 1;
        self.kinds[notice.index()] += usize::from(!is_rest);
        let sighting = if is_rest { rest(sighting) } else { sighting };
        let (group, again) = (self.next_group, false);
        let due = Due { notice, sighting, group, again, first_ms: at_ms, last_ms: at_ms };
        self.groups.insert(key, Group { due, told: None, is_rest });
        true
    }

    /// Takes out what is to be told now; forgets what has not come again.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Due> {
        let every = self.every;
        self.take(|group| group.told.is_none_or(|told| now >= told + every), now)
    }

    /// Takes out what has not been told, window or not.
    pub(super) fn rest(&mut self, now: Instant) -> Vec<Due> {
        self.take(|_| true, now)
    }

    fn take(&mut self, which: impl Fn(&Group) -> bool, now: Instant) -> Vec<Due> {
        let mut taken = Vec::new();
        let kinds = &mut self.kinds;
        self.groups.retain(|_, group| {
            if !which(group) {
                return true;
            }
            if group.due.sighting.times == 0 {
                kinds[group.due.notice.index()] -= usize::from(!group.is_rest);
                return false;
            }
            taken.push(group.due.clone());
            group.due.sighting.times = 0;
            group.due.again = true;
            group.told = Some(now);
            true
        });
        taken.sort_by_key(|due| due.group);
        taken
    }

    /// When there is something to do, if nothing new comes.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.groups.values().map(|group| group.told.map_or(now, |told| told + self.every)).min()
    }
}

/// What is told of those that are only counted.
fn rest(sighting: Sighting) -> Sighting {
    let detail = match sighting.held {
        Some(_) => "more requests wait than are told one by one: see `cofferdam approve ls`",
        None => "more of this kind than are told one by one: see the trace",
    };
    let Sighting { event, times, .. } = sighting;
    Sighting { cause: "many".to_owned(), detail: detail.to_owned(), event, times, ..Sighting::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_policy::Alarm;

    const DENIED: Notice = Notice::Alarm(Alarm::Denied);
    const EVERY: Duration = Duration::from_secs(60);

    fn to(host: impl Into<String>) -> Sighting {
        Sighting { destination: host.into(), times: 1, ..Sighting::default() }
    }

    fn told(due: &[Due]) -> Vec<(&str, u64, bool)> {
        due.iter().map(|due| (due.sighting.destination.as_str(), due.sighting.times, due.again)).collect()
    }

    #[test]
    fn the_first_is_told_at_once_and_the_others_when_the_window_ends() {
        let (mut fold, start) = (Fold::new(EVERY), Instant::now());
        assert!(fold.note(DENIED, to("a"), 1));
        assert_eq!(fold.next(start), Some(start));
        assert_eq!(told(&fold.due(start)), [("a", 1, false)]);
        assert!(fold.note(DENIED, to("a"), 2));
        assert!(!fold.note(DENIED, to("a"), 9));
        assert!(fold.note(DENIED, to("b"), 3));
        assert_eq!(told(&fold.due(start + EVERY / 2)), [("b", 1, false)]);
        assert_eq!(fold.next(start), Some(start + EVERY));
        let due = fold.due(start + EVERY);
        assert_eq!(told(&due), [("a", 2, true)]);
        assert_eq!((due[0].group, due[0].first_ms, due[0].last_ms), (1, 2, 9));
        // What does not come again is forgotten, and is new when it does.
        assert_eq!(fold.due(start + 2 * EVERY), []);
        assert_eq!(fold.due(start + 4 * EVERY), []);
        assert_eq!(fold.next(start), None);
        assert!(fold.note(DENIED, to("a"), 4));
        assert_eq!(told(&fold.due(start + 4 * EVERY)), [("a", 1, false)]);
    }

    #[test]
    fn different_things_are_told_apart() {
        let mut fold = Fold::new(EVERY);
        let base = to("a");
        for sighting in [
            base.clone(),
            Sighting { cause: "r".into(), ..base.clone() },
            Sighting { credential: Some("k".into()), ..base.clone() },
            Sighting { held: Some((1, 0)), ..base.clone() },
            Sighting { held: Some((2, 0)), ..base.clone() },
            Sighting { detail: "the same in other words".into(), ..base.clone() },
        ] {
            fold.note(DENIED, sighting, 0);
        }
        fold.note(Notice::Refused, base, 0);
        assert_eq!(fold.due(Instant::now()).len(), 6);
    }

    #[test]
    fn a_flood_is_few_and_hides_no_other_kind() {
        let (mut fold, start) = (Fold::new(EVERY), Instant::now());
        for n in 0..10_000 {
            fold.note(DENIED, to(format!("h{n}")), 0);
        }
        fold.note(Notice::Alarm(Alarm::SecretLeak), to("leak"), 0);
        let due = fold.due(start);
        assert_eq!(due.len(), MOST + 2);
        assert_eq!(due.iter().map(|due| due.sighting.times).sum::<u64>(), 10_001);
        assert!(due.iter().any(|due| due.sighting.cause == "many"
            && due.sighting.times == 10_000 - MOST as u64
            && due.sighting.destination.is_empty()));
        assert!(due.iter().any(|due| due.sighting.destination == "leak"));
        assert!(fold.groups.len() <= MOST + 2);
        // When the window has passed there is room again.
        fold.due(start + EVERY);
        fold.note(DENIED, to("later"), 0);
        assert_eq!(told(&fold.due(start + EVERY)), [("later", 1, false)]);
    }

    #[test]
    fn the_end_does_not_wait_for_the_window() {
        let (mut fold, start) = (Fold::new(EVERY), Instant::now());
        fold.note(DENIED, to("a"), 0);
        fold.due(start);
        fold.note(DENIED, to("a"), 0);
        assert_eq!(fold.due(start), []);
        assert_eq!(told(&fold.rest(start)), [("a", 1, true)]);
        assert_eq!(fold.rest(start), []);
    }
}
