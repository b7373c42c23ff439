use super::*;
use crate::forms;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use cofferdam_vault::{Bound, Credential, Place, Plain};
use http::{Method, Request, request};
use proptest::prelude::*;
use std::io::Write as _;

pub(crate) const REAL: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
pub(crate) const FAKE: &str = "sk_live_Zz8qPw02mMxXvB71kKfR5tYd";

pub(crate) fn bound(name: &str, real: &[u8], fake: &str, places: &[Place]) -> Bound {
    Bound {
        credential: Credential {
            name: name.into(),
            env: name.to_uppercase(),
            hosts: vec![format!("api.{name}.test"), format!("*.below.{name}.test")],
            places: places.to_vec(),
            ..Credential::default()
        },
        placeholder: fake.into(),
        plain: Plain::new(real.to_vec()),
        generation: 1,
        parts: Vec::new(),
    }
}

fn everywhere() -> Vec<Place> {
    vec![
        Place::Bearer,
        Place::Basic,
        Place::Header("x-api-key".into()),
        Place::Query("key".into()),
        Place::Body("auth.token".into()),
        Place::Body("token".into()),
    ]
}

pub(crate) fn coffer(places: &[Place]) -> Coffer {
    Coffer::new(vec![bound("pay", REAL.as_bytes(), FAKE, places)]).unwrap()
}

pub(crate) const HERE: Destination<'_> =
    Destination { host: "api.pay.test", port: 443, program: Some("/usr/bin/curl") };
const ELSEWHERE: Destination<'_> =
    Destination { host: "paste.test", port: 443, program: Some("/usr/bin/curl") };

