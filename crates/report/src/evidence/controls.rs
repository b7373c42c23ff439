//! Which control of which framework a file is evidence for. A mapping for auditors: where to look, and no claim that
//! anything is complied with.

use super::Listed;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// `SOC 2 CC8.1`, `EU AI Act Art. 15(1)`.
    pub id: String,
    pub about: String,
    /// Files of this evidence.
    pub see: Vec<String>,
}

/// Control, what it is about, and the files that speak to it, by their beginnings.
const CONTROLS: &[(&str, &str, &[&str])] = &[
    (
        "SOC 2 CC6.1",
        "logical access: what a session could reach, and with which credentials",
        &["inputs/policy", "traces/"],
    ),
    (
        "SOC 2 CC6.6",
        "boundaries: what was let out and what was refused",
        &["inputs/policy", "traces/", "design/security.md"],
    ),
    (
        "SOC 2 CC7.2",
        "monitoring: findings of the policy and differences from the baseline",
        &["result/gate.json", "result/results.sarif"],
    ),
    (
        "SOC 2 CC8.1",
        "changes are tested and approved before they are deployed",
        &["result/gate.dsse.json", "result/approval.dsse.json", "result/report.html"],
    ),
    (
        "EU AI Act Art. 9(8)",
        "testing against metrics and thresholds defined beforehand",
        &["inputs/suite", "result/gate.json"],
    ),
    ("EU AI Act Art. 12(1)", "automatic recording of events", &["traces/", "baseline/"]),
    (
        "EU AI Act Art. 14(4)",
        "oversight by people: what was held, and who let it through",
        &["result/approval.dsse.json", "traces/"],
    ),
    (
        "EU AI Act Art. 15(1)",
        "consistency: the behaviour against recorded baselines",
        &["result/gate.json", "baseline/", "traces/"],
    ),
    (
        "EU AI Act Art. 15(4)",
        "robustness: repeated runs, failures and what was refused",
        &["result/metrics.json", "result/gate.json"],
    ),
    (
        "EU AI Act Art. 15(5)",
        "security: what is really enforced, and attempts to get out",
        &["design/security.md", "design/sandbox.md", "design/escape.json", "traces/"],
    ),
];

/// Only what there is a file for.
pub fn controls(files: &[Listed]) -> Vec<Control> {
    let of = |(id, about, prefixes): &(&str, &str, &[&str])| {
        let is_named = |file: &&Listed| prefixes.iter().any(|prefix| file.name.starts_with(prefix));
        let see: Vec<String> = files.iter().filter(is_named).map(|file| file.name.clone()).collect();
        (!see.is_empty()).then(|| Control { id: (*id).into(), about: (*about).into(), see })
    };
    CONTROLS.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::Digest;

    #[test]
    fn a_control_points_at_files_that_are_there() {
        let files = [Listed { name: "result/gate.json".into(), digest: Digest::ZERO }];
        let found = controls(&files);
        assert!(found.iter().any(|control| control.id == "EU AI Act Art. 15(1)"));
        assert!(found.iter().all(|control| control.see == ["result/gate.json"]));
        assert!(controls(&[]).is_empty());
    }
}
