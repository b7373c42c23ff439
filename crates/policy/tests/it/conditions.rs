//! Conditions: what they can ask, and that whatever they cannot answer is a denial that says why.

use crate::{decide, policy, rule, told};
use cofferdam_policy::{Policy, Request};

fn guarded(when: &str) -> Policy {
    policy(&rule("r", "allow", &format!("host = \"a.com\"\nwhen = '''{when}'''")))
}

#[track_caller]
fn check(when: &str, request: &str, expected: &str) {
    let found = decide(&guarded(when), request);
    let told = match &found.problem {
        Some(problem) => problem.to_string(),
        None => told(&found),
    };
    assert!(told.contains(expected), "{when}: {told}");
}

#[test]
fn facts_of_a_request() {
    check("int(request.query.limit) <= 100", "GET https://a.com/?limit=10", "allow r");
    check("int(request.query.limit) <= 100", "GET https://a.com/?limit=101", "deny -");
    check("request.method == 'GET' && request.port == 443", "GET https://a.com/", "allow r");
    check("request.host == 'a.com' && request.scheme == 'https'", "GET https://A.com./", "allow r");
    check("request.path.startsWith('/v1/')", "GET https://a.com/v1/x", "allow r");
    check("request.path == '/v1/ü'", "GET https://a.com/v1/%C3%BC", "allow r");
    check("has(request.query.a) && !has(request.query.b)", "GET https://a.com/?a=1", "allow r");
    check("request.size == 0 && request.sni == 'a.com'", "GET https://a.com/", "allow r");
    check("request['query']['a b'] == '1'", "GET https://a.com/?a+b=1", "allow r");
    check("size(request.query) == 2", "GET https://a.com/?a=1&b=2", "allow r");
}

fn post(when: &str, body: &str) -> String {
    let mut request = Request::parse("POST https://a.com/").unwrap();
    request.add_header("Content-Type: application/json").unwrap();
    request.add_header("X-Trace: 7").unwrap();
    request.body = Some(body.as_bytes().to_vec());
    request.program = Some("/usr/bin/python3".to_owned());
    let decision = request.with(|action| guarded(when).decide(action));
    decision.problem.as_ref().map_or_else(|| told(&decision), ToString::to_string)
}

#[test]
fn facts_of_a_body() {
    let check = |when: &str, body: &str, expected: &str| {
        let found = post(when, body);
        assert!(found.contains(expected), "{when}: {found}");
    };
    check("request.body.amount <= 5000", r#"{"amount": 5000}"#, "allow r");
    check("request.body.amount <= 5000", r#"{"amount": 5000.5}"#, "deny -");
    check("request.body.amount <= 5000", r#"{"amount": "5000"}"#, "applies `<=` to string and int");
    check("request.body.amount <= 5000", "{}", "asks for `amount`, which is not there");
    check("request.body.amount <= 5000", r#"{"amount": 1, "amount": 9999}"#, "two ways");
    check("request.body.amount <= 5000", "amount=1", "not JSON at line 1");
    check("request.body.to.all(a, a.endsWith('@a.com'))", r#"{"to": ["x@a.com", "y@a.com"]}"#, "allow r");
    check("request.body.to.all(a, a.endsWith('@a.com'))", r#"{"to": ["x@a.com", "y@b.com"]}"#, "deny -");
    check("size(request.body.to.filter(a, a != '')) == 1", r#"{"to": ["x", ""]}"#, "allow r");
    check("request.body.to.exists_one(a, a == 'x')", r#"{"to": ["x", "x"]}"#, "deny -");
    check("request.headers['x-trace'] == '7'", "{}", "allow r");
    check("request.content_type == 'application/json' && request.size == 2", "{}", "allow r");
    check("request.program == '/usr/bin/python3'", "{}", "allow r");
    check("request.body.n == 18446744073709551615u", r#"{"n": 18446744073709551615}"#, "allow r");
}

#[test]
fn what_cannot_be_evaluated_is_denied_and_says_why() {
    check("int(request.query.limit) <= 100", "GET https://a.com/", "asks for `limit`");
    check("int(request.query.limit) <= 100", "GET https://a.com/?limit=ten", "cannot convert");
    check("int(request.query.limit) <= 100", "GET https://a.com/?limit=1&limit=1000", "stands twice");
    check("int(request.query.limit) <= 100", "GET https://a.com/?limit=1&%6cimit=1000", "stands twice");
    check("int(request.query.limit) <= 100", "GET https://a.com/?limit=1&x=1&x=2", "allow r");
    check("int(request.query.limit) <= 100", "GET https://a.com/?limit=1&x=1;limit=1000", "write %3B");
    check("request.path != '/admin'", "GET https://a.com//admin", "read differently");
    check("request.path != '/admin'", "GET https://a.com/x/../admin", "`..` segment");
    check("request.query.limit", "GET https://a.com/?limit=1", "but a string");
    check("1 / size(request.query) == 1", "GET https://a.com/", "divides by zero");
    check("request.query.a[0] == 'x'", "GET https://a.com/?a=x", "an index");
}

#[test]
fn a_value_of_the_request_is_never_in_the_words() {
    for when in [
        "int(request.query.key) > 1",
        "request.query.key > 1",
        "request.query.key",
        "-request.query.key == 1",
    ] {
        let decision = decide(&guarded(when), "GET https://a.com/?key=s3cr3t-value");
        assert!(!decision.is_allowed(), "{when}");
        assert!(!decision.to_string().contains("s3cr3t"), "{decision}");
    }
}

#[test]
fn a_failing_condition_denies_also_beside_a_rule_that_allows() {
    let text = format!(
        "{}{}",
        rule("all", "allow", "host = \"a.com\""),
        rule("limited", "deny", "host = \"a.com\"\nwhen = \"int(request.query.limit) > 100\"")
    );
    let policy = policy(&text);
    assert_eq!(told(&decide(&policy, "GET https://a.com/?limit=5")), "allow all");
    assert_eq!(told(&decide(&policy, "GET https://a.com/?limit=500")), "deny limited");
    let decision = decide(&policy, "GET https://a.com/?limit=x");
    assert_eq!(told(&decision), "deny limited");
    assert_eq!(
        decision.to_string(),
        "denied: rule limited could not be judged: the condition cannot convert what it is given with int()"
    );
}

#[test]
fn a_body_cannot_make_a_condition_run_for_long() {
    let items = vec!["1"; 3_000].join(",");
    let body = format!(r#"{{"a": [{items}]}}"#);
    assert_eq!(post("request.body.a.all(x, x == 1)", &body), "allow r");
    for when in [
        "request.body.a.all(x, request.body.a.all(y, x == y))",
        "request.body.a.exists(x, request.body.a.exists(y, x != y))",
        "size(request.body.a.filter(x, request.body.a.exists_one(y, x != y))) == 0",
        "request.body.a.exists(x, request.body.a.all(y, request.body.a.all(z, x == z)))",
    ] {
        assert_eq!(
            post(when, &body),
            "the condition takes too many steps for a request of this size",
            "{when}"
        );
    }
}
