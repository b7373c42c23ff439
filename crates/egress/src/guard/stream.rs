//! Finds shapes in a stream of bytes, however it is cut, and holds back only what may be the start of one.

use super::shapes::{ASSIGNMENT, JWT, SHAPES, Shape};
use super::{card, random};
use crate::forms::Finder;
use aho_corasick::{AhoCorasick, MatchKind};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::util::pool::Pool;
use regex_automata::{Anchored, Input, MatchKind as DfaMatchKind, util::syntax};
use std::sync::LazyLock;

/// No secret of a known shape is longer; the walk from a literal ends here, and so does what is held back.
const REACH: usize = 16 * 1024;
/// How far back an escape can begin that ends just before a match.
pub(super) const LOOK_BACK: usize = 6;

/// Built once, for all sessions: it holds no secret.
pub(super) static SHAPED: LazyLock<Option<Shaped>> = LazyLock::new(Shaped::build);

pub(super) struct Shaped {
    literals: AhoCorasick,
    /// Tells where a literal may be under way at the end of a text.
    starts: Finder,
    expressions: DFA,
    /// The states that the expressions were found to have: worked out once, not again for every body.
    caches: Pool<Cache, Box<dyn Fn() -> Cache + Send + Sync>>,
}

/// One match, by its place in the text.
pub(super) struct Span {
    pub(super) shape: &'static Shape,
    pub(super) start: usize,
    pub(super) end: usize,
}

enum Walk {
    Match(&'static Shape, usize),
    Nothing,
    /// The text ends before it is decided.
    Open,
}

impl Shaped {
    /// None if the table is wrong, which a test rules out.
    fn build() -> Option<Self> {
        let mut literals: Vec<&[u8]> = SHAPES.iter().flat_map(|s| s.literals).map(|l| l.as_bytes()).collect();
        literals.sort_unstable();
        literals.dedup();
        let patterns: Vec<&str> = SHAPES.iter().map(|shape| shape.pattern).collect();
        let expressions = DFA::builder()
            .configure(DFA::config().match_kind(DfaMatchKind::All).starts_for_each_pattern(false))
            .syntax(syntax::Config::new().unicode(false).utf8(false))
            .thompson(regex_automata::nfa::thompson::Config::new().utf8(false))
            .build_many(&patterns)
            .ok()?;
        let starts = Finder::new(&literals);
        let literals = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&literals).ok()?;
        let another = expressions.clone();
        let caches: Box<dyn Fn() -> Cache + Send + Sync> = Box::new(move || another.create_cache());
        Some(Self { literals, starts, expressions, caches: Pool::new(caches) })
    }

    /// All matches that are certain, and how much of the text is. `before` is what stood before it.
    pub(super) fn scan(&self, before: &[u8], text: &[u8], last: bool) -> (Vec<Span>, usize) {
        let mut spans: Vec<Span> = Vec::new();
        let (mut from, mut taken) = (0, 0);
        let mut token = Token::default();
        let mut certain = text.len();
        while let Some(literal) = self.literals.find(aho_corasick::Input::new(text).range(from..)) {
            let start = literal.start();
            from = start + 1;
            let hopeless =
                text.get(literal.range()) == Some(JWT.0.as_bytes()) && !token.may_start(text, start);
            match if hopeless { Walk::Nothing } else { self.walk(text, start, last) } {
                Walk::Nothing => {}
                Walk::Open => {
                    certain = start;
                    break;
                }
                Walk::Match(shape, end) if stands(shape, before, text, start, end) => {
                    if add(&mut spans, Span { shape, start, end }) {
                        (from, taken) = (end, end);
                    }
                }
                Walk::Match(..) => {}
            }
        }
        let under_way = if last { text.len() } else { self.starts.pending(text, taken) };
        (spans, certain.min(under_way))
    }

