//! Two values in each other's place. Either may stand where it stands well enough not to be doubted alone; but if both
//! fit clearly better the other way round, somebody mixed them up. And where one of the two is found out, what belongs in
//! its place and stands elsewhere is doubted with it.

use super::answer::Manner;
use super::context::Instead;
use super::link::Judge;
use super::rank::Ranking;
use super::report::{Claim, ClaimStatus, Why};
use super::scan::{Value, scan};

/// How much better both together have to fit.
const GAIN: f32 = 5.0;
/// How much worse than what is said there a value may fit the place of the other one, once its own is known to be wrong.
const SLACK: f32 = 1.0;
/// Claims of an answer that are tried in pairs: the time goes with the square.
const MOST: usize = 160;

impl Judge<'_> {
    pub(super) fn exchanged(&self, claims: &mut [Claim], rankings: &[Option<Ranking>]) {
        let ranked = rankings.iter().enumerate().filter_map(|(at, r)| Some((at, r.as_ref()?)));
        let ranked: Vec<(usize, &Ranking)> = ranked.take(MOST).collect();
        for (nth, (i, one)) in ranked.iter().enumerate() {
            for (j, two) in &ranked[nth + 1..] {
                let Some((gain, here, there)) = self.gain((*i, one), (*j, two)) else { continue };
                if gain < GAIN * self.caution {
                    continue;
                }
                for (at, seen) in [(*i, here), (*j, there)] {
                    self.mistake(claims, at, self.read_at(seen));
                }
            }
        }
    }

    /// A claim that nothing else speaks against is doubted for this one.
    fn mistake(&self, claims: &mut [Claim], at: usize, (field, found): Instead) {
        let manner = self.answer.statements[self.answer.claims[at].statement].manner;
        if claims[at].status == ClaimStatus::Supported && manner != Manner::NotAsserted {
            claims[at].status = ClaimStatus::Unsupported;
            claims[at].why = self.likelier(field, found);
            claims[at].evidence.clear();
        }
    }

    /// How much better two claims fit with their values exchanged, and where those were read.
    fn gain(&self, (i, one): (usize, &Ranking), (j, two): (usize, &Ranking)) -> Option<(f32, usize, usize)> {
        let (a, b) = (self.answer.claims[i].value.as_ref()?, self.answer.claims[j].value.as_ref()?);
        // of two in one statement either may be meant first
        if !self.are_apart(i, j) || !a.like(b) || a.said_by(b) || b.said_by(a) {
            return None;
        }
        let ((here, of_b), (there, of_a)) = (self.best(one, b)?, self.best(two, a)?);
        // both have to gain by it
        if of_b < one.own || of_a < two.own {
            return None;
        }
        Some((of_b + of_a - one.own - two.own, here, there))
    }

    fn are_apart(&self, i: usize, j: usize) -> bool {
        self.answer.claims[i].statement != self.answer.claims[j].statement
    }

    /// Where a value was read that fits a claim's place best, and how well.
    fn best(&self, ranking: &Ranking, value: &Value) -> Option<(usize, f32)> {
        let says = |(seen, _): &&(usize, f32)| value.said_by(&self.evidence.seen[*seen].found.value);
        ranking.others.iter().filter(says).max_by(|x, y| x.1.total_cmp(&y.1)).copied()
    }

    /// Where what belongs in a wrong claim's place is said elsewhere, and what was said instead fits there: both are wrong.
    pub(super) fn displaced(&self, claims: &mut [Claim], rankings: &[Option<Ranking>]) {
        let mut mistaken = Vec::new();
        for (at, claim) in claims.iter().enumerate().filter(|(_, c)| c.status.flagged()) {
            let (Why::OtherValue { found, .. } | Why::Likelier { found, .. }) = &claim.why else { continue };
            match &claim.value {
                Some(said) => mistaken.extend(self.other_end(claims, rankings, (at, said), &found.text)),
                None => mistaken.extend(self.other_ends_of_name(claims, at, found.text.trim())),
            }
        }
        for (at, instead) in mistaken {
            self.mistake(claims, at, instead);
        }
    }

    /// The one other claim that says what belongs in the place of this one. Where two do, neither is known to be it.
    fn other_end(
        &self,
        claims: &[Claim],
        rankings: &[Option<Ranking>],
        (at, said): (usize, &Value),
        meant: &str,
    ) -> Option<(usize, Instead)> {
        let meant = scan(meant).into_iter().next()?.value;
        let says = |claim: &Claim| claim.value.as_ref().is_some_and(|v| v.said_by(&meant) && v.like(said));
        let mut others = (0..claims.len()).filter(|other| *other != at && says(&claims[*other]));
        let other = others.next().filter(|_| others.next().is_none())?;
        if !self.are_apart(at, other) || claims[other].value.as_ref()?.said_by(said) {
            return None;
        }
        let ranking = rankings[other].as_ref()?;
        let (seen, _) = self.best(ranking, said).filter(|(_, worth)| *worth >= ranking.own - SLACK)?;
        Some((other, self.read_at(seen)))
    }

    /// The claims that say the name that belongs in the place of this one, where this one fits as well.
    fn other_ends_of_name(&self, claims: &[Claim], at: usize, meant: &str) -> Vec<(usize, Instead)> {
        let words = self.words_in(&self.answer.claims[at].range);
        let phrase: Vec<u64> = words.iter().map(|w| w.exact).collect();
        let Some((piece, range)) = self.evidence.phrase(&phrase, self.act, 1).into_iter().next() else {
            return Vec::new();
        };
        let says = |other: &usize| {
            let claim = &claims[*other];
            claim.value.is_none() && claim.text.eq_ignore_ascii_case(meant) && self.are_apart(at, *other)
        };
        let fits = |other: &usize| {
            let raw = &self.answer.claims[*other];
            let about = self.about(raw, &self.answer.statements[raw.statement]);
            let share = |(record, line): &(usize, usize)| {
                about.of(*record) / about.total.max(0.1) + about.line(*line) / about.near_total.max(0.1)
            };
            let best = |of: usize| self.homes[of].iter().map(share).fold(0.0, f32::max);
            best(at) >= best(*other)
        };
        let others = (0..claims.len()).filter(says).filter(fits);
        others.map(|other| (other, (None, self.quote(piece, range.clone())))).collect()
    }
}
