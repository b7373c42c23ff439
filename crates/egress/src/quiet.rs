//! Keeps a flood of the same news, or of many kinds of it, from flooding whoever listens: each is told once a
//! minute, only so many are told, and the rest is counted.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);
/// Different news that are told in a window.
const MOST: usize = 100;

pub(crate) struct Quiet<K> {
    since: Option<Instant>,
    told: HashSet<K>,
    counted: u64,
}

/// What to do about one piece of news.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) tell: bool,
    /// So many were only counted in the window that has ended.
    pub(crate) counted: u64,
}

impl<K: Eq + Hash> Quiet<K> {
    pub(crate) fn new() -> Self {
        Self { since: None, told: HashSet::new(), counted: 0 }
    }

    pub(crate) fn hear(&mut self, news: K, now: Instant) -> Heard {
        let mut counted = 0;
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            self.since = Some(now);
            self.told.clear();
            counted = self.rest();
        }
        let tell = self.told.len() < MOST && self.told.insert(news);
        self.counted += u64::from(!tell);
        Heard { tell, counted }
    }

    /// What has been counted and not been told.
    pub(crate) fn rest(&mut self) -> u64 {
        std::mem::take(&mut self.counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_news_is_told_once_a_window() {
        let (mut quiet, start) = (Quiet::new(), Instant::now());
        assert_eq!(quiet.hear("a", start), Heard { tell: true, counted: 0 });
        for _ in 0..10 {
            assert_eq!(quiet.hear("a", start), Heard { tell: false, counted: 0 });
        }
        assert_eq!(quiet.hear("b", start), Heard { tell: true, counted: 0 });
        assert_eq!(quiet.hear("a", start + WINDOW), Heard { tell: true, counted: 10 });
        assert_eq!(quiet.rest(), 0);
    }

    #[test]
    fn many_news_are_counted() {
        let (mut quiet, start) = (Quiet::new(), Instant::now());
        let told = (0..1_000).filter(|n| quiet.hear(*n, start).tell).count();
        assert_eq!((told, quiet.rest()), (MOST, 900));
    }
}
