use super::*;
use crate::sign::{Taking, take as take_any};
use crate::swap::state::EntryPart;
use bytes::Bytes;
use cofferdam_vault::{Credential, Plain};
use http::Version;
use proptest::prelude::*;
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
struct Vector {
    suite: String,
    name: String,
    key_id: Option<String>,
    secret: Option<String>,
    token: Option<String>,
    header: Option<String>,
    query: Option<String>,
    header_sts: Option<String>,
    query_sts: Option<String>,
}

struct Keys<'a> {
    id: &'a str,
    secret: &'a str,
    token: Option<&'a str>,
}

fn plain(text: &str) -> Arc<Plain> {
    Arc::new(Plain::new(text.as_bytes().to_vec()))
}

fn state(inside: &Keys<'_>, real: &Keys<'_>, scopes: &[&str]) -> Arc<State> {
    let part =
        |role, inside: &str, real: &str| EntryPart { role, placeholder: inside.into(), plain: plain(real) };
    let mut parts = vec![part(Role::KeyId, inside.id, real.id)];
    if let Some(token) = real.token {
        parts.push(part(Role::Token, inside.token.unwrap_or("unused-token"), token));
    }
    let credential = Credential {
        name: "aws".into(),
        env: "AWS_SECRET_ACCESS_KEY".into(),
        hosts: vec!["*.amazonaws.com".into()],
        places: vec![Place::SigV4, Place::SigV4a],
        scopes: scopes.iter().map(|scope| scope.parse().unwrap()).collect(),
        ..Credential::default()
    };
    Arc::new(State::new(vec![Entry {
        name: "aws".into(),
        credential: Arc::new(credential),
        placeholder: inside.secret.into(),
        plain: plain(real.secret),
        parts,
        earlier: Vec::new(),
        generation: 1,
        revoked: false,
        until: None,
    }]))
}

/// A request as text into its head and body; also what no parser would let pass.
fn parse(text: &str) -> (Parts, String, Vec<u8>) {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let head = head.replace("\n ", " ");
    let mut lines = head.lines();
    let first = lines.next().unwrap();
    let (method, rest) = first.split_once(' ').unwrap();
    // A space cannot stand in a request line: whoever sends one escapes it.
    let target = rest.strip_suffix(" HTTP/1.1").unwrap().replace(' ', "%20");
    let mut parts = http::Request::new(()).into_parts().0;
    parts.method = method.parse().unwrap();
    parts.uri = target.parse().unwrap_or_else(|error| panic!("{target}: {error}"));
    parts.version = Version::HTTP_11;
    let mut host = String::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        if name.eq_ignore_ascii_case("host") {
            host = value.trim().to_owned();
        } else {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            parts.headers.append(name.parse::<HeaderName>().unwrap(), value);
        }
    }
    (parts, host, body.as_bytes().to_vec())
}

fn resign(state: &Arc<State>, text: &str, now: i64) -> Result<(Parts, Option<Resign>), String> {
    let (mut head, host, body) = parse(text);
    let to = Destination { host: &host, port: 443, program: None };
    let taken = take_any(state, &to, &mut head).map_err(|e| e.to_string())?.ok_or("not ours")?;
    let sending = Sending { authority: &host, now, rewritten: false };
    let Taking::Aws(aws) = &taken.scheme else { return Err("another scheme".into()) };
    let stream = matches!(aws.mode, Mode::Pieces { .. });
    let payload = if stream { Payload::Live } else { Payload::Whole(&body) };
    let resign = taken.sign(&sending, &mut head, payload).map_err(|e| e.to_string())?;
    Ok((head, resign))
}

fn signature(head: &Parts) -> String {
    let text = head.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let text = text.unwrap_or_else(|| head.uri.to_string());
    let (_, rest) = text.split_once("Signature=").unwrap();
    rest.chars().take_while(char::is_ascii_hexdigit).collect()
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../../../tests/vectors/aws.json")).unwrap()
}

