//! Interleaved rounds: every round runs each contender once, in a new random order, so that a slow minute of
//! the machine falls on all of them. The clock and the programs come in as one closure.

use fastrand::Rng;
use std::time::Duration;

pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) warmup: usize,
    /// Slower than this in the warm-up means: only every tenth round, or one peer takes all the time.
    pub(crate) slow: Duration,
}

const SLOW_EVERY: usize = 10;

/// The samples of each contender in milliseconds. The first failure ends the run: a table with a hole in
/// the middle compares nothing.
pub(crate) fn interleave<E>(
    plan: &Plan,
    contenders: usize,
    rng: &mut Rng,
    mut run: impl FnMut(usize) -> Result<Duration, E>,
) -> Result<Vec<Vec<f64>>, E> {
    let mut order: Vec<usize> = (0..contenders).collect();
    let mut fastest = vec![Duration::MAX; contenders];
    for round in 0..plan.warmup {
        for (contender, best) in fastest.iter_mut().enumerate() {
            if round == 0 || *best < plan.slow {
                *best = run(contender)?.min(*best);
            }
        }
    }
    let mut samples = vec![Vec::new(); contenders];
    for round in 0..plan.rounds {
        rng.shuffle(&mut order);
        for contender in &order {
            let is_slow =
                fastest.get(*contender).is_some_and(|best| *best >= plan.slow && *best < Duration::MAX);
            if is_slow && round % SLOW_EVERY != 0 {
                continue;
            }
            let took = run(*contender)?;
            if let Some(list) = samples.get_mut(*contender) {
                list.push(took.as_secs_f64() * 1e3);
            }
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { rounds: 40, warmup: 3, slow: Duration::from_millis(100) };

    #[test]
    fn every_round_runs_all_and_the_order_changes() {
        let mut log = Vec::new();
        let samples = interleave(&PLAN, 3, &mut Rng::with_seed(1), |who| {
            log.push(who);
            Ok::<_, ()>(Duration::from_millis(who as u64 + 1))
        });
        assert!(samples.unwrap().iter().all(|s| s.len() == PLAN.rounds));
        let rounds: Vec<_> = log[9..].chunks(3).collect();
        assert!(rounds.iter().all(|r| r.contains(&0) && r.contains(&1) && r.contains(&2)));
        assert!(rounds.iter().any(|r| *r != rounds[0]));
    }

    #[test]
    fn a_slow_one_runs_less_often() {
        let run = |who| Ok::<_, ()>(Duration::from_millis(if who == 0 { 1 } else { 400 }));
        let samples = interleave(&PLAN, 2, &mut Rng::with_seed(1), run).unwrap();
        assert_eq!((samples[0].len(), samples[1].len()), (40, 4));
    }

    #[test]
    fn a_failure_ends_it() {
        let run = |who| if who == 1 { Err("gone") } else { Ok(Duration::ZERO) };
        assert_eq!(interleave(&PLAN, 2, &mut Rng::with_seed(1), run), Err("gone"));
    }
}
