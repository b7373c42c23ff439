//! Statuses: that a thing was done. The claim is held against the run's own calls, never against what others wrote.

use super::words::{Word, hash_of};
use cofferdam_model::{Act, ActKind, Run, Status};
use std::ops::Range;
use std::sync::LazyLock;

/// A word for a deed, with the beginnings of names of calls that do it.
const DEEDS: [(&str, &[&str]); 27] = [
    ("sent", &["send", "email", "post", "message", "transfer", "pay", "reply", "forward", "share", "invite"]),
    ("created", &["create", "add", "new", "schedule", "write", "make", "append", "insert", "put", "book"]),
    ("added", &["add", "create", "append", "insert", "invite", "update", "put", "post"]),
    ("deleted", &["delete", "remove", "cancel", "rm", "drop", "clear"]),
    ("removed", &["remove", "delete", "rm", "drop", "clear", "update"]),
    (
        "updated",
        &["update", "edit", "modify", "set", "change", "patch", "put", "reschedule", "append", "write"],
    ),
    ("changed", &["change", "update", "edit", "modify", "set", "patch"]),
    ("scheduled", &["schedule", "create", "add", "book", "update", "reschedule"]),
    ("rescheduled", &["reschedule", "update", "move", "edit", "change"]),
    ("booked", &["book", "reserve", "create", "schedule", "add"]),
    ("reserved", &["reserve", "book", "create"]),
    ("cancelled", &["cancel", "delete", "remove", "update"]),
    ("canceled", &["cancel", "delete", "remove", "update"]),
    ("invited", &["invite", "add", "send", "create", "schedule"]),
    ("posted", &["post", "send", "publish", "create", "add", "write"]),
    ("transferred", &["transfer", "send", "pay", "move"]),
    ("paid", &["pay", "send", "transfer", "schedule"]),
    ("refunded", &["refund", "send", "transfer", "pay", "update", "return"]),
    ("shared", &["share", "send", "invite", "update", "post", "add", "grant"]),
    ("forwarded", &["forward", "send"]),
    ("replied", &["reply", "send", "post"]),
    ("saved", &["save", "write", "create", "store", "append", "put"]),
    ("uploaded", &["upload", "put", "create", "post"]),
    ("downloaded", &["download", "get", "fetch", "read"]),
    ("deployed", &["deploy", "release", "apply", "push"]),
    ("merged", &["merge"]),
    ("restarted", &["restart", "reboot", "start"]),
];

/// "I have sent", "has been deleted", "were successfully added": the place of the deed's word.
pub(crate) fn find(text: &str, words: &[Word]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate().filter(|(_, w)| is_deed(w)) {
        let before = &words[at.saturating_sub(4)..at];
        let said =
            |list: &[&str]| before.iter().any(|w| list.iter().any(|l| w.of(text).eq_ignore_ascii_case(l)));
        let own = said(&["I've", "I’ve"])
            || (said(&["i"]) && !said(&["you"]))
            || (said(&["been", "successfully"]) && !said(&["was", "were"]) || said(&["successfully"]));
        if own
            && !said(&[
                "not", "no", "never", "can", "will", "to", "if", "once", "haven't", "hasn't", "couldn't",
                "cannot", "you", "found", "who", "when",
            ])
        {
            found.push(word.range());
        }
    }
    found
}

static DEED_WORDS: LazyLock<[u64; DEEDS.len()]> = LazyLock::new(|| DEEDS.map(|(deed, _)| hash_of(deed)));

pub(super) fn is_deed_word(word: &str) -> bool {
    DEEDS.iter().any(|(deed, _)| deed.eq_ignore_ascii_case(word))
}

fn is_deed(word: &Word) -> bool {
    !word.upper && DEED_WORDS.contains(&word.exact)
}

/// What the run's calls say about a deed.
pub(crate) enum Deed<'r> {
    Done(usize, &'r Act),
    NotDone(usize, &'r Act),
    /// No call of such a name: it may have been done under another.
    Unknown,
    /// Nothing was done at all.
    Nothing,
}

pub(crate) fn judge<'r>(run: &'r Run, before: usize, deed: &str) -> Deed<'r> {
    let stems = DEEDS.iter().find(|(d, _)| d.eq_ignore_ascii_case(deed)).map(|(_, s)| *s).unwrap_or_default();
    let calls = run.acts[..before].iter().enumerate().filter(|(_, a)| {
        !matches!(
            a.kind,
            ActKind::Told | ActKind::Said | ActKind::Instructed | ActKind::Model | ActKind::Step
        )
    });
    let (mut done, mut failed, mut any_ok) = (None, None, false);
    for (at, act) in calls {
        any_ok |= act.status == Status::Ok;
        if does(&act.name, stems) {
            match act.status {
                Status::Ok => done = Some((at, act)),
                _ => failed = Some((at, act)),
            }
        }
    }
    match (done, failed) {
        (Some((at, act)), _) => Deed::Done(at, act),
        (None, Some((at, act))) => Deed::NotDone(at, act),
        (None, None) if any_ok => Deed::Unknown,
        (None, None) => Deed::Nothing,
    }
}

/// The calls that did a deed, and did not fail.
pub(crate) fn doing(run: &Run, before: usize, deed: &str) -> Vec<usize> {
    let stems = DEEDS.iter().find(|(d, _)| d.eq_ignore_ascii_case(deed)).map(|(_, s)| *s).unwrap_or_default();
    let acts = run.acts[..before].iter().enumerate();
    let did =
        |act: &Act| matches!(act.kind, ActKind::Tool) && act.status == Status::Ok && does(&act.name, stems);
    acts.filter(|(_, act)| did(act)).map(|(at, _)| at).collect()
}

fn does(name: &str, stems: &[&str]) -> bool {
    let name = super::layout::normal_key(name);
    name.split(' ').any(|part| stems.iter().any(|stem| part.starts_with(stem)))
}
