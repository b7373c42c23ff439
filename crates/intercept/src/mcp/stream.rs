//! Server-sent events as they come, and as they go on: each is read to its end and written anew, so that no reader
//! finds another event in it than the one that was judged.

use super::LONGEST;

/// What is longer is no id of an event that anyone resumes after, and no name of one.
const LONGEST_FIELD: usize = 1024;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) id: Option<String>,
    pub(super) retry: Option<u64>,
    /// What it says, if it says anything.
    pub(super) data: Option<Vec<u8>>,
    /// It said more than what is passed on, and that is not here.
    pub(super) is_too_long: bool,
}

impl Event {
    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.id.is_none() && self.retry.is_none() && self.data.is_none()
    }

    /// The event as it goes on, with `data` in the place of its own: JSON, or nothing.
    pub(super) fn written(&self, data: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(id) = &self.id {
            out.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        if let Some(retry) = self.retry {
            out.extend_from_slice(format!("retry: {retry}\n").as_bytes());
        }
        if let Some(data) = data {
            if !self.name.is_empty() {
                out.extend_from_slice(format!("event: {}\n", self.name).as_bytes());
            }
            out.extend_from_slice(b"data: ");
            one_line(data, &mut out);
            out.push(b'\n');
        }
        if !out.is_empty() {
            out.push(b'\n');
        }
        out
    }
}

/// JSON in one line, for readers too that take other characters for the end of one.
fn one_line(json: &[u8], out: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(json);
    for c in text.chars() {
        match c {
            // Outside of strings; within one they cannot stand.
            '\n' | '\r' => out.push(b' '),
            '\u{85}' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// What came of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Event(Event),
    /// A sign of life.
    Comment,
}

/// Reads a stream part by part.
#[derive(Default)]
pub(super) struct Events {
    line: Vec<u8>,
    event: Event,
    /// The last byte ended a line, and a line feed after it belongs to that.
    after_return: bool,
    has_begun: bool,
}

impl Events {
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut rest = chunk;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', rest);
            let part = &rest[..end.unwrap_or(rest.len())];
            // A line that is longer than any message is cut short here and found too long at its end.
            let room = (LONGEST + LONGEST_FIELD).saturating_sub(self.line.len());
            self.line.extend_from_slice(part.get(..room).unwrap_or(part));
            let Some(end) = end else { break };
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            pieces.extend(self.line(&line));
        }
        pieces
    }

    /// What an event was that nobody ended.
    pub(super) fn finish(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.line(&line);
        }
        Some(std::mem::take(&mut self.event)).filter(|event| !event.is_empty())
    }

    fn line(&mut self, line: &[u8]) -> Option<Piece> {
        let first = !std::mem::replace(&mut self.has_begun, true);
        let line = line.strip_prefix(b"\xef\xbb\xbf".as_slice()).filter(|_| first).unwrap_or(line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (!event.is_empty()).then_some(Piece::Event(event));
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(0) => return Some(Piece::Comment),
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => self.data(value),
            b"event" => self.event.name = word(value).unwrap_or_default(),
            b"id" => self.event.id = word(value),
            b"retry" => self.event.retry = std::str::from_utf8(value).ok().and_then(|n| n.parse().ok()),
            _ => {}
        }
        None
    }

    fn data(&mut self, value: &[u8]) {
        let event = &mut self.event;
        let data = event.data.get_or_insert_with(Vec::new);
        if data.len() + value.len() > LONGEST {
            event.is_too_long = true;
            data.clear();
        }
        if !event.is_too_long {
            if !data.is_empty() {
                data.push(b'\n');
            }
            data.extend_from_slice(value);
        }
    }
}

/// A field that every reader takes for the same.
fn word(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= LONGEST_FIELD)?;
    let is_plain = |c: char| !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    text.chars().all(is_plain).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(parts: &[&[u8]]) -> Vec<(String, Option<String>, String)> {
        let mut events = Events::default();
        let mut pieces: Vec<Piece> = parts.iter().flat_map(|part| events.push(part)).collect();
        pieces.extend(events.finish().map(Piece::Event));
        let told = |piece| match piece {
            Piece::Event(event) => {
                let data = String::from_utf8(event.data.unwrap_or_default()).unwrap();
                Some((event.name, event.id, data))
            }
            Piece::Comment => None,
        };
        pieces.into_iter().filter_map(told).collect()
    }

    #[track_caller]
    fn check(body: &str, expected: &[(&str, Option<&str>, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(n, i, d)| ((*n).to_owned(), i.map(str::to_owned), (*d).to_owned()))
            .collect();
        assert_eq!(read(&[body.as_bytes()]), expected, "{body:?}");
        let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), expected, "{body:?} byte by byte");
    }

    #[test]
    fn events_are_found_however_they_are_spelled_and_cut() {
        check("event: message\nid: 7\ndata: {}\n\n", &[("message", Some("7"), "{}")]);
        check("data: a\r\n\r\ndata:b\r\rdata: c\n\n", &[("", None, "a"), ("", None, "b"), ("", None, "c")]);
        check(": ping\n\ndata: 1\ndata: 2\n\n", &[("", None, "1\n2")]);
        check("\u{feff}data: a\n\nid: 3\n\n", &[("", None, "a"), ("", Some("3"), "")]);
        check("data: cut", &[("", None, "cut")]);
        check("data\n\nnonsense\n\n", &[("", None, "")]);
    }

    #[test]
    fn what_goes_on_is_one_event_for_every_reader() {
        let event = Event { name: "message".into(), id: Some("7".into()), ..Event::default() };
        let sly = "{\"a\":\n\"\u{2028}data: {}\u{2028}\u{85}\"}";
        let written = String::from_utf8(event.written(Some(sly.as_bytes()))).unwrap();
        assert_eq!(written, "id: 7\nevent: message\ndata: {\"a\": \"\\u2028data: {}\\u2028\\u0085\"}\n\n");
        assert_eq!(event.written(None), b"id: 7\n\n");
        assert_eq!(Event::default().written(None), b"");
        // A name with an end of line in it would begin a line of its own elsewhere.
        assert_eq!(
            read(&["event: a\u{2028}data: b\ndata: c\n\n".as_bytes()]),
            [(String::new(), None, "c".into())]
        );
    }

    #[test]
    fn an_event_without_end_takes_no_more_room_than_a_message() {
        let mut events = Events::default();
        let line = [b"data: ".as_slice(), &[b'x'; 1 << 20], b"\n"].concat();
        for _ in 0..40 {
            assert!(events.push(&line).is_empty());
            assert!(events.event.data.as_ref().unwrap().len() <= LONGEST);
        }
        let pieces = events.push(b"\ndata: {}\n\n");
        let [Piece::Event(long), Piece::Event(next)] = &pieces[..] else { panic!("{}", pieces.len()) };
        assert!(long.is_too_long && !next.is_too_long);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_alike_however_they_are_cut(
            body in prop::collection::vec(prop::sample::select(b"data:id \n\r{}\"x\xff".to_vec()), 0..80),
            at in 0..80usize,
        ) {
            let whole = |parts: &[&[u8]]| {
                let mut events = Events::default();
                let mut all: Vec<Piece> = parts.iter().flat_map(|part| events.push(part)).collect();
                all.extend(events.finish().map(Piece::Event));
                all
            };
            let (one, other) = body.split_at(at.min(body.len()));
            prop_assert_eq!(whole(&[&body]), whole(&[one, other]));
        }
    }
}
