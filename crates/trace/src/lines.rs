//! Lines of bounded length from a stream that nobody vouches for.

use crate::MAX_EVENT;
use std::io::{self, BufRead, Read};

pub(crate) struct Lines<R> {
    from: R,
    line: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// Without its line end.
    Line(&'a [u8]),
    /// The stream ends within a line: the writer died while writing it.
    Torn,
    TooLong,
    End,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, line: Vec::new() }
    }

    pub(crate) fn next(&mut self) -> io::Result<Next<'_>> {
        self.line.clear();
        let read = Read::take(&mut self.from, MAX_EVENT as u64).read_until(b'\n', &mut self.line)?;
        Ok(match self.line.strip_suffix(b"\n") {
            Some(line) => Next::Line(line),
            None if read == 0 => Next::End,
            None if read == MAX_EVENT => Next::TooLong,
            None => Next::Torn,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_then_the_torn_one() {
        let mut lines = Lines::new(&b"one\n\ntwo"[..]);
        assert_eq!(lines.next().unwrap(), Next::Line(b"one"));
        assert_eq!(lines.next().unwrap(), Next::Line(b""));
        assert_eq!(lines.next().unwrap(), Next::Torn);
        assert_eq!(lines.next().unwrap(), Next::End);
    }

    #[test]
    fn the_bound_counts_the_line_end() {
        let mut fits = vec![b'x'; MAX_EVENT - 1];
        fits.push(b'\n');
        assert_eq!(Lines::new(&fits[..]).next().unwrap(), Next::Line(&fits[..MAX_EVENT - 1]));
        fits.insert(0, b'x');
        assert_eq!(Lines::new(&fits[..]).next().unwrap(), Next::TooLong);
    }
}
