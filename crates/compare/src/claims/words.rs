//! Words with their places: the one tokeniser of claims and groundedness. A word is a run of letters and digits;
//! everything else separates, so `emma.johnson@example.com` holds the name Emma Johnson. It allocates nothing per
//! word: a word is its range and two hashes.

use std::ops::Range;

/// One word of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Hash of the word, lower case.
    pub(crate) exact: u64,
    /// Hash of its stem: `reports`, `reported` and `reporting` are one.
    pub(crate) stem: u64,
    /// Hash of the first five letters of its stem, or nothing for a shorter one.
    pub(crate) head: u64,
    pub(crate) upper: bool,
    pub(crate) digits: bool,
    pub(crate) common: bool,
}

impl Word {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(crate) fn of<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.range()).unwrap_or_default()
    }
}

/// The words of `text`, in order. Texts over four gigabytes are read up to there.
pub(crate) fn words(text: &str) -> Vec<Word> {
    let mut found = Vec::with_capacity(text.len() / 6);
    let mut lower = String::with_capacity(32);
    let mut chars = text.char_indices().peekable();
    while let Some((start, first)) = chars.next() {
        if !first.is_alphanumeric() {
            continue;
        }
        lower.clear();
        push_lower(&mut lower, first);
        let (mut end, mut digits) = (start + first.len_utf8(), first.is_ascii_digit());
        while let Some(&(at, c)) = chars.peek() {
            if c.is_alphanumeric() {
                push_lower(&mut lower, c);
                digits |= c.is_ascii_digit();
                end = at + c.len_utf8();
                chars.next();
            } else if (c == '\'' || c == '’') && inside_word(text, at + c.len_utf8()) {
                // don't, Bob's: the rest is an ending, not a word of its own
                chars.next();
                lower.push('\'');
            } else {
                break;
            }
        }
        let (Ok(from), Ok(to)) = (u32::try_from(start), u32::try_from(end)) else { break };
        found.push(word(from, to, &lower, first.is_uppercase(), digits));
    }
    found
}

fn inside_word(text: &str, at: usize) -> bool {
    let mut rest = text.get(at..).unwrap_or_default().chars();
    let letters = rest.by_ref().take_while(|c| c.is_alphabetic()).count();
    (1..=2).contains(&letters)
}

fn push_lower(into: &mut String, c: char) {
    match c {
        'A'..='Z' => into.push(c.to_ascii_lowercase()),
        c if c.is_ascii() => into.push(c),
        c => into.extend(c.to_lowercase().map(unaccented)),
    }
}

/// The plain letter of the accented ones that names are most often retyped without.
fn unaccented(c: char) -> char {
    match c {
        'à'..='å' => 'a',
        'ç' | 'ć' | 'č' => 'c',
        'è'..='ë' | 'ę' | 'ě' => 'e',
        'ì'..='ï' | 'ı' => 'i',
        'ñ' | 'ń' | 'ň' => 'n',
        'ò'..='ö' | 'ø' | 'ő' => 'o',
        'ù'..='ü' | 'ű' | 'ů' => 'u',
        'ý' | 'ÿ' => 'y',
        'š' | 'ś' | 'ş' => 's',
        'ž' | 'ź' | 'ż' => 'z',
        'ł' => 'l',
        c => c,
    }
}

fn word(start: u32, end: u32, lower: &str, upper: bool, digits: bool) -> Word {
    let whole = lower.strip_suffix("'s").unwrap_or(lower);
    let stem = stem(whole);
    let head = stem
        .char_indices()
        .nth(5)
        .map_or(if stem.chars().count() == 5 { hash(stem) } else { 0 }, |(at, _)| hash(&stem[..at]));
    Word { start, end, exact: hash(whole), stem: hash(stem), head, upper, digits, common: is_common(lower) }
}

/// The hash of a word as `Word::exact` has it.
pub(crate) fn hash_of(word: &str) -> u64 {
    let mut lower = String::with_capacity(word.len());
    word.chars().for_each(|c| push_lower(&mut lower, c));
    hash(lower.strip_suffix("'s").unwrap_or(&lower))
}

