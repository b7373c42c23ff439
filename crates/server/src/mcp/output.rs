//! What a command writes, for a reader with little room: its beginning and its end.

use std::collections::VecDeque;
use std::io::{self, Read};

const HEAD: usize = 16 << 10;
const TAIL: usize = 48 << 10;

#[derive(Default)]
pub(crate) struct Shown {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl Shown {
    /// To the end. Whoever writes is held up by nobody.
    pub(super) fn read(mut from: impl Read) -> Self {
        let (mut shown, mut buffer) = (Self::default(), vec![0; 64 << 10]);
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return shown,
                Ok(count) => shown.add(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What was read before is shown.
                Err(_) => return shown,
            }
        }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    pub(super) fn is_cut(&self) -> bool {
        self.left_out > 0
    }

    pub(super) fn text(self) -> String {
        let (head, tail) = (self.head, Vec::from(self.tail));
        if self.left_out == 0 {
            return String::from_utf8_lossy(&[head, tail].concat()).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(&head), String::from_utf8_lossy(&tail));
        format!("{head}\n[… {} bytes left out …]\n{tail}", self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_shown() {
        let check = |size: usize, cut: u64| {
            let all: Vec<u8> = (0..size).map(|at| b'a' + (at % 26) as u8).collect();
            let shown = Shown::read(all.as_slice());
            assert_eq!((shown.is_cut(), shown.left_out), (cut > 0, cut));
            let text = shown.text();
            assert!(text.as_bytes().starts_with(&all[..size.min(HEAD)]), "{size}");
            assert!(text.as_bytes().ends_with(&all[size - size.min(TAIL)..]), "{size}");
            assert_eq!(text.contains(&format!("{cut} bytes left out")), cut > 0);
        };
        check(0, 0);
        check(HEAD, 0);
        check(HEAD + TAIL, 0);
        check(HEAD + TAIL + 1, 1);
        check(1 << 20, (1 << 20) - (HEAD + TAIL) as u64);
    }

    #[test]
    fn what_is_no_text_is_shown_all_the_same() {
        assert_eq!(Shown::read(&b"a\xffb"[..]).text(), "a\u{fffd}b");
        // A character that lies across the seam is whole where nothing is left out.
        let mut bytes = vec![b'x'; HEAD - 1];
        bytes.extend("\u{e4}".as_bytes());
        assert!(Shown::read(bytes.as_slice()).text().ends_with('\u{e4}'));
    }
}
