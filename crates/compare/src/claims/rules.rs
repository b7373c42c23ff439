//! What speaks against a claim whose value was read somewhere. The rules are a table: each has a name, a file of its own that says
//! when it speaks, and its place in the order. The first that finds another value where the claim stands says what was
//! meant; one that only finds that the claim cannot be right there says what belongs there.

use super::about::About;
use super::answer::{Manner, Statement};
use super::context::Instead;
use super::cue;
use super::extract::Raw;
use super::link::{Hit, Judge};
use super::rank::Ranking;
use super::report::{ClaimKind, ClaimStatus, Why};

/// A claim with everything that a rule may ask for.
pub(super) struct Case<'c> {
    raw: &'c Raw,
    statement: &'c Statement,
    hits: &'c [Hit],
    about: &'c About,
    ranking: Option<&'c Ranking>,
    /// The claim is held up by what it says itself: the largest of its list, part of an equation that comes out.
    held: bool,
    /// Something else that was read fits the place better. Rules that go by what stands around are believed only then.
    open: bool,
}

impl<'c> Case<'c> {
    pub(super) fn of(
        judge: &Judge<'_>,
        (raw, statement): (&'c Raw, &'c Statement),
        hits: &'c [Hit],
        about: &'c About,
        ranking: Option<&'c Ranking>,
    ) -> Self {
        let held = judge.is_the_most(statement, hits, about) || judge.comes_out(raw);
        let open = !held && ranking.is_none_or(|ranking| ranking.by > 0.0);
        Self { raw, statement, hits, about, ranking, held, open }
    }

    /// A finding that its rule is sure of needs no rank to be believed.
    fn believed(&self, (found, sure): (Instead, bool)) -> Option<Instead> {
        (self.open || sure && !self.held).then_some(found)
    }
}

