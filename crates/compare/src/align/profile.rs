//! What alignment needs of an act, computed once: numbers that are compared in no time.

use crate::effects::Effects;
use cofferdam_model::{Act, ActKind, Run, Status};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// What it costs to leave an act unpaired. What was done weighs more than what was said; of a reading and an effect that
/// changed places, the effect stays.
const EFFECT: u32 = READING + 1;
const READING: u32 = 2_000_000;
const WORDS: u32 = 1_000_000;
/// Leaves beyond this many are sampled, lowest hash first, so that both sides sample the same ones…
const LEAVES: usize = 64;
/// …and so are words, of which a few tell enough.
const SAMPLE: usize = 16;

/// Both runs, with numbers that mean the same in both.
pub(super) struct Profiles<'a> {
    pub(super) base: Side<'a>,
    pub(super) new: Side<'a>,
}

/// The inner loop goes over `briefs` only: they are small and lie side by side.
pub(super) struct Side<'a> {
    pub(super) briefs: Vec<Brief>,
    /// Hashes of the leaves of each act's arguments, or of its words, sorted; made when two of them are compared.
    parts: Vec<OnceCell<Vec<u64>>>,
    acts: &'a [Act],
}

#[derive(Clone, Copy)]
pub(super) struct Brief {
    /// Everything that can be seen of it, numbered.
    content: u32,
    /// Kind and name, numbered.
    class: u32,
    /// Kind, name and arguments, numbered.
    key: u32,
    pub(super) alone: u32,
    status: Status,
    is_words: bool,
}

#[derive(Default)]
struct Numbers<'a> {
    classes: HashMap<(ActKind, Cow<'a, str>), u32>,
    keys: HashMap<u64, u32>,
    contents: HashMap<u64, u32>,
}

fn number<K: Hash + Eq>(table: &mut HashMap<K, u32>, key: K) -> u32 {
    let next = table.len() as u32;
    *table.entry(key).or_insert(next)
}

impl<'a> Profiles<'a> {
    pub(super) fn of(base: &'a Run, new: &'a Run, effects: &Effects) -> Self {
        let mut numbers = Numbers::default();
        Self { base: Side::of(base, effects, &mut numbers), new: Side::of(new, effects, &mut numbers) }
    }

    /// None where the two cannot be one act that changed.
    pub(super) fn pair(&self, i: usize, j: usize) -> Option<u64> {
        let (a, b) = (self.base.briefs[i], self.new.briefs[j]);
        a.pair(b, || unlike(self.base.parts(i), self.new.parts(j)))
    }
}

impl<'a> Side<'a> {
    fn of(run: &'a Run, effects: &Effects, numbers: &mut Numbers<'a>) -> Self {
        let mut side = Self {
            briefs: Vec::with_capacity(run.acts.len()),
            parts: vec![OnceCell::new(); run.acts.len()],
            acts: &run.acts,
        };
        for act in &run.acts {
            let is_words = crate::delta::is_words(act.kind);
            let class = number(&mut numbers.classes, (act.kind, shape(act)));
            let key = hash((class, &act.name, digest(&act.args, 0)));
            let content = hash((key, &act.text, act.status as u8));
            side.briefs.push(Brief {
                content: number(&mut numbers.contents, content),
                class,
                key: number(&mut numbers.keys, key),
                alone: match () {
                    () if is_words => WORDS,
                    () if effects.changes(act) => EFFECT,
                    () => READING,
                },
                status: act.status,
                is_words,
            });
        }
        side
    }

    fn parts(&self, at: usize) -> &[u64] {
        self.parts[at].get_or_init(|| parts(&self.acts[at], self.briefs[at].is_words))
    }
}

impl Brief {
    pub(super) fn equals(self, other: Self) -> bool {
        self.content == other.content
    }

    /// The cost of a pair; how unlike it is, in thousandths, is asked only where it matters.
    pub(super) fn pair(self, other: Self, unlike: impl FnOnce() -> u64) -> Option<u64> {
        if self.content == other.content {
            return Some(0);
        }
        if self.class != other.class {
            return None;
        }
        let thousandths = if self.key == other.key && !self.is_words {
            50 + 50 * u64::from(self.status != other.status)
        } else {
            // Half, so that two calls that changed places are not two calls that changed.
            500 + unlike() * 4 / 10
        };
        Some(u64::from(self.alone + other.alone) / 1000 * thousandths)
    }
}

fn parts(act: &Act, is_words: bool) -> Vec<u64> {
    let mut parts = Vec::new();
    if is_words {
        parts.extend(act.text.split_whitespace().take(1024).map(hash));
    } else {
        leaves(&act.args, 0, &mut parts, 0);
    }
    parts.sort_unstable();
    parts.truncate(if is_words { SAMPLE } else { LEAVES });
    parts
}

/// In thousandths: the share of parts that only one of them has.
fn unlike(a: &[u64], b: &[u64]) -> u64 {
    let (mut i, mut j, mut shared) = (0, 0, 0_u64);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        shared += u64::from(x == y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    let most = a.len().max(b.len()) as u64;
    (most - shared.min(most)).saturating_mul(1000).checked_div(most).unwrap_or(1000)
}

/// The name as far as it tells what was called: of a request the segments of its path that are no ids.
fn shape(act: &Act) -> Cow<'_, str> {
    if act.kind != ActKind::Egress {
        return Cow::Borrowed(&act.name);
    }
    let is_id = |segment: &str| {
        let digits = segment.chars().filter(char::is_ascii_digit).count();
        digits > 0 && (digits * 2 >= segment.len() || segment.len() >= 16)
    };
    let segments = act.name.split('/').map(|segment| if is_id(segment) { "*" } else { segment });
    Cow::Owned(segments.collect::<Vec<_>>().join("/"))
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = Quick(0);
    value.hash(&mut hasher);
    hasher.finish()
}

/// Eight bytes at a time, the same everywhere. Whoever makes two texts collide gets them paired, and told as changed: what
/// differs within a pair is looked up in the acts themselves.
struct Quick(u64);

impl Quick {
    fn mix(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(chunk.try_into().map_or(0, u64::from_le_bytes));
        }
        let rest = chunks.remainder();
        let last = rest.iter().fold(rest.len() as u64, |word, byte| word << 8 | u64::from(*byte));
        self.mix(last);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The same for equal values, in whatever order an object keeps its fields.
fn digest(value: &Value, depth: usize) -> u64 {
    match value {
        Value::Object(map) if depth < 64 => {
            map.iter().map(|(key, inner)| hash((key, digest(inner, depth + 1)))).fold(7, u64::wrapping_add)
        }
        Value::Array(items) if depth < 64 => {
            items.iter().fold(3, |so_far, inner| hash((so_far, digest(inner, depth + 1))))
        }
        leaf => hash(leaf),
    }
}

fn leaves(value: &Value, path: u64, into: &mut Vec<u64>, depth: usize) {
    match value {
        Value::Object(map) if depth < 64 => {
            map.iter().for_each(|(key, inner)| leaves(inner, hash((path, key)), into, depth + 1));
        }
        Value::Array(items) if depth < 64 => {
            let numbered = items.iter().enumerate();
            numbered.for_each(|(at, inner)| leaves(inner, hash((path, at)), into, depth + 1));
        }
        Value::Null => {}
        leaf => into.push(hash((path, digest(leaf, depth)))),
    }
}
