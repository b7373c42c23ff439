use super::coding::Coding;
use super::coding::tests::encoded;
use super::*;
use crate::forms;
use crate::swap::tests::{FAKE, HERE, REAL, bound, coffer};
use crate::swap::{Coffer, Destination, Used};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_vault::{Place, Plain};
use http::{Request, Response, response};
use proptest::prelude::*;

fn used(coffer: &Coffer, to: &Destination<'_>) -> Used {
    coffer.swap_head(to, &mut Request::new(()).into_parts().0).unwrap()
}

fn answer(status: u16, headers: &[(&str, &str)]) -> response::Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

fn scrubbed(
    coffer: &Coffer,
    headers: &[(&str, &str)],
    body: &[u8],
    cut: usize,
) -> (response::Parts, Vec<u8>, u64) {
    let mut head = answer(200, headers);
    let mut scrubber = coffer.response(&used(coffer, &HERE), &mut head).unwrap().unwrap();
    let mut out = Vec::new();
    for chunk in body.chunks(cut) {
        out.extend(scrubber.push(Bytes::copy_from_slice(chunk)).unwrap());
    }
    out.extend(scrubber.finish());
    (head, out, scrubber.covered())
}

fn through(body: &str, cut: usize) -> String {
    String::from_utf8(scrubbed(&coffer(&[Place::Bearer]), &[], body.as_bytes(), cut).1).unwrap()
}

#[test]
fn the_placeholder_comes_back_in_the_same_encoding() {
    let hex = |value: &str| value.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let json = |value: &str| value.bytes().map(|b| format!("\\u{b:04X}")).collect::<String>();
    for lead in ["", "x", "xy", "user:"] {
        let base64 = |value: &str| STANDARD.encode(format!("{lead}{value}!"));
        for write in [&(|v: &str| v.to_owned()) as &dyn Fn(&str) -> String, &hex, &json, &base64] {
            for cut in [1, 3, 1000] {
                let text =
                    |value| format!("{{\"echo\": \"{}\", \"again\": \"{}\"}}\n", write(value), write(value));
                assert_eq!(through(&text(REAL), cut), text(FAKE));
            }
        }
    }
}

/// A placeholder that shares no bit with the value at its edges still decodes to itself.
#[test]
fn shared_base64_digits_are_covered_too() {
    let (real, fake) = ("\u{7f}secret-value-1\u{7f}", "0placeholder-200");
    let coffer = Coffer::new(vec![bound("pay", real.as_bytes(), fake, &[])]).unwrap();
    for lead in ["", "a", "bc", "def"] {
        for tail in ["", "g", "hi"] {
            let text = |value: &str| STANDARD.encode(format!("{lead}{value}{tail}"));
            for cut in [1, 2, 5, 1000] {
                let (_, out, _) = scrubbed(&coffer, &[], text(real).as_bytes(), cut);
                assert_eq!(String::from_utf8(out).unwrap(), text(fake), "{lead} {tail} {cut}");
            }
        }
    }
}

#[test]
fn heads_and_trailers_are_covered() {
    let coffer = coffer(&[Place::Bearer]);
    let encoded = STANDARD.encode(format!("user:{REAL}"));
    let location = format!("https://x.test/?key={REAL}");
    let headers = [
        ("location", location.as_str()),
        ("www-authenticate", &encoded),
        ("content-length", "5"),
        ("etag", "\"a\""),
    ];
    let (head, _, covered) = scrubbed(&coffer, &headers, b"plain", 100);
    assert_eq!(head.headers["location"], format!("https://x.test/?key={FAKE}"));
    assert_eq!(head.headers["www-authenticate"], STANDARD.encode(format!("user:{FAKE}")));
    assert_eq!(
        (&head.headers["content-length"], &head.headers["etag"]),
        (&"5".parse().unwrap(), &"\"a\"".parse().unwrap())
    );
    assert_eq!(covered, 2);
    let mut scrubber = coffer.response(&used(&coffer, &HERE), &mut answer(200, &[])).unwrap().unwrap();
    let mut trailers = answer(200, &[("grpc-message", REAL), ("grpc-status", "16")]).headers;
    scrubber.trailers(&mut trailers);
    assert_eq!(
        (&trailers["grpc-message"], &trailers["grpc-status"]),
        (&FAKE.parse().unwrap(), &"16".parse().unwrap())
    );
}

