//! Explaining: every rule that could concern the action, the part that decided, and the rule to add.

use crate::{policy, rule};
use cofferdam_policy::{Policy, Request};

fn told(policy: &Policy, request: &str) -> String {
    let told = Request::parse(request).unwrap().with(|action| policy.explain(action));
    let mut text = format!("{}\n", told.decision);
    for rule in &told.candidates {
        let mark = if rule.fired {
            "fires"
        } else if rule.matched {
            "matches"
        } else {
            "-"
        };
        text += &format!("{} {} {mark}\n", rule.effect, rule.id);
        for part in &rule.parts {
            text +=
                &format!("  {} {}: {}\n", if part.matched { "yes" } else { "no" }, part.field, part.detail);
        }
    }
    text += &format!("{} others\n", told.others);
    text + told.suggestion.as_deref().unwrap_or_default()
}

fn stripe() -> Policy {
    let contact = "[defaults]\ncontact = \"ask #agents\"\n";
    policy(&format!(
        "{contact}{}{}{}",
        rule(
            "read",
            "allow",
            "host = \"api.stripe.com\"\nmethods = \"GET\"\npaths = \"/v1/charges/**\"\nwhen = \"int(request.query.limit) <= 100\""
        ),
        rule("no-keys", "deny", "host = \"*.stripe.com\"\npaths = \"/v1/api_keys/**\""),
        rule("refund", "review", "tool = \"refund\"\nwhen = \"args.amount > 5000\""),
    ))
}

#[test]
fn an_allowed_request() {
    insta::assert_snapshot!(told(&stripe(), "GET https://api.stripe.com/v1/charges?limit=10"), @r"
    allowed by rule read: because of read
    allow read fires
      yes host: api.stripe.com
      yes methods: GET
      yes paths: /v1/charges/**
      yes when: int(request.query.limit) <= 100
    deny no-keys -
      yes host: *.stripe.com
      no paths: wants /v1/api_keys/**, and it is /v1/charges
    1 others
    ");
}

#[test]
fn a_request_that_no_rule_allows() {
    insta::assert_snapshot!(told(&stripe(), "POST https://api.stripe.com:8443/v1/charges"), @r#"
    denied: no rule allows it; ask #agents
    allow read -
      yes host: api.stripe.com
      no methods: wants GET, and it is POST
    deny no-keys -
      yes host: *.stripe.com
      no paths: wants /v1/api_keys/**, and it is /v1/charges
    1 others
    [[rule]]
    id = "allow-api-stripe-com-post"
    reason = "say why it is needed"
    effect = "allow"
    host = "api.stripe.com"
    port = 8443
    methods = ["POST"]
    paths = ["/v1/charges"]
    "#);
}

#[test]
fn a_request_that_cannot_be_judged() {
    insta::assert_snapshot!(told(&stripe(), "GET https://api.stripe.com/v1/charges"), @r"
    denied: rule read could not be judged: the condition asks for `limit`, which is not there; test it with has() first; ask #agents
    allow read fires
      yes host: api.stripe.com
      yes methods: GET
      yes paths: /v1/charges/**
      no when: the condition asks for `limit`, which is not there; test it with has() first
    deny no-keys -
      yes host: *.stripe.com
      no paths: wants /v1/api_keys/**, and it is /v1/charges
    1 others
    ");
}

#[test]
fn a_request_that_a_rule_denies_gets_no_suggestion() {
    insta::assert_snapshot!(told(&stripe(), "GET https://api.stripe.com/v1/api_keys"), @r"
    denied by rule no-keys: because of no-keys; ask #agents
    allow read -
      yes host: api.stripe.com
      yes methods: GET
      no paths: wants /v1/charges/**, and it is /v1/api_keys
    deny no-keys fires
      yes host: *.stripe.com
      yes paths: /v1/api_keys/**
    1 others
    ");
}

#[test]
fn other_actions_get_rules_of_their_kind() {
    let check = |request: &str, expected: &str| {
        let told = told(&policy(""), request);
        assert!(told.ends_with(expected), "{told}");
    };
    check("tool refund {\"amount\":1}", "effect = \"allow\"\ntool = \"refund\"\n");
    check("exec /usr/bin/git push origin", "effect = \"allow\"\nexec = \"/usr/bin/git push origin\"\n");
    check("file write /work/a", "effect = \"allow\"\nfile = { path = \"/work/a\", access = \"write\" }\n");
    check(
        "step deploy",
        "id = \"allow-deploy\"\nreason = \"say why it is needed\"\neffect = \"allow\"\nstep = \"deploy\"\n",
    );
    check("browser click https://a.com/x", "browser = \"click\"\nhost = \"a.com\"\npaths = [\"/x\"]\n");
    for request in [
        "tool refund {}",
        "exec git push",
        "file write /work/a",
        "step deploy",
        "browser click https://a.com/x",
    ] {
        let told = Request::parse(request).unwrap().with(|action| policy("").explain(action));
        let widened = policy(&told.suggestion.unwrap());
        assert!(
            Request::parse(request).unwrap().with(|action| widened.decide(action)).is_allowed(),
            "{request}"
        );
    }
}

#[test]
fn a_suggested_id_is_free() {
    let policy = policy(&rule("allow-a-com-get", "allow", "host = \"b.com\""));
    assert!(told(&policy, "GET https://a.com/").contains("id = \"allow-a-com-get-2\""));
}
