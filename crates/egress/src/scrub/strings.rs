//! The texts within a message, each with the place where it stands: every string of a JSON document, or the message
//! as it is. It reads what comes without judging it; what is no JSON is one text.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A text, by what leads to it, and of each of its bytes where it is written and how long.
pub(super) struct Text {
    pub(super) path: u64,
    pub(super) bytes: Vec<(u8, usize, usize)>,
}

/// Deeper documents are read as one text.
const DEEPEST: usize = 64;

pub(super) fn texts(message: &[u8]) -> Vec<Text> {
    let trimmed = message.trim_ascii();
    let is_json = matches!(trimmed, [b'{', .., b'}'] | [b'[', .., b']'] | [b'"', .., b'"']);
    let found = is_json.then(|| Reader { text: message, at: 0, path: Vec::new(), found: Vec::new() }.read());
    found.flatten().unwrap_or_else(|| vec![whole(message)])
}

fn whole(message: &[u8]) -> Text {
    Text { path: 0, bytes: message.iter().enumerate().map(|(at, &byte)| (byte, at, 1)).collect() }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    path: Vec<u64>,
    found: Vec<Text>,
}

impl Reader<'_> {
    fn read(mut self) -> Option<Vec<Text>> {
        self.value()?;
        self.space();
        (self.at == self.text.len()).then_some(self.found)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn next(&mut self, expected: u8) -> Option<()> {
        self.space();
        (self.peek() == Some(expected)).then(|| self.at += 1)
    }

    fn value(&mut self) -> Option<()> {
        self.space();
        if self.path.len() > DEEPEST {
            return None;
        }
        match self.peek()? {
            b'{' => self.members(b'}'),
            b'[' => self.members(b']'),
            b'"' => {
                let bytes = self.string()?;
                let mut hasher = DefaultHasher::new();
                self.path.hash(&mut hasher);
                self.found.push(Text { path: hasher.finish(), bytes });
                Some(())
            }
            _ => {
                let start = self.at;
                let part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
                while self.peek().is_some_and(part) {
                    self.at += 1;
                }
                (self.at > start).then_some(())
            }
        }
    }

    /// The members of an object by their names, or of a list by their numbers.
    fn members(&mut self, close: u8) -> Option<()> {
        self.at += 1;
        self.space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Some(());
        }
        for number in 0u64.. {
            let mut step = number;
            if close == b'}' {
                self.space();
                let mut hasher = DefaultHasher::new();
                self.string()?.iter().for_each(|(byte, ..)| hasher.write_u8(*byte));
                step = hasher.finish();
                self.next(b':')?;
            }
            self.path.push(step);
            self.value()?;
            self.path.pop();
            if self.next(b',').is_none() {
                break;
            }
        }
        self.next(close)
    }

    fn string(&mut self) -> Option<Vec<(u8, usize, usize)>> {
        self.next(b'"')?;
        let mut bytes = Vec::new();
        loop {
            let start = self.at;
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(bytes);
                }
                b'\\' => {
                    let escaped = *self.text.get(start + 1)?;
                    self.at += 2;
                    let one = match escaped {
                        b'"' | b'\\' | b'/' => char::from(escaped),
                        b'b' => '\u{8}',
                        b'f' => '\u{c}',
                        b'n' => '\n',
                        b'r' => '\r',
                        b't' => '\t',
                        b'u' => {
                            let digits = std::str::from_utf8(self.text.get(self.at..self.at + 4)?).ok()?;
                            self.at += 4;
                            // Halves of a pair stand for no text that is looked for.
                            char::from_u32(u32::from_str_radix(digits, 16).ok()?).unwrap_or('\u{fffd}')
                        }
                        _ => return None,
                    };
                    let length = self.at - start;
                    let utf8 = one.encode_utf8(&mut [0; 4]).as_bytes().to_vec();
                    bytes.extend(utf8.into_iter().map(|byte| (byte, start, length)));
                }
                byte => {
                    self.at += 1;
                    bytes.push((byte, start, 1));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(message: &str) -> Vec<String> {
        let text = |text: &Text| {
            String::from_utf8_lossy(&text.bytes.iter().map(|b| b.0).collect::<Vec<_>>()).into_owned()
        };
        texts(message.as_bytes()).iter().map(text).collect()
    }

    #[test]
    fn strings_are_found_by_what_leads_to_them() {
        assert_eq!(shown(r#" {"a": ["x\u0041\n", 1, null], "b": {"c": "y"}} "#), ["xA\n", "y"]);
        assert_eq!(shown("plain \"text\""), ["plain \"text\""]);
        assert_eq!(shown(r#"{"a": "x"} {"a": "y"}"#), [r#"{"a": "x"} {"a": "y"}"#]);
        assert_eq!(shown(r#"{"a": tru"#), [r#"{"a": tru"#]);
        let path = |message: &str| texts(message.as_bytes()).last().unwrap().path;
        assert_eq!(path(r#"{"a": {"b": "x"}}"#), path(r#"{"z": 1, "a": {"b": "other"}}"#));
        assert_ne!(path(r#"{"a": {"b": "x"}}"#), path(r#"{"b": {"a": "x"}}"#));
        assert_ne!(path(r#"["x"]"#), path(r#"[1, "x"]"#));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(message in prop::collection::vec(any::<u8>(), 0..200), json in "[\\[\\]{}\":,a\\\\u0 ]{0,60}") {
            for message in [&message[..], json.as_bytes()] {
                for text in texts(message) {
                    for (_, at, length) in text.bytes {
                        prop_assert!(at + length <= message.len());
                    }
                }
            }
        }

        #[test]
        fn what_serde_writes_is_read(text in ".{0,20}") {
            let written = serde_json::json!({ "a": [text], "b": 1.5e3 }).to_string();
            prop_assert_eq!(shown(&written), [text]);
        }
    }
}
