//! What is known of the browser's clients, sessions and pages. A session of the protocol belongs to one client, or
//! to us.

use super::element::{Element, Look};
use super::subject::Act;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

/// Ourselves, where a client's number stands.
pub(super) const US: u64 = 0;

#[derive(Default)]
pub(super) struct Client {
    /// The session that its messages without one belong to; nothing until the browser has made it.
    pub(super) root: Option<String>,
    /// What it said before.
    pub(super) early: Vec<String>,
    pub(super) early_bytes: usize,
    /// What it made, and what goes with it.
    pub(super) contexts: BTreeSet<String>,
    pub(super) targets: BTreeSet<String>,
    /// Commands without an answer.
    pub(super) open: usize,
}

pub(super) struct Session {
    pub(super) client: u64,
    pub(super) target: String,
    /// Worlds that scripts run in: whether each is the page's own.
    pub(super) worlds: BTreeMap<i64, bool>,
    /// Worlds of ours.
    pub(super) hidden: BTreeSet<i64>,
    /// Something is being looked up or asked: what comes after it waits.
    pub(super) busy: bool,
    pub(super) queue: VecDeque<String>,
    pub(super) queued: usize,
    /// A press was refused: its release goes nowhere either.
    pub(super) refused_press: bool,
    pub(super) typing: Option<Typing>,
    /// How many dialogs it has told of.
    pub(super) dialogs: u64,
}

/// Keys that were pressed one after the other in one field are one text.
pub(super) struct Typing {
    pub(super) event: u64,
    pub(super) selector: String,
    pub(super) secret: bool,
    pub(super) text: String,
    pub(super) began: Instant,
}

impl Session {
    pub(super) fn new(client: u64, target: String) -> Self {
        Self {
            client,
            target,
            worlds: BTreeMap::new(),
            hidden: BTreeSet::new(),
            busy: false,
            queue: VecDeque::new(),
            queued: 0,
            refused_press: false,
            typing: None,
            dialogs: 0,
        }
    }
}

#[derive(Default)]
pub(super) struct Target {
    pub(super) kind: String,
    pub(super) url: String,
    pub(super) context: String,
    /// Our own session on it.
    pub(super) eye: Option<String>,
    /// Whether that was asked for.
    pub(super) eyed: bool,
    /// Lookups that wait for it.
    pub(super) waiting: Vec<u64>,
    /// The last that was done on it: what it does next is likely to be that.
    pub(super) last: Option<u64>,
    /// Where a person let it go.
    pub(super) leave: Option<String>,
    /// Where it was kept from: the browser shows an error under that address.
    pub(super) kept_from: Option<String>,
    /// How many of its dialogs are on record.
    pub(super) dialogs: u64,
}

/// A command that waits for a description of its element, or for a person.
pub(super) struct Pending {
    pub(super) client: u64,
    pub(super) id: i64,
    pub(super) session: String,
    pub(super) method: String,
    pub(super) params: Value,
    pub(super) act: Act,
    pub(super) look: Option<Look>,
    pub(super) element: Option<Element>,
    /// On record, once it was decided.
    pub(super) event: Option<u64>,
    pub(super) words: String,
    pub(super) rule: String,
}

/// What an answer of the browser's is for.
pub(super) enum Waiting {
    Ours(Ask),
    Client { client: u64, id: i64, session: Option<String>, what: What },
}

pub(super) enum Ask {
    Version,
    /// The session that a client speaks in.
    Root(u64),
    /// The same, on one page.
    Page(u64, String),
    Eye(String),
    /// A world of ours, for the lookup of this key.
    World(u64),
    Element(u64),
    Nothing,
}

/// What a client asked, as far as its answer matters to us.
pub(super) enum What {
    Plain,
    /// Its answer names a session.
    Attaches(String),
    MakesContext,
    /// Its answer names a page that is the client's.
    MakesTarget {
        event: u64,
        began: Instant,
    },
    Act {
        event: u64,
        target: String,
        began: Instant,
        keeps: Keeps,
    },
    /// A script of a library's own; told if it brings data.
    Script {
        source: String,
        page: String,
    },
}

/// What of an answer is put on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    Nothing,
    Value,
    Whole,
    Picture,
}
