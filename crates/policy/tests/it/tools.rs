//! Requests that a policy declares to be calls of tools.

use cofferdam_policy::{Http, Policy};

const FILE: &str = r#"
[[tool]]
name = "refund"
host = "api.pay.example"
methods = ["POST"]
paths = ["/v1/refunds/**"]

[[tool]]
name = "anything"
host = "*.tools.example"
"#;

#[track_caller]
fn check(method: &str, host: &str, path: &str, expected: Option<&str>) {
    let http = Http {
        scheme: "https",
        host,
        port: 443,
        sni: None,
        method,
        path,
        query: None,
        headers: &(),
        body: None,
        content_type: None,
        length: None,
        program: None,
    };
    let policy = Policy::parse(FILE).unwrap();
    assert_eq!(policy.declared_tool(&http), expected, "{method} {host} {path}");
}

#[test]
fn a_request_is_a_call_in_whatever_way_it_is_written() {
    check("POST", "api.pay.example", "/v1/refunds", Some("refund"));
    check("POST", "API.PAY.example.", "/v1//refunds/re_1", Some("refund"));
    check("post", "api.pay.example", "/v1/%72efunds", Some("refund"));
    check("GET", "api.pay.example", "/v1/refunds", None);
    check("POST", "api.pay.example", "/v1/charges", None);
    check("DELETE", "x.tools.example", "/", Some("anything"));
    check("GET", "tools.example", "/", None);
}

#[test]
fn what_is_missing_is_named() {
    let told =
        Policy::parse("[[tool]]\nhost = \"a.example\"\n[[tool]]\nname = \"x\"\ncolour = 1\n").unwrap_err();
    let told = told.to_string();
    assert!(told.contains("name") && told.contains("host") && told.contains("colour"), "{told}");
}
