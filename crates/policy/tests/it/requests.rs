//! Requests against typed rules: each field, and what hostile spellings of it do not achieve.

use crate::{decide, policy, rule, told};
use cofferdam_policy::{Action, Headers, Http, Policy, Request};

#[track_caller]
fn check(fields: &str, request: &str, expected: bool) {
    for effect in ["allow", "deny", "review"] {
        let policy = policy(&rule("r", effect, fields));
        let found = told(&decide(&policy, request));
        let wanted = if expected { format!("{effect} r") } else { "deny -".to_owned() };
        assert_eq!(found, wanted, "{fields} against {request}");
    }
}

#[test]
fn hosts() {
    check("host = \"api.example.com\"", "GET https://api.example.com/", true);
    check("host = \"api.example.com\"", "GET https://API.EXAMPLE.com./", true);
    check("host = \"api.example.com\"", "GET https://example.com/", false);
    check("host = \"api.example.com\"", "GET https://api.example.com.evil.org/", false);
    check("host = \"*.example.com\"", "GET https://a.b.example.com/", true);
    check("host = \"*.example.com\"", "GET https://example.com/", false);
    check("host = \"*.example.com\"", "GET https://evilexample.com/", false);
    check("host = [\"a.com\", \"*.b.com\"]", "GET https://x.b.com/", true);
    check("host = \"BÜCHER.example\"", "GET https://xn--bcher-kva.example/", true);
    check("host = \"bücher.example\"", "GET https://Bücher.example/", true);
    check("host = \"*\"", "GET https://anything.org/", true);
    check("host = \"::1\"", "GET https://[0:0::1]/", true);
}

#[test]
fn a_host_without_a_certain_spelling_is_denied() {
    let policy = policy(&rule("all", "allow", "host = \"*\""));
    for host in ["a..b", "a_b.com%00", "exa\u{0}mple.com", "a%2eb"] {
        let decision = policy.decide(&Action::Http(Http { host, ..plain() }));
        assert_eq!(decision.to_string(), "denied: the host has no certain spelling", "{host}");
    }
    assert!(policy.decide(&Action::Http(plain())).is_allowed());
}

fn plain() -> Http<'static> {
    Http {
        scheme: "https",
        host: "a.com",
        port: 443,
        sni: Some("a.com"),
        method: "GET",
        path: "/",
        query: None,
        headers: &(),
        body: None,
        content_type: None,
        length: Some(0),
        program: None,
    }
}

#[test]
fn ports_and_schemes() {
    check("host = \"a.com\"\nport = 8443", "GET https://a.com:8443/", true);
    check("host = \"a.com\"\nport = [80, 443]", "GET https://a.com:8443/", false);
    check("host = \"a.com\"\nport = [80, 443]", "GET http://a.com/", true);
    check("host = \"a.com\"\nscheme = \"https\"", "GET http://a.com/", false);
    check("host = \"a.com\"\nscheme = \"https\"", "GET https://a.com/", true);
    check("host = \"a.com\"\nsni = \"*.com\"", "GET https://a.com/", true);
    check("host = \"a.com\"\nsni = \"*\"", "GET http://a.com/", false);
}

#[test]
fn methods() {
    check("host = \"a.com\"\nmethods = [\"GET\", \"POST\"]", "POST https://a.com/", true);
    check("host = \"a.com\"\nmethods = \"get\"", "GET https://a.com/", true);
    check("host = \"a.com\"\nmethods = [\"GET\"]", "DELETE https://a.com/", false);
    check("host = \"a.com\"\nmethods = [\"PURGE\"]", "PURGE https://a.com/", true);
}

