//! Which act of one run answers to which of another: an alignment of least cost, not a greedy one and not one keyed by
//! names. What was done costs more to leave unpaired than what was said, and of a reading and an effect that changed
//! places the effect keeps its own, so that words arrange themselves around acts and readings around effects.
//!
//! Memory is linear in the length of the runs (Hirschberg). Time is their product, after equal beginnings and ends are
//! taken off; from [`COARSE`] cells on, two different calls of one tool count as half alike without a look at their
//! arguments, which keeps ten thousand calls within a second or two.

mod profile;

use crate::effects::Effects;
use cofferdam_model::Run;
use profile::Profiles;
use serde::{Deserialize, Serialize};

/// An act of either run, or a pair: never neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub base: Option<usize>,
    pub new: Option<usize>,
}

/// A problem of at most this many cells is solved with a table of directions, a byte each.
const TABLE: usize = 1 << 16;
/// More than any way through costs, and far from overflowing.
const NEVER: u64 = 1 << 60;
/// Beyond this many cells arguments are not compared leaf by leaf.
const COARSE: usize = 1 << 24;

/// Every act of both runs, once, in an order that keeps both orders.
pub fn align(base: &Run, new: &Run, effects: &Effects) -> Vec<Step> {
    let profiles = Profiles::of(base, new, effects);
    let (base, new) = (profiles.base.briefs.len(), profiles.new.briefs.len());
    let mut solver = Solver { profiles: &profiles, coarse: false, steps: Vec::with_capacity(base.max(new)) };
    let head = solver.equal_head();
    let tail = solver.equal_tail(head);
    let (rest_base, rest_new) = (base - head - tail, new - head - tail);
    solver.coarse = rest_base.saturating_mul(rest_new) > COARSE;
    solver.pairs(0, 0, head);
    solver.solve(head, rest_base, head, rest_new);
    solver.pairs(base - tail, new - tail, tail);
    solver.steps
}

struct Solver<'a> {
    profiles: &'a Profiles<'a>,
    coarse: bool,
    steps: Vec<Step>,
}

const PAIR: u8 = 0;
const DROP: u8 = 1;
const ADD: u8 = 2;
/// How unlike two calls of one tool are, in thousandths, where nobody looks.
const HALF: u64 = 500;
/// Of equally good places the nearest is taken.
const ELSEWHERE: u64 = 10;

