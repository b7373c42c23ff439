//! Rules about where values come from and about baselines: what they hold, what they let through, how they are
//! explained and checked.

use crate::{decide, policy, rule, told};
use cofferdam_policy::{Kind, Policy, Request};

fn flow(id: &str, effect: &str, fields: &str) -> String {
    rule(id, effect, &format!("flow = {{ {fields} }}"))
}

#[track_caller]
fn check(text: &str, request: &str, expected: &str) {
    assert_eq!(told(&decide(&policy(text), &format!("flow {request}"))), expected, "{request}\n{text}");
}

#[test]
fn what_no_flow_rule_matches_is_let_through() {
    check("", "untrusted url changes post.url", "allow -");
    check(&rule("t", "deny", "tool = \"*\""), "untrusted url changes post.url", "allow -");
    assert_eq!(told(&decide(&policy(""), "baseline unseen post")), "allow -");
    // The control: the call itself is denied all the same.
    assert_eq!(told(&decide(&policy(""), "tool post")), "deny -");
}

#[test]
fn every_part_must_match() {
    let text = flow(
        "f",
        "deny",
        r#"from = "untrusted", to = "changes", values = ["url", "account"], tool = "send_*", arg = ["to", "*.to"]"#,
    );
    check(&text, "untrusted url changes send_mail.to", "deny f");
    check(&text, "untrusted account changes send_mail.header.to", "deny f");
    check(&text, "told url changes send_mail.to", "allow -");
    check(&text, "model url changes send_mail.to", "allow -");
    check(&text, "own url changes send_mail.to", "allow -");
    check(&text, "untrusted url destination send_mail.to", "allow -");
    check(&text, "untrusted address changes send_mail.to", "allow -");
    check(&text, "untrusted url changes get_mail.to", "allow -");
    check(&text, "untrusted url changes send_mail.cc", "allow -");
}

