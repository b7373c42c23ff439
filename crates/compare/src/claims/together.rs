//! Values that are said together must have been read together. A date and a time side by side are one moment, `10:00 –
//! 11:00` is one stretch, and the items of a list are those of one list: if the first half was read with another second
//! half, and never with this one, that other is the finding.

use super::evidence::Seen;
use super::extract::Raw;
use super::link::Judge;
use super::report::Quoted;
use super::scan::Value;

/// So many bytes at most between a date and its time.
const CLOSE: usize = 6;

impl Judge<'_> {
    /// What should stand beside the claim's neighbour instead of it.
    pub(super) fn apart(&self, raw: &Raw) -> Option<(Option<String>, Quoted)> {
        raw.value.as_ref()?;
        let found =
            self.other_moment(raw).or_else(|| self.other_side(raw)).or_else(|| self.named_twice(raw))?;
        let slot = found.slot.map(|s| self.evidence.slots[s].key.clone());
        Some((slot, self.quote(found.piece, found.found.range.clone())))
    }

    fn read_before(&self) -> &[Seen] {
        let before = self.evidence.seen.partition_point(|s| self.evidence.pieces[s.piece].act < self.act);
        &self.evidence.seen[..before]
    }

    /// The claim that stands right before or after this one, with at most so many bytes between.
    fn neighbour(&self, raw: &Raw, after: bool, most: usize) -> Option<&Raw> {
        self.answer.claims.iter().find(|other| match after {
            true => other.range.start >= raw.range.end && other.range.start - raw.range.end <= most,
            false => other.range.end <= raw.range.start && raw.range.start - other.range.end <= most,
        })
    }

    /// A date and a time that stand side by side.
    fn other_moment(&self, raw: &Raw) -> Option<&Seen> {
        let time = matches!(raw.value, Some(Value::Time(_)));
        let date = matches!(raw.value, Some(Value::Date(_)));
        if !time && !date {
            return None;
        }
        let beside = self.neighbour(raw, date, CLOSE)?;
        let moment = |v: &Option<Value>| match v {
            Some(Value::Time(_)) => date,
            Some(Value::Date(_)) => time,
            _ => false,
        };
        let (mine, theirs) = (raw.value.as_ref()?, beside.value.as_ref().filter(|_| moment(&beside.value))?);
        let seen = self.read_before();
        let mut rival = None;
        for (at, one) in seen.iter().enumerate().filter(|(_, s)| theirs.said_by(&s.found.value)) {
            let next = if date { at.checked_sub(1).map(|i| &seen[i]) } else { seen.get(at + 1) };
            let Some(next) = next.filter(|n| n.piece == one.piece && mine.like(&n.found.value)) else {
                continue;
            };
            let (first, second) = if date { (next, one) } else { (one, next) };
            if second.found.range.start - first.found.range.end > CLOSE {
                continue;
            }
            if mine.said_by(&next.found.value) {
                return None;
            }
            rival = rival.or(Some(next).filter(|n| self.is_fact(n.piece)));
        }
        // a moment may be put together of a record's date and its times
        let together = |s: &&Seen| mine.said_by(&s.found.value) && !self.is_fact(s.piece);
        if seen.iter().any(|s| together(&s)) { None } else { rival }
    }

    /// The two ends of a stretch of time.
    fn other_side(&self, raw: &Raw) -> Option<&Seen> {
        let side = raw.side?;
        let partner =
            self.neighbour(raw, side == "start", 12).filter(|p| p.side.is_some_and(|s| s != side))?;
        let (mine, theirs) = (raw.value.as_ref()?, partner.value.as_ref()?);
        let of =
            |s: &Seen, side: &str| s.slot.is_some_and(|at| self.evidence.slots[at].key.starts_with(side));
        let partners: Vec<&Seen> = self
            .read_before()
            .iter()
            .filter(|s| theirs.said_by(&s.found.value) && !of(s, side) && s.slot.is_some())
            .collect();
        let mut rival = None;
        for one in partners {
            let inside = self.read_before().iter().filter(|s| s.record == one.record);
            for seen in inside.filter(|s| mine.like(&s.found.value) && of(s, side)) {
                if mine.said_by(&seen.found.value) {
                    return None;
                }
                rival = rival.or(Some(seen).filter(|s| self.is_fact(s.piece)));
            }
        }
        rival
    }

    /// Of a list of which every item but one is said, one is said twice.
    fn named_twice(&self, raw: &Raw) -> Option<&Seen> {
        let mine =
            raw.value.as_ref().filter(|v| matches!(v, Value::Email(_) | Value::Url(_) | Value::Id(_)))?;
        let block = &self.answer.statements[raw.statement];
        let scope = |other: &Raw| {
            let theirs = &self.answer.statements[other.statement];
            theirs.under == block.under && theirs.label == block.label || theirs.range == block.range
        };
        let said: Vec<&Value> =
            self.answer.claims.iter().filter(|c| scope(c)).filter_map(|c| c.value.as_ref()).collect();
        if said.iter().filter(|v| **v == mine).count() < 2 {
            return None;
        }
        let seen = self.read_before();
        for home in
            seen.iter().filter(|s| mine.said_by(&s.found.value) && s.slot.is_some() && self.is_fact(s.piece))
        {
            let list: Vec<&Seen> =
                seen.iter().filter(|s| s.slot == home.slot && mine.like(&s.found.value)).collect();
            let missing: Vec<&&Seen> =
                list.iter().filter(|s| !said.iter().any(|v| v.said_by(&s.found.value))).collect();
            if list.len() > 1 && missing.len() == 1 && list.len() <= said.len() {
                return Some(missing[0]);
            }
        }
        None
    }
}
