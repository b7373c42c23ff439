use super::shapes::SHAPES;
use super::*;
use crate::scrub::coding::Coding;
use crate::scrub::coding::tests::encoded;
use proptest::prelude::*;
use std::collections::BTreeSet;

const DENY: fn(Class) -> Option<GuardAction> = |_| Some(GuardAction::Deny);

fn guard(action: fn(Class) -> Option<GuardAction>) -> Guard {
    Guard::new(action, Vec::new(), &HeaderMap::new()).unwrap().unwrap()
}

fn run(guard: &mut Guard, body: &[u8], cut: usize) -> (Vec<u8>, Vec<Finding>) {
    let mut all = Passed::default();
    let mut bytes = Vec::new();
    for passed in
        body.chunks(cut).map(|chunk| guard.push(Bytes::copy_from_slice(chunk)).unwrap()).collect::<Vec<_>>()
    {
        bytes.extend(passed.bytes);
        all.findings.extend(passed.findings);
    }
    let rest = guard.finish();
    bytes.extend(rest.bytes);
    all.findings.extend(rest.findings);
    all.findings.sort_by_key(|f| f.offset);
    (bytes, all.findings)
}

fn found(body: &str) -> Vec<&'static str> {
    let whole = run(&mut guard(DENY), body.as_bytes(), usize::MAX);
    for cut in [1, 3, 16] {
        assert_eq!(run(&mut guard(DENY), body.as_bytes(), cut), whole, "{body}");
    }
    assert_eq!(whole.0, body.as_bytes());
    whole.1.iter().map(|finding| finding.shape).collect()
}

#[test]
fn the_table_is_right() {
    assert!(SHAPED.is_some());
    let names: BTreeSet<_> = SHAPES.iter().map(|shape| shape.name).collect();
    assert_eq!(names.len(), SHAPES.len());
    let classes: BTreeSet<_> = SHAPES.iter().map(|shape| shape.class).collect();
    assert_eq!(classes.len(), Class::ALL.len());
    for shape in SHAPES {
        assert!(shape.reason.len() > 10 && !shape.reason.ends_with('.'), "{}", shape.name);
        assert!(shape.literals.iter().all(|literal| literal.len() >= 3), "{}", shape.name);
    }
}

#[test]
fn every_shape_finds_its_example_wherever_it_stands() {
    for shape in SHAPES {
        let example = shape.example;
        for (before, after) in
            [("", ""), ("x=", "&y"), ("{\"a\": \"", "\"}"), ("text\\n", "\\n"), ("a%3D", "%26"), ("é", " é")]
        {
            let body = format!("{before}{example}{after}");
            assert_eq!(found(&body), [shape.name], "{body}");
        }
        let start = &example[..12];
        assert!(found(start).is_empty(), "{start}");
    }
}

#[test]
fn what_is_no_secret_is_not_found() {
    for body in [
        "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "\"key\": \"550e8400-e29b-41d4-a716-446655440000\"",
        "token: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "{\"max_tokens\": 4096, \"key\": \"user_profile_picture_large\"}",
        "xAKIA2345ABCDEFGH67WX",
        "AKIA2345ABCDEFGH67WXY",
        "risk-proj-management-of-large-and-long-programmes-of-work",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.not.a.token",
        "hf_hub_download(repo_id, filename)",
        "SKU12345, SG.1, ghp_short, sk-",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "TWILIO_ACCOUNT_SID=AC0123456789abcdef0123456789abcdef",
        "sk_live_4242 4242 4242 4242 4242 4242 ",
        "order 1763250000000000 of 2026-11-16 02:11:46",
    ] {
        assert!(found(body).is_empty(), "{body}: {:?}", found(body));
    }
}

#[test]
fn own_placeholders_pass() {
    let placeholder = SHAPES.iter().find(|shape| shape.name == "stripe-key").unwrap().example;
    let body = format!("key={placeholder}");
    assert_eq!(found(&body), ["stripe-key"]);
    let mut guard = Guard::new(DENY, vec![placeholder.into()], &HeaderMap::new()).unwrap().unwrap();
    assert!(run(&mut guard, body.as_bytes(), 5).1.is_empty());
}

#[test]
fn the_policy_says_what_is_done() {
    let body =
        b"card 4242 4242 4242 4242, AKIA2345ABCDEFGH67WX and ghp_0123456789abcdefghijABCDEFGHIJ012345.";
    let action = |class| match class {
        Class::Payment => Some(GuardAction::Redact),
        Class::Cloud => Some(GuardAction::Flag),
        _ => None,
    };
    for cut in [1, 10, 1000] {
        let (bytes, findings) = run(&mut guard(action), body, cut);
        let told: Vec<_> = findings.iter().map(|f| (f.shape, f.action, f.offset, f.length)).collect();
        let expected =
            [("card-number", GuardAction::Redact, 5, 19), ("aws-access-key", GuardAction::Flag, 26, 20)];
        assert_eq!(told, expected);
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text, String::from_utf8_lossy(body).replace("4242 4242 4242 4242", &"x".repeat(19)));
    }
    assert!(Guard::new(|_| None, Vec::new(), &HeaderMap::new()).unwrap().is_none());
}

