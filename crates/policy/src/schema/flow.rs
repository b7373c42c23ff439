//! `flow` and `baseline` of a rule, and `[sources]`.

use super::fields::{each, patterns, unknown_word};
use crate::flow::{BaselineMatch, Deviation, FlowMatch, Known, Sink, Source, ValueKind};
use crate::glob::Pattern;
use crate::mistake::Mistake;
use crate::read::{Notes, Table};
use std::sync::Arc;

/// The tools whose output is the operator's own word.
pub(super) fn trusted(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Arc<[Pattern]> {
    let sources = root.table("sources", &["trusted"], notes);
    sources.and_then(|table| patterns(&table, "trusted", notes)).unwrap_or_default().into()
}

pub(super) fn flow(
    table: &Table<'_, '_>,
    trusted: &Arc<[Pattern]>,
    notes: &mut Notes<'_>,
) -> Option<FlowMatch> {
    let known = &["from", "to", "values", "tool", "arg", "texts", "known"];
    let flow = table.table("flow", known, notes)?;
    let missing = [
        ("from", "write where the value came from, as in from = \"untrusted\""),
        ("to", "write what it must not reach, as in to = \"changes\""),
    ];
    for (key, why) in missing {
        if !flow.has(key) {
            flow.missing(key, why, notes);
        }
    }
    let from = members(&flow, "from", Source::NAMES, Source::named, notes);
    let to = members(&flow, "to", Sink::NAMES, Sink::named, notes);
    Some(FlowMatch {
        values: members(&flow, "values", ValueKind::NAMES, ValueKind::named, notes),
        tools: patterns(&flow, "tool", notes),
        args: patterns(&flow, "arg", notes),
        texts: flow.flag("texts", notes).unwrap_or(true),
        known: super::fields::choice(&flow, "known", Known::NAMES, Known::named, notes)
            .unwrap_or(Known::Read),
        trusted: Arc::clone(trusted),
        from: from?,
        to: to?,
    })
}

pub(super) fn baseline(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<BaselineMatch> {
    let baseline = table.table("baseline", Deviation::NAMES, notes)?;
    let mut finds = Vec::new();
    for name in Deviation::NAMES {
        finds.extend(Deviation::named(name).zip(patterns(&baseline, name, notes)));
    }
    if !Deviation::NAMES.iter().any(|name| baseline.has(name)) {
        notes.wrong(baseline.spot, &baseline.name, Mistake::NoDeviation);
    }
    Some(BaselineMatch { finds })
}

/// One or several of a few words.
fn members<T>(
    table: &Table<'_, '_>,
    key: &'static str,
    known: &'static [&'static str],
    named: fn(&str) -> Option<T>,
    notes: &mut Notes<'_>,
) -> Option<Vec<T>> {
    each(table, key, notes, |word| named(word).ok_or_else(|| unknown_word(word, known)))
}