#[test]
fn a_reason_phrase_is_dropped() {
    let coffer = coffer(&[Place::Bearer]);
    let mut head = answer(401, &[]);
    head.extensions.insert(hyper::ext::ReasonPhrase::try_from(REAL.as_bytes()).unwrap());
    coffer.response(&used(&coffer, &HERE), &mut head).unwrap();
    assert!(head.extensions.get::<hyper::ext::ReasonPhrase>().is_none());
}

/// Of two values that start alike, the longer is covered whole, wherever the stream is cut.
#[test]
fn the_longer_of_two_values_is_covered() {
    let two = vec![
        bound("pay", b"key-abcdefgh", "key-PPPPPPPP", &[]),
        bound("ship", b"key-abcdefgh-and-more", "key-SSSSSSSSSSSSSSSSS", &[]),
    ];
    let coffer = Coffer::new(two).unwrap();
    let body = "<key-abcdefgh-and-more> <key-abcdefgh-and-less> key-abcdefgh-and";
    for cut in 1..body.len() {
        let (_, out, covered) = scrubbed(&coffer, &[], body.as_bytes(), cut);
        let expected = "<key-SSSSSSSSSSSSSSSSS> <key-PPPPPPPP-and-less> key-PPPPPPPP-and";
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{cut}");
        assert_eq!(covered, 3);
    }
}

#[test]
fn compressed_bodies_are_sent_on_plain() {
    let plain = format!("{{\"echo\":\"{REAL}\"}}");
    for (coding, name) in [(Coding::Gzip, "gzip"), (Coding::Deflate, "deflate"), (Coding::Zstd, "zstd")] {
        let headers =
            [("content-encoding", name), ("content-length", "77"), ("etag", "\"a\""), ("content-md5", "x")];
        let (head, out, _) = scrubbed(&coffer(&[]), &headers, &encoded(coding, plain.as_bytes()), 5);
        assert_eq!(String::from_utf8(out).unwrap(), plain.replace(REAL, FAKE));
        assert_eq!(head.headers.len(), 1);
        assert_eq!(head.headers["etag"], "W/\"a\"");
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    let coffer = coffer(&[]);
    let used = used(&coffer, &HERE);
    let refused =
        |status, coding| coffer.response(&used, &mut answer(status, &[("content-encoding", coding)])).err();
    assert!(matches!(refused(200, "exi"), Some(CodingError::Unknown(_))));
    assert!(matches!(refused(200, "gzip, gzip"), Some(CodingError::Unknown(_))));
    assert!(matches!(refused(206, "gzip"), Some(CodingError::Partial)));
    assert!(refused(304, "exi").is_none());
    let mut scrubber =
        coffer.response(&used, &mut answer(200, &[("content-encoding", "gzip")])).unwrap().unwrap();
    assert!(scrubber.push(Bytes::from_static(b"no gzip, and long enough to tell")).is_err());
}

#[test]
fn who_was_given_nothing_can_tell_nothing() {
    let coffer = coffer(&[Place::Bearer]);
    let elsewhere = Destination { host: "docs.test", ..HERE };
    let mut head = answer(200, &[("x-echo", REAL)]);
    assert!(coffer.response(&used(&coffer, &elsewhere), &mut head).unwrap().is_none());
    assert_eq!(head.headers["x-echo"], REAL, "a host that never had it is not looked at");
}

#[test]
fn an_event_leaves_when_it_comes() {
    let coffer = coffer(&[Place::Bearer]);
    let mut scrubber = coffer.response(&used(&coffer, &HERE), &mut answer(200, &[])).unwrap().unwrap();
    for event in [
        "data: {\"delta\":\"s\"}\n\n",
        "data: {\"delta\":\"sk_live_\"}\n\n",
        ": ping\n\n",
        "data: [DONE]\n\n",
    ] {
        assert_eq!(scrubber.push(Bytes::from(event)).unwrap(), event);
    }
    assert_eq!(scrubber.push(Bytes::from("data: sk_live_4e")).unwrap(), "data: ");
    assert_eq!(scrubber.push(Bytes::from("\n\n")).unwrap(), "sk_live_4e\n\n");
}

/// Also of a value that was replaced, or revoked: it may still open a door.
#[test]
fn old_values_are_covered() {
    let coffer = coffer(&[Place::Bearer]);
    coffer.replace("pay", Plain::new(b"a-new-and-longer-value-than-before-it".to_vec())).unwrap();
    coffer.revoke("pay").unwrap();
    let body = format!("old {REAL} new a-new-and-longer-value-than-before-it end");
    let (_, out, covered) = scrubbed(&coffer, &[], body.as_bytes(), 9);
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out, format!("old {FAKE} new {FAKE}sk_li end"));
    assert_eq!(covered, 2);
}

