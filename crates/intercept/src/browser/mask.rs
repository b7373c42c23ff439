//! What was typed into fields for secrets stands nowhere on record: not where it was typed, and not where it comes
//! back as a part of something else.

/// What stands in its place.
pub(super) const MASKED: &str = "[masked]";
/// A shorter text is no secret that could be told apart from any other word.
const SHORTEST: usize = 4;
const MOST: usize = 64;

#[derive(Default)]
pub(super) struct Mask {
    seen: Vec<String>,
}

impl Mask {
    pub(super) fn remember(&mut self, secret: &str) {
        let known = self.seen.iter().any(|seen| seen == secret);
        if secret.len() >= SHORTEST && !known && self.seen.len() < MOST {
            self.seen.push(secret.to_owned());
            // As it stands in an address: in a query, and as a form writes it.
            for coded in [coded(secret, "%20"), coded(secret, "+")] {
                if coded != secret && !self.seen.contains(&coded) {
                    self.seen.push(coded);
                }
            }
            // The longest first, so that none is left in part.
            self.seen.sort_by_key(|seen| std::cmp::Reverse(seen.len()));
        }
    }

    pub(super) fn cover(&self, text: String) -> String {
        self.seen.iter().fold(text, |text, seen| match text.contains(seen.as_str()) {
            true => text.replace(seen.as_str(), MASKED),
            false => text,
        })
    }
}

fn coded(text: &str, space: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b' ' => space.to_owned(),
            byte if byte.is_ascii_alphanumeric() || b"-_.*".contains(&byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_covered_wherever_it_comes_back() {
        let mut mask = Mask::default();
        mask.remember("hunter22");
        mask.remember("hunter22!!");
        mask.remember("abc");
        assert_eq!(mask.cover("a=hunter22!!&b=hunter22&c=abc".into()), "a=[masked]&b=[masked]&c=abc");
        assert_eq!(mask.cover("?pw=hunter22%21%21&x=1".into()), "?pw=[masked]&x=1");
    }
}