fn head(uri: &str, headers: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().method("POST").uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// What is sent for a header, or the refusal's words.
fn sent(places: &[Place], to: &Destination<'_>, name: &str, value: &str) -> Result<String, String> {
    let mut head = head("/v1/charges", &[(name, value)]);
    let used = coffer(places).swap_head(to, &mut head).map_err(|refusal| refusal.to_string())?;
    assert_eq!(used.credentials, [UsedCredential { name: "pay".into(), generation: 1 }]);
    assert!(head.headers[name].is_sensitive());
    Ok(head.headers[name].to_str().unwrap().to_owned())
}

fn refused(result: Result<String, String>, expected: &str) {
    let said = result.expect_err(expected);
    assert!(said.contains(expected), "{said}");
    assert!(!said.contains(REAL) && !said.contains(FAKE), "{said}");
}

#[test]
fn declared_headers_are_swapped() {
    let check = |place: Place, name, value: String, expected: String| {
        assert_eq!(sent(&[place], &HERE, name, &value), Ok(expected));
    };
    let (bearer, key) = (|| Place::Bearer, || Place::Header("x-api-key".into()));
    check(bearer(), "authorization", format!("Bearer {FAKE}"), format!("Bearer {REAL}"));
    check(bearer(), "authorization", format!("token {FAKE}"), format!("token {REAL}"));
    check(key(), "x-api-key", FAKE.into(), REAL.into());
    check(key(), "x-api-key", format!("v=1; k=\"{FAKE}\""), format!("v=1; k=\"{REAL}\""));
    for text in ["{}", "k:{}", "ab:{}:tail"] {
        let (fake, real) = (text.replace("{}", FAKE), text.replace("{}", REAL));
        check(
            key(),
            "x-api-key",
            format!("b64 {}", STANDARD.encode(&fake)),
            format!("b64 {}", STANDARD.encode(&real)),
        );
        let (fake, real) = (URL_SAFE.encode(&fake), URL_SAFE.encode(&real));
        check(key(), "x-api-key", fake.trim_end_matches('=').into(), real.trim_end_matches('=').into());
    }
    // What stands before it reads as base64 too, out of step.
    let after = |value: &str| format!("ab/{}", STANDARD.encode(value));
    check(key(), "x-api-key", after(FAKE), after(REAL));
    let percent = |value: &str| value.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
    check(key(), "x-api-key", percent(FAKE), percent(REAL));
}

#[test]
fn basic_takes_either_part() {
    for (text, place) in
        [("{}:", Place::Basic), ("x:{}", Place::Basic), ("x:{}", Place::Header("authorization".into()))]
    {
        let basic = |value| format!("Basic {}", STANDARD.encode(text.replace("{}", value)));
        assert_eq!(sent(&[place], &HERE, "authorization", &basic(FAKE)), Ok(basic(REAL)));
    }
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    refused(
        sent(&[Place::Basic], &HERE, "authorization", &basic(&format!("x:y{FAKE}"))),
        "not swapped there",
    );
    refused(
        sent(&[Place::Bearer], &HERE, "authorization", &basic(&format!("x:{FAKE}"))),
        "not swapped there",
    );
    // A token that is not base64 of a pair, but reads as base64 of something.
    let alphanumeric = "Zz8qPw02mMxXvB71kKfR5tYd";
    let coffer = Coffer::new(vec![bound("pay", REAL.as_bytes(), alphanumeric, &[Place::Basic])]).unwrap();
    let mut head = head("/", &[("authorization", &format!("Basic {alphanumeric}"))]);
    assert!(matches!(coffer.swap_head(&HERE, &mut head).unwrap_err().why, Why::OtherPlace));
}

/// Base64 in percent escapes cannot be swapped digit by digit, so it is not.
#[test]
fn what_is_encoded_twice_is_refused() {
    let fake = "key-???>>>~~~-12";
    let coffer = Coffer::new(vec![bound("pay", REAL.as_bytes(), fake, &everywhere())]).unwrap();
    let twice = STANDARD.encode(fake).replace('/', "%2F").replace('+', "%2B");
    assert!(twice.contains('%'));
    let mut head = head("/", &[("x-api-key", &twice)]);
    assert!(matches!(coffer.swap_head(&HERE, &mut head).unwrap_err().why, Why::OtherPlace));
}

#[test]
fn two_credentials_make_one_pair() {
    let (id, secret) = ("AC11aa22bb33cc44dd", "AC99zz88yy77xx66ww");
    let mut second = bound("pay", b"AC0123456789abcdef", id, &[Place::Basic]);
    second.credential.name = "account".into();
    let coffer = Coffer::new(vec![bound("pay", REAL.as_bytes(), secret, &[Place::Basic]), second]).unwrap();
    let mut head =
        head("/", &[("authorization", &format!("Basic {}", STANDARD.encode(format!("{id}:{secret}"))))]);
    let used = coffer.swap_head(&HERE, &mut head).unwrap();
    assert_eq!(used.credentials.len(), 2);
    let expected = format!("Basic {}", STANDARD.encode(format!("AC0123456789abcdef:{REAL}")));
    assert_eq!(head.headers["authorization"].to_str().unwrap(), expected);
}

#[test]
fn a_placeholder_anywhere_else_is_refused() {
    let base64 = STANDARD.encode(format!("x{FAKE}"));
    let hex: String = FAKE.bytes().map(|b| format!("{b:02x}")).collect();
    let json: String = FAKE.bytes().map(|b| format!("\\u{b:04x}")).collect();
    for value in [FAKE, &base64, &hex, &json] {
        refused(
            sent(&everywhere(), &HERE, "x-other", value),
            "credential `pay` in the header `x-other`: it is not swapped there",
        );
        refused(sent(&everywhere(), &ELSEWHERE, "x-api-key", value), "it may not go to `paste.test`");
    }
    let check = |uri: &str, expected: At| {
        let refusal = coffer(&everywhere()).swap_head(&HERE, &mut head(uri, &[])).unwrap_err();
        assert_eq!(refusal.at, expected, "{uri}");
        assert!(refusal.is_alarm());
    };
    check(&format!("/v1/{FAKE}/x"), At::Path);
    check(&format!("/v1/%73{}", &FAKE[1..]), At::Path);
    check(&format!("/v1/%2573{}", &FAKE[1..]), At::Path);
    check(&format!("/?other={FAKE}"), At::Query("other".into()));
    check(&format!("/?key=1&other=%73{}", &FAKE[1..]), At::Query("other".into()));
    check(&format!("/?{FAKE}=key"), At::Query(FAKE.into()));
    check(&format!("/?{FAKE}"), At::Query(FAKE.into()));
    let refusal = coffer(&everywhere()).swap_head(&HERE, &mut head("/", &[(FAKE, "x")])).unwrap_err();
    assert_eq!(refusal.at, At::HeaderName);
    let host = format!("{}.evil.test", FAKE.to_lowercase());
    let refusal = coffer(&everywhere()).swap_head(&Destination { host: &host, ..HERE }, &mut head("/", &[]));
    assert_eq!(refusal.unwrap_err().at, At::Host);
}

#[test]
fn a_query_parameter_is_swapped_alone() {
    let check = |query: &str, expected: &str| {
        let mut head = head(&format!("https://api.pay.test/v1?{query}"), &[]);
        coffer(&[Place::Query("key".into())]).swap_head(&HERE, &mut head).unwrap();
        assert_eq!(head.uri.to_string(), format!("https://api.pay.test/v1?{expected}"));
    };
    check(&format!("key={FAKE}"), &format!("key={REAL}"));
    check(&format!("a=%20+b&key={FAKE}&c&d=%2f"), &format!("a=%20+b&key={REAL}&c&d=%2f"));
    check(&format!("k%65y=%73{}", &FAKE[1..]), &format!("k%65y={REAL}"));
    let twice = format!("/?key={FAKE}&key=x");
    let refusal = coffer(&everywhere()).swap_head(&HERE, &mut head(&twice, &[])).unwrap_err();
    assert!(matches!(refusal.why, Why::Repeated), "{refusal}");
}

#[test]
fn a_value_is_encoded_for_its_place() {
    let odd = "p&ss=w?rd #1%\"é";
    let coffer = Coffer::new(vec![bound("pay", odd.as_bytes(), FAKE, &everywhere())]).unwrap();
    let mut head = head(&format!("/?key={FAKE}"), &[]);
    coffer.swap_head(&HERE, &mut head).unwrap();
    assert_eq!(head.uri.query(), Some("key=p%26ss%3Dw%3Frd%20%231%25%22%C3%A9"));
    let body = swapped(&coffer, "application/json", &format!(r#"{{"token":"{FAKE}"}}"#)).unwrap();
    assert_eq!(body, r#"{"token":"p&ss=w?rd #1%\"é"}"#);
}

#[test]
fn a_value_that_no_header_can_hold_is_refused() {
    let coffer = Coffer::new(vec![bound("pay", b"two lines\nof it", FAKE, &everywhere())]).unwrap();
    let mut head = head("/", &[("x-api-key", FAKE)]);
    let refusal = coffer.swap_head(&HERE, &mut head).unwrap_err();
    assert!(matches!(refusal.why, Why::Unsendable));
    assert_eq!(head.headers["x-api-key"], FAKE, "a refused head stays as it was");
}

#[test]
fn nothing_of_a_refused_head_is_swapped() {
    let mut head =
        head(&format!("/?key={FAKE}"), &[("authorization", &format!("Bearer {FAKE}")), ("x-other", FAKE)]);
    let before = format!("{head:?}");
    coffer(&everywhere()).swap_head(&HERE, &mut head).unwrap_err();
    assert_eq!(format!("{head:?}"), before);
}

#[test]
fn repeated_headers_and_echo_methods_are_refused() {
    let bearer = format!("Bearer {FAKE}");
    let mut twice = head("/", &[("authorization", &bearer), ("authorization", "Bearer x")]);
    assert!(matches!(coffer(&everywhere()).swap_head(&HERE, &mut twice).unwrap_err().why, Why::Repeated));
    let mut trace = head("/", &[]);
    trace.method = Method::TRACE;
    assert!(matches!(coffer(&everywhere()).swap_head(&HERE, &mut trace).unwrap_err().why, Why::Echo(_)));
    assert!(coffer(&everywhere()).swap_head(&ELSEWHERE, &mut trace).is_ok());
}

#[test]
fn a_real_value_from_inside_is_refused() {
    refused(sent(&everywhere(), &HERE, "x-api-key", REAL), "rotate it");
    refused(sent(&everywhere(), &ELSEWHERE, "x-api-key", &STANDARD.encode(REAL)), "rotate it");
}

#[test]
fn a_name_that_holds_a_credential_is_not_looked_up() {
    let coffer =
        Coffer::new(vec![bound("pay", b"RealValueOfAKey42", "FakeValueOfAKey42", &[Place::Bearer])]).unwrap();
    for name in ["realvalueofakey42.evil.example", "a.FAKEVALUEOFAKEY42.example"] {
        assert!(coffer.check_name(name).is_err_and(|refusal| refusal.is_alarm()), "{name}");
    }
    assert!(coffer.check_name("realvalue.example").is_ok());
}

#[test]
fn hosts_and_programs_bound_a_credential() {
    let mut only = bound("pay", REAL.as_bytes(), FAKE, &everywhere());
    only.credential.programs = vec!["/usr/bin/python3".into()];
    let coffer = Coffer::new(vec![only]).unwrap();
    let check = |host, program, admitted: bool| {
        let to = Destination { host, port: 443, program };
        let said = coffer.swap_head(&to, &mut head("/", &[("x-api-key", FAKE)]));
        assert_eq!(said.is_ok(), admitted, "{host} {program:?}: {said:?}");
    };
    let python = Some("/usr/bin/python3");
    check("api.pay.test", python, true);
    check("a.below.pay.test", python, true);
    check("a.b.below.pay.test", python, true);
    check("below.pay.test", python, false);
    check("xxbelow.pay.test", python, false);
    check("api.pay.test.evil.test", python, false);
    check("api.pay.test", Some("/bin/bash"), false);
    check("api.pay.test", None, false);
}

#[test]
fn what_comes_back_is_asked_for_readable() {
    let headers = [
        ("accept-encoding", "gzip, br"),
        ("range", "bytes=0-9"),
        ("sec-websocket-extensions", "permessage-deflate"),
    ];
    let mut watched = head("/", &headers);
    coffer(&everywhere()).swap_head(&HERE, &mut watched).unwrap();
    assert_eq!(watched.headers["accept-encoding"], "identity");
    assert!(
        !watched.headers.contains_key("range") && !watched.headers.contains_key("sec-websocket-extensions")
    );
    let mut other = head("/", &headers);
    coffer(&everywhere()).swap_head(&ELSEWHERE, &mut other).unwrap();
    assert_eq!(other.headers.len(), 3);
    assert_eq!(other.headers["accept-encoding"], "gzip, br");
}

#[test]
fn revoked_then_replaced() {
    let coffer = coffer(&everywhere());
    let request = || head("/", &[("x-api-key", FAKE)]);
    let used = coffer.swap_head(&HERE, &mut request()).unwrap();
    assert!(coffer.is_current(&used));
    coffer.revoke("pay").unwrap();
    assert!(!coffer.is_current(&used));
    let refusal = coffer.swap_head(&HERE, &mut request()).unwrap_err();
    assert!(matches!(refusal.why, Why::Revoked) && !refusal.is_alarm());
    assert_eq!(coffer.replace("pay", Plain::new(b"a-new-value-1".to_vec())), Ok(2));
    let mut head = request();
    let renewed = coffer.swap_head(&HERE, &mut head).unwrap();
    assert_eq!(head.headers["x-api-key"], "a-new-value-1");
    assert!(coffer.is_current(&renewed) && !coffer.is_current(&used));
    let mut old = self::head("/", &[("x-api-key", REAL)]);
    assert!(matches!(coffer.swap_head(&HERE, &mut old).unwrap_err().why, Why::RealValue));
    assert_eq!(coffer.revoke("other"), Err(Unknown("other".into())));
    assert!(matches!(
        coffer.replace("pay", Plain::new(b"short".to_vec())),
        Err(Unfit::Short { length: 5, .. })
    ));
}

#[test]
fn what_cannot_be_told_apart_is_unfit() {
    let unfit = |bound: Vec<Bound>| Coffer::new(bound).err().unwrap().to_string();
    assert!(unfit(vec![bound("pay", b"1234567", FAKE, &[])]).contains("has 7 bytes"));
    assert!(unfit(vec![bound("pay", &[b'x'; 20_000], FAKE, &[])]).contains("has 20000 bytes"));
    assert!(unfit(vec![bound("pay", REAL.as_bytes(), REAL, &[])]).contains("does not show the value"));
    let same = vec![bound("pay", REAL.as_bytes(), FAKE, &[]), bound("ship", b"another-value", FAKE, &[])];
    assert!(unfit(same).contains("no other credential has"));
}

fn swapped(coffer: &Coffer, kind: &str, body: &str) -> Result<String, Refusal> {
    let head = head("/login", &[("content-type", kind)]);
    let BodyPlan::Swap(mut plan) = coffer.request_body(&HERE, &head)? else { panic!("a field is declared") };
    for chunk in body.as_bytes().chunks(7) {
        plan.push(chunk)?;
    }
    let mut used = Used::default();
    let sent = plan.finish(&mut used)?;
    assert_eq!(used.credentials.len(), usize::from(sent != body));
    Ok(String::from_utf8(sent.to_vec()).unwrap())
}

#[test]
fn declared_fields_of_bodies_are_swapped() {
    let coffer = coffer(&everywhere());
    let json = r#"{ "n":1.50e3, "auth" : {"token":"{}","x":[{"token":1}]},"é":"\u00e9" }"#;
    let check = |kind, body: &str| {
        assert_eq!(swapped(&coffer, kind, &body.replace("{}", FAKE)).unwrap(), body.replace("{}", REAL));
    };
    check("application/json; charset=utf-8", json);
    check("application/vnd.x+json", r#"{"token":"pre {} post"}"#);
    check("application/json", r#"{"token":"nothing of ours"}"#);
    check("application/json", "not even json");
    check("application/x-www-form-urlencoded", "a=1&token={}&b=%20");
    for (kind, body) in [
        ("application/json", r#"{"auth":{"token":"{}"},"prompt":"{}"}"#),
        ("application/json", r#"{"prompt":"{}","auth":{"token":"{}"}}"#),
        ("application/json", r#"{"auth":{"token":"{}","token":"x"}}"#),
        ("application/json", r#"{"auth":["{}"]}"#),
        ("application/json", "{} is not json"),
        ("application/x-www-form-urlencoded", "token={}&other={}"),
        ("application/x-www-form-urlencoded", "token={}&token=1"),
    ] {
        let refusal = swapped(&coffer, kind, &body.replace("{}", FAKE)).expect_err(body);
        assert!(matches!(refusal.why, Why::OtherPlace | Why::Repeated), "{refusal}");
    }
    let large = format!("token={}", "x".repeat(2 << 20));
    let refusal = swapped(&coffer, "application/x-www-form-urlencoded", &large).unwrap_err();
    assert!(matches!(refusal.why, Why::TooLarge(_)));
}

fn scanned(to: &Destination<'_>, headers: &[(&str, &str)], body: &[u8], cut: usize) -> Result<(), Refusal> {
    let plan = coffer(&[Place::Bearer]).request_body(to, &head("/", headers))?;
    let BodyPlan::Scan(mut scan) = plan else { panic!("no field is declared") };
    body.chunks(cut).try_for_each(|chunk| scan.push(chunk))
}

#[test]
fn bodies_are_looked_through_however_they_are_cut_and_compressed() {
    let text = format!("{{\"messages\":[\"{}\", \"{FAKE}\"]}}", "x".repeat(300));
    let clean = text.replace(FAKE, "nothing");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for cut in [1, 7, 64, 4096] {
        let refusal = scanned(&HERE, &[], text.as_bytes(), cut).unwrap_err();
        assert!(matches!((&refusal.at, &refusal.why), (At::Body, Why::OtherPlace)), "{refusal}");
        let refusal = scanned(&ELSEWHERE, &[], STANDARD.encode(&text).as_bytes(), cut).unwrap_err();
        assert!(matches!(refusal.why, Why::OtherHost(_)));
        assert!(scanned(&ELSEWHERE, &[("content-encoding", "gzip")], &gzip, cut).is_err());
        assert!(scanned(&HERE, &[], clean.as_bytes(), cut).is_ok());
        assert!(scanned(&HERE, &[], &gzip, cut).is_ok(), "undeclared compression is bytes");
    }
    let unreadable = scanned(&HERE, &[("content-encoding", "gzip")], b"not gzip at all", 4).unwrap_err();
    assert!(matches!(unreadable.why, Why::Unreadable(_)) && unreadable.credential.is_none());
    assert!(scanned(&HERE, &[("content-encoding", "compress")], b"x", 4).is_err());
    assert!(matches!(
        Coffer::new(Vec::new()).unwrap().request_body(&HERE, &head("/", &[])),
        Ok(BodyPlan::Nothing)
    ));
}

#[test]
fn trailers_are_looked_through() {
    let plan = coffer(&everywhere()).request_body(&HERE, &head("/", &[("content-encoding", "gzip")]));
    let Ok(BodyPlan::Scan(scan)) = plan else { panic!("a compressed body is scanned") };
    assert!(scan.trailers(&head("/", &[("x-checksum", "abc")]).headers).is_ok());
    let refusal = scan.trailers(&head("/", &[("x-checksum", FAKE)]).headers).unwrap_err();
    assert_eq!(refusal.at, At::Header("x-checksum".into()));
    assert!(scan.trailers(&head("/", &[(FAKE, "x")]).headers).is_err());
}

proptest! {
    /// The real value stands where the placeholder stood, and nothing else of the head is other.
    #[test]
    fn only_the_placeholder_changes(
        real in "[!-~]{8,50}", lead in "[a-z]{0,9}", tail in "[a-z]{0,9}", others in "[a-z0-9 ]{0,40}", cut in 0usize..3,
    ) {
        let coffer = Coffer::new(vec![bound("pay", real.as_bytes(), FAKE, &everywhere())]).unwrap();
        let text = |value: &str| format!("{lead} {value} {tail}");
        let encoded = |value: &str| if cut == 0 { text(value) } else { STANDARD.encode(text(value)) };
        let mut sent = head("/a?b=c", &[("x-api-key", &encoded(FAKE)), ("x-other", &others)]);
        let mut expected = head("/a?b=c", &[("x-api-key", &encoded(&real)), ("x-other", &others)]);
        coffer.swap_head(&HERE, &mut sent).unwrap();
        expected.headers.insert("accept-encoding", "identity".parse().unwrap());
        prop_assert_eq!(sent.headers, expected.headers);
        prop_assert_eq!(sent.uri, expected.uri);
    }

    /// In every form, at every cut, a placeholder does not leave in a body; nor does the real value.
    #[test]
    fn no_form_leaves_in_a_body(
        before in prop::collection::vec(any::<u8>(), 0..60), after in prop::collection::vec(any::<u8>(), 0..60),
        cut in 1usize..80, real in any::<bool>(), which in any::<prop::sample::Index>(),
    ) {
        let forms = forms::forms(if real { REAL } else { FAKE }.as_bytes(), b"whatever-1");
        let body = [&before, which.get(&forms).text.as_slice(), &after].concat();
        prop_assert!(scanned(&ELSEWHERE, &[], &body, cut).is_err());
    }

    #[test]
    fn other_bytes_pass_unharmed(
        body in prop::collection::vec(any::<u8>(), 0..400), cut in 1usize..80, header in "[ -~]{0,80}", query in "[a-z0-9%&=+]{0,60}",
    ) {
        prop_assert!(scanned(&HERE, &[], &body, cut).is_ok());
        let uri = format!("/x?{query}");
        let mut sent = head(&uri, &[("x-api-key", header.trim()), ("authorization", &format!("Basic {}", header.trim()))]);
        prop_assert!(coffer(&everywhere()).swap_head(&HERE, &mut sent).unwrap().credentials.is_empty());
        prop_assert_eq!(sent.uri.to_string(), uri);
        prop_assert_eq!(sent.headers["x-api-key"].to_str().unwrap(), header.trim());
    }

    #[test]
    fn any_text_with_a_placeholder_is_survived(text in "[ -~]{0,40}", more in "[A-Za-z0-9+/=%]{0,40}") {
        for value in [format!("{text}{FAKE}{more}"), format!("{more}{}{more}", STANDARD.encode(format!("{text}{FAKE}")))] {
            for (name, value) in [("authorization", format!("Basic {value}")), ("x-api-key", value)] {
                let mut sent = head("/", &[(name, value.trim())]);
                let done = coffer(&everywhere()).swap_head(&HERE, &mut sent).is_ok();
                let shown = sent.headers[name].to_str().unwrap().contains(FAKE);
                prop_assert!(!(done && shown), "{}", value);
            }
        }
    }
}