#[test]
fn a_method_in_the_wrong_case_is_not_allowed_and_not_a_way_around() {
    let allow = policy(&rule("r", "allow", "host = \"a.com\"\nmethods = \"POST\""));
    assert_eq!(told(&decide(&allow, "post https://a.com/")), "deny -");
    let around = format!(
        "{}{}",
        rule("all", "allow", "host = \"a.com\""),
        rule("no-posts", "deny", "host = \"a.com\"\nmethods = \"POST\"")
    );
    assert_eq!(told(&decide(&policy(&around), "PoSt https://a.com/")), "deny no-posts");
    assert_eq!(told(&decide(&policy(&around), "GET https://a.com/")), "allow all");
}

#[test]
fn paths() {
    let fields = "host = \"a.com\"\npaths = [\"/v1/charges/**\", \"/health\"]";
    check(fields, "GET https://a.com/v1/charges", true);
    check(fields, "GET https://a.com/v1/charges/", true);
    check(fields, "GET https://a.com/v1/charges/ch_1/refunds", true);
    check(fields, "GET https://a.com/v1/ch%61rges/x", true);
    check(fields, "GET https://a.com/health", true);
    check(fields, "GET https://a.com/healthz", false);
    check(fields, "GET https://a.com/V1/charges", false);
    check("host = \"a.com\"\npaths = \"/repos/*/pulls\"", "GET https://a.com/repos/x/pulls", true);
    check("host = \"a.com\"\npaths = \"/repos/*/pulls\"", "GET https://a.com/repos/x/y/pulls", false);
    check("host = \"a.com\"\npaths = \"/**/pulls\"", "GET https://a.com/pulls", true);
}

/// Deny what is under `/admin`, allow the rest: the shape that path tricks are made for.
fn guarded() -> Policy {
    let all = rule("all", "allow", "host = \"a.com\"\npaths = \"/**\"");
    policy(&format!("{all}{}", rule("no-admin", "deny", "host = \"a.com\"\npaths = \"/admin/**\"")))
}

#[test]
fn no_spelling_of_a_path_gets_past_a_deny_rule() {
    let policy = guarded();
    assert_eq!(told(&decide(&policy, "GET https://a.com/public")), "allow all");
    for path in [
        "/admin",
        "/admin/",
        "/admin/x",
        "//admin",
        "/%61dmin",
        "/admin%2Fx",
        "/admin;x=1/y",
        "/;/admin",
        "/admin//x",
        "//%2fadmin",
        "/%2Fadmin",
    ] {
        assert_eq!(told(&decide(&policy, &format!("GET https://a.com{path}"))), "deny no-admin", "{path}");
    }
    for path in [
        "/x/../admin",
        "/x/%2e%2e/admin",
        "/./admin",
        "/x/..%2fadmin",
        "/x\\..\\admin",
        "/x%5c..%5cadmin",
        "/%252e%252e/admin",
        "/..;/admin",
        "/admin%00",
        "/%zz/admin",
        "/x/.%2e/admin",
        "/%c0%ae%c0%ae/admin",
    ] {
        let decision = decide(&policy, &format!("GET https://a.com{path}"));
        assert!(!decision.is_allowed() && decision.problem.is_some(), "{path}: {decision}");
    }
}

#[test]
fn an_allow_rule_must_match_however_the_path_is_read() {
    let policy = policy(&rule("r", "allow", "host = \"a.com\"\npaths = \"/pub/**\""));
    for path in ["/pub/x", "/pub//x", "/pub/a%2fb", "/pub/a;v=1"] {
        assert_eq!(told(&decide(&policy, &format!("GET https://a.com{path}"))), "allow r", "{path}");
    }
    for path in ["//pub/x", "/pub%2fx", "/pub;a/x", "/x%2f/pub"] {
        assert_eq!(told(&decide(&policy, &format!("GET https://a.com{path}"))), "deny -", "{path}");
    }
    for path in ["/pub/../admin", "/pub/..%2f..%2fadmin", "/pub/%2e%2e/admin", "/pub/..;/admin"] {
        let decision = decide(&policy, &format!("GET https://a.com{path}"));
        assert!(!decision.is_allowed() && decision.problem.is_some(), "{path}: {decision}");
    }
}

