//! Words that announce what kind of field a value is of: "from", "sender" and "author" ask for the same, whatever a tool
//! calls it. A group is a bit; a word or a key may be of several.

use super::words::{Word, hash_of, words};
use std::collections::HashMap;
use std::sync::LazyLock;

const GROUPS: [&[&str]; 15] = [
    &["from", "by", "sender", "author", "owner", "creator", "organizer", "wrote", "sent", "payer"],
    &["to", "recipient", "recipients", "receiver", "cc", "shared", "payee", "for"],
    &[
        "with",
        "participants",
        "participant",
        "attendees",
        "attendee",
        "members",
        "member",
        "guests",
        "invited",
        "invite",
        "invitees",
        "people",
        "users",
        "user",
    ],
    &["at", "in", "location", "place", "room", "venue", "where", "city", "channel", "street", "held"],
    &["title", "titled", "name", "named", "called", "subject", "filename", "file", "event"],
    &["start", "starts", "starting", "begins", "begin", "beginning", "from", "departs", "departure", "after"],
    &["end", "ends", "ending", "until", "till", "finish", "finishes", "to", "arrives", "arrival", "before"],
    &[
        "amount", "cost", "costs", "price", "total", "paid", "pay", "payment", "sum", "fee", "charge",
        "balance", "refund", "worth", "spent", "sent", "received", "charged", "refunded",
    ],
    &["date", "day", "on", "dated", "when"],
    &["id", "ids", "identifier", "number", "reference"],
    &["size", "bytes"],
    &["rating", "score", "scores", "stars", "rated", "grade", "gave"],
    &["email", "emails", "mail", "address", "addresses"],
    &["body", "content", "contents", "text", "message", "says", "description", "states", "details"],
    &["time", "at", "when", "hour"],
];

/// Groups of fields that say to whom, or with whom.
pub(super) const WHOM: u32 = 1 << 1 | 1 << 2;

/// The group of fields that are sums of money.
pub(super) const PAID: u32 = 1 << 7;

/// The group of fields that are places and channels.
pub(super) const PLACE: u32 = 1 << 3;

/// The group of fields that are texts.
pub(super) const TEXT: u32 = 1 << 13;

static WORDS: LazyLock<HashMap<u64, u32>> = LazyLock::new(|| {
    let mut masks = HashMap::new();
    for (group, list) in GROUPS.iter().enumerate() {
        list.iter().for_each(|word| *masks.entry(hash_of(word)).or_insert(0) |= 1 << group);
    }
    masks
});

/// The groups of a word, as bits.
pub(super) fn of_word(word: &Word) -> u32 {
    WORDS.get(&word.exact).copied().unwrap_or(0)
}

/// The groups of a key or a label.
pub(super) fn of_key(key: &str) -> u32 {
    words(key).iter().fold(0, |mask, word| mask | of_word(word))
}
