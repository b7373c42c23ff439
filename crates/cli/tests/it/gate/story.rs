//! The main job: record, change the agent, be stopped, fix it, pass; and the ways in which a suite is run.

use super::{Shop, codes, result, scripts, session};
use crate::{each, site};
use cofferdam_testkit::Site;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn a_change_is_found_and_its_fix_passes() {
    each(|site| {
        let shop = Shop::recorded(site);
        shop.gate(&[]).exits(0);
        assert_eq!(shop.result()["why"], json!(["all 6 sessions pass"]));

        let good = site.read("agent.py");
        shop.break_agent();
        shop.gate(&[]).exits(1);
        let result = shop.result();
        assert_eq!(result["outcome"], "fail");
        assert_eq!(session(&result, "refund-small")["outcome"], "fail");
        for id in ["where-is-it", "refund-large", "unknown-order", "stock", "vague"] {
            assert_eq!(session(&result, id)["outcome"], "pass", "{id}: {:?}", codes(&result, id));
        }
        let missed = codes(&result, "refund-small").contains(&"replay-missed".to_owned());
        assert!(missed, "{:?}", codes(&result, "refund-small"));
        let summary = site.read("gate-out/summary.md");
        assert!(
            summary.contains("refund-small: fail") && summary.contains("--only refund-small"),
            "{summary}"
        );

        site.write("agent.py", good);
        shop.gate(&[]).exits(0);
    });
}

/// The file's own text without times and without what names a trace: nothing else may differ between two runs of the same.
fn without_times_and_ids(text: &str) -> String {
    let (mut of_trace, mut masked) = (false, 0);
    let mut line = |line: &str| {
        let (key, _) = line.trim_start().split_once(": ").unwrap_or((line, ""));
        of_trace = key == "\"trace\"" || (of_trace && !line.trim_start().starts_with('}'));
        let time = ["\"started_us\"", "\"ended_us\"", "\"wall_us\"", "\"enforcement\""].contains(&key);
        let name = of_trace && ["\"session\"", "\"head\"", "\"events\""].contains(&key);
        masked += usize::from(time || name);
        if time || name { format!("{key}\n") } else { format!("{line}\n") }
    };
    let left: String = text.lines().map(&mut line).collect();
    // Two of the run, five of each attempt.
    assert_eq!(masked, 2 + 5 * 6, "{text}");
    left
}

#[test]
fn the_same_inputs_give_the_same_bytes_whatever_runs_at_once() {
    let site = site();
    let shop = Shop::recorded(&site);
    for code in [0, 1] {
        let run = |flags: &[&str]| {
            shop.gate(flags).exits(code);
            without_times_and_ids(&site.read("gate-out/gate.json"))
        };
        let first = run(&["--concurrency", "1"]);
        assert_eq!(run(&["--concurrency", "6"]), first);
        assert_eq!(run(&[]), first);
        shop.break_agent();
    }
}

#[test]
fn shards_are_one_result_when_all_are_there() {
    let site = site();
    let shop = Shop::recorded(&site);
    shop.gate(&["--shard", "1/2", "--out", "one"]).exits(0);
    shop.gate(&["--shard", "2/2", "--out", "two"]).exits(0);
    let missing = site.call(&["gate", "merge", "one"]).exits(2);
    assert!(missing.err().contains("run it with --shard 2/2"), "{}", missing.err());
    site.call(&["gate", "merge", "two", "one", "-q"]).exits(0);
    let merged = shop.result();
    let ids: Vec<_> = merged["sessions"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, ["where-is-it", "refund-small", "refund-large", "unknown-order", "stock", "vague"]);
    site.call(&["verify", "gate-out", "-q"]).exits(0);
    assert!(site.work().join("gate-out/traces/vague.1.tar.zst").is_file());
    site.call(&["gate", "suite.toml", "--shard", "3/2"]).exits(2);
}