/// With a finding that denies, no byte of it has left.
#[test]
fn what_is_denied_has_not_left() {
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let mut guard = self::guard(DENY);
    let mut left = Vec::new();
    for byte in format!("token {secret} end").bytes() {
        let passed = guard.push(Bytes::copy_from_slice(&[byte])).unwrap();
        if !passed.findings.is_empty() {
            assert_eq!(left, b"token ");
            return;
        }
        left.extend(passed.bytes);
    }
    panic!("it was not found");
}

#[test]
fn a_compressed_body_is_read_and_not_changed() {
    let plain =
        format!("token {} end", SHAPES.iter().find(|shape| shape.name == "npm-token").unwrap().example);
    let body = encoded(Coding::Gzip, plain.as_bytes());
    let headers: HeaderMap =
        [(http::header::CONTENT_ENCODING, "gzip".parse().unwrap())].into_iter().collect();
    let made =
        |action: fn(Class) -> Option<GuardAction>| Guard::new(action, Vec::new(), &headers).unwrap().unwrap();
    for cut in [1, 1000] {
        let (bytes, findings) = run(&mut made(|_| Some(GuardAction::Redact)), &body, cut);
        assert_eq!(bytes, body);
        assert_eq!(
            findings.iter().map(|f| (f.shape, f.action)).collect::<Vec<_>>(),
            [("npm-token", GuardAction::Deny)]
        );
        assert_eq!(run(&mut made(|_| Some(GuardAction::Flag)), &body, cut).1[0].action, GuardAction::Flag);
    }
    assert!(made(DENY).push(Bytes::from_static(b"not compressed at all")).is_err());
}

#[test]
fn a_redacted_private_key_is_gone() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    for newline in ["\n", "\\n", "\r\n    "] {
        let key = format!(
            "-----BEGIN PRIVATE KEY-----{newline}{}-----END PRIVATE KEY-----",
            format!("{line}{newline}").repeat(25)
        );
        let body = format!("{{\"key\":\"{key}\"}} and more");
        let mut guard = self::guard(|_| Some(GuardAction::Redact));
        let text = String::from_utf8(run(&mut guard, body.as_bytes(), 100).0).unwrap();
        assert!(!text.contains(&line[..16]) && text.ends_with("\"} and more"), "{text}");
        assert_eq!(text.len(), body.len());
    }
}

proptest! {
    #[test]
    fn cuts_do_not_matter(
        body in r#"(key ?[=:]|"|sk_live_|0123456789abcdefghijABCD|ghp_|AKIA|4242 4242 |42424242|eyJ|\.|\\n|-----BEGIN |[ -~])*"#,
        cut in 1usize..40,
    ) {
        let whole = run(&mut guard(DENY), body.as_bytes(), usize::MAX);
        let parts = run(&mut guard(DENY), body.as_bytes(), cut);
        prop_assert_eq!(parts, whole);
    }

    #[test]
    fn any_bytes_are_survived_and_leave_as_they_came(body in prop::collection::vec(any::<u8>(), 0..2000), cut in 1usize..300) {
        let (bytes, _) = run(&mut guard(DENY), &body, cut);
        prop_assert_eq!(bytes, body);
    }
}