impl Solver<'_> {
    fn equal_head(&self) -> usize {
        let (base, new) = (&self.profiles.base.briefs, &self.profiles.new.briefs);
        base.iter().zip(new).take_while(|(a, b)| a.equals(**b)).count()
    }

    fn equal_tail(&self, head: usize) -> usize {
        let (base, new) = (&self.profiles.base.briefs[head..], &self.profiles.new.briefs[head..]);
        base.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a.equals(**b)).count()
    }

    fn pairs(&mut self, base: usize, new: usize, count: usize) {
        self.steps.extend((0..count).map(|k| Step { base: Some(base + k), new: Some(new + k) }));
    }

    /// What pairing costs; far too much if these may not be paired at all.
    fn pair(&self, i: usize, j: usize) -> u64 {
        let cost = if self.coarse {
            self.profiles.base.briefs[i].pair(self.profiles.new.briefs[j], || HALF)
        } else {
            self.profiles.pair(i, j)
        };
        cost.map_or(NEVER, |cost| cost + ELSEWHERE * u64::from(i != j))
    }

    fn left(&self, i: usize) -> u64 {
        u64::from(self.profiles.base.briefs[i].alone)
    }

    fn came(&self, j: usize) -> u64 {
        u64::from(self.profiles.new.briefs[j].alone)
    }

    fn solve(&mut self, b: usize, rows: usize, n: usize, columns: usize) {
        if rows == 0 || columns == 0 {
            self.steps.extend((b..b + rows).map(|i| Step { base: Some(i), new: None }));
            self.steps.extend((n..n + columns).map(|j| Step { base: None, new: Some(j) }));
        } else if (rows + 1).saturating_mul(columns + 1) <= TABLE || rows == 1 {
            self.table(b, rows, n, columns);
        } else {
            let half = rows / 2;
            let above = self.forward(b, half, n, columns);
            let below = self.backward(b + half, rows - half, n, columns);
            let best = (0..=columns).min_by_key(|j| above[*j] + below[*j]).unwrap_or(0);
            self.solve(b, half, n, best);
            self.solve(b + half, rows - half, n + best, columns - best);
        }
    }

    /// The cheapest way through each column after these rows, from the front. This and its twin are where the time goes.
    fn forward(&self, b: usize, rows: usize, n: usize, columns: usize) -> Vec<u64> {
        let mut line = vec![0; columns + 1];
        for j in 0..columns {
            line[j + 1] = line[j] + self.came(n + j);
        }
        for i in b..b + rows {
            let alone = self.left(i);
            let mut corner = line[0];
            line[0] += alone;
            let mut before = line[0];
            for (j, place) in line[1..].iter_mut().enumerate() {
                let paired = corner + self.pair(i, n + j);
                corner = *place;
                before = paired.min(*place + alone).min(before + self.came(n + j));
                *place = before;
            }
        }
        line
    }

    /// The same from the end: what is left to pay from each column on.
    fn backward(&self, b: usize, rows: usize, n: usize, columns: usize) -> Vec<u64> {
        let mut line = vec![0; columns + 1];
        for j in (0..columns).rev() {
            line[j] = line[j + 1] + self.came(n + j);
        }
        for i in (b..b + rows).rev() {
            let alone = self.left(i);
            let mut corner = line[columns];
            line[columns] += alone;
            let mut before = line[columns];
            for (j, place) in line[..columns].iter_mut().enumerate().rev() {
                let paired = corner + self.pair(i, n + j);
                corner = *place;
                before = paired.min(*place + alone).min(before + self.came(n + j));
                *place = before;
            }
        }
        line
    }

    fn table(&mut self, b: usize, rows: usize, n: usize, columns: usize) {
        let width = columns + 1;
        let mut way = vec![DROP; (rows + 1) * width];
        let mut line = vec![0; width];
        for j in 0..columns {
            line[j + 1] = line[j] + self.came(n + j);
            way[j + 1] = ADD;
        }
        for i in 0..rows {
            let mut corner = line[0];
            line[0] += self.left(b + i);
            for j in 0..columns {
                let dropped = line[j + 1] + self.left(b + i);
                let added = line[j] + self.came(n + j);
                let paired = corner + self.pair(b + i, n + j);
                corner = line[j + 1];
                let (cost, taken) = [(paired, PAIR), (dropped, DROP), (added, ADD)]
                    .into_iter()
                    .min_by_key(|(cost, _)| *cost)
                    .unwrap_or((dropped, DROP));
                line[j + 1] = cost;
                way[(i + 1) * width + j + 1] = taken;
            }
        }
        self.walk(&way, b, rows, n, columns);
    }

    fn walk(&mut self, way: &[u8], b: usize, rows: usize, n: usize, columns: usize) {
        let begun = self.steps.len();
        let (mut i, mut j) = (rows, columns);
        while i > 0 || j > 0 {
            let taken = way[i * (columns + 1) + j];
            let (up, left) = (taken != ADD, taken != DROP);
            i -= usize::from(up);
            j -= usize::from(left);
            self.steps.push(Step { base: up.then_some(b + i), new: left.then_some(n + j) });
        }
        self.steps[begun..].reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::sketch::run;

    fn check(base: &str, new: &str, expected: &str) {
        let (base, new) = (run(base), run(new));
        let steps = align(&base, &new, &Effects::default());
        let shown: Vec<String> = steps
            .iter()
            .map(|step| match (step.base, step.new) {
                (Some(i), Some(j)) => format!("{i}={j}"),
                (Some(i), None) => format!("-{i}"),
                (None, Some(j)) => format!("+{j}"),
                (None, None) => "?".to_owned(),
            })
            .collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn equal_calls_find_each_other() {
        check("", "", "");
        check("get_a get_b", "get_a get_b", "0=0 1=1");
        check("get_a get_b", "get_b", "-0 1=0");
        check("get_a", "get_a get_b", "0=0 +1");
        check("get_a(1) get_a(2)", "get_a(2)", "-0 1=0");
    }

    #[test]
    fn a_changed_argument_is_no_new_call() {
        check("get_a(1) send(2)", "get_a(1) send(3)", "0=0 1=1");
        check("get_a(1) get_b", "get_a(2) get_b", "0=0 1=1");
    }

    #[test]
    fn effects_hold_their_places() {
        check("get_a send_b", "send_b get_a", "-0 1=0 +1");
        check("send_b get_a", "get_a send_b", "+0 0=1 -1");
    }

    #[test]
    fn long_problems_are_split_and_stay_whole() {
        let long: Vec<String> = (0..700).map(|n| format!("get_{}({n})", n % 7)).collect();
        let short: Vec<String> =
            long.iter().enumerate().filter(|(at, _)| at % 5 != 2).map(|(_, c)| c.clone()).collect();
        let (base, new) = (run(&long.join(" ")), run(&short.join(" ")));
        let steps = align(&base, &new, &Effects::default());
        assert_eq!(steps.iter().filter(|s| s.new.is_none()).count(), 140);
        assert!(steps.iter().all(|s| s.base.is_some()));
        let paired = steps.iter().filter_map(|s| Some((s.base?, s.new?)));
        paired.for_each(|(i, j)| assert_eq!(base.acts[i].args, new.acts[j].args));
    }
}
