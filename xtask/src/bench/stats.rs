//! Numbers from samples: pure, and chance comes in as an argument. Medians and their spread, because a
//! machine with neighbours has a long tail that a mean would report as ours.

use fastrand::Rng;
use serde::Serialize;

const RESAMPLES: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) samples: usize,
    pub(crate) median: f64,
    pub(crate) p95: f64,
    /// Median absolute deviation from the median.
    pub(crate) mad: f64,
}

/// A value with the interval that holds 95 % of its resamples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Estimate {
    pub(crate) const fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }
}

/// The value below which this share of the samples lies, interpolated. Nothing is nothing.
pub(crate) fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
    Some(low + (high - low) * at.fract())
}

pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

pub(crate) fn summary(samples: &[f64]) -> Option<Summary> {
    let median = median(samples)?;
    let deviations: Vec<_> = samples.iter().map(|x| (x - median).abs()).collect();
    Some(Summary {
        samples: samples.len(),
        median,
        p95: quantile(samples, 0.95)?,
        mad: self::median(&deviations)?,
    })
}

/// The median, with the interval of its resamples.
pub(crate) fn middle(samples: &[f64], rng: &mut Rng) -> Option<Estimate> {
    estimated(median(samples)?, rng, |rng| median(&resample(samples, rng)))
}

/// By how much the median of `ours` is above that of `theirs`.
pub(crate) fn difference(ours: &[f64], theirs: &[f64], rng: &mut Rng) -> Option<Estimate> {
    let value = median(ours)? - median(theirs)?;
    estimated(value, rng, |rng| Some(median(&resample(ours, rng))? - median(&resample(theirs, rng))?))
}

fn estimated(value: f64, rng: &mut Rng, mut draw: impl FnMut(&mut Rng) -> Option<f64>) -> Option<Estimate> {
    let drawn: Vec<_> = (0..RESAMPLES).filter_map(|_| draw(rng)).collect();
    Some(Estimate { value, low: quantile(&drawn, 0.025)?, high: quantile(&drawn, 0.975)? })
}

/// How many times `ours` the median of `theirs` is contained in the median of `ours`, with the interval of a
/// bootstrap that draws both sides anew.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64], rng: &mut Rng) -> Option<Estimate> {
    let value = median(ours)? / median(theirs)?;
    estimated(value, rng, |rng| Some(median(&resample(ours, rng))? / median(&resample(theirs, rng))?))
}

fn resample(samples: &[f64], rng: &mut Rng) -> Vec<f64> {
    (0..samples.len()).filter_map(|_| samples.get(rng.usize(..samples.len())).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(quantile(&[0.0, 10.0], 0.95), Some(9.5));
        assert_eq!(quantile(&[0.0, 10.0], 2.0), Some(10.0));
    }

    #[test]
    fn one_wild_sample_moves_no_median_and_no_spread() {
        let summary = summary(&[1.0, 2.0, 3.0, 4.0, 1000.0]).unwrap();
        assert_eq!((summary.samples, summary.median, summary.mad), (5, 3.0, 1.0));
    }

    #[test]
    fn a_ratio_knows_how_sure_it_is() {
        let mut rng = Rng::with_seed(1);
        let spread =
            |centre: f64, rng: &mut Rng| (0..200).map(|_| centre + rng.f64() - 0.5).collect::<Vec<_>>();
        let (ours, theirs) = (spread(5.0, &mut rng), spread(10.0, &mut rng));
        let sure = ratio(&ours, &theirs, &mut rng).unwrap();
        assert!(sure.low < 0.5 && 0.5 < sure.high && sure.high - sure.low < 0.05, "{sure:?}");
        let unsure = ratio(&ours[..5], &theirs[..5], &mut rng).unwrap();
        assert!(unsure.high - unsure.low > sure.high - sure.low);
        assert_eq!(ratio(&[], &theirs, &mut rng), None);
    }

    #[test]
    fn a_difference_and_a_middle_know_it_too() {
        let mut rng = Rng::with_seed(1);
        let added = difference(&[2.0, 2.1, 2.2], &[1.0, 1.1, 1.2], &mut rng).unwrap();
        assert!(added.low >= 0.79 && (added.value - 1.0).abs() < 1e-9 && added.high <= 1.21, "{added:?}");
        assert_eq!(middle(&[3.0], &mut rng), Some(Estimate::exact(3.0)));
        assert_eq!(middle(&[], &mut rng), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let samples = [1.0, 2.0, 4.0, 8.0];
        let draw = || ratio(&samples, &samples, &mut Rng::with_seed(7));
        assert_eq!(draw(), draw());
    }
}
