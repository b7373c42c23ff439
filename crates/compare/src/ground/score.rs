//! A claim's score with everything that made it: where its evidence stands, which terms stand nowhere, and what stands
//! against it. A claim without evidence or without anything to look up has no score at all.

use super::features::{Measured, measure, opposed};
use super::index::Index;
use super::model;
use super::terms::{Terms, same_kind};
use super::{cues, features::FEATURES};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Groundedness {
    Scored(Score),
    NotEvaluated { why: Unscored },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unscored {
    /// Nothing had been read.
    NoEvidence,
    /// It says nothing that could be looked up.
    NothingToCheck,
    /// A question, an offer, a refusal, a heading.
    NotAsserted,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// How likely it is to be supported, were supported and unsupported claims equally common.
    pub value: f64,
    pub band: Band,
    /// The sentences that cover it, best first.
    pub evidence: Vec<Span>,
    pub missing: Vec<Missing>,
    pub conflicts: Vec<Conflict>,
    /// The three features that moved the score most, with how far (in log odds).
    pub drivers: Vec<Driver>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Band {
    Ungrounded,
    /// The evidence does not decide it.
    CannotTell,
    Grounded,
}

/// A sentence of the evidence: which passage, which bytes of it, and how much of the claim it covers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub passage: usize,
    pub bytes: (usize, usize),
    pub share: f64,
}

/// A term of the claim that stands nowhere in the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub bytes: (usize, usize),
    pub text: String,
    pub kind: MissingKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingKind {
    Value,
    Name,
    Word,
}

/// Something in the evidence that speaks against the claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    pub kind: ConflictKind,
    /// Bytes of the claim.
    pub bytes: (usize, usize),
    pub passage: usize,
    /// Bytes of the passage.
    pub found: (usize, usize),
    /// The rest of the claim stands there, only this does not: no judge may overrule it.
    pub exact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictKind {
    OtherValue,
    Negation,
    Opposite,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Driver {
    pub feature: String,
    pub moved: f64,
}

/// A claim against passages. For many claims on one body of evidence build an [`Index`] once.
pub fn score(claim: &str, evidence: &[&str]) -> Groundedness {
    Index::new(evidence.iter().copied()).score(claim)
}

/// A window that shares this much of the rest of a claim is about the same thing.
const SAME_THING: f32 = 0.7;

impl Index {
    pub fn score(&self, claim: &str) -> Groundedness {
        self.score_upto(claim, self.sentences.len())
    }

    /// Against the first `upto` sentences only.
    pub(crate) fn score_upto(&self, claim: &str, upto: usize) -> Groundedness {
        if upto == 0 {
            return Groundedness::NotEvaluated { why: Unscored::NoEvidence };
        }
        let measured = measure(claim, self, upto);
        if measured.terms.len() == 0 {
            return Groundedness::NotEvaluated { why: Unscored::NothingToCheck };
        }
        let value = model::value(&measured.features);
        let moved = model::contributions(&measured.features);
        let drivers = moved
            .iter()
            .take(3)
            .map(|(at, moved)| Driver { feature: FEATURES[*at].to_owned(), moved: *moved });
        Groundedness::Scored(Score {
            value,
            band: model::band(value),
            evidence: self.spans(&measured),
            missing: missing(claim, &measured.terms),
            conflicts: self.conflicts(&measured),
            drivers: drivers.collect(),
        })
    }

    fn spans(&self, measured: &Measured) -> Vec<Span> {
        let terms = &measured.terms;
        let mut best: Vec<(f32, usize)> = measured
            .sentence
            .into_iter()
            .chain(measured.window.clone())
            .map(|s| (terms.share(terms.masks[s]), s))
            .collect();
        best.retain(|(share, _)| *share > 0.0);
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        best.dedup_by_key(|(_, s)| *s);
        let span = |(share, at): &(f32, usize)| {
            let sentence = &self.sentences[*at];
            Span {
                passage: sentence.passage as usize,
                bytes: (sentence.range.start, sentence.range.end),
                share: f64::from(*share),
            }
        };
        best.iter().take(3).map(span).collect()
    }

    fn conflicts(&self, measured: &Measured) -> Vec<Conflict> {
        let terms = &measured.terms;
        let inside = terms.over(measured.window.clone());
        let values = terms.those(|t| t.value.is_some());
        let about = 1.0 - terms.lacking(!values & ((1u128 << terms.len()) - 1), inside.any()) >= SAME_THING;
        let mut found = Vec::new();
        for at in (0..terms.len()).filter(|at| (values & !inside.hard) >> at & 1 == 1) {
            let Some((sentence, rival)) = rival(terms, self, at, &measured.window) else { continue };
            let Some(value) = &terms.terms[at].value else { continue };
            let elsewhere = terms.touched.iter().any(|s| terms.masks[*s].hard >> at & 1 == 1);
            found.push(Conflict {
                kind: ConflictKind::OtherValue,
                bytes: (value.range.start, value.range.end),
                passage: self.sentences[sentence].passage as usize,
                found: (rival.start, rival.end),
                exact: about && !elsewhere,
            });
        }
        found.extend(self.turned(measured));
        found
    }

    /// Negations and opposites: signs against a claim, never proof.
    fn turned(&self, measured: &Measured) -> Vec<Conflict> {
        let Some(sentence) = measured.sentence else { return Vec::new() };
        let words = &self.words[self.sentences[sentence].words.clone()];
        let passage = self.sentences[sentence].passage as usize;
        let conflict = |kind, claim: Range<usize>, found: Range<usize>| Conflict {
            kind,
            bytes: (claim.start, claim.end),
            passage,
            found: (found.start, found.end),
            exact: false,
        };
        let mut found: Vec<Conflict> = opposed(&measured.terms, words)
            .map(|(a, b)| conflict(ConflictKind::Opposite, a.range(), b.range()))
            .collect();
        let mine = measured.terms.words.iter().find(|w| cues::negates(w));
        let theirs = words.iter().find(|w| cues::negates(w));
        let whole = || {
            measured.terms.words.first().map_or(0, |w| w.range().start)
                ..measured.terms.words.last().map_or(0, |w| w.range().end)
        };
        match (mine, theirs) {
            (Some(mine), None) => found.push(conflict(
                ConflictKind::Negation,
                mine.range(),
                self.sentences[sentence].range.clone(),
            )),
            (None, Some(theirs)) => found.push(conflict(ConflictKind::Negation, whole(), theirs.range())),
            _ => {}
        }
        found
    }
}

/// A value of the window that is of a term's kind and says something else.
pub(crate) fn rival(
    terms: &Terms,
    index: &Index,
    at: usize,
    window: &Range<usize>,
) -> Option<(usize, Range<usize>)> {
    let value = &terms.terms[at].value.as_ref()?.value;
    let from = index.values.partition_point(|(s, _)| (*s as usize) < window.start);
    let inside = index.values[from..].iter().take_while(|(s, _)| (*s as usize) < window.end);
    inside.filter(|(_, f)| same_kind(value, &f.value)).map(|(s, f)| (*s as usize, f.range.clone())).next()
}

fn missing(claim: &str, terms: &Terms) -> Vec<Missing> {
    let all = terms.over(terms.touched.iter().copied()).any();
    let nowhere = terms.terms.iter().enumerate().filter(|(at, _)| all >> at & 1 == 0);
    nowhere
        .map(|(_, term)| {
            let range = term.value.as_ref().map_or(term.word.range(), |v| v.range.clone());
            let kind = match (&term.value, term.name) {
                (Some(_), _) => MissingKind::Value,
                (None, true) => MissingKind::Name,
                (None, false) => MissingKind::Word,
            };
            Missing { bytes: (range.start, range.end), text: claim[range].to_owned(), kind }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RENT: &str = "Dear tenant, please note that from next month the rent will be increased by 100.00. The lift is not in service.";

    fn scored(claim: &str) -> Score {
        match score(claim, &[RENT]) {
            Groundedness::Scored(score) => score,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_claim_that_stands_there_is_grounded_and_shows_where() {
        let score = scored("The rent will be increased by 100 next month.");
        assert_eq!(score.band, Band::Grounded, "{score:?}");
        let (from, to) = score.evidence[0].bytes;
        assert!(RENT[from..to].starts_with("Dear tenant"));
        assert_eq!((score.missing, score.conflicts), (vec![], vec![]));
    }

    #[test]
    fn another_number_is_an_exact_conflict() {
        let claim = "The rent will be increased by 250 next month.";
        let score = scored(claim);
        let [conflict] = &score.conflicts[..] else { panic!("{score:?}") };
        assert_eq!((conflict.kind, conflict.exact), (ConflictKind::OtherValue, true));
        assert_eq!(&claim[conflict.bytes.0..conflict.bytes.1], "250");
        assert_eq!(&RENT[conflict.found.0..conflict.found.1], "100.00");
        assert!(score.value < scored("The rent will be increased by 100 next month.").value);
    }

    #[test]
    fn a_missing_negation_is_pointed_at() {
        let score = scored("The lift is in service.");
        assert_eq!(score.conflicts[0].kind, ConflictKind::Negation);
        assert!(!score.conflicts[0].exact);
    }

    #[test]
    fn what_stands_nowhere_is_listed() {
        let score = scored("Gareth bought seventeen horses in Nairobi.");
        assert_eq!(score.band, Band::Ungrounded);
        let kinds: Vec<_> = score.missing.iter().map(|m| (m.text.as_str(), m.kind)).collect();
        assert!(
            kinds.contains(&("seventeen", MissingKind::Value))
                && kinds.contains(&("Nairobi", MissingKind::Name)),
            "{kinds:?}"
        );
    }

    #[test]
    fn without_evidence_or_content_there_is_no_score() {
        let why = |g: Groundedness| match g {
            Groundedness::NotEvaluated { why } => why,
            scored => panic!("{scored:?}"),
        };
        assert_eq!(why(score("The rent rises.", &[])), Unscored::NoEvidence);
        assert_eq!(why(score("The rent rises.", &["", " \n"])), Unscored::NoEvidence);
        assert_eq!(why(score("And so it is.", &[RENT])), Unscored::NothingToCheck);
    }

    proptest! {
        #[test]
        fn any_texts_score_within_bounds(claim in "(?s).{0,80}|([A-Z]?[a-z]{1,4} |[0-9]{1,3}[%.]? |not |é){0,40}", passages in prop::collection::vec("(?s).{0,120}|([a-z]{1,3} |[0-9]{1,2}\\. |é\n){0,40}", 0..4)) {
            let passages: Vec<&str> = passages.iter().map(String::as_str).collect();
            if let Groundedness::Scored(score) = score(&claim, &passages) {
                prop_assert!((0.0..=1.0).contains(&score.value));
                for span in &score.evidence {
                    prop_assert!(passages[span.passage].get(span.bytes.0..span.bytes.1).is_some());
                }
                for conflict in &score.conflicts {
                    prop_assert!(claim.get(conflict.bytes.0..conflict.bytes.1).is_some());
                    prop_assert!(passages[conflict.passage].get(conflict.found.0..conflict.found.1).is_some());
                }
                for missing in &score.missing {
                    prop_assert_eq!(claim.get(missing.bytes.0..missing.bytes.1), Some(missing.text.as_str()));
                }
            }
        }
    }
}