#[test]
fn a_path_does_not_matter_where_no_rule_looks_at_it() {
    let policy = policy(&rule("r", "allow", "host = \"a.com\""));
    assert_eq!(told(&decide(&policy, "GET https://a.com/x/../y")), "allow r");
}

#[test]
fn queries() {
    let fields = "host = \"a.com\"\nquery = { mode = [\"read\", \"list-*\"] }";
    check(fields, "GET https://a.com/?mode=read&x=1", true);
    check(fields, "GET https://a.com/?m%6fde=list%2Dall", true);
    check(fields, "GET https://a.com/?mode=write", false);
    check(fields, "GET https://a.com/", false);
    check("host = \"a.com\"\nquery = { q = \"a b\" }", "GET https://a.com/?q=a+b", true);
}

#[test]
fn a_parameter_twice_must_fit_twice_to_be_allowed() {
    let fields = "host = \"a.com\"\nquery = { mode = \"read\" }";
    let request = "GET https://a.com/?mode=read&mode=write";
    assert_eq!(told(&decide(&policy(&rule("r", "allow", fields)), request)), "deny -");
    assert_eq!(told(&decide(&policy(&rule("r", "review", fields)), request)), "review r");
    // Some servers split at `;` too: no way around a rule, and no way into one.
    let hidden = "GET https://a.com/?x=1;mode=read";
    assert_eq!(told(&decide(&policy(&rule("r", "deny", fields)), hidden)), "deny r");
    let smuggled = "GET https://a.com/?mode=read&x=1;mode=write";
    assert_eq!(told(&decide(&policy(&rule("r", "allow", fields)), smuggled)), "deny -");
    let broken = decide(&policy(&rule("r", "allow", fields)), "GET https://a.com/?mode=%zz");
    assert!(broken.to_string().contains("broken escape"), "{broken}");
}

fn with(request: &str, headers: &[(&str, &str)], body: &str, program: Option<&str>) -> Request {
    let mut request = Request::parse(request).unwrap();
    request.headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    request.body = (!body.is_empty()).then(|| body.as_bytes().to_vec());
    request.program = program.map(str::to_owned);
    request
}

#[track_caller]
fn check_all(fields: &str, request: &Request, allow: &str, deny: &str) {
    for (effect, expected) in [("allow", allow), ("deny", deny)] {
        let policy = policy(&rule("r", effect, &format!("host = \"a.com\"\n{fields}")));
        assert_eq!(told(&request.with(|action| policy.decide(action))), expected, "{fields}");
    }
}

#[test]
fn headers() {
    let fields = "headers = { X-Version = \"2024-*\" }";
    check_all(
        fields,
        &with("GET https://a.com/", &[("x-version", "2024-06")], "", None),
        "allow r",
        "deny r",
    );
    check_all(fields, &with("GET https://a.com/", &[("x-version", "2023-06")], "", None), "deny -", "deny -");
    check_all(fields, &with("GET https://a.com/", &[], "", None), "deny -", "deny -");
    let twice = [("x-version", "2024-06"), ("X-VERSION", "1999")];
    check_all(fields, &with("GET https://a.com/", &twice, "", None), "deny -", "deny r");
}

#[test]
fn programs() {
    let fields = "program = [\"/usr/bin/*\", \"/opt/search/**\"]";
    check_all(fields, &with("GET https://a.com/", &[], "", Some("/usr/bin/curl")), "allow r", "deny r");
    check_all(fields, &with("GET https://a.com/", &[], "", Some("/tmp/curl")), "deny -", "deny -");
    // Who is not known is not let through, and does not get past a rule against someone.
    check_all(fields, &with("GET https://a.com/", &[], "", None), "deny -", "deny r");
}