/// Several results together: what the last one lost is named, and whether it may be chance.
#[test]
fn results_of_one_suite_have_a_history() {
    let site = site();
    let shop = Shop::recorded(&site);
    shop.gate(&["--out", "one"]).exits(0);
    site.call(&["gate", "history", "one"]).exits(2);
    let same = site.call(&["gate", "history", "one", "one"]).exits(0).out();
    assert!(same.contains("0 lost, 0 won, 6 passed in both"), "{same}");
    shop.break_agent();
    shop.gate(&["--out", "two"]).exits(1);
    let told = site.call(&["gate", "history", "one", "one", "two"]).exits(3).out();
    assert!(
        told.contains("1 lost, 0 won, 5 passed in both") && told.contains("lost: refund-small"),
        "{told}"
    );
    let asked = site.call(&["gate", "history", "--json", "one", "one", "two"]).exits(3).out();
    let asked: Value = serde_json::from_str(&asked).unwrap();
    assert_eq!((&asked["outcome"], &asked["lost"]), (&json!("review"), &json!(["refund-small"])));
    assert!(asked["drift"]["slope"].as_f64().unwrap() < 0.0, "{asked}");
    // Only what is signed counts.
    let file = site.work().join("two/gate.json");
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace("\"fail\"", "\"pass\"")).unwrap();
    site.call(&["gate", "history", "one", "two"]).exits(2);
}

fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Without what is prepared for a next one.
fn traces(site: &Site) -> usize {
    site.traces().iter().filter(|id| id.len() == 20).count()
}

fn finished(site: &Site) -> usize {
    std::fs::read_dir(site.work().join("gate-out/.unfinished")).map_or(0, |entries| entries.count())
}

#[test]
fn an_interrupted_gate_goes_on_where_it_was() {
    let site = site();
    scripts(&site, &[("a", "echo a"), ("b", "echo b"), ("c", "cat wait 2>/dev/null && sleep 600; echo c")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    site.write("wait", "");
    let running = site.call(&["gate", "suite.toml", "--concurrency", "1"]).start();
    wait_for(&site.work().join("gate-out/.unfinished/b.json"));
    running.signal(Signal::INT);
    let stopped = running.finish().exits(130);
    assert!(stopped.err().contains("2 of 3 sessions are finished"), "{}", stopped.err());
    assert!(!site.work().join("gate-out/gate.json").exists());
    assert_eq!(finished(&site), 2);
    let before = traces(&site);
    // The agent's files are others now: what is finished was finished of another agent.
    std::fs::remove_file(site.work().join("wait")).unwrap();
    site.call(&["gate", "suite.toml", "-q"]).exits(0);
    assert_eq!(traces(&site), before + 3);
    assert_eq!(finished(&site), 0);

    let running = site.call(&["gate", "suite.toml", "--concurrency", "1"]).start();
    wait_for(&site.work().join("gate-out/.unfinished/a.json"));
    running.signal(Signal::INT);
    let stopped = running.finish();
    let done = finished(&site);
    if done == 0 {
        // It was faster than the signal.
        stopped.exits(0);
        return;
    }
    let before = traces(&site);
    site.call(&["gate", "suite.toml", "-q"]).exits(0);
    assert_eq!(traces(&site), before + 3 - done);
}

#[test]
fn a_flaky_session_is_told_and_decided_by_the_suite() {
    let site = site();
    // Changes to files do not stay, so chance has to come from the clock.
    let script = "test $(( $(date +%N | sed s/^0*//) % 2 )) -eq 0 || exit 7";
    scripts(&site, &[("steady", "true"), ("flaky", script)]);
    let mut both = false;
    for _ in 0..30 {
        site.call(&["record", "suite.toml", "-q"]).exits(0);
        site.call(&["gate", "suite.toml", "-q", "--retries", "5", "--only", "flaky"]).done();
        let found = session(&result(&site), "flaky");
        let outcomes: Vec<_> =
            found["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].clone()).collect();
        if outcomes.contains(&json!("pass")) && outcomes.len() > 1 {
            assert_eq!(codes(&result(&site), "flaky")[0], "flaky");
            assert_ne!(found["outcome"], "pass", "a failed attempt is not forgotten");
            assert_eq!(result(&site)["counts"]["flaky"], 1);
            both = true;
            break;
        }
    }
    assert!(both, "it never was flaky");
}

#[test]
fn several_recordings_are_one_baseline() {
    let site = site();
    scripts(&site, &[("a", "echo a")]);
    site.call(&["record", "suite.toml", "-q", "--repeat", "3"]).exits(0);
    site.call(&["gate", "suite.toml", "-q"]).exits(0);
    assert_eq!(session(&result(&site), "a")["baselines"].as_array().unwrap().len(), 3);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    site.call(&["gate", "suite.toml", "-q"]).exits(0);
    assert_eq!(session(&result(&site), "a")["baselines"].as_array().unwrap().len(), 1);
}

#[test]
fn what_was_recorded_can_be_compared_without_running_anything() {
    let site = site();
    let shop = Shop::recorded(&site);
    shop.break_agent();
    shop.gate(&[]).exits(1);
    let before = traces(&site);
    let told = site.call(&["compare", "baseline", "gate-out/traces"]).exits(1).out();
    let (base, new) = ("baseline/refund-small.1.tar.zst", "gate-out/traces/refund-small.1.tar.zst");
    assert!(told.contains(&format!("cofferdam compare {base} {new}\n")), "{told}");
    site.call(&["compare", "baseline", "baseline", "-q", "--out", "again"]).exits(0);
    site.call(&["compare", base, new, "-q"]).exits(1);
    site.call(&["compare", base, base, "-q", "--policy", "policy.toml"]).exits(0);
    site.call(&["verify", "again", "-q"]).exits(0);
    let foreign = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "hello" }]);
    site.write("their.json", foreign.to_string());
    site.call(&["compare", "their.json", "their.json", "-q"]).exits(0);
    site.write("nothing.json", "{\"a\": 1}");
    let unknown = site.call(&["compare", "their.json", "nothing.json"]).exits(2);
    assert!(unknown.err().contains("nothing.json"), "{}", unknown.err());
    assert_eq!(traces(&site), before, "nothing was run");
}