fn each(suite: &str, mut check: impl FnMut(&Vector, &Keys<'_>, &str, &str)) {
    let mut tried = 0;
    for vector in vectors().iter().filter(|vector| vector.suite == suite) {
        let (Some(id), Some(secret)) = (&vector.key_id, &vector.secret) else { continue };
        let keys = Keys { id, secret, token: vector.token.as_deref() };
        let both = [(&vector.header, &vector.header_sts), (&vector.query, &vector.query_sts)];
        for (request, text) in both {
            let (Some(request), Some(text)) = (request, text) else { continue };
            check(vector, &keys, request, text);
            tried += 1;
        }
    }
    assert!(tried > 70, "{tried}");
}

/// The published suite: each request is read and checked as a client's, and signed anew it is the same to the byte.
#[test]
fn the_published_vectors_of_version_4() {
    each("v4", |vector, keys, request, text| {
        let (state, now) = (state(keys, keys, &["*"]), time::seconds(text.lines().nth(1).unwrap()).unwrap());
        let (head, _) =
            resign(&state, request, now).unwrap_or_else(|e| panic!("{}: {e}\n{request}", vector.name));
        let expected = signature(&parse(request).0);
        assert_eq!(signature(&head), expected, "{}\n{request}", vector.name);
    });
}

/// Signatures of this kind differ each time; theirs fits what we read, and ours fits the text that they signed.
#[test]
fn the_published_vectors_of_version_4a() {
    each("v4a", |vector, keys, request, text| {
        let (state, now) = (state(keys, keys, &["*"]), time::seconds(text.lines().nth(1).unwrap()).unwrap());
        let (head, _) =
            resign(&state, request, now).unwrap_or_else(|e| panic!("{}: {e}\n{request}", vector.name));
        let key = cofferdam_vault::AwsV4aKey::derive(&plain(keys.secret), keys.id).unwrap();
        assert!(key.verifies(text.as_bytes(), &signature(&head)), "{}\n{request}", vector.name);
    });
}

const INSIDE: Keys<'_> =
    Keys { id: "AKIAPLACEHOLDER23456", secret: "pLaCeHoLdEr/K7MDENG+bPxRfiCYpLaCeHoLdEr0", token: None };
const REAL: Keys<'_> =
    Keys { id: "AKIAREALREALREAL2345", secret: "rEaLrEaL/K7MDENG+bPxRfiCYrEaLrEaLrEaL000", token: None };
const NOW: i64 = 1_440_938_160;

/// A request with a signature by these keys, in the reading that the service has.
fn signed(
    keys: &Keys<'_>,
    service: &str,
    target: &str,
    time: &str,
    fields: &[(&str, &str)],
    payload: &str,
) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = HeaderMap::new();
    headers.append("x-amz-date", time.parse().unwrap());
    for (name, value) in fields {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    let mut names: Vec<String> = headers.keys().map(|name| name.to_string()).chain(["host".into()]).collect();
    names.sort();
    let host = "examplebucket.s3.amazonaws.com";
    let (text, _) = canonical::fields(&headers, &names, host);
    let pairs = claim::pairs(query);
    let method = "PUT";
    let request = Request { method, path, pairs: &pairs, fields: &text, signed: &names.join(";"), payload };
    let day = &time[..8];
    let scope = format!("{day}/eu-west-1/{service}/aws4_request");
    let text = format!("{}\n{time}\n{scope}\n{}", claim::V4, request.hash(Reading::all(service == "s3")[0]));
    let key = cofferdam_vault::AwsV4Key::derive(&plain(keys.secret), day, "eu-west-1", service);
    let signature = key.sign(text.as_bytes());
    let fields: String = fields.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    format!(
        "PUT {target} HTTP/1.1\nhost:{host}\nx-amz-date:{time}\n{fields}authorization:{} Credential={}/{scope}, SignedHeaders={}, Signature={signature}\n\n",
        claim::V4,
        keys.id,
        names.join(";"),
    )
}

fn check(text: &str, scopes: &[&str], now: i64, expected: Result<&str, &str>) {
    let found = resign(&state(&INSIDE, &REAL, scopes), text, now);
    match (&found, expected) {
        (Ok((head, _)), Ok(expected)) => {
            let text = head.headers[AUTHORIZATION].to_str().unwrap();
            let expected_text = parse(expected).0.headers[AUTHORIZATION].to_str().unwrap().to_owned();
            assert_eq!(text, expected_text);
        }
        (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
        (Ok((head, _)), Err(part)) => panic!("{part}: {head:?}"),
        (Err(error), Ok(_)) => panic!("{error}"),
    }
}

const HASH_OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn what_the_inside_signed_is_signed_with_the_real_key() {
    for target in
        ["/", "/a%20b%2Bc/%C3%BC%2520~%21%2A.txt", "/a//b/../c", "/x?prefix=a%2Fb&list-type=2", "/a!b*c'(d)"]
    {
        for (fields, payload) in [
            (&[("x-amz-content-sha256", HASH_OF_NOTHING)][..], HASH_OF_NOTHING),
            (
                &[("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), ("content-type", "text/plain")],
                "UNSIGNED-PAYLOAD",
            ),
        ] {
            let of = |keys| signed(keys, "s3", target, "20150830T123600Z", fields, payload);
            check(&of(&INSIDE), &[], NOW, Ok(&of(&REAL)));
        }
        let of = |keys| signed(keys, "dynamodb", target, "20150830T123600Z", &[], HASH_OF_NOTHING);
        check(&of(&INSIDE), &["dynamodb/eu-west-1"], NOW, Ok(&of(&REAL)));
    }
}

#[test]
fn a_clock_that_is_off_is_set_right() {
    let of = |keys, time| {
        signed(keys, "s3", "/k", time, &[("x-amz-content-sha256", HASH_OF_NOTHING)], HASH_OF_NOTHING)
    };
    check(&of(&INSIDE, "20150830T123600Z"), &[], NOW + 100, Ok(&of(&REAL, "20150830T123600Z")));
    check(&of(&INSIDE, "20110101T000000Z"), &[], NOW, Ok(&of(&REAL, "20150830T123600Z")));
    check(&of(&INSIDE, "20990101T000000Z"), &[], NOW, Ok(&of(&REAL, "20150830T123600Z")));
}

#[test]
fn what_the_credential_may_not_sign_is_refused() {
    let of = |service| signed(&INSIDE, service, "/k", "20150830T123600Z", &[], HASH_OF_NOTHING);
    check(&of("sts"), &[], NOW, Err("`sts` gives out credentials: name it with --scope sts"));
    check(&of("sts"), &["s3/eu-west-1"], NOW, Err("may not sign for `sts` in `eu-west-1`"));
    check(&of("s3"), &["s3/eu-west-2"], NOW, Err("may not sign for `s3` in `eu-west-1`"));
    check(
        &of("s3").replace("examplebucket.s3.amazonaws.com", "s3.elsewhere.example"),
        &[],
        NOW,
        Err("may not go to"),
    );
}

#[test]
fn a_signature_that_covers_another_request_is_refused() {
    let fields = [("x-amz-content-sha256", HASH_OF_NOTHING), ("x-amz-meta-a", "1")];
    let good = signed(&INSIDE, "s3", "/k?x=1", "20150830T123600Z", &fields, HASH_OF_NOTHING);
    for (from, to) in
        [("/k?x=1", "/l?x=1"), ("/k?x=1", "/k?x=2"), ("PUT", "GET"), ("x-amz-meta-a:1", "x-amz-meta-a:2")]
    {
        check(&good.replacen(from, to, 1), &[], NOW, Err("does not fit"));
    }
    check(&format!("{good}another body"), &[], NOW, Err("not the one whose hash was signed"));
    let untold = signed(&INSIDE, "sqs", "/", "20150830T123600Z", &[], HASH_OF_NOTHING);
    check(&format!("{untold}another body"), &[], NOW, Err("does not fit"));
}

#[test]
fn what_cannot_be_read_is_refused() {
    let good = signed(
        &INSIDE,
        "s3",
        "/k",
        "20150830T123600Z",
        &[("x-amz-content-sha256", HASH_OF_NOTHING)],
        HASH_OF_NOTHING,
    );
    for (from, to, part) in [
        ("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA512 ", "algorithm"),
        ("/aws4_request", "/aws5_request", "KEY/DAY/REGION"),
        ("Signature=", "Signature=zz", "hexadecimal"),
        (", Signature=", ", Other=", "unknown parameter"),
        ("SignedHeaders=host;", "SignedHeaders=", "`host` has to be signed"),
        ("x-amz-date:20150830", "x-amz-date:20150831", "not of the day"),
        (HASH_OF_NOTHING, "STREAMING-AWS4-HMAC-SHA256-EVENTS", "not signed anew"),
        (HASH_OF_NOTHING, "nonsense", "no hash"),
    ] {
        assert!(good.contains(from), "{from}");
        check(&good.replacen(from, to, 1), &[], NOW, Err(part));
    }
}

#[test]
fn signatures_of_others_are_left_alone() {
    let other = Keys { id: "AKIASOMEONEELSE23456", ..REAL };
    let text = signed(&other, "s3", "/k", "20150830T123600Z", &[], HASH_OF_NOTHING);
    check(&text, &[], NOW, Err("not ours"));
    let (mut head, host, _) = parse(&text);
    let before = format!("{head:?}");
    let to = Destination { host: &host, port: 443, program: None };
    assert!(take_any(&state(&INSIDE, &REAL, &[]), &to, &mut head).unwrap().is_none());
    assert_eq!(format!("{head:?}"), before);
    let url = "GET /k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIASOMEONEELSE23456%2F20150830%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20150830T123600Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=00 HTTP/1.1\nhost:b.s3.amazonaws.com\n\n";
    check(url, &[], NOW, Err("not ours"));
}

#[test]
fn signatures_of_version_2_are_told_what_to_do() {
    let url = format!(
        "GET /k?AWSAccessKeyId={}&Signature=x&Expires=1 HTTP/1.1\nhost:b.s3.amazonaws.com\n\n",
        INSIDE.id
    );
    check(&url, &[], NOW, Err("s3v4"));
    let field = format!("GET /k HTTP/1.1\nhost:b.s3.amazonaws.com\nauthorization:AWS {}:x\n\n", INSIDE.id);
    check(&field, &[], NOW, Err("s3v4"));
}

#[test]
fn tokens_of_the_inside_are_replaced_added_and_dropped() {
    let inside = Keys { token: Some("placeholder-token"), ..INSIDE };
    let real = Keys { token: Some("real-token-0000"), ..REAL };
    let with = |keys: &Keys<'_>| {
        let fields =
            [("x-amz-content-sha256", HASH_OF_NOTHING), ("x-amz-security-token", keys.token.unwrap())];
        signed(keys, "s3", "/k", "20150830T123600Z", &fields, HASH_OF_NOTHING)
    };
    let without = |keys: &Keys<'_>| {
        signed(
            keys,
            "s3",
            "/k",
            "20150830T123600Z",
            &[("x-amz-content-sha256", HASH_OF_NOTHING)],
            HASH_OF_NOTHING,
        )
    };
    let head = |state, text: &str| resign(&state, text, NOW).unwrap().0;
    let expected = parse(&with(&real)).0;
    for text in [with(&inside), without(&inside)] {
        let found = head(state(&inside, &real, &[]), &text);
        assert_eq!(found.headers[AUTHORIZATION], expected.headers[AUTHORIZATION]);
        assert_eq!(found.headers[TOKEN], "real-token-0000");
    }
    let found = head(state(&inside, &REAL, &[]), &with(&inside));
    assert_eq!(found.headers[AUTHORIZATION], parse(&without(&REAL)).0.headers[AUTHORIZATION]);
    assert!(!found.headers.contains_key(TOKEN));
}

#[test]
fn urls_are_signed_while_they_are_valid() {
    let keys = Keys { id: "AKIDEXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token: None };
    let vector = vectors().into_iter().find(|v| v.suite == "v4" && v.name == "get-vanilla").unwrap();
    let url = vector.query.unwrap();
    let check = |text: &str, now, expected: Result<(), &str>| match (
        resign(&state(&keys, &REAL, &[]), text, now),
        expected,
    ) {
        (Ok((head, _)), Ok(())) => {
            let uri = head.uri.to_string();
            assert!(uri.contains("AKIAREALREALREAL2345") && !uri.contains("AKIDEXAMPLE"), "{uri}");
        }
        (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
        (found, expected) => panic!("{:?} {expected:?}", found.err()),
    };
    check(&url, NOW, Ok(()));
    check(&url, NOW + 3600, Ok(()));
    check(&url, NOW + 3601, Err("valid until 20150830T133600Z"));
    check(&url, NOW - 901, Err("valid from 20150830T123600Z"));
    check(&url.replace("X-Amz-Expires=3600", "X-Amz-Expires=3601"), NOW, Err("does not fit"));
    check(&url.replace("X-Amz-Expires=3600", "X-Amz-Expires=604801"), NOW, Err("over a week"));
    check(&url.replace("&X-Amz-Date", "&X-Amz-Credential=AKIDEXAMPLE&X-Amz-Date"), NOW, Err("stands twice"));
    let twice =
        url.replace("HTTP/1.1\n", "HTTP/1.1\nauthorization:AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/x\n");
    check(&twice, NOW, Err("signed twice"));
}

/// The example of the S3 documentation.
const DOCUMENTED: [&str; 4] = [
    "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
];

fn documented() -> (String, Vec<u8>) {
    let head = format!(
        "PUT /examplebucket/chunkObject.txt HTTP/1.1\nhost:s3.amazonaws.com\nx-amz-date:20130524T000000Z\nx-amz-storage-class:REDUCED_REDUNDANCY\ncontent-encoding:aws-chunked\nx-amz-content-sha256:STREAMING-AWS4-HMAC-SHA256-PAYLOAD\nx-amz-decoded-content-length:66560\ncontent-length:66824\nauthorization:AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class,Signature={}\n\n",
        DOCUMENTED[0]
    );
    let body = pieces(&[65536, 1024, 0], &DOCUMENTED[1..]);
    (head, body)
}

fn pieces(sizes: &[usize], signatures: &[impl AsRef<str>]) -> Vec<u8> {
    let piece = |(size, signature): (&usize, &dyn AsRef<str>)| {
        let line = format!("{size:x};chunk-signature={}\r\n", signature.as_ref());
        [line.as_bytes(), &vec![b'a'; *size], b"\r\n"].concat()
    };
    sizes
        .iter()
        .zip(signatures)
        .map(|(size, s)| piece((size, s as &dyn AsRef<str>)))
        .collect::<Vec<_>>()
        .concat()
}

fn through(mut resign: Resign, body: &[u8], cut: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for part in body.chunks(cut.max(1)) {
        out.extend_from_slice(&resign.push(Bytes::copy_from_slice(part)).map_err(|e| e.to_string())?);
    }
    out.extend_from_slice(&resign.finish().map_err(|e| e.to_string())?);
    Ok(out)
}

const DOCUMENTED_KEYS: Keys<'_> =
    Keys { id: "AKIAIOSFODNN7EXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", token: None };
const THEN: i64 = 1_369_353_600;

#[test]
fn the_documented_chain_of_pieces() {
    let (head, body) = documented();
    let same = state(&DOCUMENTED_KEYS, &DOCUMENTED_KEYS, &[]);
    for cut in [1000, 65536, 1 << 20] {
        let (signed, resign) = resign(&same, &head, THEN).unwrap();
        assert_eq!(signature(&signed), DOCUMENTED[0]);
        assert_eq!(through(resign.unwrap(), &body, cut), Ok(body.clone()));
    }
    // And from them to another key, and back.
    let there = state(&DOCUMENTED_KEYS, &REAL, &[]);
    let (signed, stream) = resign(&there, &head, THEN).unwrap();
    let other = through(stream.unwrap(), &body, 4096).unwrap();
    assert!(other.len() == body.len() && other != body);
    let text = head.replace(DOCUMENTED[0], &signature(&signed)).replace(DOCUMENTED_KEYS.id, REAL.id);
    let (signed, stream) = resign(&state(&REAL, &DOCUMENTED_KEYS, &[]), &text, THEN).unwrap();
    assert_eq!(signature(&signed), DOCUMENTED[0]);
    assert_eq!(through(stream.unwrap(), &other, 4096), Ok(body));
}

#[test]
fn pieces_that_were_changed_are_refused() {
    let (head, body) = documented();
    let state = state(&DOCUMENTED_KEYS, &REAL, &[]);
    let check = |change: &dyn Fn(&mut Vec<u8>), part: &str| {
        let mut changed = body.clone();
        change(&mut changed);
        let stream = resign(&state, &head, THEN).unwrap().1.unwrap();
        let error = through(stream, &changed, 8192).expect_err(part);
        assert!(error.contains(part), "{error}");
    };
    check(&|body| body[5000] = b'b', "signature of a piece does not fit");
    check(&|body| body[30] = b'0', "signature of a piece does not fit");
    check(&|body| body.truncate(body.len() - 2), "ends before its end");
    check(&|body| body.truncate(65536 + 85), "ends before its end");
    check(&|body| body.extend_from_slice(b"0"), "behind its end");
    check(
        &|body| *body = pieces(&[65536, 0], &[DOCUMENTED[1], DOCUMENTED[3]]),
        "signature of a piece does not fit",
    );
    check(&|body| *body = pieces(&[65536, 65536], &[DOCUMENTED[1]; 2]), "tells another length");
    check(&|body| *body = b"10000\r\n".to_vec(), "no signature");
    check(&|body| *body = format!("fffffff;chunk-signature={}\r\n", DOCUMENTED[1]).into(), "too large");
    check(&|body| body[65536 + 84] = b'x', "signature of a piece does not fit");
}

proptest! {
    #[test]
    fn any_head_is_survived(authorization in "AWS4-(HMAC-SHA256|ECDSA-P256-SHA256)? ?Credential=AKIAPLACEHOLDER23456[/a-z0-9,;= A-Z]{0,80}", query in "(X-Amz-[A-Za-z]{0,12}=[A-Z0-9%/]{0,20}&?){0,5}") {
        let state = state(&INSIDE, &REAL, &[]);
        let to = Destination { host: "b.s3.amazonaws.com", port: 443, program: None };
        for (field, uri) in [(Some(&authorization), "/".to_owned()), (None, format!("/?X-Amz-Credential=AKIAPLACEHOLDER23456%2F&{query}"))] {
            let mut head = http::Request::new(()).into_parts().0;
            if let Some(Ok(value)) = field.map(|text| HeaderValue::from_str(text)) {
                head.headers.insert(AUTHORIZATION, value);
            }
            if let Ok(uri) = uri.parse() {
                head.uri = uri;
                let _ = take_any(&state, &to, &mut head);
            }
        }
    }

    #[test]
    fn any_pieces_are_survived(body in "[0-9a-f;=\r\n]{0,80}|1;chunk-signature=[0-9a-f]{64}\r\n.{0,5}", cut in 1usize..30) {
        let (head, _) = documented();
        let stream = resign(&state(&DOCUMENTED_KEYS, &REAL, &[]), &head, THEN).unwrap().1.unwrap();
        prop_assert!(through(stream, body.as_bytes(), cut).is_err());
    }
}

#[derive(Deserialize)]
struct Made {
    signer: String,
    inside: String,
    real: String,
}

/// Random requests that others signed with the key of the inside become, to the byte, what they sign with the real one.
#[test]
fn we_agree_with_other_signers_on_random_requests() {
    let Some(packages) = cofferdam_testkit::packages() else { return };
    let seed = "20261117";
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/signers.py");
    let made = std::process::Command::new("python3")
        .args([program, seed, "150", INSIDE.id, INSIDE.secret, REAL.id, REAL.secret])
        .env_clear()
        .env("PATH", cofferdam_testkit::SEARCH_PATH)
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let now = jiff::Timestamp::now().as_second();
    let (state, key) = (
        state(&INSIDE, &REAL, &["*"]),
        cofferdam_vault::AwsV4aKey::derive(&plain(REAL.secret), REAL.id).unwrap(),
    );
    let mut seen = 0;
    for line in String::from_utf8(made.stdout).unwrap().lines() {
        let Made { signer, inside, real } = serde_json::from_str(line).unwrap();
        let (head, _) = resign(&state, &inside, now).unwrap_or_else(|e| panic!("{signer}: {e}\n{inside}"));
        if signer != "awscrt-v4a" {
            assert_eq!(signature(&head), signature(&parse(&real).0), "{signer}\n{inside}");
        } else {
            assert!(!key.verifies(b"", &signature(&head)));
        }
        seen += 1;
    }
    assert_eq!(seen, 450);
}
