//! Where a value came from and where it goes, and how a run stands to those before it: what rules about `flow`
//! and `baseline` decide on. Finding these facts in a run is others' business; nothing here reads content.
//!
//! Such rules only forbid or hold. They come on top of the rules for the call itself, so what none of them
//! matches is let through.

use crate::glob::Pattern;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A value on its way from where it first came up to where it is used.
#[derive(Debug, Clone, Copy)]
pub struct Flow<'a> {
    pub from: Origin<'a>,
    pub to: Sink,
    pub kind: ValueKind,
    /// The tool that is called, or what stands for it: a program, a host, a browser action.
    pub tool: &'a str,
    /// The argument, as `recipients` or `attachments.file_id`: list positions are left out.
    pub arg: &'a str,
    pub value: &'a str,
    /// It stands within a longer text.
    pub in_text: bool,
    pub known: Known,
    /// The baselines fill this argument, and mostly agree on what with.
    pub filled: bool,
}

/// Who brought a value up first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<'a> {
    /// The operator or the user, in their own words, at any time before the call.
    Told,
    /// The answer to a change that the run itself has made: the id of what it created.
    Own,
    /// The answer of this tool to a call that only reads.
    Returned(&'a str),
    /// Nobody: it is in nothing that the model was given.
    Made,
}

/// An origin as rules name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    Told,
    Own,
    /// A tool whose output `[sources]` declares to be the operator's own.
    Trusted,
    /// Any other tool.
    Untrusted,
    Model,
}

/// What a value would steer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sink {
    /// A call that changes state.
    Changes,
    /// Where a call that changes nothing reaches out to.
    Destination,
    /// The last words to the user.
    Answer,
}

/// What a value is, by its shape. Amounts, dates and prose are none of these: they do not tell where they came
/// from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueKind {
    /// A mail address.
    Address,
    Url,
    /// An account, card or phone number.
    Account,
    /// Letters and digits mixed, as in order numbers and keys.
    Code,
    /// Whatever stands in an argument for identifiers.
    Id,
    /// A few words that are none of the above.
    Name,
}

/// What the baselines have done with a value, the closest thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    Never,
    /// A tool returned it to one of them.
    Read,
    /// One of them used it in some call.
    Called,
    /// One of them used it in the same argument of the same tool.
    Used,
}

/// How a run differs from all of its baselines in what it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deviation {
    /// It used a tool to change something that no baseline used.
    Unseen,
    /// It did not change what all of them changed.
    Missing,
    /// It used a tool more often than any of them.
    More,
}

/// A deviation, and the tool it is about.
#[derive(Debug, Clone, Copy)]
pub struct Baseline<'a> {
    pub finds: Deviation,
    pub tool: &'a str,
}

/// Words for each member, in its order.
macro_rules! words {
    ($($name:ident: $($word:literal $member:ident),+;)+) => {$(
        impl $name {
            pub(crate) const NAMES: &'static [&'static str] = &[$($word),+];

            pub fn name(self) -> &'static str {
                match self { $(Self::$member => $word),+ }
            }

            pub(crate) fn named(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$member),)+ _ => None }
            }
        }
    )+};
}

words! {
    Source: "told" Told, "own" Own, "trusted" Trusted, "untrusted" Untrusted, "model" Model;
    Sink: "changes" Changes, "destination" Destination, "answer" Answer;
    ValueKind: "address" Address, "url" Url, "account" Account, "code" Code, "id" Id, "name" Name;
    Known: "ignore" Never, "read" Read, "called" Called, "used" Used;
    Deviation: "unseen" Unseen, "missing" Missing, "more" More;
}

/// The `flow` of a rule; what is none matches anything.
#[derive(Debug)]
pub(crate) struct FlowMatch {
    pub(crate) from: Vec<Source>,
    pub(crate) to: Vec<Sink>,
    pub(crate) values: Option<Vec<ValueKind>>,
    pub(crate) tools: Option<Vec<Pattern>>,
    pub(crate) args: Option<Vec<Pattern>>,
    /// Whether values within longer texts count.
    pub(crate) texts: bool,
    /// What the baselines must have done with a value for it to pass; `Never` looks at no baseline.
    pub(crate) known: Known,
    /// The file's own `[sources]`: what another layer trusts is no matter of this one.
    pub(crate) trusted: Arc<[Pattern]>,
}

impl FlowMatch {
    /// The origin as this layer sees it.
    pub(crate) fn origin(&self, origin: Origin<'_>) -> Source {
        match origin {
            Origin::Told => Source::Told,
            Origin::Own => Source::Own,
            Origin::Made => Source::Model,
            Origin::Returned(tool) if self.trusted.iter().any(|pattern| pattern.matches_str(tool)) => {
                Source::Trusted
            }
            Origin::Returned(_) => Source::Untrusted,
        }
    }

    /// Whether the baselines leave the value strange.
    ///
    /// Names and ids are in everything that is read, so only the same use makes them familiar. A name, and a value
    /// that no stranger brought, say something only beside what the baselines put in its place.
    pub(crate) fn is_strange(&self, flow: &Flow<'_>) -> bool {
        if self.known == Known::Never {
            return true;
        }
        let enough = match flow.kind {
            ValueKind::Id | ValueKind::Name => Known::Used,
            _ => self.known,
        };
        let by_stranger = self.origin(flow.from) == Source::Untrusted && flow.kind != ValueKind::Name;
        flow.known < enough && (by_stranger || flow.filled)
    }
}

/// The `baseline` of a rule: which deviations of which tools.
#[derive(Debug)]
pub(crate) struct BaselineMatch {
    pub(crate) finds: Vec<(Deviation, Vec<Pattern>)>,
}

impl BaselineMatch {
    pub(crate) fn tools(&self, finds: Deviation) -> impl Iterator<Item = &Pattern> {
        self.finds.iter().filter(move |(own, _)| *own == finds).flat_map(|(_, tools)| tools)
    }
}
