//! Bodies and arguments that must keep to a schema.

use cofferdam_policy::{Effect, Policy, Request};

const POLICY: &str = r##"
[[rule]]
id = "refund"
reason = "the one way to give money back"
effect = "allow"
host = "api.stripe.com"
methods = ["POST"]
paths = ["/v1/refunds"]
schema = '''
{ "type": "object", "required": ["charge", "amount"], "additionalProperties": false,
  "properties": { "charge": { "$ref": "#/$defs/charge" }, "amount": { "type": "integer", "maximum": 500 } },
  "$defs": { "charge": { "type": "string", "pattern": "^ch_[a-z0-9]+$" } } }
'''

[[rule]]
id = "all"
reason = "the rest of it"
effect = "allow"
host = "api.stripe.com"

[[rule]]
id = "ticket"
reason = "support"
effect = "allow"
tool = "create_ticket"
schema = { type = "object", required = ["title"], properties = { title = { type = "string", maxLength = 20 }, tags = { type = "array", items = { enum = ["a", "b"] } } } }
"##;

fn decide(text: &str, body: Option<&str>) -> (Effect, Option<String>, String) {
    let mut request = Request::parse(text).unwrap();
    request.body = body.map(|body| body.as_bytes().to_vec());
    let policy = Policy::parse(POLICY).unwrap();
    let decision = request.with(|action| policy.decide(action));
    (decision.effect, decision.rule_id().map(str::to_owned), decision.to_string())
}

#[test]
fn what_keeps_to_it_is_allowed() {
    let good = r#"{"charge": "ch_1a", "amount": 500}"#;
    let (effect, rule, _) = decide("POST https://api.stripe.com/v1/refunds", Some(good));
    assert_eq!((effect, rule.as_deref()), (Effect::Allow, Some("refund")));
    let (effect, ..) = decide(r#"tool create_ticket {"title": "broken", "tags": ["a"]}"#, None);
    assert_eq!(effect, Effect::Allow);
}

#[test]
fn what_does_not_is_denied_with_the_place_whatever_else_would_allow_it() {
    let check = |body: &str, expected: &[&str]| {
        let (effect, rule, told) = decide("POST https://api.stripe.com/v1/refunds", Some(body));
        assert_eq!((effect, rule.as_deref()), (Effect::Deny, Some("refund")), "{body}");
        assert!(expected.iter().all(|part| told.contains(part)), "{body}: {told}");
    };
    check(r#"{"charge": "ch_1", "amount": 501}"#, &["/amount", "/properties/amount/maximum"]);
    check(r#"{"charge": "secret-value", "amount": 1}"#, &["/charge", "pattern"]);
    check(r#"{"amount": 1}"#, &["charge", "/required"]);
    check(r#"{"charge": "ch_1", "amount": 1, "reason": "x"}"#, &["additionalProperties"]);
    check(r#"{"charge": "ch_1", "amount": 1, "amount": 2}"#, &["read in two ways"]);
    let (_, _, told) =
        decide("POST https://api.stripe.com/v1/refunds", Some(r#"{"charge": "secret-value", "amount": 1}"#));
    assert!(!told.contains("secret-value"), "{told}");
    let (effect, _, told) = decide(r#"tool create_ticket {"title": "broken", "tags": ["a", "c"]}"#, None);
    assert!(effect == Effect::Deny && told.contains("/tags/1"), "{told}");
    // Another path is none of its business.
    assert_eq!(decide("POST https://api.stripe.com/v1/charges", Some("{}")).0, Effect::Allow);
}

#[test]
fn a_schema_that_cannot_be_kept_to_is_a_mistake() {
    let check = |schema: &str, effect: &str, expected: &str| {
        let text = format!(
            "[[rule]]\nid = \"r\"\nreason = \"x\"\neffect = \"{effect}\"\ntool = \"t\"\nschema = {schema}\n"
        );
        let error = Policy::parse(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{schema}: {error}");
    };
    check("'{'", "allow", "not JSON");
    check("7", "allow", "write a table");
    check("{ type = \"nonsense\" }", "allow", "rule.schema");
    check("{ \"$ref\" = \"https://example.com/s.json\" }", "allow", "leads elsewhere");
    check("{ \"$ref\" = \"file:///etc/passwd\" }", "allow", "leads elsewhere");
    check("{ type = \"object\" }", "deny", "only in a rule that allows");
}
