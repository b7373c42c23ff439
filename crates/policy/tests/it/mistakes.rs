//! Wrong files: every mistake is told at once, with its place, its field and what to write instead.

use cofferdam_policy::Policy;

fn told(text: &str) -> String {
    match Policy::parse(text) {
        Ok(_) => panic!("it was taken:\n{text}"),
        Err(errors) => errors.to_string(),
    }
}

#[track_caller]
fn check(fields: &str, expected: &str) {
    let text = format!("[[rule]]\nid = \"r\"\nreason = \"x\"\neffect = \"allow\"\n{fields}\n");
    let found = told(&text);
    assert!(found.contains(expected), "{fields}\n  {found}");
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = r#"
[[rule]]
id = "a"
reason = "x"
efect = "allow"
host = "https://a.com/v1"

[[rule]]
id = "a b"
reason = "x"
effect = "alow"
host = "a.com"
methods = []
paths = ["v1", "/a/../b"]
port = 70000
when = "reqest.method == 'GET'"

[[exmaple]]
request = "GET a.com"
"#;
    insta::assert_snapshot!(told(text), @r#"
    2:1: rule.effect: is missing: write "allow", "deny" or "review"
    5:1: rule.efect: unknown key; did you mean `effect`?
    6:8: rule.host: `https://a.com/v1` is a URL: write the host alone, and its path in `paths`
    9:6: rule.id: `a b` is not an id: use letters, digits, `-`, `_` and `.`
    11:10: rule.effect: `alow` is not one of allow, deny, review; did you mean `allow`?
    13:11: rule.methods: is empty, so it could never match; leave it out to match anything
    14:10: rule.paths: `v1` does not begin with `/`; write the whole path, as in /v1/charges/**
    14:16: rule.paths: `/a/../b` has the segment `..`, which no request that is allowed can have; take it out
    15:8: rule.port: 70000 is not a port: write a number from 1 to 65535
    16:8: rule.when: knows no variable `reqest`; did you mean `request`?
    18:3: exmaple: unknown key; did you mean `example`?
    "#);
}

#[test]
fn syntax() {
    insta::assert_snapshot!(told("[[rule]\nid = \n"), @r"1:8: unclosed array table, expected `]`");
    assert!(told("rule = 1").starts_with("1:8: rule: expected tables"), "{}", told("rule = 1"));
    assert!(
        told("[defaults]\ncontact = 7").contains("2:11: defaults.contact: expected a string, found integer")
    );
}

#[test]
fn what_a_rule_must_say() {
    let found = told("[[rule]]\n");
    for part in
        ["rule.id: is missing", "rule.reason: is missing", "rule.effect: is missing", "what it is about"]
    {
        assert!(found.contains(part), "{found}");
    }
    check("", "add one of host, tool, exec, file, browser, step");
    check("host = \"a.com\"\ntool = \"x\"", "5:1: rule.host: a rule is about one thing: `tool` and `host`");
    check("tool = \"x\"\nmethods = \"GET\"", "6:1: rule.methods: means nothing in a rule about a tool");
    check("browser = \"x\"\nmethods = \"GET\"", "there one can write browser, host, scheme");
    check("file = { path = \"/x\" }", "rule.file.access: is missing");
    check("file = { path = \"x\", access = \"raed\" }", "did you mean `read`");
}

#[test]
fn fields() {
    check("host = \"a*.com\"", "stands alone or as the first label");
    check("host = \"a.com:443\"", "write it in `port`");
    check("host = []", "is empty");
    check("host = [\"a.com\", 7]", "5:18: rule.host: expected a string or a list of strings, found integer");
    check("host = \"a.com\"\npaths = \"/a/x**\"", "stands alone between two `/`");
    check("host = \"a.com\"\npaths = \"/a?b\"", "parameters in `query`");
    check("host = \"a.com\"\npaths = \"/100%\"", "%25");
    check("host = \"a.com\"\nport = 0", "from 1 to 65535");
    check("host = \"a.com\"\nmethods = \"G T\"", "is not a method");
    check("host = \"a.com\"\nheaders = { \"a b\" = \"x\" }", "is not a header name");
    check("host = \"a.com\"\nquery = { a = {} }", "rule.query.a: expected a string");
    check("host = \"a.com\"\nmax_body = \"lots\"", "`lots` is not a size");
    check("host = \"a.com\"\nbody = { \"a..b\" = 1 }", "not a field path");
    check("host = \"a.com\"\nscheme = \"htps\"", "did you mean `https`?");
    check("host = \"a.com\"\nprogram = \"curl\"", "does not begin with `/`");
    check("host = \"a.com\"\nheader = { a = \"x\" }", "unknown key; did you mean `headers`?");
    check("host = \"a.com\"\nzzz = 1", "unknown key; known are id, reason");
}

#[test]
fn conditions() {
    let check =
        |when: &str, expected: &str| check(&format!("host = \"a.com\"\nwhen = '''{when}'''"), expected);
    check("request.method ==", "is not CEL at column");
    check("reqest.method == 'GET'", "knows no variable `reqest`; did you mean `request`?");
    check("args.x == 1", "knows no variable `args`; known are request");
    check("request.methd == 'GET'", "knows no `request.methd`; did you mean `method`?");
    check("request['methd'] == 'GET'", "knows no `request.methd`");
    check("request.path.matches('a+')", "knows no function `matches`");
    check("request.path.startswith('a')", "did you mean `startsWith`?");
    check("request.body.a.map(x, x + x) == []", "builds data");
    check("request.body.a.all(x, x + 'a' == 'b')", "builds data");
    check("request.body.a.all(a, a.all(b, b.all(c, c.all(d, d == 1))))", "nested deeper than 3");
    check("'yes'", "neither true nor false");
    check(&"(".repeat(1_000), "is not CEL");
    check(&format!("{} == 1", vec!["1"; 900].join("+")), "more than 500 parts");
    check(&"a".repeat(2_001), "longer than 2000");
    check("Point{x: 1} == 1", "knows no variable `Point`");
    check("request.?query == 1", "is not CEL");
    check("", "is empty");
}

#[test]
fn other_tables() {
    let check = |text: &str, expected: &str| {
        let found = told(text);
        assert!(found.contains(expected), "{text}\n  {found}");
    };
    check(
        "[[upstream]]\nhost = \"a.com\"\nconnect = \"nowhere\"",
        "3:11: upstream.connect: `nowhere` is not an address",
    );
    check(
        "[[upstream]]\nhost = \"*.a.com\"\nconnect = \"b:1\"",
        "upstream.host: `*.a.com` is not a host name",
    );
    check("[[example]]\nrequest = \"GET a.com\"\nexpect = \"allow\"", "is no request");
    check(
        "[[example]]\nrequest = \"GET https://a.com\"\nexpect = \"allow\"\nrule = \"x\"",
        "4:8: example.rule: no rule has the id `x`",
    );
    check("[[budget]]\nid = \"b\"\nhost = \"a.com\"", "limits nothing");
    check("[[budget]]\nid = \"b\"\nhost = \"a.com\"\nspend = \"much\"", "`much` is not an amount of money");
    check("[[budget]]\nid = \"b\"\nhost = \"a.com\"\nrequests = -1", "a negative number");
    check("[[rewrite]]\nid = \"w\"\nhost = \"a.com\"", "changes nothing");
    check(
        "[[rewrite]]\nid = \"w\"\nhost = \"a.com\"\nheaders = { set = { a = \"x\\ny\" } }",
        "no control characters",
    );
    check("[guard]\njwt = \"ignore\"", "`ignore` is not one of deny, review, redact, flag");
    check("[[guard.allow]]\nhost = \"a.com\"\nclass = \"jwts\"", "did you mean `jwt`?");
    check(
        "[[on]]\nid = \"t\"\nafter = { rule = \"r\", tool = \"x\" }\ndo = { pause = true }",
        "exactly one of rule, tool and alarm",
    );
    check(
        "[[on]]\nid = \"t\"\nafter = { rule = \"nope\" }\ndo = { pause = true }",
        "no rule has the id `nope`",
    );
    check("[[on]]\nid = \"t\"\nafter = { tool = \"x\" }\ndo = { pause = false }", "does nothing");
    check(
        "[[on]]\nid = \"t\"\nafter = { alarm = \"budgt\" }\ndo = { pause = true }",
        "did you mean `budget`?",
    );
    check("[tls]\npass_trough = []", "did you mean `pass_through`?");
    let alert = |more: &str| format!("[[alert]]\nid = \"a\"\n{more}");
    check(&alert(""), "1:1: alert.to: is missing");
    check(&alert("to = \"http://hooks.example/\""), "3:6: alert.to: `http://hooks.example/` is nowhere");
    check(&alert("to = \"syslog\"\non = [\"helt\"]"), "4:7: alert.on: `helt` is not one of");
    check(&alert("to = \"syslog\"\non = [\"helt\"]"), "did you mean `held`?");
    check(&alert("to = \"syslog\"\nformat = \"oscf\""), "did you mean `ocsf`?");
    check(&alert("to = \"syslog\"\nformat = \"slack\""), "4:1: alert.format: is for webhooks");
    check(&alert("to = \"syslog\"\nkey = \"k\""), "4:1: alert.key: is for webhooks");
    check(&alert("to = \"http://127.0.0.1/\"\nca = \"k\""), "4:1: alert.ca: is for webhooks");
    check(&alert("to = \"syslog\"\nevery = \"soon\""), "is not a length of time");
    check(&alert("to = \"syslog\"\nevery = \"10ms\""), "4:9: alert.every: `10ms` is too short or too long");
    check(&alert("to = \"syslog\"\nevry = \"1m\""), "did you mean `every`?");
}

#[test]
fn what_is_shown_has_no_control_characters() {
    let found = told(
        "[[rule]]\n\"e\\u001b[31m\" = 1\nreason = \"\\u0007\"\neffect = \"al\\u001bow\"\npaths = \"/\\u001b\"\n",
    );
    assert!(found.contains("rule.reason: has a control character"), "{found}");
    assert!(found.lines().all(|line| !line.contains(char::is_control)), "{found:?}");
    check("host = \"a.com\"\npaths = \"/\\u001b\"", "has a control character");
    check("tool = \"\\n\"", "has a control character");
}

#[test]
fn ids_are_unique() {
    let rule = "[[rule]]\nid = \"a\"\nreason = \"x\"\neffect = \"deny\"\nhost = \"a.com\"\n";
    let found = told(&format!("{rule}{rule}"));
    assert_eq!(found, "6:1: rule.id: `a` is already the id of the one on line 1; ids are unique");
    let budget = "[[budget]]\nid = \"b\"\nhost = \"a.com\"\nrequests = 1\n";
    assert!(told(&format!("{budget}{budget}")).contains("5:1: budget.id: `b` is already"));
    let alert = "[[alert]]\nid = \"c\"\nto = \"syslog\"\n";
    assert!(told(&format!("{alert}{alert}")).contains("4:1: alert.id: `c` is already"));
}
