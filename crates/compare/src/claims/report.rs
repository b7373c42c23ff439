//! The report of the claim checker: every claim with its status, the reason as data, and the places to look at.

use super::scan::Value;
use crate::reason::{Outcome, Place, Reason, Scorer};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClaimReport {
    /// The acts whose text was checked.
    pub answers: Vec<usize>,
    pub claims: Vec<Claim>,
    pub totals: Totals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    pub supported: usize,
    pub derived: usize,
    pub quoted_from_user: usize,
    pub unsupported: usize,
    pub contradicted: usize,
    pub not_checkable: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The act that says it, and which bytes of its text.
    pub act: usize,
    pub bytes: (usize, usize),
    pub text: String,
    pub kind: ClaimKind,
    /// The value in its normal form; names, quotes and statuses have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Said with "probably" or its like.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hedged: bool,
    pub status: ClaimStatus,
    pub why: Why,
    /// Where it was read: the nearest place first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Quoted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimKind {
    Number,
    Money,
    Percent,
    /// A number with a unit.
    Quantity,
    Date,
    Time,
    Weekday,
    Id,
    Email,
    Url,
    Name,
    Quote,
    /// That something was done, or is so: `sent`, `confirmed`.
    Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimStatus {
    Supported,
    Derived,
    QuotedFromUser,
    Unsupported,
    Contradicted,
    NotCheckable,
}

/// A place with what stands there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quoted {
    pub place: Place,
    pub text: String,
}

/// Why a claim has its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Why {
    /// It stands there as said.
    Verbatim,
    /// The same in another dress: another format, unit, number word, or rounded.
    SameValue,
    /// Worked out from values that were read.
    Computed { operation: Operation, operands: Vec<Quoted> },
    /// The user said it.
    UsersOwn,
    /// It stands nowhere in what was read, done or told before.
    Nowhere,
    /// What the statement is about has another value: this one.
    OtherValue {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        field: Option<String>,
        /// What the record calls itself: its title, subject, name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<String>,
        found: Quoted,
    },
    /// It was read, but by all that stands around it this one belongs there: a likelihood, and no proof.
    Likelier {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        field: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<String>,
        found: Quoted,
    },
    /// The same is named once more in one enumeration, there.
    SaidTwice { bytes: (usize, usize) },
    /// Its form or its part does not fit the place: `50.0` for a year, `Security` for somebody.
    Misfit {
        /// What belongs there.
        wants: String,
        /// What it was read as.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<Quoted>,
        /// What it is at odds with, in the answer itself.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        beside: Vec<Quoted>,
    },
    /// The date falls on another weekday.
    OtherWeekday { date: String, weekday: String },
    /// The call that would have done it failed, was refused or never ran.
    NotDone { act: usize, name: String },
    /// The call did it.
    Done { act: usize, name: String },
    /// Nothing had been read that it could rest on.
    NothingRead,
    /// An offer, a question, a plan or a refusal asserts nothing.
    NotAsserted,
    /// A heading or common wording: it names nothing that could be looked up.
    NoReferent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// How many items a result or the answer's own list has.
    Count,
    Sum,
    Difference,
    Average,
    /// A percentage of an amount, or what is left or made with it.
    Share,
    /// One number times or over another, as the answer writes it out.
    Product,
    /// The time between two times or dates.
    Span,
    /// The weekday of a date.
    Weekday,
}

impl ClaimStatus {
    pub fn flagged(self) -> bool {
        matches!(self, Self::Unsupported | Self::Contradicted)
    }
}

impl ClaimReport {
    pub(crate) fn count(&mut self) {
        let of = |status| self.claims.iter().filter(|c| c.status == status).count();
        self.totals = Totals {
            supported: of(ClaimStatus::Supported),
            derived: of(ClaimStatus::Derived),
            quoted_from_user: of(ClaimStatus::QuotedFromUser),
            unsupported: of(ClaimStatus::Unsupported),
            contradicted: of(ClaimStatus::Contradicted),
            not_checkable: of(ClaimStatus::NotCheckable),
        };
    }