type Other = fn(&Judge<'_>, &Case<'_>) -> Option<Instead>;
type Unread = fn(&Judge<'_>, &Raw, &Statement) -> Option<Instead>;
type Wrong = fn(&Judge<'_>, &Case<'_>) -> Option<Why>;

/// Rules that name the value that was meant.
const OTHERS: [(&str, Other); 22] = [
    ("other-value", |j, c| if c.open { j.other_value(c.raw, c.statement, c.hits, c.about) } else { None }),
    ("apart", |j, c| j.apart(c.raw)),
    ("not-the-most", |j, c| j.not_the_most(c.raw, c.statement, c.hits, c.about)),
    ("same-words", |j, c| c.believed(j.among_the_same_words(c.raw)?)),
    ("address", |j, c| j.not_its_address(c.raw)),
    ("done-with", |j, c| j.not_done_with(c.raw)),
    ("done-to", |j, c| j.not_done_to(c.raw, c.statement)),
    ("done-on", |j, c| j.not_done_on(c.raw, c.statement)),
    ("subject", |j, c| c.believed(j.not_of_its_subject(c.raw, c.statement)?)),
    ("whose", |j, c| j.not_whose(c.raw, c.statement)),
    ("label", |j, c| j.not_of_its_label(c.raw)),
    ("items", |j, c| j.not_of_its_items(c.raw)),
    ("start", |j, c| j.not_its_start(c.raw, c.statement, c.hits)),
    ("writer", |j, c| j.not_the_writer(c.raw, c.statement, c.about)),
    ("users", |j, c| j.not_the_users(c.raw)),
    ("greeted", |j, c| j.not_greeted(c.raw)),
    ("counted", |j, c| j.counted_otherwise(c.raw)),
    ("title", |j, c| j.not_of_its_title(c.raw, c.statement)),
    ("new-id", |j, c| j.not_its_new_id(c.raw)),
    ("odd-one", |j, c| if c.open { j.odd_one_out(c.raw, c.statement) } else { None }),
    ("asked", |j, c| j.not_asked_here(c.raw, c.statement)),
    ("company", |j, c| Some((None, j.other_company(c.raw, c.statement)?))),
];

/// Rules for a name or a quote that stands nowhere as it is said.
const UNREAD: [(&str, Unread); 5] = [
    ("misquoted", |j, raw, statement| Some((None, j.misquoted(raw, statement)?))),
    ("address", |j, raw, _| j.not_its_address(raw)),
    ("first-name", |j, raw, _| j.not_called_so(raw)),
    ("company", |j, raw, statement| {
        let title = j.in_title_label(raw, statement);
        if title { None } else { Some((None, j.other_company(raw, statement)?)) }
    }),
    ("same-words", |j, raw, _| j.among_the_same_words(raw).filter(|(_, sure)| *sure).map(|(found, _)| found)),
];

/// Rules by which an answer is at odds with itself.
const AT_ODDS: [(&str, Wrong); 3] = [
    ("same-time", |j, c| j.not_the_same_time(c.raw)),
    ("adds-up", |j, c| j.does_not_add_up(c.raw)),
    ("comes-out", |j, c| j.does_not_come_out(c.raw)),
];

/// Rules by which a claim is of a form or a kind that its place cannot have.
const MISFITS: [(&str, Wrong); 5] = [
    ("form", |j, c| j.not_its_form(c.raw)),
    ("weekday", |j, c| j.no_weekday(c.raw)),
    ("no-name", |j, c| j.no_name(c.raw, c.statement)),
    ("summed", |j, c| j.summed_otherwise(c.raw)),
    ("twice", |j, c| j.said_twice(c.raw).map(|again| Why::SaidTwice { bytes: (again.start, again.end) })),
];

impl Judge<'_> {
    /// The first thing that speaks against a claim.
    pub(super) fn doubt(&self, case: &Case<'_>) -> Option<(ClaimStatus, Why)> {
        // "two flights" is no price
        let counts = self.counts_a_noun(case.raw) || self.is_spelled(case.raw);
        let priced = |field: &Option<String>| field.as_ref().is_some_and(|f| cue::of_key(f) & cue::PAID != 0);
        let fits = |(field, _): &Instead| !counts || !priced(field);
        if let Some((field, found)) = OTHERS.iter().find_map(|(_, rule)| rule(self, case).filter(fits)) {
            return Some((ClaimStatus::Contradicted, self.other(field, found)));
        }
        if let Some(why) = AT_ODDS.iter().find_map(|(_, rule)| rule(self, case)) {
            return Some((ClaimStatus::Contradicted, why));
        }
        if let Some(mut why) = MISFITS.iter().find_map(|(_, rule)| rule(self, case)) {
            if let Why::Misfit { found: found @ None, beside, .. } = &mut why
                && beside.is_empty()
            {
                *found = case.hits.first().map(|hit| self.line_of(hit));
            }
            return Some((ClaimStatus::Unsupported, why));
        }
        let (field, found) = self.outranked(case.raw, case.ranking, case.about).filter(|_| !case.held)?;
        Some((ClaimStatus::Unsupported, self.likelier(field, found)))
    }

    /// What was read in the place of a name or a quote that was not.
    pub(super) fn unread_otherwise(&self, raw: &Raw, statement: &Statement) -> Option<Instead> {
        UNREAD.iter().find_map(|(_, rule)| rule(self, raw, statement))
    }

    /// The names of all rules that speak against a claim, for whoever wants to know what each is worth.
    pub(super) fn against(&self, raw: &Raw, statement: &Statement) -> Vec<&'static str> {
        let mut hits = self.hits(raw);
        if raw.kind == ClaimKind::Status || hits.is_empty() {
            let flagged = self.claim(raw).0.status.flagged();
            let worded = raw.value.is_none() && raw.kind != ClaimKind::Status;
            let rules = UNREAD.iter().filter(|(_, rule)| worded && rule(self, raw, statement).is_some());
            let rules = rules.map(|(name, _)| *name).chain(["nowhere"]);
            return if flagged { rules.collect() } else { Vec::new() };
        }
        if statement.manner == Manner::NotAsserted {
            return Vec::new();
        }
        let about = self.about(raw, statement);
        let ranking = self.ranking(raw, statement, &about);
        hits.sort_by(|a, b| about.of(b.record).total_cmp(&about.of(a.record)));
        let case = Case::of(self, (raw, statement), &hits, &about, ranking.as_ref());
        let others = OTHERS.iter().filter(|(_, rule)| rule(self, &case).is_some()).map(|(name, _)| *name);
        let wrong = AT_ODDS.iter().chain(&MISFITS);
        let wrong = wrong.filter(|(_, rule)| rule(self, &case).is_some()).map(|(name, _)| *name);
        let outranked = self.outranked(raw, ranking.as_ref(), &about).filter(|_| !case.held);
        others.chain(wrong).chain(outranked.map(|_| "outranked")).collect()
    }
}
