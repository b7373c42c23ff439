//! Waiting without guessing how long: asks again until it is so, and fails only when nothing comes of it.

use std::time::{Duration, Instant};

use crate::PATIENCE;

/// Asks until there is an answer.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