#[test]
fn content_types_and_sizes() {
    let json = [("content-type", "Application/JSON; charset=utf-8")];
    check_all(
        "content_types = \"application/*\"",
        &with("POST https://a.com/", &json, "{}", None),
        "allow r",
        "deny r",
    );
    check_all(
        "content_types = \"text/*\"",
        &with("POST https://a.com/", &json, "{}", None),
        "deny -",
        "deny -",
    );
    check_all("max_body = 2", &with("POST https://a.com/", &[], "{}", None), "allow r", "deny r");
    check_all("max_body = \"1B\"", &with("POST https://a.com/", &[], "{}", None), "deny -", "deny -");
}

#[test]
fn body_fields() {
    let fields = "body = { model = \"gpt-*\", \"messages.*.role\" = [\"user\", \"system\"] }";
    let body = r#"{"model":"gpt-5","messages":[{"role":"user"},{"role":"system"}]}"#;
    check_all(fields, &with("POST https://a.com/", &[], body, None), "allow r", "deny r");
    let mixed = r#"{"model":"gpt-5","messages":[{"role":"user"},{"role":"tool"}]}"#;
    check_all(fields, &with("POST https://a.com/", &[], mixed, None), "deny -", "deny r");
    let other = r#"{"model":"o1","messages":[]}"#;
    check_all(fields, &with("POST https://a.com/", &[], other, None), "deny -", "deny -");
    // What two parsers would read differently is denied by the rule that had to look.
    let twice = r#"{"model":"gpt-5","model":"o1"}"#;
    check_all(
        "body = { model = \"gpt-*\" }",
        &with("POST https://a.com/", &[], twice, None),
        "deny r",
        "deny r",
    );
    let text = [("content-type", "text/plain")];
    check_all(
        "body = { model = \"gpt-*\" }",
        &with("POST https://a.com/", &text, body, None),
        "deny r",
        "deny r",
    );
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let sent = with("POST https://a.com/", &form, "amount=50&currency=usd", None);
    check_all("body = { currency = \"usd\" }", &sent, "allow r", "deny r");
}

#[test]
fn the_body_is_asked_for_only_where_it_matters() {
    let text = format!(
        "{}{}",
        rule("read", "allow", "host = \"a.com\"\nmethods = \"GET\""),
        rule("write", "allow", "host = \"a.com\"\nmethods = \"POST\"\npaths = \"/v1/**\"\nbody = { a = 1 }")
    );
    let policy = policy(&text);
    let unseen = Http { length: None, ..plain() };
    let post = Http { method: "POST", path: "/v1/x", ..unseen };
    assert!(!policy.wants_body(&unseen));
    assert!(policy.wants_body(&post));
    assert!(!policy.wants_body(&Http { path: "/v2", ..post }));
    assert!(!policy.wants_body(&Http { host: "b.com", ..post }));
    assert!(!policy.wants_body(&Http { length: Some(0), ..post }));
    assert!(!policy.wants_body(&Http { body: Some(b"{}"), ..post }));
    // Without it there is no decision but deny.
    assert!(!policy.decide(&Action::Http(post)).is_allowed());
    assert!(policy.decide(&Action::Http(Http { body: Some(b"{\"a\":1}"), ..post })).is_allowed());
    let huge = policy.decide(&Action::Http(Http { length: Some(u64::MAX), ..post }));
    assert!(huge.to_string().contains("longer than"), "{huge}");
}

#[test]
fn headers_may_be_kept_in_any_way() {
    struct Two;
    impl Headers for Two {
        fn each(&self, visit: &mut dyn FnMut(&str, &[u8])) {
            visit("A", b"1");
            visit("b", b"\xff");
        }
    }
    let policy = policy(&rule("r", "allow", "host = \"a.com\"\nheaders = { a = \"1\" }"));
    assert!(policy.decide(&Action::Http(Http { headers: &Two, ..plain() })).is_allowed());
    assert!(!policy.decide(&Action::Http(plain())).is_allowed());
}
