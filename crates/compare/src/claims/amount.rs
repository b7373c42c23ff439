//! Amounts: numbers in digits or words, with money, percent or a unit, brought to one value. It reads no locale:
//! a comma before three digits groups, any other comma ends the number.

use serde::{Deserialize, Serialize};

/// A number as written, in the base unit of what it measures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    pub value: f64,
    /// The smallest step the writing could express: 0.01 for `3.14`, 100000 for `1.2 million`.
    pub step: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// Written as `about`, `roughly`, `~`, or in words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    Percent,
    /// A currency: its code, lower case.
    Money([u8; 3]),
    Metres,
    Grams,
    Seconds,
    Bytes,
    Celsius,
    Fahrenheit,
}

impl Amount {
    pub(crate) fn plain(value: f64) -> Self {
        Self { value, step: 1.0, unit: None, loose: false }
    }

    /// Whether what was read says this, allowing for rounding by the one who wrote the claim: 71 of 70.6, 1.2 million of
    /// 1,234,567. Something finer than what was read is not said by it.
    pub(crate) fn said_by(&self, read: &Amount) -> bool {
        if let (Some(a), Some(b)) = (self.unit, read.unit)
            && a != b
        {
            return false;
        }
        let scale = self.value.abs().max(read.value.abs()).max(1e-12);
        let apart = (self.value - read.value).abs();
        if apart <= scale * 1e-9 {
            return true;
        }
        let converted = self.unit.is_some_and(Unit::converts) && read.unit == self.unit;
        let finer = read.step < self.step * 0.999 || converted;
        let allowed = if self.loose { self.step.max(scale * 0.05) } else { self.step };
        (finer || self.loose) && apart <= allowed * 0.5 + scale * 1e-9
            // 99.6 is not said by "100 %" of something: a rounding may not move a small whole number far
            && apart <= scale * 0.05
    }
}

impl Unit {
    fn converts(self) -> bool {
        !matches!(self, Self::Percent | Self::Money(_))
    }
}

/// What follows a number and scales it or says what it measures: words, lower case, with base unit and factor.
pub(crate) fn unit_of(word: &str) -> Option<(Unit, f64)> {
    use Unit::{Bytes, Celsius, Fahrenheit, Grams, Metres, Percent, Seconds};
    Some(match word {
        "%" | "percent" | "pct" => (Percent, 1.0),
        "mm" | "millimeters" | "millimetres" => (Metres, 0.001),
        "cm" | "centimeters" | "centimetres" => (Metres, 0.01),
        "m" | "meter" | "meters" | "metre" | "metres" => (Metres, 1.0),
        "km" | "kilometer" | "kilometers" | "kilometre" | "kilometres" => (Metres, 1000.0),
        "inch" | "inches" => (Metres, 0.0254),
        "ft" | "foot" | "feet" => (Metres, 0.3048),
        "mile" | "miles" | "mi" => (Metres, 1609.344),
        "mg" => (Grams, 0.001),
        "g" | "gram" | "grams" => (Grams, 1.0),
        "kg" | "kilogram" | "kilograms" | "kilos" => (Grams, 1000.0),
        "lb" | "lbs" | "pounds" => (Grams, 453.592_37),
        "oz" | "ounce" | "ounces" => (Grams, 28.349_523),
        "tonnes" | "tonne" => (Grams, 1e6),
        "ms" | "milliseconds" | "millisecond" => (Seconds, 0.001),
        "s" | "sec" | "secs" | "second" | "seconds" => (Seconds, 1.0),
        "min" | "mins" | "minute" | "minutes" => (Seconds, 60.0),
        "h" | "hr" | "hrs" | "hour" | "hours" => (Seconds, 3600.0),
        "day" | "days" => (Seconds, 86_400.0),
        "week" | "weeks" => (Seconds, 604_800.0),
        "byte" | "bytes" => (Bytes, 1.0),
        "kb" | "kilobytes" => (Bytes, 1e3),
        "mb" | "megabytes" => (Bytes, 1e6),
        "gb" | "gigabytes" => (Bytes, 1e9),
        "tb" | "terabytes" => (Bytes, 1e12),
        "kib" => (Bytes, 1024.0),
        "mib" => (Bytes, 1_048_576.0),
        "gib" => (Bytes, 1_073_741_824.0),
        "°c" | "celsius" => (Celsius, 1.0),
        "°f" | "fahrenheit" => (Fahrenheit, 1.0),
        other => return currency(other).map(|code| (Unit::Money(code), 1.0)),
    })
}

/// A currency by its sign, code or common name.
pub(crate) fn currency(word: &str) -> Option<[u8; 3]> {
    Some(match word {
        "$" | "usd" | "dollar" | "dollars" => *b"usd",
        "€" | "eur" | "euro" | "euros" => *b"eur",
        "£" | "gbp" => *b"gbp",
        "¥" | "jpy" | "yen" => *b"jpy",
        "₹" | "inr" | "rupees" => *b"inr",
        "chf" | "francs" => *b"chf",
        "cad" => *b"cad",
        "aud" => *b"aud",
        "cny" | "rmb" | "yuan" => *b"cny",
        _ => return None,
    })
}

