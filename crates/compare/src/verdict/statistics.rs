//! Intervals and tests over counts, exact where that is affordable.

use crate::reason::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The 95 % Wilson score interval of a share; everything is possible where nothing was counted.
pub fn wilson(hits: usize, n: usize) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (n, z) = (n as f64, 1.959_963_984_540_054_f64);
    let p = (hits as f64 / n).min(1.0);
    let centre = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    // At the ends exactly, where rounding would leave a trace.
    let low = if hits == 0 { 0.0 } else { (centre - half).max(0.0) };
    (low, if p >= 1.0 { 1.0 } else { (centre + half).min(1.0) })
}

/// Two versions on the same sessions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    pub both_pass: usize,
    /// Passed before and no longer does.
    pub lost: usize,
    /// Passes now and did not before.
    pub won: usize,
    pub neither: usize,
    /// How likely so uneven a split would be if the versions were equally good (exact McNemar, two-sided).
    pub p: f64,
    /// Fail if it is worse beyond chance, review if it lost sessions and chance may explain it.
    pub outcome: Outcome,
}

/// Compares what passed, session by session; sessions that only one version has are left out.
pub fn paired(old: &BTreeMap<String, bool>, new: &BTreeMap<String, bool>) -> Paired {
    let mut counts = [0_usize; 4];
    for (session, before) in old {
        if let Some(now) = new.get(session) {
            counts[usize::from(!before) * 2 + usize::from(!now)] += 1;
        }
    }
    let [both_pass, lost, won, neither] = counts;
    let p = two_sided(lost, won);
    let outcome = match () {
        () if lost > won && p < 0.05 => Outcome::Fail,
        () if lost > 0 => Outcome::Review,
        () => Outcome::Pass,
    };
    Paired { both_pass, lost, won, neither, p, outcome }
}

/// Twice the tail of a fair coin.
fn two_sided(a: usize, b: usize) -> f64 {
    let (n, least) = (a + b, a.min(b));
    // Terms as logarithms: a thousand sessions are no trouble.
    let mut log = -(n as f64) * std::f64::consts::LN_2;
    let mut tail = log.exp();
    for k in 1..=least {
        log += ((n - k + 1) as f64 / k as f64).ln();
        tail += log.exp();
    }
    (2.0 * tail).min(1.0)
}

/// Whether the share of passes goes up or down over versions, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// By how much the share changes from one version to the next.
    pub slope: f64,
    /// Of the Cochran–Armitage test for a trend, two-sided.
    pub p: f64,
    pub outcome: Outcome,
}

/// None with fewer than three versions, or where nothing varies.
pub fn drift(versions: &[Share]) -> Option<Drift> {
    let total: f64 = versions.iter().map(|v| v.n as f64).sum();
    if versions.len() < 3 || total == 0.0 {
        return None;
    }
    let rate = versions.iter().map(|v| v.hits as f64).sum::<f64>() / total;
    let at = |k: usize| k as f64;
    let mean = versions.iter().enumerate().map(|(k, v)| at(k) * v.n as f64).sum::<f64>() / total;
    let weight: f64 = versions.iter().enumerate().map(|(k, v)| (at(k) - mean).powi(2) * v.n as f64).sum();
    let numerator: f64 = versions.iter().enumerate().map(|(k, v)| (at(k) - mean) * v.hits as f64).sum();
    let variance = rate * (1.0 - rate) * weight;
    if variance <= 0.0 {
        return None;
    }
    let (slope, z) = (numerator / weight, numerator / variance.sqrt());
    let p = erfc(z.abs() / std::f64::consts::SQRT_2);
    let outcome = if slope < 0.0 && p < 0.05 { Outcome::Review } else { Outcome::Pass };
    Some(Drift { slope, p, outcome })
}

use super::suite::Share;

/// Abramowitz and Stegun 7.1.26, good to seven digits for what is not negative.
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = series.iter().rev().fold(0.0, |sum, a| (sum + a) * t);
    (sum * (-x * x).exp()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-4, "{value} is not {expected}");
    }

    #[test]
    fn intervals_hold_what_they_should() {
        let (low, high) = wilson(8, 10);
        about(low, 0.4902);
        about(high, 0.9433);
        assert_eq!(wilson(0, 0), (0.0, 1.0));
        assert!(wilson(0, 10).0 == 0.0 && wilson(10, 10).1 == 1.0);
    }

    fn versions(pairs: &[(&str, bool, bool)]) -> Paired {
        let side =
            |of: fn(&(&str, bool, bool)) -> bool| pairs.iter().map(|p| (p.0.to_owned(), of(p))).collect();
        paired(&side(|p| p.1), &side(|p| p.2))
    }

    #[test]
    fn two_versions_differ_only_beyond_chance() {
        about(two_sided(1, 9), 0.021_484);
        about(two_sided(0, 0), 1.0);
        about(two_sided(500, 500), 1.0);
        assert_eq!(versions(&[("a", true, true), ("b", false, true)]).outcome, Outcome::Pass);
        assert_eq!(versions(&[("a", true, false), ("b", true, true)]).outcome, Outcome::Review);
        let names: Vec<String> = (0..8).map(|n| n.to_string()).collect();
        let worse: Vec<_> = names.iter().map(|n| (n.as_str(), true, false)).collect();
        assert_eq!(versions(&worse).outcome, Outcome::Fail);
    }

    #[test]
    fn a_slow_decline_is_seen() {
        let falling: Vec<Share> = [95, 90, 84, 80].iter().map(|hits| Share::of(*hits, 100)).collect();
        let found = drift(&falling).unwrap();
        assert!(found.slope < -0.04 && found.p < 0.01 && found.outcome == Outcome::Review, "{found:?}");
        let level: Vec<Share> = [90, 91, 89, 90].iter().map(|hits| Share::of(*hits, 100)).collect();
        assert_eq!(drift(&level).unwrap().outcome, Outcome::Pass);
        assert_eq!(drift(&falling[..2]), None);
    }
}
