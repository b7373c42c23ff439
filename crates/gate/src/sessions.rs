//! The sessions of a result. Thousands of them are gone through again and again and never needed at once: what is asked
//! most is at hand, the rest is kept as compressed text and comes back session by session.

use crate::SessionVerdict;
use cofferdam_compare::{Outcome, Reason, Scorer};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Sessions in a block: enough for what they have in common to be found.
const BLOCK: usize = 64;
/// The quickest: what does not repeat are digests, which no level makes smaller.
const LEVEL: i32 = 1;

#[derive(Clone, Default)]
pub struct Sessions {
    /// A row for each.
    heads: Vec<Head>,
    blocks: Vec<Block>,
    /// The lines that do not fill a block yet.
    open: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq)]
struct Head {
    id: Box<str>,
    outcome: Outcome,
    is_flaky: bool,
}

#[derive(Clone)]
struct Block {
    packed: Box<[u8]>,
    /// Of the text.
    size: usize,
}

impl Sessions {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.heads.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub fn push(&mut self, session: &SessionVerdict) {
        let head =
            Head { id: session.id.as_str().into(), outcome: session.outcome, is_flaky: session.is_flaky() };
        let from = self.open.len();
        if serde_json::to_writer(&mut self.open, session).is_err() {
            self.open.truncate(from);
        }
        self.open.push(b'\n');
        self.heads.push(head);
        if self.heads.len().is_multiple_of(BLOCK) {
            let packed = zstd::bulk::compress(&self.open, LEVEL).unwrap_or_default();
            self.blocks.push(Block { packed: packed.into(), size: self.open.len() });
            self.open.clear();
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = SessionVerdict> + '_ {
        self.filtered(|_| true)
    }

    /// Those that a person has to look at, the gravest first: whatever did not pass, or not every time.
    pub fn to_look_at(&self) -> impl Iterator<Item = SessionVerdict> + '_ {
        self.gravest_first().filter(|session| session.outcome != Outcome::Pass || session.is_flaky())
    }

    /// All of them, the gravest first.
    pub fn gravest_first(&self) -> impl Iterator<Item = SessionVerdict> + '_ {
        let order = [Outcome::Fail, Outcome::Review, Outcome::Pass];
        order.into_iter().flat_map(|outcome| self.filtered(move |head| head.outcome == outcome))
    }

    /// How many a person has to look at.
    pub fn count_to_look_at(&self) -> usize {
        self.heads.iter().filter(|head| head.outcome != Outcome::Pass || head.is_flaky).count()
    }

    pub fn count_flaky(&self) -> usize {
        self.heads.iter().filter(|head| head.is_flaky).count()
    }

    /// Names and outcomes, in order.
    pub fn outcomes(&self) -> impl Iterator<Item = (&str, Outcome)> {
        self.heads.iter().map(|head| (&*head.id, head.outcome))
    }

    /// A block without any of those that are wanted is not unpacked.
    fn filtered<'a>(
        &'a self,
        wanted: impl Fn(&Head) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = SessionVerdict> + 'a {
        let rest = self.blocks.len() * BLOCK;
        let packed = self.heads.chunks(BLOCK).zip(&self.blocks).flat_map(move |(heads, block)| {
            match heads.iter().any(wanted) {
                true => read(&block.text(), heads, wanted),
                false => Vec::new(),
            }
        });
        let open = self.heads.get(rest..).unwrap_or_default();
        packed.chain(std::iter::once_with(move || read(&self.open, open, wanted)).flatten())
    }
}

impl Block {
    fn text(&self) -> Vec<u8> {
        zstd::bulk::decompress(&self.packed, self.size).unwrap_or_default()
    }
}

fn read(text: &[u8], heads: &[Head], wanted: impl Fn(&Head) -> bool) -> Vec<SessionVerdict> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let rows = heads.iter().map(|head| (head, lines.next().unwrap_or_default()));
    rows.filter(|(head, _)| wanted(head))
        .map(|(head, line)| serde_json::from_slice(line).unwrap_or_else(|_| unreadable(head)))
        .collect()
}

/// In the place of a session whose text does not read back, as one with a number that is none: it is not left out, and
/// it does not pass.
fn unreadable(head: &Head) -> SessionVerdict {
    let reason = Reason {
        scorer: Scorer::Trace,
        code: "session-unreadable".into(),
        rule: None,
        outcome: Outcome::Fail,
        weight: 1.0,
        text: format!("what was found of `{}` could not be kept: run it again", head.id),
        places: Vec::new(),
    };
    SessionVerdict {
        id: head.id.to_string(),
        outcome: Outcome::Fail,
        score: 0.0,
        reasons: vec![reason],
        scores: Vec::new(),
        asked: None,
        input: crate::Input::default(),
        baselines: Vec::new(),
        attempts: Vec::new(),
        told: 0,
        base: None,
        new: None,
        reproduce: Vec::new(),
    }
}

impl FromIterator<SessionVerdict> for Sessions {
    fn from_iter<I: IntoIterator<Item = SessionVerdict>>(sessions: I) -> Self {
        let mut all = Self::new();
        all.extend(sessions);
        all
    }
}

impl Extend<SessionVerdict> for Sessions {
    fn extend<I: IntoIterator<Item = SessionVerdict>>(&mut self, sessions: I) {
        sessions.into_iter().for_each(|session| self.push(&session));
    }
}

impl PartialEq for Sessions {
    fn eq(&self, other: &Self) -> bool {
        self.heads == other.heads && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Sessions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Sessions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Sessions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of sessions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Sessions, A::Error> {
                let mut all = Sessions::new();
                while let Some(session) = list.next_element::<SessionVerdict>()? {
                    all.push(&session);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_seq(All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::tests::session;

    fn many(count: usize) -> Vec<SessionVerdict> {
        let outcomes: [&[Outcome]; 4] =
            [&[Outcome::Pass], &[Outcome::Review], &[Outcome::Fail, Outcome::Pass], &[Outcome::Fail]];
        (0..count).map(|n| session(&format!("s{n:04}"), outcomes[n % 4])).collect()
    }

    #[test]
    fn they_come_back_as_they_were_in_their_order() {
        for count in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7] {
            let given = many(count);
            let kept: Sessions = given.iter().cloned().collect();
            assert_eq!((kept.len(), kept.is_empty()), (count, count == 0));
            assert_eq!(kept.iter().collect::<Vec<_>>(), given);
            let text = serde_json::to_string(&kept).unwrap();
            assert_eq!(text, serde_json::to_string(&given).unwrap());
            assert_eq!(serde_json::from_str::<Sessions>(&text).unwrap(), kept);
        }
    }

    #[test]
    fn the_gravest_come_first_and_what_passed_every_time_is_not_looked_at() {
        let kept: Sessions = many(200).into_iter().collect();
        let looked: Vec<_> = kept.to_look_at().collect();
        assert_eq!((looked.len(), kept.count_to_look_at(), kept.count_flaky()), (150, 150, 50));
        assert!(looked.is_sorted_by_key(|one| std::cmp::Reverse(one.outcome)));
        assert_eq!(kept.gravest_first().count(), 200);
    }

    #[test]
    fn a_session_that_does_not_read_back_is_not_lost_and_does_not_pass() {
        let mut bad = session("bad", &[Outcome::Pass]);
        bad.score = f64::NAN;
        let kept: Sessions = [session("good", &[Outcome::Pass]), bad].into_iter().collect();
        let back: Vec<_> = kept.iter().map(|one| (one.id, one.outcome)).collect();
        assert_eq!(back, [("good".to_owned(), Outcome::Pass), ("bad".to_owned(), Outcome::Fail)]);
    }
}