fn secrets() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[A-Za-z0-9_-]{8,60}".prop_map(String::into_bytes),
        "[ -~]{8,30}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 8..30)
    ]
}

fn shows(text: &[u8], form: &[u8]) -> bool {
    text.windows(form.len()).any(|w| w == form)
}

proptest! {
    /// No form of the value comes out, no length changes, and cuts do not matter.
    #[test]
    fn no_form_comes_back(
        real in secrets(), fake in "[A-Z0-9]{20,40}", cut in 1usize..50,
        parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), any::<prop::sample::Index>()), 0..6),
    ) {
        let coffer = Coffer::new(vec![bound("pay", &real, &fake, &[])]).unwrap();
        let forms = forms::forms(&real, fake.as_bytes());
        let mut body = Vec::new();
        for (between, form) in &parts {
            body.extend_from_slice(between);
            body.extend_from_slice(&form.get(&forms).text);
        }
        let (_, out, covered) = scrubbed(&coffer, &[], &body, cut);
        prop_assert_eq!(out.len(), body.len());
        prop_assert!(covered >= u64::from(!parts.is_empty()));
        for form in &forms {
            prop_assert!(!shows(&out, &form.text), "{:?}", form.kind);
        }
        prop_assert_eq!(&out, &scrubbed(&coffer, &[], &body, usize::MAX).1);
        // The control: what was pushed did show it.
        prop_assert!(parts.is_empty() || forms.iter().any(|form| shows(&body, &form.text)));
    }

    #[test]
    fn what_holds_no_secret_is_untouched(body in prop::collection::vec(any::<u8>(), 0..600), cut in 1usize..50) {
        let (_, out, covered) = scrubbed(&coffer(&[]), &[], &body, cut);
        prop_assert_eq!(out, body);
        prop_assert_eq!(covered, 0);
    }

    /// Near misses and overlaps, dense enough to happen.
    #[test]
    fn cuts_do_not_matter(body in "(sk_live_|4eC39HqLyjWDarjtT1zdp7dc|sk_|[a-z%])*", cut in 1usize..20) {
        prop_assert_eq!(through(&body, cut), body.replace(REAL, FAKE));
    }
}

/// As mail, PEM files and `base64` of the shell write it, in the clear and in a text of JSON.
#[test]
fn base64_in_lines_is_covered() {
    let (real, fake) = (
        "\u{7f}a-secret-value-that-is-long-enough-for-lines\u{7f}",
        "0placeholder-that-has-the-same-length-as-the-v",
    );
    let coffer = Coffer::new(vec![bound("pay", real.as_bytes(), fake, &[])]).unwrap();
    for lead in ["", "x", "user:", &"filling ".repeat(9)] {
        for (width, end) in [(76, "\r\n"), (64, "\n"), (20, "\\n"), (5, "\n  ")] {
            let text = |value: &str| {
                let digits = STANDARD.encode(format!("{lead}{value}!"));
                let lines: Vec<_> =
                    digits.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
                format!("> {} <", lines.join(end))
            };
            for cut in [1, 2, 7, 1000] {
                let (_, out, _) = scrubbed(&coffer, &[], text(real).as_bytes(), cut);
                let out = String::from_utf8(out).unwrap();
                let read: String = out.replace("\\n", "").chars().filter(|c| !c.is_whitespace()).collect();
                let decoded =
                    String::from_utf8_lossy(&STANDARD.decode(read.trim_matches(['>', '<'])).unwrap())
                        .into_owned();
                assert!(
                    !decoded.contains("a-secret") && !decoded.contains("for-lines"),
                    "{lead} {width} {cut} {decoded}"
                );
                assert_eq!(out.len(), text(real).len());
                if cut == 1000 {
                    assert_eq!(out, text(fake), "{lead} {width}");
                }
            }
        }
    }
}

const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream; charset=utf-8")];

/// The texts of the events, together.
fn put_together(stream: &str) -> String {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| {
        let event = serde_json::from_str::<serde_json::Value>(data).ok();
        event.as_ref().and_then(|event| event["t"].as_str()).unwrap_or(data).to_owned()
    })
    .collect()
}

