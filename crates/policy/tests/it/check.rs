//! What `check` finds, and what it leaves in peace.

use crate::{policy, rule};

fn told(text: &str) -> String {
    let found = policy(text).check();
    let line = |finding: &cofferdam_policy::Finding| {
        format!("{:?} {}: {finding}", finding.severity, finding.kind.name())
    };
    found.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn rules(rules: &[(&str, &str, &str)]) -> String {
    rules.iter().map(|(id, effect, fields)| rule(id, effect, fields)).collect()
}

#[test]
fn a_rule_that_never_decides() {
    let found = told(&rules(&[
        ("no", "deny", "host = \"*.a.com\""),
        ("read", "allow", "host = \"x.a.com\"\nmethods = \"GET\""),
        ("all", "allow", "host = \"b.com\""),
        ("part", "allow", "host = \"b.com\"\npaths = \"/v1/**\""),
        ("ask", "review", "host = \"c.com\""),
        ("post", "allow", "host = \"c.com\"\nmethods = \"POST\"\nwhen = \"request.port == 443\""),
    ]));
    insta::assert_snapshot!(found, @r"
    Warning shadowed: 6:1: rule `read` never decides: rule `no` on line 1 denies all that it matches
    Warning shadowed: 17:1: rule `part` never decides: rule `all` on line 12 matches all that it does
    ");
}

#[test]
fn rules_that_contradict_each_other() {
    let found = told(&rules(&[
        ("yes", "allow", "host = \"a.com\"\nmethods = [\"GET\", \"POST\"]"),
        ("no", "deny", "host = \"A.com\"\nmethods = [\"POST\", \"GET\"]"),
    ]));
    insta::assert_snapshot!(found, @r"Error contradictory: 1:1: rule `yes` says allow and rule `no` on line 7 says deny of the same; take one out");
}

#[test]
fn rules_that_never_match() {
    let found = told(&format!(
        "[tls]\npass_through = \"*.pinned.com\"\n{}",
        rules(&[
            ("a", "allow", "host = \"a.com\"\nwhen = \"false\""),
            ("b", "allow", "host = \"a.com\"\nsni = \"b.com\""),
            ("c", "allow", "host = \"c.com\"\nscheme = \"http\"\nsni = \"c.com\""),
            ("d", "allow", "host = \"x.pinned.com\"\npaths = \"/v1\""),
        ])
    ));
    insta::assert_snapshot!(found, @r"
    Warning never-matches: 3:1: rule `a` never matches: its condition is always false
    Warning never-matches: 9:1: rule `b` never matches: its `sni` is none of its hosts, and the two must agree
    Warning never-matches: 15:1: rule `c` never matches: it asks for `sni`, which plain http does not have
    Warning never-matches: 22:1: rule `d` never matches: its hosts are in `tls.pass_through`, where nothing inside is seen
    ");
}

#[test]
fn examples_that_fail() {
    let text = format!(
        "{}[[example]]\nrequest = \"GET https://a.com/\"\nexpect = \"deny\"\n\n[[example]]\nrequest = \"GET https://a.com/\"\nexpect = \"allow\"\nrule = \"r\"\n\n[[example]]\nrequest = \"GET https://b.com/\"\nexpect = \"review\"\n",
        rule("r", "allow", "host = \"a.com\"")
    );
    insta::assert_snapshot!(told(&text), @r"
    Error failed-example: 6:1: example `GET https://a.com/`: expected deny, but it is allowed by rule r: because of r
    Error failed-example: 15:1: example `GET https://b.com/`: expected review, but it is denied: no rule allows it
    ");
}

#[test]
fn what_is_fine_is_left_in_peace() {
    let found = told(&rules(&[
        ("first", "allow", "host = \"a.com\"\npaths = \"/v1/a\""),
        ("then", "allow", "host = \"a.com\"\npaths = \"/v1/**\""),
        ("but", "deny", "host = \"a.com\"\npaths = \"/v1/b\""),
        ("ask", "review", "host = \"a.com\"\nmethods = \"DELETE\""),
        ("tool", "allow", "tool = \"a\""),
        ("tools", "review", "tool = \"b*\"\nwhen = \"args.x > 1\""),
        ("tools-too", "allow", "tool = \"b*\""),
    ]));
    assert_eq!(found, "");
}

#[test]
fn an_upstream_given_twice() {
    let upstream = "[[upstream]]\nhost = \"a.com\"\nconnect = \"b:1\"\n";
    assert_eq!(
        told(&format!("{upstream}{upstream}")),
        "Warning shadowed: 4:1: upstream `a.com` is already given on line 1"
    );
}
