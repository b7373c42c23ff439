//! Small words that turn a sentence round: negations, opposites, and the words that make a claim stronger than what
//! it rests on. Plain lists, because each entry is a reason that a reader of a report must be able to check.

use crate::claims::words::{Word, hash_of, stem};
use std::sync::LazyLock;

pub(crate) const NEGATIONS: [&str; 27] = [
    "not",
    "no",
    "never",
    "none",
    "neither",
    "nor",
    "without",
    "cannot",
    "nobody",
    "nothing",
    "don't",
    "doesn't",
    "didn't",
    "isn't",
    "aren't",
    "wasn't",
    "weren't",
    "won't",
    "wouldn't",
    "can't",
    "couldn't",
    "shouldn't",
    "hasn't",
    "haven't",
    "hadn't",
    "unable",
    "denied",
];

const OPPOSITES: [(&str, &str); 46] = [
    ("increase", "decrease"),
    ("rise", "fall"),
    ("rose", "fell"),
    ("win", "lose"),
    ("won", "lost"),
    ("before", "after"),
    ("more", "less"),
    ("more", "fewer"),
    ("north", "south"),
    ("east", "west"),
    ("northern", "southern"),
    ("eastern", "western"),
    ("male", "female"),
    ("above", "below"),
    ("accept", "reject"),
    ("allow", "ban"),
    ("allow", "prohibit"),
    ("open", "closed"),
    ("start", "end"),
    ("began", "ended"),
    ("first", "last"),
    ("buy", "sell"),
    ("bought", "sold"),
    ("high", "low"),
    ("higher", "lower"),
    ("highest", "lowest"),
    ("largest", "smallest"),
    ("oldest", "youngest"),
    ("success", "failure"),
    ("succeeded", "failed"),
    ("alive", "dead"),
    ("born", "died"),
    ("husband", "wife"),
    ("father", "mother"),
    ("son", "daughter"),
    ("brother", "sister"),
    ("support", "oppose"),
    ("guilty", "innocent"),
    ("true", "false"),
    ("approve", "reject"),
    ("enable", "disable"),
    ("import", "export"),
    ("upper", "lower"),
    ("minimum", "maximum"),
    ("best", "worst"),
    ("left", "right"),
];

const STRONG: [&str; 44] = [
    "all",
    "always",
    "any",
    "because",
    "best",
    "caused",
    "causing",
    "due",
    "earliest",
    "entire",
    "every",
    "everyone",
    "exactly",
    "exclusively",
    "fastest",
    "first",
    "fully",
    "greatest",
    "half",
    "highest",
    "largest",
    "last",
    "latest",
    "least",
    "led",
    "longest",
    "lowest",
    "main",
    "major",
    "majority",
    "most",
    "must",
    "never",
    "oldest",
    "only",
    "primarily",
    "primary",
    "smallest",
    "sole",
    "solely",
    "therefore",
    "unique",
    "worst",
    "youngest",
];

static NEGATION_HASHES: LazyLock<Vec<u64>> = LazyLock::new(|| sorted(&NEGATIONS));
static STRONG_HASHES: LazyLock<Vec<u64>> = LazyLock::new(|| sorted(&STRONG));
static OPPOSITE_STEMS: LazyLock<Vec<(u64, u64)>> = LazyLock::new(|| {
    let mut both: Vec<_> = OPPOSITES
        .iter()
        .map(|(a, b)| (hash_of(stem(a)), hash_of(stem(b))))
        .flat_map(|(a, b)| [(a, b), (b, a)])
        .collect();
    both.sort_unstable();
    both
});

fn sorted(words: &[&str]) -> Vec<u64> {
    let mut hashes: Vec<u64> = words.iter().map(|w| hash_of(w)).collect();
    hashes.sort_unstable();
    hashes
}

pub(crate) fn negates(word: &Word) -> bool {
    NEGATION_HASHES.binary_search(&word.exact).is_ok()
}

/// A word that claims much: a superlative, a quantity of all or none, a cause.
pub(crate) fn strengthens(word: &Word) -> bool {
    STRONG_HASHES.binary_search(&word.exact).is_ok()
}

/// The stems of the opposites of a word.
pub(crate) fn opposites(word: &Word) -> impl Iterator<Item = u64> {
    let list = &*OPPOSITE_STEMS;
    let from = list.partition_point(|(a, _)| *a < word.stem);
    let stem = word.stem;
    list[from..].iter().take_while(move |(a, _)| *a == stem).map(|(_, b)| *b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::words::words;

    #[test]
    fn cues_are_found_in_any_form() {
        let of = |text: &str| words(text)[0];
        assert!(negates(&of("didn't")) && negates(&of("Never")) && !negates(&of("note")));
        assert!(strengthens(&of("Only")) && !strengthens(&of("online")));
        assert_eq!(opposites(&of("increased")).collect::<Vec<_>>(), [of("decreasing").stem]);
    }
}
