//! Intervals and areas, all deterministic: the bootstrap draws from a fixed seed.

/// The 95 % Wilson score interval of a share.
pub fn wilson(hits: usize, n: usize) -> (f64, f64) {
    cofferdam_compare::verdict::wilson(hits, n)
}

/// The area under the ROC curve: how often a positive scores above a negative, ties counting half.
pub fn auc(positives: &[f64], negatives: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = positives.iter().map(|s| (*s, true)).collect();
    all.extend(negatives.iter().map(|s| (*s, false)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum, mut at) = (0.0, 0);
    while at < all.len() {
        let end = at + all[at..].iter().take_while(|x| x.0 == all[at].0).count();
        let rank = (at + 1 + end) as f64 / 2.0;
        sum += rank * all[at..end].iter().filter(|x| x.1).count() as f64;
        at = end;
    }
    let (p, n) = (positives.len() as f64, negatives.len() as f64);
    if p == 0.0 || n == 0.0 { f64::NAN } else { (sum - p * (p + 1.0) / 2.0) / (p * n) }
}

/// The 95 % bootstrap interval of a statistic over `n` groups (tasks, sources), which are drawn whole because what is
/// within one is not independent.
pub fn bootstrap(n: usize, rounds: usize, mut statistic: impl FnMut(&[usize]) -> f64) -> (f64, f64) {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut seen: Vec<f64> = (0..rounds)
        .map(|_| statistic(&(0..n).map(|_| rng.usize(..n)).collect::<Vec<_>>()))
        .filter(|value| value.is_finite())
        .collect();
    seen.sort_by(f64::total_cmp);
    let at = |q: f64| seen.get(((seen.len() as f64 - 1.0) * q).round() as usize).copied().unwrap_or(f64::NAN);
    (at(0.025), at(0.975))
}
