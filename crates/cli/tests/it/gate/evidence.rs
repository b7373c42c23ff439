//! The evidence bundle: whole, signed, readable without us, and renewed by an approval.

use super::Shop;
use crate::site;
use cofferdam_testkit::Site;
use serde_json::Value;
use std::process::Command;

const BUNDLE: &str = "gate-out/evidence.tar.zst";

/// Its entries, as another program reads them.
fn entries(site: &Site) -> Vec<String> {
    let tar = Command::new("tar").args(["--zstd", "-tf", BUNDLE]).current_dir(site.work()).output().unwrap();
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    String::from_utf8(tar.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn everything_that_a_verdict_rests_on_is_in_one_signed_file() {
    let site = site();
    let shop = Shop::recorded(&site);
    shop.break_agent();
    shop.gate(&[]).exits(1);
    let found = entries(&site);
    assert_eq!(found[0], "manifest.dsse.json");
    for name in [
        "baseline/refund-small.1.tar.zst",
        "design/security.md",
        "inputs/policy/policy.toml",
        "inputs/suite/suite.toml",
        "result/gate.dsse.json",
        "result/report.html",
        "traces/refund-small.1.tar.zst",
    ] {
        assert!(found.iter().any(|entry| entry == name), "{name}: {found:?}");
    }
    let told: Value = serde_json::from_str(&site.call(&["verify", BUNDLE, "--json"]).exits(0).out()).unwrap();
    assert_eq!(
        (&told["sound"], &told["outcome"], &told["approval"]),
        (&true.into(), &"fail".into(), &Value::Null)
    );
    let controls: Vec<&str> =
        told["controls"].as_array().unwrap().iter().map(|control| control["id"].as_str().unwrap()).collect();
    assert!(controls.contains(&"EU AI Act Art. 15(1)") && controls.contains(&"SOC 2 CC8.1"), "{controls:?}");
    site.call(&["verify", BUNDLE, "--passed"]).exits(1);

    // Someone lets it through: that is part of the evidence from then on, and the rest is as it was.
    site.call(&["gate", "approve", "gate-out", "--by", "the release lead", "--why", "refunds are wanted"])
        .exits(0);
    let told = site.call(&["verify", BUNDLE, "--passed"]).exits(0).out();
    assert!(told.contains("approved by the release lead: refunds are wanted"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    let mut wanted = [&found[..], &["result/approval.dsse.json".to_owned()]].concat();
    let mut renewed = entries(&site);
    wanted.sort();
    renewed.sort();
    assert_eq!(renewed, wanted);
}

#[test]
fn a_changed_bundle_is_not_sound() {
    let site = site();
    super::scripts(&site, &[("one", "echo done")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    site.call(&["gate", "suite.toml", "-q"]).exits(0);
    site.call(&["verify", BUNDLE]).exits(0);
    let again = "set -e\nmkdir x\ntar --zstd -xf gate-out/evidence.tar.zst -C x\ncd x\nCHANGE\n\
                 tar --zstd -cf ../changed.tar.zst --format=ustar $(tar --zstd -tf ../gate-out/evidence.tar.zst)\n\
                 cd ..\nrm -r x";
    for (change, says) in [
        ("true", "sound"),
        ("echo >> result/gate.json", "`result/gate.json` is not what was signed"),
        ("echo >> traces/one.1.tar.zst", "`traces/one.1.tar.zst` is not what was signed"),
        ("sed -i s/payload/payloaf/ manifest.dsse.json", "its list is not sound"),
    ] {
        let script = again.replace("CHANGE", change);
        let done = Command::new("sh").args(["-c", &script]).current_dir(site.work()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let code = i32::from(says != "sound");
        let told = site.call(&["verify", "changed.tar.zst"]).exits(code).out();
        assert!(told.contains(says), "{change}: {told}");
    }
    // Nobody here trusts this one.
    let stranger = Site::new(site.mode, crate::BINARY);
    let bundle = site.work().join(BUNDLE);
    let told = stranger.call(&["verify", bundle.to_str().unwrap()]).exits(1).out();
    assert!(told.contains("not sound"), "{told}");
}

#[test]
fn the_escape_score_is_in_it_if_it_is_of_this_kernel_and_version() {
    let site = site();
    super::scripts(&site, &[("one", "echo done")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for (kernel, expected) in [("5.4.0-other", false), (kernel.trim(), true)] {
        let score =
            serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "kernel": kernel, "tiers": [] });
        site.write(site.state().join("escape.json"), score.to_string());
        site.call(&["gate", "suite.toml", "-q"]).exits(0);
        let held = entries(&site).iter().any(|entry| entry == "design/escape.json");
        assert_eq!(held, expected, "{kernel}");
    }
    site.call(&["verify", BUNDLE]).exits(0);
}

/// A shard's directory comes from another machine: its links are not followed, and what is not whole is no evidence.
#[test]
fn merged_shards_are_evidence_only_with_their_traces() {
    let site = site();
    super::scripts(&site, &[("one", "echo done"), ("two", "echo done")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    for shard in ["1", "2"] {
        let part = format!("{shard}/2");
        site.call(&["gate", "suite.toml", "-q", "--shard", &part, "--out", &format!("part{shard}")]).exits(0);
    }
    let merge = || site.call(&["gate", "merge", "part1", "part2", "--out", "whole", "-q"]).exits(0);
    merge();
    let tar = Command::new("tar")
        .args(["--zstd", "-tf", "whole/evidence.tar.zst"])
        .current_dir(site.work())
        .output();
    let listed = String::from_utf8(tar.unwrap().stdout).unwrap();
    for name in ["inputs/suite/suite.toml", "baseline/one.1.tar.zst"] {
        assert!(listed.lines().any(|entry| entry == name), "{name}: {listed}");
    }
    site.call(&["verify", "whole/evidence.tar.zst"]).exits(0);
    let trace = site.work().join("part2/traces/two.1.tar.zst");
    std::fs::rename(&trace, site.work().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../../elsewhere", &trace).unwrap();
    std::fs::remove_file(site.work().join("whole/traces/two.1.tar.zst")).unwrap();
    merge();
    assert!(!site.work().join("whole/traces/two.1.tar.zst").exists(), "the link was followed");
    assert!(!site.work().join("whole/evidence.tar.zst").exists());
}