#[test]
fn a_baseline_can_be_that_of_a_commit() {
    let site = site();
    super::scripts(&site, &[("a", "echo one > a"), ("b", "true")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let git = |args: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]);
        let done = git.args(args).current_dir(site.work()).env("HOME", site.home()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "-q"]);
    git(&["add", "suite.toml"]);
    git(&["commit", "-q", "-m", "none"]);
    git(&["tag", "none"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "first"]);
    git(&["tag", "first"]);
    for path in [site.work(), site.work().join(".git")] {
        site.give(&path);
    }
    // Whoever runs this may not be the owner that git expects.
    site.write(site.home().join(".gitconfig"), "[safe]\n\tdirectory = *\n");
    std::fs::remove_dir_all(site.work().join("baseline")).unwrap();
    site.call(&["gate", "suite.toml", "-q"]).exits(3);
    site.call(&["gate", "suite.toml", "-q", "--baseline", "first"]).exits(0);
    let name = result(&site)["sessions"][0]["baselines"][0]["name"].as_str().unwrap().to_owned();
    assert!(name.ends_with(":baseline/a.1.tar.zst") && !name.starts_with('/'), "{name}");
    let mut tar = std::process::Command::new("tar");
    tar.args(["--zstd", "-tf", "gate-out/evidence.tar.zst"]).current_dir(site.work());
    let listed = tar.output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&listed).contains("baseline/a.1.tar.zst"));
    for (asked, says) in
        [("nobody", "neither a directory nor a commit"), ("none", "that commit has no baseline")]
    {
        let done = site.call(&["gate", "suite.toml", "--baseline", asked]).exits(2);
        assert!(done.err().contains(says), "{}", done.err());
    }
}
