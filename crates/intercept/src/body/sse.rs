//! Server-sent events, read from a body that is there. What is not an event is skipped, as the standard says.

/// One event, and where in the body it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: usize,
    pub(crate) name: String,
    pub(crate) data: String,
}

/// All events of a body; the last one also where the empty line after it is missing, since a stream may be cut off.
pub(crate) fn events(body: &[u8]) -> impl Iterator<Item = Event> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let mut at = 0;
    std::iter::from_fn(move || {
        let mut event = Event { at, name: String::new(), data: String::new() };
        let mut has_data = false;
        while at < body.len() {
            let (line, next) = line(body, at);
            let start = std::mem::replace(&mut at, next);
            if line.is_empty() {
                if has_data {
                    return Some(event);
                }
                event = Event { at, name: String::new(), data: String::new() };
                continue;
            }
            let line = String::from_utf8_lossy(line);
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => {
                    if has_data {
                        event.data.push('\n');
                    } else {
                        event.at = start;
                    }
                    event.data.push_str(value);
                    has_data = true;
                }
                "event" => event.name = value.to_owned(),
                _ => {}
            }
        }
        has_data.then_some(event)
    })
}

/// The line at `at` without its end, and where the next one begins.
fn line(body: &[u8], at: usize) -> (&[u8], usize) {
    let rest = body.get(at..).unwrap_or_default();
    match memchr::memchr2(b'\n', b'\r', rest) {
        None => (rest, body.len()),
        Some(end) => {
            let is_pair = rest.get(end..end + 2) == Some(b"\r\n");
            (&rest[..end], at + end + if is_pair { 2 } else { 1 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(body: &str, expected: &[(&str, &str)]) {
        let got: Vec<_> = events(body.as_bytes()).map(|event| (event.name, event.data)).collect();
        let got: Vec<_> = got.iter().map(|(name, data)| (name.as_str(), data.as_str())).collect();
        assert_eq!(got, expected, "{body:?}");
    }

    #[test]
    fn events_are_found_in_every_spelling() {
        check("data: a\n\ndata:b\n\n", &[("", "a"), ("", "b")]);
        check("event: x\r\ndata: 1\r\ndata: 2\r\n\r\n", &[("x", "1\n2")]);
        check(": ping\n\nid: 7\nretry: 3\n\ndata: a\r\rdata: cut", &[("", "a"), ("", "cut")]);
        check("\u{feff}data: a\n\n", &[("", "a")]);
        check("event: lonely\n\nnonsense\n\n", &[]);
        check("data\n\n", &[("", "")]);
        check("", &[]);
    }

    #[test]
    fn an_event_knows_where_its_data_begins() {
        let at: Vec<usize> = events(b"data: a\n\nevent: x\ndata: b\n\n").map(|event| event.at).collect();
        assert_eq!(at, [0, 18]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(body in prop::collection::vec(any::<u8>(), 0..400)) {
            let all: usize = events(&body).map(|event| event.data.len()).sum();
            // A byte that is no text becomes three.
            prop_assert!(all <= 3 * body.len());
        }

        #[test]
        fn what_is_written_is_read(data in prop::collection::vec("[a-z{}\": ]{0,20}", 0..8)) {
            let body: String = data.iter().map(|data| format!("data: {data}\n\n")).collect();
            let read: Vec<String> = events(body.as_bytes()).map(|event| event.data).collect();
            prop_assert_eq!(read, data);
        }
    }
}