pub(crate) fn scale_of(word: &str) -> Option<f64> {
    Some(match word {
        "hundred" => 1e2,
        "thousand" | "k" => 1e3,
        "million" | "mn" | "mio" => 1e6,
        "billion" | "bn" => 1e9,
        "trillion" => 1e12,
        "dozen" => 12.0,
        _ => return None,
    })
}

/// Digits with grouping and a fraction at the start of `text`: the value, its step and how many bytes it took.
pub(crate) fn digits(text: &str) -> Option<(f64, f64, usize)> {
    let bytes = text.as_bytes();
    let mut at = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    if at == 0 {
        return None;
    }
    let mut plain = text[..at].to_owned();
    if at <= 3 {
        while let Some(group) = bytes.get(at..at + 4)
            && group[0] == b','
            && group[1..].iter().all(u8::is_ascii_digit)
            && !bytes.get(at + 4).is_some_and(u8::is_ascii_digit)
        {
            plain.push_str(&text[at + 1..at + 4]);
            at += 4;
        }
    }
    let mut step = 1.0;
    if bytes.get(at) == Some(&b'.') {
        let places = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        if places > 0 {
            plain.push_str(&text[at..=at + places]);
            at += places + 1;
            step = 10f64.powi(-i32::try_from(places).unwrap_or(0));
        }
    }
    plain.parse().ok().map(|value| (value, step, at))
}

/// A number in words at the start of a list of lower-case words: the value and how many words it took.
pub(crate) fn spelled(words: &[&str]) -> Option<(f64, usize)> {
    let (mut total, mut part, mut took, mut last_small) = (0.0, 0.0, 0, 100.0);
    for (i, word) in words.iter().enumerate() {
        if let Some(small) = small_number(word) {
            // "two three" are two numbers; "twenty three" is one
            if part % 100.0 != 0.0 && !(last_small >= 20.0 && small < 10.0) {
                break;
            }
            part += small;
            last_small = small;
        } else if let Some(scale) = scale_of(word).filter(|_| took > 0 && *word != "k") {
            part *= scale;
            if scale >= 1000.0 {
                total += part;
                part = 0.0;
            }
        } else if *word == "and"
            && took > 0
            && part >= 100.0
            && words.get(i + 1).is_some_and(|w| small_number(w).is_some())
        {
            continue;
        } else {
            break;
        }
        took = i + 1;
    }
    (took > 0).then_some((total + part, took))
}

fn small_number(word: &str) -> Option<f64> {
    const SMALL: [&str; 21] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
    ];
    const TENS: [(&str, f64); 7] = [
        ("thirty", 30.0),
        ("forty", 40.0),
        ("fifty", 50.0),
        ("sixty", 60.0),
        ("seventy", 70.0),
        ("eighty", 80.0),
        ("ninety", 90.0),
    ];
    let small = SMALL.iter().zip(0u8..).find(|(w, _)| **w == word).map(|(_, n)| f64::from(n));
    small.or_else(|| TENS.iter().find(|(w, _)| *w == word).map(|(_, n)| *n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_may_be_grouped() {
        assert_eq!(digits("1,234,567.80 left"), Some((1_234_567.8, 0.01, 12)));
        assert_eq!(digits("2022, 14"), Some((2022.0, 1.0, 4)));
        assert_eq!(digits("1,2"), Some((1.0, 1.0, 1)));
        assert_eq!(digits("x1"), None);
    }

    #[test]
    fn words_count_too() {
        assert_eq!(spelled(&["twenty", "three", "files"]), Some((23.0, 2)));
        assert_eq!(spelled(&["two", "hundred", "and", "five"]), Some((205.0, 4)));
        assert_eq!(spelled(&["three", "million"]), Some((3e6, 2)));
        assert_eq!(spelled(&["two", "three"]), Some((2.0, 1)));
        assert_eq!(spelled(&["files"]), None);
    }

    #[test]
    fn a_claim_may_round_what_was_read_but_not_refine_it() {
        let of = |value, step| Amount { value, step, unit: None, loose: false };
        assert!(of(71.0, 1.0).said_by(&of(70.6, 0.1)));
        assert!(of(1.2e6, 1e5).said_by(&of(1_234_567.0, 1.0)));
        assert!(!of(70.6, 0.1).said_by(&of(71.0, 1.0)));
        assert!(!of(1810.0, 1.0).said_by(&of(1811.0, 1.0)));
        assert!(!of(1.0, 1.0).said_by(&of(0.6, 0.1)));
    }

    #[test]
    fn units_convert_and_currencies_do_not() {
        let of = |value, unit| Amount { value, step: value / 100.0, unit: Some(unit), loose: false };
        assert!(of(5000.0, Unit::Metres).said_by(&of(5001.0, Unit::Metres)));
        assert!(!of(5.0, Unit::Money(*b"usd")).said_by(&of(5.0, Unit::Money(*b"eur"))));
        assert!(Amount { unit: Some(Unit::Percent), ..Amount::plain(7.0) }.said_by(&Amount::plain(7.0)));
    }
}
