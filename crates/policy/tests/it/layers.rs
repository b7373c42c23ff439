//! Policies on top of each other: a lower one can only narrow.

use crate::{decide, policy, rule, told};
use cofferdam_policy::{Action, Class, Exec, GuardAction, Policy};

#[test]
fn both_must_allow() {
    let floor = policy(&format!(
        "{}{}{}",
        rule("floor-all", "allow", "host = [\"a.com\", \"b.com\"]"),
        rule("floor-no", "deny", "host = \"b.com\"\nmethods = \"DELETE\""),
        rule("floor-ask", "review", "host = \"b.com\"\nmethods = \"PUT\""),
    ));
    let upper = policy(&format!(
        "{}{}",
        rule("all", "allow", "host = \"*\""),
        rule("ask", "review", "host = \"a.com\"\nmethods = \"DELETE\"")
    ));
    let both = Policy::layer(&floor, &upper);
    let check =
        |request: &str, expected: &str| assert_eq!(told(&decide(&both, request)), expected, "{request}");
    check("GET https://a.com/", "allow floor-all");
    check("GET https://c.com/", "deny -");
    check("DELETE https://b.com/", "deny floor-no");
    check("PUT https://b.com/", "review floor-ask");
    check("DELETE https://a.com/", "review ask");
    // The order of the layers does not widen anything either.
    let turned = Policy::layer(&upper, &floor);
    assert_eq!(told(&decide(&turned, "GET https://c.com/")), "deny -");
    assert_eq!(decide(&both, "DELETE https://a.com/").layer, 1);
}

#[test]
fn a_name_is_known_where_every_layer_could_let_something_through() {
    let floor = policy(&rule("floor", "allow", "host = [\"a.com\", \"*.b.com\", \"c.com\"]"));
    let upper = policy(&format!(
        "{}{}{}",
        rule("ask", "review", "host = \"A.com\"\npaths = \"/x\""),
        rule("all", "allow", "host = \"*.b.com\"\nwhen = \"request.method == 'GET'\""),
        rule("no", "deny", "host = [\"a.com\", \"c.com\"]"),
    ));
    let both = Policy::layer(&floor, &upper);
    for (host, expected) in [
        ("a.com", true),
        ("A.COM.", true),
        ("x.b.com", true),
        ("b.com", false),
        ("c.com", false),
        ("", false),
    ] {
        assert_eq!(both.knows(host), expected, "{host}");
    }
    assert!(floor.knows("c.com") && !policy("").knows("a.com"));
}

#[test]
fn a_layer_sees_less_and_never_more() {
    let floor = policy("[tls]\npass_through = [\"*.pinned.com\"]\n[guard]\njwt = \"deny\"");
    let upper = policy(
        "[tls]\npass_through = [\"a.pinned.com\", \"b.com\"]\n[guard]\nllm = \"flag\"\n[[guard.allow]]\nhost = \"b.com\"\nclass = [\"jwt\", \"vcs\"]\nreason = \"r\"",
    );
    let both = Policy::layer(&floor, &upper);
    assert!(both.passes_through("A.pinned.com."));
    assert!(!both.passes_through("x.pinned.com"), "only the floor says so");
    assert!(!both.passes_through("b.com"), "only the upper one says so");
    assert_eq!(both.guard(Class::Llm, "b.com"), Some(GuardAction::Deny));
    assert_eq!(both.guard(Class::Jwt, "b.com"), Some(GuardAction::Deny));
    assert_eq!(upper.guard(Class::Jwt, "b.com"), None);
    assert_eq!(upper.guard(Class::Jwt, "c.com"), Some(GuardAction::Flag));
}

#[test]
fn only_the_operator_says_where_a_host_is_reached() {
    let text = "\n[[upstream]]\nhost = \"API.a.com\"\nconnect = \"127.0.0.1:8443\"\nca = \"ca.pem\"\n";
    let operators = policy(text);
    assert_eq!(operators.upstream("api.a.com.").unwrap().connect, "127.0.0.1:8443");
    assert!(operators.upstream("a.com").is_none());
    let refused = operators.require_no_operator_tables().unwrap_err().to_string();
    assert!(refused.starts_with("2:1: upstream: only the operator"), "{refused}");
    assert!(policy("").require_no_operator_tables().is_ok());
    let alert = policy("[[alert]]\nid = \"a\"\nto = \"syslog\"");
    let refused = alert.require_no_operator_tables().unwrap_err().to_string();
    assert_eq!(refused, "1:1: alert: only the operator may write this table; take it out");
}

/// A layer that says nothing of a kind of action leaves it to the others, and takes nothing back that they say.
#[test]
fn silence_neither_forbids_nor_allows() {
    let silent = policy(&rule("hosts", "allow", "host = \"a.com\""));
    let speaks = policy(&format!(
        "{}{}",
        rule("no-rm", "deny", "exec = \"rm **\""),
        rule("rest", "allow", "exec = \"**\"")
    ));
    let on = |policy: &Policy, argv: &[&str]| {
        policy.rules_on(&Action::Exec(Exec { argv, cwd: None })).map(|decision| told(&decision))
    };
    assert_eq!(on(&silent, &["rm"]), None);
    for both in [Policy::layer(&silent, &speaks), Policy::layer(&speaks, &silent)] {
        assert_eq!(on(&both, &["rm", "-r"]).as_deref(), Some("deny no-rm"));
        assert_eq!(on(&both, &["ls"]).as_deref(), Some("allow rest"));
    }
    let narrow = policy(&rule("ls", "allow", "exec = \"ls\""));
    assert_eq!(on(&Policy::layer(&speaks, &narrow), &["cat"]).as_deref(), Some("deny -"));
}