/// FNV-1a: the same on every machine, so that a report is.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Endings taken off until what is left is shared by the forms of a word. It is rough by intent: a wrong merge of
/// two rare words costs less here than a missed plural.
pub(crate) fn stem(word: &str) -> &str {
    const ENDINGS: [&str; 22] = [
        "izations", "ization", "ations", "ation", "ments", "ment", "ingly", "edly", "ness", "ings", "ing",
        "ions", "ion", "ies", "ers", "er", "ed", "es", "ly", "s", "y", "e",
    ];
    if !word.is_ascii() || word.bytes().any(|b| b.is_ascii_digit()) || word.ends_with("ss") {
        return word;
    }
    for ending in ENDINGS {
        if let Some(root) = word.strip_suffix(ending).filter(|r| r.len() >= 3) {
            return undoubled(root);
        }
    }
    word
}

/// `stopped` and `stop`, `copies` and `copy` (whose `y` and `ie` are gone by now) share a root.
fn undoubled(root: &str) -> &str {
    let bytes = root.as_bytes();
    match bytes {
        [.., a, b] if a == b && root.len() > 3 && !b"lsz".contains(b) => &root[..root.len() - 1],
        [.., b'i' | b'e'] if root.len() > 3 => &root[..root.len() - 1],
        _ => root,
    }
}

/// Words that carry no matter of their own.
fn is_common(word: &str) -> bool {
    COMMON.binary_search(&word).is_ok()
}

const COMMON: [&str; 150] = [
    "a", "about", "above", "after", "again", "all", "also", "although", "am", "an", "and", "any", "are",
    "as", "at", "be", "because", "been", "before", "being", "below", "between", "both", "but", "by", "can",
    "could", "did", "do", "does", "doing", "down", "during", "each", "etc", "even", "ever", "few", "for",
    "from", "further", "had", "has", "have", "having", "he", "her", "here", "hers", "herself", "him",
    "himself", "his", "how", "however", "i", "if", "in", "into", "is", "it", "it's", "its", "itself", "just",
    "let", "like", "may", "me", "might", "more", "most", "must", "my", "myself", "of", "off", "on", "once",
    "one", "only", "or", "other", "our", "ours", "out", "over", "own", "per", "quite", "rather", "really",
    "s", "same", "shall", "she", "should", "since", "so", "some", "such", "t", "than", "that", "the",
    "their", "theirs", "them", "then", "there", "these", "they", "this", "those", "though", "through",
    "thus", "to", "too", "under", "until", "up", "upon", "us", "very", "via", "was", "we", "well", "were",
    "what", "when", "where", "whereas", "whether", "which", "while", "who", "whom", "whose", "why", "will",
    "with", "within", "would", "yet", "you", "your", "yours", "yourself",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_letters_and_digits_with_its_place() {
        let text = "Zoë's 2 files: emma.johnson@example.com";
        let found: Vec<&str> = words(text).iter().map(|w| w.of(text)).collect();
        assert_eq!(found, ["Zoë's", "2", "files", "emma", "johnson", "example", "com"]);
        assert_eq!(words(text)[0].exact, hash_of("zoe"));
    }

    #[test]
    fn forms_of_a_word_share_a_stem() {
        for forms in [
            ["reports", "reported"],
            ["copies", "copy"],
            ["stopped", "stop"],
            ["manage", "managing"],
            ["payments", "pay"],
        ] {
            let [a, b] = forms.map(|f| words(f)[0].stem);
            assert_eq!(a, b, "{forms:?}: {} {}", stem(forms[0]), stem(forms[1]));
        }
        assert_ne!(words("press")[0].stem, words("pre")[0].stem);
    }

    #[test]
    fn the_common_words_can_be_searched() {
        assert!(COMMON.is_sorted());
        assert!(is_common("the") && !is_common("balance"));
    }
}
