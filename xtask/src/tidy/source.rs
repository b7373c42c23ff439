//! Rust files as flat tokens with line numbers: enough to find keywords, macros, attributes, paths and
//! function bodies, and blind to comments and strings. It does not parse: macros' bodies are tokens too,
//! and rules hold there as well.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) tokens: Vec<Token>,
    /// Token ranges of items under `#[cfg(test)]`.
    tests: Vec<Range<usize>>,
    /// Why the file has no tokens.
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Ident(String),
    Punct(char),
    /// Brackets of all kinds, with the index of the counterpart.
    Open(char, usize),
    Close(usize),
    Literal,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
    /// Carries `#[test]`, or an attribute that ends in it.
    pub(crate) is_test: bool,
}

const QUALIFIERS: &[&str] = &["pub", "const", "async", "unsafe", "extern"];

pub(crate) fn lex(text: &str) -> Source {
    match text.parse::<TokenStream>() {
        Ok(stream) => {
            let mut source = Source::default();
            flatten(stream, &mut source.tokens);
            source.tests = test_items(&source);
            // The lexer keeps every text it has seen for its line numbers; these are all taken now.
            proc_macro2::extra::invalidate_current_thread_spans();
            source
        }
        Err(error) => Source { error: Some(error.to_string()), ..Source::default() },
    }
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        let kind = match tree {
            TokenTree::Ident(ident) => Kind::Ident(ident.to_string()),
            TokenTree::Punct(punct) => Kind::Punct(punct.as_char()),
            TokenTree::Literal(_) => Kind::Literal,
            TokenTree::Group(group) => {
                let open = match group.delimiter() {
                    Delimiter::Brace => '{',
                    Delimiter::Bracket => '[',
                    Delimiter::Parenthesis => '(',
                    Delimiter::None => ' ',
                };
                let at = into.len();
                into.push(Token { kind: Kind::Open(open, at), line });
                flatten(group.stream(), into);
                let close = into.len();
                into.push(Token { kind: Kind::Close(at), line: group.span_close().end().line });
                if let Some(token) = into.get_mut(at) {
                    token.kind = Kind::Open(open, close);
                }
                continue;
            }
        };
        into.push(Token { kind, line });
    }
}

impl Source {
    pub(crate) fn ident(&self, at: usize) -> Option<&str> {
        match self.tokens.get(at).map(|t| &t.kind) {
            Some(Kind::Ident(name)) => Some(name),
            _ => None,
        }
    }

    fn punct(&self, at: usize, wanted: char) -> bool {
        matches!(self.tokens.get(at).map(|t| &t.kind), Some(Kind::Punct(c)) if *c == wanted)
    }

    fn open(&self, at: usize, wanted: char) -> Option<usize> {
        match self.tokens.get(at).map(|t| &t.kind) {
            Some(Kind::Open(c, close)) if *c == wanted => Some(*close),
            _ => None,
        }
    }