    /// The longest match of any shape that starts here.
    fn walk(&self, text: &[u8], start: usize, last: bool) -> Walk {
        let cache = &mut *self.caches.get();
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        let Ok(mut state) = self.expressions.start_state_forward(cache, &input) else { return Walk::Nothing };
        let mut found = Walk::Nothing;
        let shape =
            |cache: &Cache, state| SHAPES.get(self.expressions.match_pattern(cache, state, 0).as_usize());
        let rest = text.get(start..).unwrap_or_default();
        for (offset, &byte) in rest.iter().take(REACH).enumerate() {
            let Ok(next) = self.expressions.next_state(cache, state, byte) else { return found };
            state = next;
            if state.is_match() {
                // The automaton knows of a match one byte late.
                found = shape(cache, state).map_or(found, |shape| Walk::Match(shape, start + offset));
            } else if state.is_dead() || state.is_quit() {
                return found;
            }
        }
        if !last && rest.len() < REACH {
            return Walk::Open;
        }
        match self.expressions.next_eoi_state(cache, state) {
            Ok(state) if state.is_match() => {
                shape(cache, state).map_or(found, |shape| Walk::Match(shape, start + rest.len().min(REACH)))
            }
            _ => found,
        }
    }
}

/// The text that could be a token's first part. Starts of tokens are cheap to write, and each would be followed to
/// the same end: it is looked for once.
#[derive(Default)]
struct Token {
    end: usize,
}

impl Token {
    fn may_start(&mut self, text: &[u8], start: usize) -> bool {
        if self.end <= start {
            let rest = text.get(start..).unwrap_or_default();
            let part = |b: &&u8| b.is_ascii_alphanumeric() || b"_-".contains(b);
            self.end = start + rest.iter().take_while(part).count();
        }
        let follows = text.get(self.end..).unwrap_or_default();
        let second = b".eyJ";
        self.end - start <= JWT.1 && (second.starts_with(follows) || follows.starts_with(second))
    }
}

/// Adds a match and says whether its text is settled. What a name is given may have a shape of its own, which
/// says more than the name: it is looked through again, and the shape takes the name's place.
fn add(spans: &mut Vec<Span>, span: Span) -> bool {
    let overlaps = spans.last().is_some_and(|before| before.end > span.start);
    match (span.shape.name == ASSIGNMENT, overlaps) {
        (true, true) => return false,
        (false, true) => drop(spans.pop()),
        _ => {}
    }
    let settled = span.shape.name != ASSIGNMENT;
    spans.push(span);
    settled
}

/// Whether a match is a thing of its own and, where randomness decides, random.
fn stands(shape: &Shape, before: &[u8], text: &[u8], start: usize, end: usize) -> bool {
    let goes_on = text.get(end).is_some_and(u8::is_ascii_alphanumeric);
    let part = shape.alone && !begins(before, text.get(..start).unwrap_or_default());
    let dull =
        shape.name == ASSIGNMENT && !text.get(start..end).is_some_and(|t| random::looks_drawn(assigned(t)));
    !goes_on && !part && !dull
}

/// The value of `name = "value"`.
fn assigned(text: &[u8]) -> &[u8] {
    let sign = text.iter().position(|b| b":=".contains(b)).map_or(0, |at| at + 1);
    let value = text.get(sign..).unwrap_or_default();
    let quote = |b: &u8| b.is_ascii_whitespace() || b"\\\"'".contains(b);
    value.get(value.iter().take_while(|b| quote(b)).count()..).unwrap_or_default()
}

/// Whether a word may begin here: after a sign, or after an escape that stands for one (`\n`, `%3D`, `\u003d`).
fn begins(before: &[u8], text: &[u8]) -> bool {
    let back = |n: usize| {
        let from_text = text.len().checked_sub(n).and_then(|at| text.get(at));
        from_text
            .or_else(|| before.len().checked_sub(n - text.len().min(n)).and_then(|at| before.get(at)))
            .copied()
    };
    match back(1) {
        Some(last) if last.is_ascii_alphanumeric() => {
            let escaped = back(2) == Some(b'\\') && b"nrtbf".contains(&last);
            escaped || back(3) == Some(b'%') || (back(6) == Some(b'\\') && back(5) == Some(b'u'))
        }
        _ => true,
    }
}

/// Card numbers, which have no literal to start from, and how much of the text they leave certain.
pub(super) fn cards(before: &[u8], text: &[u8], last: bool) -> (Vec<(usize, usize)>, usize) {
    let lead = card::lead(before, text);
    let certain = if last { text.len() } else { card::pending(text).max(lead) };
    let mut found = Vec::new();
    let mut from = lead;
    while let Some(number) = card::find(text, from).filter(|number| number.end <= certain) {
        from = number.end;
        found.push((number.start, number.end));
    }
    (found, certain)
}
