//! `policy check`, `explain` and `test`: what people read at eighty columns, what programs read as JSON, and
//! the exit codes that scripts rely on.

use crate::site;
use cofferdam_testkit::Site;
use serde_json::Value;

const GOOD: &str = r##"[defaults]
contact = "ask #agents to widen this policy"

[[rule]]
id = "stripe-read"
reason = "the agent reads charges"
effect = "allow"
host = "api.stripe.com"
methods = ["GET"]
paths = ["/v1/charges/**"]
when = "int(request.query.limit) <= 100"

[[rule]]
id = "no-keys"
reason = "keys outlive the session"
effect = "deny"
host = "*.stripe.com"
paths = ["/v1/api_keys/**"]

[[rule]]
id = "refunds-need-a-person"
reason = "money leaves"
effect = "review"
tool = "refund"
when = "args.amount > 5000"

[[example]]
request = "GET https://api.stripe.com/v1/charges?limit=10"
expect = "allow"
rule = "stripe-read"

[[example]]
request = "tool refund {\"amount\": 9900}"
expect = "review"
"##;

const BAD: &str = r#"[[rule]]
id = "read"
reason = "reading"
efect = "allow"
host = "api.example.com/v1"

[[rule]]
id = "read it"
reason = "reading"
effect = "alow"
host = "api.example.com"
paths = ["/v1/../v2"]
when = "request.methd == 'GET'"
"#;

const ODD: &str = r#"[[rule]]
id = "nothing"
reason = "closed for now"
effect = "deny"
host = "*.example.com"

[[rule]]
id = "read"
reason = "reading"
effect = "allow"
host = "api.example.com"
methods = ["GET"]

[[rule]]
id = "someday"
reason = "not yet"
effect = "allow"
host = "later.org"
when = "false"

[[example]]
request = "GET https://api.example.com/"
expect = "allow"
rule = "read"
"#;

fn with(text: &str) -> Site {
    let site = site();
    site.write("p.toml", text);
    site
}

#[track_caller]
fn readable(text: &str) -> String {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    text.to_owned()
}

#[test]
fn a_good_file_is_fine() {
    let site = with(GOOD);
    assert_eq!(site.call(&["policy", "check", "p.toml"]).exits(0).out(), "fine: 3 rules, 2 examples\n");
    assert_eq!(site.call(&["policy", "check", "p.toml", "-q"]).exits(0).out(), "");
}

