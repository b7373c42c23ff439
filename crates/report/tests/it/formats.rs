//! Files for programs.

use super::{HOSTILE, sample};
use cofferdam_compare::{Outcome, Reason, Scorer};
use cofferdam_model::Verdict;
use cofferdam_report::{PolicyRule, Sources, junit, metrics, sarif};
use serde_json::Value;

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn junit_tells_a_review_as_skipped_and_never_as_passed() {
    insta::assert_snapshot!(text(|out| junit(&sample().0, out)));
}

#[test]
fn sarif_has_a_place_for_every_finding() {
    let line = |id: &str| (id == "order-other").then_some(12);
    let run = sarif_of(&sample().0, &Sources { policy: &[], session: &line });
    let results = run["results"].as_array().unwrap();
    assert!(results.len() >= 2);
    let rules: Vec<_> =
        run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|rule| &rule["id"]).collect();
    for result in results {
        assert!(rules.contains(&&result["ruleId"]));
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "suite.toml");
        let at = if result["properties"]["session"] == "order-other" { 12 } else { 1 };
        assert_eq!(place["region"]["startLine"], at);
    }
    let levels: Vec<_> = results.iter().map(|result| result["level"].as_str().unwrap()).collect();
    assert!(levels.contains(&"error") && levels.contains(&"warning"), "{levels:?}");
}

fn sarif_of(result: &cofferdam_gate::GateResult, sources: &Sources<'_>) -> Value {
    let text = text(|out| sarif(result, sources, out));
    let log: Value = serde_json::from_str(&text).unwrap();
    log["runs"][0].clone()
}

#[test]
fn sarif_tells_a_rule_of_the_policy_as_a_rule_where_it_stands() {
    let (mut result, ..) = sample();
    let denied = |rule: Option<&str>| Reason {
        scorer: Scorer::Policy,
        code: "policy-denied".into(),
        rule: rule.map(str::to_owned),
        outcome: Outcome::Fail,
        weight: 1.0,
        text: format!("refund is denied: {HOSTILE}"),
        places: Vec::new(),
    };
    let mut session = result.sessions.iter().next().unwrap();
    session.reasons = vec![denied(Some("no-refunds")), denied(Some("gone")), denied(None)];
    result.sessions = [session].into_iter().collect();
    let policy = [("unused", 3), ("no-refunds", 7)].map(|(id, line)| PolicyRule {
        id: id.into(),
        reason: "money stays here".into(),
        effect: Verdict::Deny,
        line,
    });
    let run = sarif_of(&result, &Sources { policy: &policy, session: &|_| None });
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    let told: Vec<_> = results
        .iter()
        .map(|one| {
            let described = &rules[one["ruleIndex"].as_u64().unwrap() as usize];
            assert_eq!(described["id"], one["ruleId"]);
            assert!(!described["help"]["text"].as_str().unwrap().is_empty());
            let place = &one["locations"][0]["physicalLocation"];
            assert_eq!(place["artifactLocation"]["uri"], "policy.toml");
            (one["ruleId"].as_str().unwrap(), place["region"]["startLine"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(told, [("policy/no-refunds", 7), ("policy/gone", 1), ("policy-denied", 1)]);
    assert_eq!(rules.len(), 3, "a rule that decided nothing is not described: {rules:?}");
    let described = rules.iter().find(|rule| rule["name"] == "no-refunds").unwrap();
    assert_eq!(described["shortDescription"]["text"], "money stays here");
    let full = "The rule `no-refunds` on line 7 of policy.toml denies this: money stays here";
    assert_eq!(described["fullDescription"]["text"], full);
    assert_eq!(described["defaultConfiguration"]["level"], "error");
    assert_eq!(described["properties"]["line"], 7);
}

#[test]
fn metrics_in_both_forms() {
    let metrics = metrics(&sample().0);
    insta::assert_snapshot!(serde_json::to_string_pretty(&metrics).unwrap());
    insta::assert_snapshot!(metrics.prometheus());
}

#[test]
fn a_suite_name_stays_a_label() {
    let (mut result, ..) = sample();
    result.suite.name = HOSTILE.into();
    let text = metrics(&result).prometheus();
    assert!(
        text.lines().filter(|line| !line.starts_with('#')).all(|line| line.starts_with("cofferdam_gate_")),
        "{text}"
    );
}