#[test]
fn a_value_over_several_events_is_covered() {
    let coffer = coffer(&[Place::Bearer]);
    for size in [1, 2, 5, 12, 20] {
        for json in [false, true] {
            let event = |piece: &[u8]| match (json, String::from_utf8_lossy(piece)) {
                (true, piece) => format!("data: {{\"n\":1,\"t\":\"{piece}\"}}\n\n"),
                (false, piece) => format!("data: {piece}\n\n"),
            };
            let text = format!("see {REAL} and");
            let stream: String = text.as_bytes().chunks(size).map(event).collect();
            for cut in [1, 10, 1000] {
                let (_, out, covered) = scrubbed(&coffer, EVENTS, stream.as_bytes(), cut);
                let out = String::from_utf8(out).unwrap();
                assert_eq!((out.len(), covered), (stream.len(), 1), "{size} {json} {out}");
                // Where an event ends behind the first character that is the value's alone, that one has left.
                let shared = REAL.bytes().zip(FAKE.bytes()).take_while(|(a, b)| a == b).count();
                let left = usize::from(("see ".len() + shared + 1).is_multiple_of(size));
                let cover = format!("{}{}", &REAL[..shared + left], &FAKE[shared + left..]);
                assert_eq!(put_together(&out), text.replace(REAL, &cover), "{size} {json}");
            }
            // The control: without events it is not seen.
            let (_, out, _) = scrubbed(&coffer, &[], stream.as_bytes(), 1000);
            assert_eq!(put_together(std::str::from_utf8(&out).unwrap()), text);
        }
    }
}

/// What is held is let go when nothing follows, as far as it tells next to nothing; and the rest is still covered.
#[test]
fn an_event_that_may_start_a_value_waits_for_the_next() {
    let coffer = coffer(&[Place::Bearer]);
    let mut scrubber = coffer.response(&used(&coffer, &HERE), &mut answer(200, EVENTS)).unwrap().unwrap();
    let push = |scrubber: &mut Scrubber, text: &str| {
        String::from_utf8(scrubber.push(Bytes::from(text.to_owned())).unwrap().to_vec()).unwrap()
    };
    // As much as the placeholder starts with tells nothing.
    let shared = REAL.bytes().zip(FAKE.bytes()).take_while(|(a, b)| a == b).count();
    let first = format!("data: {}\n\n", &REAL[..shared]);
    assert_eq!(push(&mut scrubber, &first), first);
    assert!(!scrubber.is_waiting());
    let second = format!("data: {}\n", &REAL[shared..shared + 2]);
    assert_eq!(push(&mut scrubber, &second), "");
    assert!(scrubber.is_waiting());
    assert_eq!(scrubber.idle(), second);
    // More than a few characters do not leave however long nothing comes.
    let third = format!("data: {}\n", &REAL[shared + 2..shared + 9]);
    assert_eq!(push(&mut scrubber, &third), "");
    assert!(!scrubber.is_waiting());
    let out = push(&mut scrubber, &format!("data: {} x\n", &REAL[shared + 9..]));
    assert_eq!(out, format!("data: {}\ndata: {} x\n", &FAKE[shared + 2..shared + 9], &FAKE[shared + 9..]));
    assert_eq!(scrubber.covered(), 1);
}

/// A stream of words is not slowed down by those that end as some form of the value starts.
#[test]
fn words_that_end_in_a_character_of_a_value_leave_at_once() {
    let coffer = coffer(&[Place::Bearer]);
    let mut scrubber = coffer.response(&used(&coffer, &HERE), &mut answer(200, EVENTS)).unwrap().unwrap();
    for last in (b'!'..=b'~').filter(|byte| !b"\"\\".contains(byte)).map(char::from) {
        for event in [format!("data: {{\"t\":\"tic{last}\"}}\n\n"), format!("data: tic{last}\n\n")] {
            assert_eq!(scrubber.push(Bytes::from(event.clone())).unwrap(), event);
            assert!(!scrubber.is_waiting());
            scrubber.push(Bytes::from_static(b"data: {\"t\":\" \"}\n\ndata: .\n\n")).unwrap();
        }
    }
}

proptest! {
    /// Events without a value come out as they went in, whatever they are.
    #[test]
    fn events_without_a_value_are_untouched(body in "(data: |sk_|[a-z\\{\\}\"\\n\\\\])*", cut in 1usize..20) {
        let (_, out, covered) = scrubbed(&coffer(&[]), EVENTS, body.as_bytes(), cut);
        prop_assert_eq!((String::from_utf8(out).unwrap(), covered), (body, 0));
    }
}
