//! What goes wrong with suites, baselines, agents and keys: each is named, and none of it is a pass.

use super::{Shop, codes, result, scripts, session};
use crate::site;
use cofferdam_testkit::Site;

fn check(site: &Site, suite: &str, expected: &str) {
    site.write("suite.toml", suite);
    for command in ["gate", "record"] {
        let done = site.call(&[command, "suite.toml"]).exits(2);
        assert!(done.err().contains(expected), "{}", done.err());
    }
}

#[test]
fn a_suite_with_a_mistake_runs_nothing() {
    let site = site();
    let agent = "[agent]\ncommand = [\"true\"]\n";
    check(&site, agent, "the suite has no sessions");
    check(&site, &format!("{agent}[[sesion]]\nid = \"a\"\n"), "suite.toml:3: unknown field `sesion`");
    let twice = "[[session]]\nid = \"a\"\n[[session]]\nid = \"a\"\n";
    check(
        &site,
        &format!("{agent}{twice}"),
        "suite.toml:6: `id`: `a` is already the id of the session on line 4",
    );
    let typo = format!("{agent}[thresholds]\nfaild = 1\n[[session]]\nid = \"a\"\n");
    check(&site, &typo, "did you mean `failed`?");
    let policy = format!("{agent}[policy]\nfile = \"p.toml\"\n[[session]]\nid = \"a\"\n");
    check(&site, &policy, "suite.toml:4: `policy.file`: there is no file `p.toml`");
    assert!(site.traces().is_empty());
    scripts(&site, &[("refund", "true")]);
    let done = site.call(&["gate", "suite.toml", "--only", "refnd"]).exits(2);
    assert!(done.err().contains("did you mean `refund`?"), "{}", done.err());
}

#[test]
fn a_missing_baseline_is_for_review_with_the_command_to_record_it() {
    let site = site();
    scripts(&site, &[("a", "true"), ("b", "true")]);
    site.call(&["record", "suite.toml", "-q", "--only", "a"]).exits(0);
    let done = site.call(&["gate", "suite.toml"]).exits(3);
    assert!(done.out().contains("cofferdam record suite.toml --only b"), "{}", done.out());
    assert_eq!(session(&result(&site), "a")["outcome"], "pass");
    assert_eq!(codes(&result(&site), "b"), ["baseline-missing"], "it is told once");
}

#[test]
fn without_a_recording_nothing_is_run_against_the_world() {
    let site = site();
    let shop = Shop::open(&site);
    shop.gate(&[]).exits(3);
    assert!(site.traces().is_empty());
    assert_eq!(codes(&shop.result(), "stock"), ["baseline-missing"]);
}

