//! Files for programs.

use super::{HOSTILE, sample};
use cofferdam_report::{junit, metrics, sarif};
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
    let text = text(|out| sarif(&sample().0, out));
    let log: Value = serde_json::from_str(&text).unwrap();
    let run = &log["runs"][0];
    let results = run["results"].as_array().unwrap();
    assert!(results.len() >= 2);
    let rules: Vec<_> =
        run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|rule| &rule["id"]).collect();
    for result in results {
        assert!(rules.contains(&&result["ruleId"]));
        assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "suite.toml");
    }
    let levels: Vec<_> = results.iter().map(|result| result["level"].as_str().unwrap()).collect();
    assert!(levels.contains(&"error") && levels.contains(&"warning"), "{levels:?}");
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