    /// What the verdict has to know: contradictions fail, unsupported claims are for a person to see.
    pub fn reasons(&self) -> Vec<Reason> {
        self.claims.iter().filter(|c| c.status.flagged()).map(Claim::reason).collect()
    }

    /// The same beside what accepted runs of the same input said: what one of them says too is told, and no more.
    pub(crate) fn reasons_beside(&self, baselines: &[ClaimReport]) -> Vec<Reason> {
        let flagged = self.claims.iter().filter(|c| c.status.flagged());
        let beside = flagged.map(|claim| {
            let mut reason = claim.reason();
            if claim.is_usual(baselines) {
                reason.outcome = Outcome::Pass;
                reason.text.push_str("; a baseline says so too");
            }
            reason
        });
        beside.collect()
    }
}

impl Claim {
    fn reason(&self) -> Reason {
        let contradicted = self.status == ClaimStatus::Contradicted;
        let (outcome, weight) = match (contradicted, self.hedged) {
            (true, false) => (Outcome::Fail, 0.7),
            (true, true) => (Outcome::Review, 0.6),
            (false, hedged) => (Outcome::Review, if hedged { 0.2 } else { 0.4 }),
        };
        let mut places = vec![Place::new(self.act).bytes(self.bytes.0, self.bytes.1)];
        match &self.why {
            Why::OtherValue { found, .. } | Why::Likelier { found, .. } => places.push(found.place.clone()),
            Why::Misfit { found, beside, .. } => {
                places.extend(found.iter().chain(beside).map(|quoted| quoted.place.clone()));
            }
            Why::SaidTwice { bytes } => places.push(Place::new(self.act).bytes(bytes.0, bytes.1)),
            _ => {}
        }
        let code = if contradicted { "claim-contradicted" } else { "claim-unsupported" };
        Reason {
            scorer: Scorer::Claims,
            code: code.into(),
            rule: None,
            outcome,
            weight,
            text: self.say(),
            places,
        }
    }

    /// One sentence about a flagged claim.
    fn say(&self) -> String {
        let said = format!("the answer says `{}`", self.text);
        match &self.why {
            Why::OtherValue { field, of, found } => {
                let whose = match (field, of) {
                    (Some(field), Some(of)) => format!("`{field}` of `{of}` is"),
                    (Some(field), None) => format!("`{field}` of what it is about is"),
                    (None, Some(of)) => format!("the passage it is about, in `{of}`, says"),
                    (None, None) => "the passage it is about says".to_owned(),
                };
                format!("{said}, but {whose} `{}` (act {})", found.text, found.place.act)
            }
            Why::Likelier { field, of, found } => {
                let whose = match (field, of) {
                    (Some(field), Some(of)) => format!(" (`{field}` of `{of}`)"),
                    (Some(one), None) | (None, Some(one)) => format!(" (`{one}`)"),
                    (None, None) => String::new(),
                };
                format!(
                    "{said}, where `{}`{whose} of act {} fits better: look which of the two was meant",
                    found.text, found.place.act
                )
            }
            Why::SaidTwice { .. } => {
                format!("{said} twice in one enumeration: look which other one was meant")
            }
            Why::Misfit { wants, found: None, beside } if beside.is_empty() => {
                format!("{said} where {wants} belongs: look what was meant")
            }
            Why::Misfit { wants, found: None, .. } => {
                format!("{said} where {wants} belongs: look which of them is wrong")
            }
            Why::Misfit { wants, found: Some(found), .. } => format!(
                "{said} where {wants} belongs: it was read in `{}` (act {})",
                found.text, found.place.act
            ),
            Why::OtherWeekday { date, weekday } => format!("{said}, but {date} is a {weekday}"),
            Why::NotDone { act, name } => format!("{said}, but `{name}` (act {act}) did not succeed"),
            Why::NothingRead => format!("{said}, though nothing had been read that it could come from"),
            _ => format!(
                "{said}, which stands in nothing that was read, done or told before: look where it came from"
            ),
        }
    }
}
