//! The weights: one number a feature, fitted as logistic regression (L2, every source and class of equal weight) on the
//! three public sets that docs/accuracy.md names, by `cargo xtask eval ground`, which prints them anew and measures them
//! on each source with that source left out. A reader can redo any score by hand.

use super::features::{FEATURES, Features};
use super::score::Band;

/// A feature's mean and spread in the fitted data, and its weight in log odds per spread.
pub struct Weight {
    pub mean: f32,
    pub spread: f32,
    pub weight: f32,
}

/// Below and above these the evidence is taken to decide.
const UNGROUNDED: f64 = 0.35;
const GROUNDED: f64 = 0.65;

pub const INTERCEPT: f32 = -0.4135;

/// Features that overlap share their weight, so a single one may look odd alone: `longest-run` takes back what the pairs
/// have counted already.
pub const WEIGHTS: [Weight; FEATURES.len()] = [
    w(0.4810, 0.2343, -0.0025), // recall
    w(0.3710, 0.2006, 0.1349),  // best-sentence
    w(0.4468, 0.2206, 0.2409),  // best-window
    w(0.4536, 0.2213, 0.1213),  // best-two
    w(0.1897, 0.2031, 0.1919),  // together
    w(0.3247, 0.2408, -0.0884), // neighbours-together
    w(0.2380, 0.1808, 0.0753),  // pairs-anywhere
    w(0.2131, 0.1728, 0.1688),  // pairs-in-window
    w(0.4320, 0.1940, 0.0949),  // in-order
    w(0.1358, 0.1168, -0.1847), // longest-run
    w(0.1042, 0.2952, -0.4715), // values-missing
    w(0.1249, 0.3188, -0.0076), // values-missing-in-window
    w(0.1159, 0.3855, -0.0888), // values-differ
    w(0.1996, 0.3341, -0.5011), // names-missing
    w(0.2275, 0.3478, -0.1959), // names-missing-in-window
    w(0.5852, 0.2636, -0.0439), // words-missing-in-window
    w(0.1007, 0.3009, 0.0445),  // negation-differs
    w(0.0884, 0.3012, -0.0419), // strong-words-missing
    w(0.0073, 0.0854, 0.0263),  // opposites
    w(2.3741, 0.4582, 0.0051),  // claim-length
    w(1.5350, 0.5794, -0.2991), // terms-missing
    w(2.0762, 0.6190, 0.0731),  // rarest-missing
];

const fn w(mean: f32, spread: f32, weight: f32) -> Weight {
    Weight { mean, spread, weight }
}

/// How likely support is, by the weights.
pub(crate) fn value(features: &Features) -> f64 {
    let odds: f64 = WEIGHTS.iter().zip(features).map(|(w, x)| part(w, *x)).sum();
    1.0 / (1.0 + (-(odds + f64::from(INTERCEPT))).exp())
}

fn part(w: &Weight, x: f32) -> f64 {
    f64::from(w.weight) * f64::from(x - w.mean) / f64::from(w.spread)
}

/// Which features moved the score how far, the farthest first.
pub(crate) fn contributions(features: &Features) -> Vec<(usize, f64)> {
    let mut moved: Vec<(usize, f64)> =
        WEIGHTS.iter().zip(features).map(|(w, x)| part(w, *x)).enumerate().collect();
    moved.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
    moved
}

pub(crate) fn band(value: f64) -> Band {
    match value {
        v if v < UNGROUNDED => Band::Ungrounded,
        v if v < GROUNDED => Band::CannotTell,
        _ => Band::Grounded,
    }
}
