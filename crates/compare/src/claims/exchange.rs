//! Two values in each other's place. Either may stand where it stands well enough not to be doubted alone; but if both
//! fit clearly better the other way round, somebody mixed them up.

use super::answer::Manner;
use super::link::Judge;
use super::rank::Ranking;
use super::report::{Claim, ClaimStatus};

/// How much better both together have to fit.
const GAIN: f32 = 5.0;
/// Claims of an answer that are tried in pairs: the time goes with the square.
const MOST: usize = 160;

impl Judge<'_> {
    pub(super) fn exchanged(&self, claims: &mut [Claim], rankings: &[Option<Ranking>]) {
        let ranked = rankings.iter().enumerate().filter_map(|(at, r)| Some((at, r.as_ref()?)));
        let ranked: Vec<(usize, &Ranking)> = ranked.take(MOST).collect();
        for (nth, (i, one)) in ranked.iter().enumerate() {
            for (j, two) in &ranked[nth + 1..] {
                let Some((gain, here, there)) = self.gain((*i, one), (*j, two)) else { continue };
                if gain < GAIN {
                    continue;
                }
                for (at, seen) in [(*i, here), (*j, there)] {
                    let manner = self.answer.statements[self.answer.claims[at].statement].manner;
                    let sure = matches!(claims[at].status, ClaimStatus::Supported);
                    if sure && manner != Manner::NotAsserted {
                        let (field, found) = self.read_at(seen);
                        claims[at].status = ClaimStatus::Unsupported;
                        claims[at].why = self.likelier(field, found);
                        claims[at].evidence.clear();
                    }
                }
            }
        }
    }

    /// How much better two claims fit with their values exchanged, and where those were read.
    fn gain(&self, (i, one): (usize, &Ranking), (j, two): (usize, &Ranking)) -> Option<(f32, usize, usize)> {
        let (a, b) = (self.answer.claims[i].value.as_ref()?, self.answer.claims[j].value.as_ref()?);
        // of two in one statement either may be meant first
        let apart = self.answer.claims[i].statement != self.answer.claims[j].statement;
        if !apart || !a.like(b) || a.said_by(b) || b.said_by(a) {
            return None;
        }
        let best = |ranking: &Ranking, value: &super::scan::Value| {
            let says = |(seen, _): &&(usize, f32)| value.said_by(&self.evidence.seen[*seen].found.value);
            ranking.others.iter().filter(says).max_by(|x, y| x.1.total_cmp(&y.1)).copied()
        };
        let ((here, of_b), (there, of_a)) = (best(one, b)?, best(two, a)?);
        // both have to gain by it
        if of_b < one.own || of_a < two.own {
            return None;
        }
        Some((of_b + of_a - one.own - two.own, here, there))
    }
}