#[test]
fn a_baseline_that_was_changed_fails_and_one_of_a_stranger_is_for_review() {
    let site = site();
    scripts(&site, &[("a", "echo a"), ("b", "echo b")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let path = site.work().join("baseline/a.1.tar.zst");
    let sound = std::fs::read(&path).unwrap();
    let mut bytes = sound.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    site.call(&["gate", "suite.toml", "-q"]).exits(1);
    assert_eq!(codes(&result(&site), "a")[0], "baseline-changed");
    assert_eq!(session(&result(&site), "b")["outcome"], "pass");
    std::fs::write(&path, sound).unwrap();

    // Another machine: it believes nobody but itself, until the suite names the key.
    let elsewhere = site.root().join("elsewhere");
    let gate =
        |code: i32| site.call(&["gate", "suite.toml", "-q"]).env("COFFERDAM_HOME", &elsewhere).exits(code);
    std::fs::create_dir(&elsewhere).unwrap();
    site.give(&elsewhere);
    gate(3);
    assert_eq!(codes(&result(&site), "a")[0], "baseline-unknown-signer");
    let suite = site.read("suite.toml");
    site.write("suite.toml", format!("[baseline]\nkeys = [\"baseline/signer.pem\"]\n{suite}"));
    gate(0);
}

#[test]
fn agents_that_hang_crash_or_write_garbage_fail_and_others_go_on() {
    let site = site();
    let good = [("good", "echo fine"), ("hangs", "true"), ("crashes", "true"), ("garbage", "true")];
    scripts(&site, &good);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let bad = [
        ("good", "echo fine"),
        ("hangs", "sleep 600"),
        ("crashes", "kill -SEGV $$"),
        ("garbage", "head -c 300000 /dev/urandom; echo 'no `key` is given' >&2; exit 3"),
    ];
    scripts(&site, &bad);
    let suite = site.read("suite.toml").replace("timeout = \"60s\"", "timeout = \"2s\"");
    site.write("suite.toml", suite);
    site.call(&["gate", "suite.toml", "-q"]).exits(1);
    let result = result(&site);
    assert_eq!(session(&result, "good")["outcome"], "pass");
    assert!(codes(&result, "hangs").contains(&"agent-timed-out".into()), "{:?}", codes(&result, "hangs"));
    for id in ["crashes", "garbage"] {
        assert!(codes(&result, id).contains(&"agent-failed".into()), "{id} {:?}", codes(&result, id));
    }
    let said = session(&result, "garbage")["reasons"].to_string();
    assert!(said.contains("the agent ended with code 3; its last words: `no 'key' is given`"), "{said}");
    let hung = site.call(&["record", "suite.toml", "--only", "hangs"]).exits(1);
    assert!(hung.err().contains("hangs: not recorded: it was still running"), "{}", hung.err());
}

#[test]
fn a_sandbox_that_cannot_be_made_is_that_sessions_trouble() {
    let site = site();
    scripts(&site, &[("a", "true"), ("b", "true")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let suite = site.read("suite.toml");
    site.write("suite.toml", format!("{suite}env = {{ \"A=B\" = \"x\" }}\n"));
    site.call(&["gate", "suite.toml", "-q"]).exits(3);
    let result = result(&site);
    assert_eq!(session(&result, "a")["outcome"], "pass");
    assert_eq!(codes(&result, "b"), ["sandbox-failed"]);
    site.call(&["verify", "gate-out", "-q"]).exits(0);
}

#[test]
fn the_agent_sees_neither_the_recordings_nor_what_is_expected_of_it() {
    let site = site();
    let look = "cat suite.toml baseline/*.zst >/dev/null 2>&1 && echo seen; ls baseline 2>/dev/null | wc -l";
    scripts(&site, &[("looks", look)]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let suite = site.read("suite.toml");
    let expect = "expect = { says = [\"0\"], never_says = [\"seen\"] }\n";
    site.write("suite.toml", format!("{suite}{expect}"));
    site.call(&["gate", "suite.toml", "-q"]).exits(0);
    // The control: what it says does arrive.
    site.write("suite.toml", format!("{suite}{}", expect.replace("[\"0\"]", "[\"1\"]")));
    site.call(&["gate", "suite.toml", "-q"]).exits(1);
    assert!(codes(&result(&site), "looks").contains(&"expected-words".into()));
}

#[test]
fn an_artifact_is_what_was_signed_and_an_approval_is_of_one_artifact() {
    let site = site();
    scripts(&site, &[("a", "exit 1")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    scripts(&site, &[("a", "exit 2")]);
    site.call(&["gate", "suite.toml", "-q"]).exits(1);
    site.call(&["verify", "gate-out"]).exits(0);
    site.call(&["verify", "gate-out", "--passed", "-q"]).exits(1);
    let nameless = ["gate", "approve", "gate-out", "--by", " ", "--why", "x"];
    assert!(site.call(&nameless).exits(2).err().contains("say who approves"));
    site.call(&["gate", "approve", "gate-out", "--by", "the lead", "--why", "it is meant to"]).exits(0);
    let approved = site.call(&["verify", "gate-out", "--passed"]).exits(0);
    assert!(approved.out().contains("approved by the lead: it is meant to"), "{}", approved.out());

    let approval = site.read("gate-out/approval.dsse.json");
    site.call(&["gate", "suite.toml", "-q"]).exits(1);
    site.call(&["verify", "gate-out", "--passed", "-q"]).exits(1);
    site.write("gate-out/approval.dsse.json", approval);
    let moved = site.call(&["verify", "gate-out"]).exits(1);
    assert!(moved.out().contains("the approval is of another artifact"), "{}", moved.out());
    std::fs::remove_file(site.work().join("gate-out/approval.dsse.json")).unwrap();

    let result = site.read("gate-out/gate.json");
    site.write("gate-out/gate.json", result.replace("\"fail\"", "\"pass\""));
    let changed = site.call(&["verify", "gate-out"]).exits(1);
    assert!(changed.out().contains("`gate.json` is not the file that was signed"), "{}", changed.out());
    site.write("gate-out/gate.json", result);
    site.call(&["key", "rotate"]).exits(0);
    site.call(&["verify", "gate-out", "-q"]).exits(0);
    let elsewhere = site.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    site.give(&elsewhere);
    let stranger = site.call(&["verify", "gate-out"]).env("COFFERDAM_HOME", &elsewhere).exits(1);
    assert!(stranger.out().contains("by no trusted key"), "{}", stranger.out());
}