    fn in_tests(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// All identifiers with their index and line.
    pub(crate) fn idents(&self) -> impl Iterator<Item = (usize, &str, usize)> {
        self.tokens.iter().enumerate().filter_map(|(at, token)| match &token.kind {
            Kind::Ident(name) => Some((at, name.as_str(), token.line)),
            _ => None,
        })
    }

    /// Those outside of items under `#[cfg(test)]`.
    pub(crate) fn idents_outside_tests(&self) -> impl Iterator<Item = (usize, &str, usize)> {
        self.idents().filter(|(at, ..)| !self.in_tests(*at))
    }

    /// `name!` as in a macro call.
    pub(crate) fn is_macro(&self, at: usize) -> bool {
        self.punct(at + 1, '!') && !self.punct(at + 2, '=')
    }

    /// What stands behind `::` after this token.
    pub(crate) fn after_path_separator(&self, at: usize) -> Option<usize> {
        (self.punct(at + 1, ':') && self.punct(at + 2, ':')).then_some(at + 3)
    }

    pub(crate) fn is_star(&self, at: usize) -> bool {
        self.punct(at, '*')
    }

    /// Where each member of the `{…}` that opens here begins, and where all of them end.
    pub(crate) fn members(&self, at: usize) -> Option<(Vec<usize>, usize)> {
        let close = self.open(at, '{')?;
        let mut starts = vec![at + 1];
        let mut next = at + 1;
        while next < close {
            match self.tokens.get(next).map(|t| &t.kind) {
                Some(Kind::Open(_, close)) => next = *close,
                Some(Kind::Punct(',')) => starts.push(next + 1),
                _ => {}
            }
            next += 1;
        }
        Some((starts, close))
    }

    /// The lines that items under `#[cfg(test)]` take.
    pub(crate) fn test_lines(&self) -> usize {
        let line = |at: usize| self.tokens.get(at).map_or(0, |t| t.line);
        self.tests.iter().map(|range| line(range.end - 1) + 1 - line(range.start)).sum()
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        let keywords = self.idents().filter(|(_, name, _)| *name == "fn");
        keywords.filter_map(|(at, _, line)| self.function(at, line)).collect()
    }

    fn function(&self, at: usize, line: usize) -> Option<Function> {
        let name = self.ident(at + 1)?.to_owned();
        let close = self.body_end(at + 2)?;
        let lines = self.tokens.get(close)?.line + 1 - line;
        Some(Function { name, line, lines, is_test: self.is_test_fn(at) })
    }

    /// The closing brace of the item whose head starts here; none if it ends with a semicolon.
    fn body_end(&self, mut at: usize) -> Option<usize> {
        loop {
            match &self.tokens.get(at)?.kind {
                Kind::Open('{', close) => return Some(*close),
                Kind::Open(_, close) => at = close + 1,
                Kind::Punct(';') | Kind::Close(_) => return None,
                _ => at += 1,
            }
        }
    }

    /// Walks back over qualifiers and attributes, as in `#[test] #[cfg(unix)] pub(crate) async fn`.
    fn is_test_fn(&self, mut at: usize) -> bool {
        while let Some(before) = at.checked_sub(1) {
            at = match self.tokens.get(before).map(|t| &t.kind) {
                Some(Kind::Ident(word)) if QUALIFIERS.contains(&word.as_str()) => before,
                Some(Kind::Literal) => before,
                Some(Kind::Close(open)) if *open > 0 && self.ident(open - 1) == Some("pub") => *open,
                Some(Kind::Close(open)) if *open > 0 && self.punct(open - 1, '#') => {
                    if self.attribute_path(open - 1).last() == Some(&"test") {
                        return true;
                    }
                    open - 1
                }
                _ => return false,
            }
        }
        false
    }

    /// The path of the attribute whose `#` stands here, as in `tokio::test`.
    fn attribute_path(&self, hash: usize) -> Vec<&str> {
        let in_path = |at: &usize| self.ident(*at).is_some() || self.punct(*at, ':');
        (hash + 2..self.tokens.len()).take_while(in_path).filter_map(|at| self.ident(at)).collect()
    }

    /// The identifiers within the attribute whose `#` stands here.
    pub(crate) fn attribute_words(&self, hash: usize) -> Vec<&str> {
        let Some(close) = self.punct(hash, '#').then(|| self.open(hash + 1, '[')).flatten() else {
            return Vec::new();
        };
        (hash + 2..close).filter_map(|at| self.ident(at)).collect()
    }
}

fn test_items(source: &Source) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for at in 0..source.tokens.len() {
        let words = source.attribute_words(at);
        if words != ["cfg", "test"] || found.last().is_some_and(|range| range.contains(&at)) {
            continue;
        }
        let mut next = at;
        while let Some(close) = source.punct(next, '#').then(|| source.open(next + 1, '[')).flatten() {
            next = close + 1;
        }
        let semicolon = (next..source.tokens.len()).find(|i| source.punct(*i, ';'));
        let end = source.body_end(next).or(semicolon).unwrap_or(next);
        found.push(at..end + 1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, usize, bool)]) {
        let functions = lex(text).functions();
        let found: Vec<_> = functions.iter().map(|f| (f.name.as_str(), f.lines, f.is_test)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn functions_are_found_with_their_length() {
        check("fn a() {}", &[("a", 1, false)]);
        check("fn a(f: fn(u8) -> u8) -> [u8; { 1 + 1 }]\nwhere\n  u8: Copy,\n{\n}", &[("a", 5, false)]);
        check("trait T {\n fn no_body(&self);\n fn b() {\n }\n}", &[("b", 2, false)]);
        check("/* fn no() {} */ const S: &str = \"fn no() {}\"; // fn no() {}", &[]);
    }

    #[test]
    fn tests_are_told_from_what_they_call() {
        check("#[test]\nfn a() {}\nfn b() {}", &[("a", 1, true), ("b", 1, false)]);
        check("#[cfg(unix)] #[tokio::test] pub(crate) async fn a() {}", &[("a", 1, true)]);
        check("#[test] #[should_panic] fn a() {}", &[("a", 1, true)]);
        check("proptest! { #[test] fn a(x in 0..9u8) { } }", &[("a", 1, true)]);
        check("#[cfg(test)] mod tests { fn helper() {} }", &[("helper", 1, false)]);
    }

    #[test]
    fn items_under_cfg_test_are_known() {
        let source = lex(
            "fn a() {}\n#[cfg(test)]\n#[path = \"x\"]\nmod t {\n fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nuse d;\n",
        );
        let outside: Vec<_> = source.idents_outside_tests().map(|(_, name, _)| name).collect();
        assert_eq!(outside, ["fn", "a", "fn", "c"]);
        assert_eq!(source.test_lines(), 5 + 2);
        assert_eq!(lex("#[cfg(any(test, unix))] fn a() {}").test_lines(), 0);
    }

    #[test]
    fn a_file_that_is_not_rust_says_so() {
        assert!(lex("fn a( {").error.is_some());
    }
}