#[test]
fn check_tells_every_mistake() {
    let done = with(BAD).call(&["policy", "check", "p.toml"]).exits(1);
    insta::assert_snapshot!(readable(&done.out()), @r#"
    p.toml:1:1: error: rule.effect: is missing: write "allow", "deny" or "review"
    p.toml:4:1: error: rule.efect: unknown key; did you mean `effect`?
    p.toml:5:8: error: rule.host: `api.example.com/v1` is a URL: write the host
      alone, and its path in `paths`
    p.toml:8:6: error: rule.id: `read it` is not an id: use letters, digits, `-`,
      `_` and `.`
    p.toml:10:10: error: rule.effect: `alow` is not one of allow, deny, review;
      did you mean `allow`?
    p.toml:12:10: error: rule.paths: `/v1/../v2` has the segment `..`, which no
      request that is allowed can have; take it out
    p.toml:13:8: error: rule.when: knows no `request.methd`; did you mean
      `method`?
    7 errors, 0 warnings
    "#);
}

#[test]
fn check_tells_what_was_surely_not_meant() {
    let site = with(ODD);
    let done = site.call(&["policy", "check", "p.toml"]).exits(1);
    insta::assert_snapshot!(readable(&done.out()), @r"
    p.toml:7:1: warning: rule `read` never decides: rule `nothing` on line 1
      denies all that it matches
    p.toml:14:1: warning: rule `someday` never matches: its condition is always
      false
    p.toml:21:1: error: example `GET https://api.example.com/`: expected allow by
      read, but it is denied by rule nothing: closed for now
    1 error, 2 warnings
    ");
    let told: Value =
        serde_json::from_str(&site.call(&["policy", "check", "p.toml", "--json"]).exits(1).out()).unwrap();
    assert_eq!(told["ok"], false);
    assert_eq!(told["findings"][0]["kind"], "shadowed");
    assert_eq!(told["findings"][0]["line"], 7);
    assert_eq!(told["findings"][2]["kind"], "failed-example");
}

#[test]
fn warnings_alone_are_no_failure() {
    let cut = ODD.split("[[example]]").next().unwrap();
    let done = with(cut).call(&["policy", "check", "p.toml"]).exits(0);
    assert!(done.out().ends_with("0 errors, 2 warnings\n"), "{}", done.out());
}

#[test]
fn explain_names_the_rule_that_fires() {
    let site = with(GOOD);
    let done = site
        .call(&["policy", "explain", "p.toml", "GET https://api.stripe.com/v1/charges?limit=10"])
        .exits(0);
    insta::assert_snapshot!(readable(&done.out()), @r"
    allowed by rule stripe-read: the agent reads charges

    stripe-read allow (line 4)  decides
      + host          api.stripe.com
      + methods       GET
      + paths         /v1/charges/**
      + when          int(request.query.limit) <= 100

    no-keys deny (line 13)
      + host          *.stripe.com
      - paths         wants /v1/api_keys/**, and it is /v1/charges

    1 rule about something else
    ");
}

#[test]
fn explain_prints_the_rule_that_would_allow_it_and_it_does() {
    let site = with(GOOD);
    let request = "POST https://api.stripe.com/v1/charges";
    let done = site.call(&["policy", "explain", "p.toml", request]).exits(0);
    insta::assert_snapshot!(readable(&done.out()), @r#"
    denied: no rule allows it; ask #agents to widen this policy

    stripe-read allow (line 4)
      + host          api.stripe.com
      - methods       wants GET, and it is POST

    no-keys deny (line 13)
      + host          *.stripe.com
      - paths         wants /v1/api_keys/**, and it is /v1/charges

    1 rule about something else

    this rule would allow it:

    [[rule]]
    id = "allow-api-stripe-com-post"
    reason = "say why it is needed"
    effect = "allow"
    host = "api.stripe.com"
    methods = ["POST"]
    paths = ["/v1/charges"]
    "#);
    let rule = done.out().split("[[rule]]").nth(1).unwrap().to_owned();
    site.write("p.toml", format!("{GOOD}\n[[rule]]{rule}"));
    let done = site.call(&["policy", "explain", "p.toml", request]).exits(0);
    assert!(done.out().starts_with("allowed by rule allow-api-stripe-com-post"), "{}", done.out());
}

#[test]
fn explain_says_when_no_rule_would_help() {
    let site = with(GOOD);
    let done =
        site.call(&["policy", "explain", "p.toml", "GET https://api.stripe.com/v1/api_keys/1"]).exits(0);
    insta::assert_snapshot!(readable(&done.out()), @r"
    denied by rule no-keys: keys outlive the session; ask #agents to widen this
      policy

    stripe-read allow (line 4)
      + host          api.stripe.com
      + methods       GET
      - paths         wants /v1/charges/**, and it is /v1/api_keys/1

    no-keys deny (line 13)  decides
      + host          *.stripe.com
      + paths         /v1/api_keys/**

    1 rule about something else

    no rule beats a denial: change `no-keys`
    ");
    let done = site.call(&["policy", "explain", "p.toml", "GET https://api.stripe.com/v1/charges"]).exits(0);
    insta::assert_snapshot!(readable(&done.out()), @r"
    denied: rule stripe-read could not be judged: the condition asks for `limit`,
      which is not there; test it with has() first; ask #agents to widen this policy

    stripe-read allow (line 4)  could not be judged
      + host          api.stripe.com
      + methods       GET
      + paths         /v1/charges/**
      - when          the condition asks for `limit`, which is not there; test it
                      with has() first

    no-keys deny (line 13)
      + host          *.stripe.com
      - paths         wants /v1/api_keys/**, and it is /v1/charges

    1 rule about something else

    no rule beats what cannot be judged: change the request or `stripe-read`
    ");
}

#[test]
fn explain_takes_headers_bodies_and_other_actions() {
    let site = with(
        "[[rule]]\nid = \"r\"\nreason = \"x\"\neffect = \"allow\"\nhost = \"a.com\"\nheaders = { x-a = \"1\" }\nbody = { n = 2 }\nprogram = \"/bin/sh\"\n",
    );
    let explain = |args: &[&str]| -> Value {
        let all = [&["policy", "explain", "p.toml", "--json"], args].concat();
        serde_json::from_str(&site.call(&all).exits(0).out()).unwrap()
    };
    let full = ["POST https://a.com/", "-H", "X-A: 1", "--body", "{\"n\":2}", "--program", "/bin/sh"];
    assert_eq!(explain(&full)["effect"], "allow");
    assert_eq!(explain(&full[..5])["effect"], "deny");
    site.write("body.json", "{\"n\":2}");
    let from_file = ["POST https://a.com/", "-H", "X-A: 1", "--body", "@body.json", "--program", "/bin/sh"];
    assert_eq!(explain(&from_file)["rule"], "r");
    assert!(
        explain(&["exec", "git", "push"])["suggestion"].as_str().unwrap().contains("exec = \"git push\"")
    );
    assert!(
        explain(&["tool", "refund", "{\"a\": 1}"])["suggestion"]
            .as_str()
            .unwrap()
            .contains("tool = \"refund\"")
    );
}

#[test]
fn test_runs_the_examples() {
    let done = with(GOOD).call(&["policy", "test", "p.toml"]).exits(0);
    insta::assert_snapshot!(readable(&done.out()), @r#"
    ok    line 27: GET https://api.stripe.com/v1/charges?limit=10: allow by
          stripe-read
    ok    line 32: tool refund {"amount": 9900}: review
    2 examples, 0 failed
    "#);
    let site = with(ODD);
    let done = site.call(&["policy", "test", "p.toml"]).exits(1);
    insta::assert_snapshot!(readable(&done.out()), @r"
    FAIL  line 21: GET https://api.example.com/: expected allow by read, but it is
          denied by rule nothing: closed for now
    1 example, 1 failed
    ");
    let told: Value =
        serde_json::from_str(&site.call(&["policy", "test", "p.toml", "--json"]).exits(1).out()).unwrap();
    assert_eq!(told["examples"][0]["passed"], false);
    assert_eq!(told["examples"][0]["rule"], "nothing");
}

#[test]
fn what_cannot_be_read_is_two() {
    let site = with(BAD);
    let done = site.call(&["policy", "check", "missing.toml"]).exits(2);
    assert!(done.err().contains("cannot read missing.toml"), "{}", done.err());
    for args in [&["policy", "test", "p.toml"][..], &["policy", "explain", "p.toml", "GET https://a.com/"]] {
        let done = site.call(args).exits(2);
        let expected = "p.toml:1: rule.effect: is missing: write \"allow\", \"deny\" or \"review\"; 6 more: see `cofferdam policy check`";
        assert!(done.err().contains(expected), "{}", done.err());
    }
    let done = with(GOOD).call(&["policy", "explain", "p.toml", "GET stripe"]).exits(2);
    assert!(done.err().contains("is no request"), "{}", done.err());
    site.call(&["policy", "explain", "p.toml"]).exits(2);
    site.call(&["policy"]).exits(2);
}