#[test]
fn what_baselines_know() {
    let with = |known: &str| flow("f", "review", &format!(r#"from = "untrusted", to = "changes"{known}"#));
    let cases = [
        ("", ["review f", "allow -", "allow -", "allow -"]),
        (", known = \"read\"", ["review f", "allow -", "allow -", "allow -"]),
        (", known = \"called\"", ["review f", "review f", "allow -", "allow -"]),
        (", known = \"used\"", ["review f", "review f", "review f", "allow -"]),
        (", known = \"ignore\"", ["review f"; 4]),
    ];
    for (known, expected) in cases {
        for (word, expected) in ["ignore", "read", "called", "used"].into_iter().zip(expected) {
            check(&with(known), &format!("untrusted account changes pay.to {word}"), expected);
        }
    }
    // Ids and names are in all that is read.
    check(&with(""), "untrusted id changes delete.file_id read", "review f");
    check(&with(""), "untrusted name changes invite.user called", "review f");
    check(&with(""), "untrusted name changes invite.user used", "allow -");
}

#[test]
fn sources_are_trusted_layer_by_layer() {
    let rules = flow("f", "review", r#"from = "untrusted", to = "changes""#);
    let trusting = format!("[sources]\ntrusted = [\"get_profile\", \"hr_*\"]\n{rules}");
    check(&trusting, "tool:get_profile address changes send.to", "allow -");
    check(&trusting, "tool:hr_list address changes send.to", "allow -");
    check(&trusting, "tool:get_page address changes send.to", "review f");
    let floor = flow("floor", "deny", r#"from = "untrusted", to = "changes""#);
    let both = Policy::layer(&policy(&floor), &policy(&trusting));
    assert_eq!(told(&decide(&both, "flow tool:get_profile address changes send.to")), "deny floor");
    let trusted = flow("t", "review", r#"from = "trusted", to = "changes""#);
    check(&format!("[sources]\ntrusted = \"a\"\n{trusted}"), "tool:a url changes send.to", "review t");
}

#[test]
fn deny_beats_review_and_conditions_narrow() {
    let text = flow("r", "review", r#"from = "untrusted", to = "changes""#)
        + &flow("d", "deny", r#"from = "untrusted", to = "changes", values = "account""#);
    check(&text, "untrusted account changes pay.to", "deny d");
    check(&text, "untrusted url changes pay.to", "review r");
    let inside = rule(
        "out",
        "review",
        "flow = { from = \"untrusted\", to = \"changes\" }\nwhen = \"!flow.value.endsWith('@example.com')\"",
    );
    check(&inside, "untrusted address changes send.to ignore ann@example.com", "allow -");
    check(&inside, "untrusted address changes send.to ignore ann@evil.example", "review out");
    let broken = rule(
        "b",
        "review",
        "flow = { from = \"untrusted\", to = \"changes\" }\nwhen = \"int(flow.value) > 3\"",
    );
    check(&broken, "untrusted code changes send.to ignore abc", "deny b");
}

#[test]
fn baselines() {
    let text = rule("b", "review", "baseline = { unseen = [\"send_*\", \"pay\"], missing = \"*\" }");
    for (request, expected) in [
        ("unseen send_mail", "review b"),
        ("unseen pay", "review b"),
        ("unseen get", "allow -"),
        ("missing get", "review b"),
        ("more send_mail", "allow -"),
    ] {
        assert_eq!(told(&decide(&policy(&text), &format!("baseline {request}"))), expected, "{request}");
    }
}

#[test]
fn mistakes_are_told_with_their_place() {
    let wrong = |text: &str| Policy::parse(text).unwrap_err().to_string();
    let found = wrong(&format!(
        "{}{}{}{}\n[sources]\ntrust = \"*\"\n",
        flow("a", "allow", r#"from = "untrusted", to = "changes""#),
        flow(
            "b",
            "review",
            r#"form = "untrusted", to = "change", values = ["uri"], known = "reed", texts = 1"#
        ),
        rule("c", "review", "baseline = { unsene = \"*\" }"),
        rule("d", "review", "flow = { from = \"told\", to = [] }\ntool = \"x\""),
    ));
    insta::assert_snapshot!(found, @r#"
    4:1: rule.effect: a rule about a flow only forbids or holds: write "deny" or "review"
    10:1: rule.flow.from: is missing: write where the value came from, as in from = "untrusted"
    10:10: rule.flow.form: unknown key; did you mean `from`?
    10:35: rule.flow.to: `change` is not one of changes, destination, answer; did you mean `changes`?
    10:55: rule.flow.values: `uri` is not one of address, url, account, code, id, name; did you mean `url`?
    10:71: rule.flow.known: `reed` is not one of ignore, read, called, used; did you mean `read`?
    10:87: rule.flow.texts: expected true or false, found integer
    15:1: rule.baseline: says nothing: add unseen, missing or more, as in { unseen = "*" }
    15:14: rule.baseline.unsene: unknown key; did you mean `unseen`?
    20:1: rule.flow: a rule is about one thing: `tool` and `flow` do not go together; write two rules
    24:1: sources.trust: unknown key; did you mean `trusted`?
    "#);
}

#[test]
fn requests_that_are_none() {
    let wrong = |text: &str| Request::parse(text).unwrap_err().to_string();
    assert!(wrong("flow untrusted url").contains("no request"));
    assert!(wrong("flow stranger url changes a.b").contains("told, own, untrusted, model, tool:NAME"));
    assert!(wrong("flow told uri changes a.b").contains("address, url"));
    assert!(wrong("flow told url changes a.b seen").contains("ignore, read, called, used"));
    assert!(wrong("baseline new x").contains("unseen, missing, more"));
}

#[test]
fn rules_that_never_decide_are_found() {
    let text = flow("wide", "deny", r#"from = ["untrusted", "model"], to = "changes", known = "used""#)
        + &flow("narrow", "review", r#"from = "untrusted", to = "changes", values = "url""#)
        + &flow("other", "review", r#"from = "told", to = "changes""#)
        + &rule("all", "review", "baseline = { unseen = \"*\" }")
        + &rule("one", "review", "baseline = { unseen = \"pay\" }");
    let found: Vec<_> = policy(&text).check().into_iter().map(|f| (f.rule.unwrap(), f.kind)).collect();
    assert_eq!(found, [("narrow".to_owned(), Kind::Shadowed), ("one".to_owned(), Kind::Shadowed)]);
}

#[test]
fn the_way_to_a_decision_is_told() {
    let text = flow("f", "review", r#"from = "untrusted", to = "changes", values = ["account", "url"]"#)
        + &rule("t", "allow", "tool = \"pay\"");
    let request = |text: &str| Request::parse(text).unwrap();
    let policy = policy(&text);
    let shown = |text: &str| {
        let told = request(text).with(|action| policy.explain(action));
        let parts = told.candidates.iter().flat_map(|candidate| &candidate.parts);
        let parts: Vec<_> =
            parts.map(|part| format!("{} {} {}", part.field, part.matched, part.detail)).collect();
        format!("{}\n{}\n{} others", told.decision, parts.join("\n"), told.others)
    };
    insta::assert_snapshot!(shown("flow untrusted account changes pay.to"), @r"
    held for review by rule f: because of f
    from true untrusted
    to true changes
    values true account, url
    known true a value that no baseline read or used
    1 others
    ");
    insta::assert_snapshot!(shown("flow untrusted account changes pay.to read"), @r"
    allowed: no rule is against it
    from true untrusted
    to true changes
    values true account, url
    known false wants a value that no baseline read or used, and it is read
    1 others
    ");
    assert!(
        request("flow untrusted account changes pay.to").with(|a| policy.explain(a)).suggestion.is_none()
    );
}
