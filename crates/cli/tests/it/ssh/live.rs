//! What people change while a command runs, and what waits for them.

use super::{RULES, staged_once};
use cofferdam_testkit::{Running, eventually};
use rustix::process::Signal;
use serde_json::Value;

/// A command that runs until it is cut; comes back when it does, with the session's id.
fn running(stage: &super::Stage<'_>) -> (Running, String) {
    let script = "mkfifo hold; sleep 900 > hold & ssh $HOST cat < hold; echo code $?; kill $!";
    let mut running = Some(stage.sh(script).start());
    let id = eventually("the command to run", || {
        if !running.as_mut().is_some_and(Running::is_running) {
            let done = running.take().unwrap().finish();
            panic!("it ended: {} {}\n{}", done.out(), done.err(), stage.sshd.log());
        }
        let live = stage.site.call(&["session", "ls", "--json"]).exits(0).out();
        let live: Vec<Value> = serde_json::from_str(&live).unwrap();
        let id = live.first()?["session"].as_str()?.to_owned();
        stage.sshd.log().contains("Starting session: command").then_some(id)
    });
    (running.unwrap(), id)
}

#[test]
fn a_credential_that_is_taken_back_ends_what_is_open() {
    staged_once(|stage| {
        let (running, id) = running(stage);
        let told = stage.site.call(&["session", "revoke", &id, "gh", "--json"]).exits(0).out();
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["cut"], 1);
        let done = running.finish();
        assert!(done.out().contains("code 126"), "{} {}", done.out(), done.err());
        assert!(done.err().contains("it was cut while it was under way (Revoked)"), "{}", done.err());
        let ended = stage.site.bodies("egress.ended");
        assert_eq!(ended[0]["ending"], "revoked", "{ended:#?}");
    });
}

#[test]
fn another_policy_ends_what_it_denies() {
    staged_once(|stage| {
        let (running, id) = running(stage);
        stage.rules(&RULES.replace("\"cat\", ", ""));
        let policy = stage.policy();
        stage.site.call(&["session", "policy", "set", &id, policy.to_str().unwrap()]).exits(0);
        let done = running.finish();
        assert!(done.err().contains("(PolicyChanged)"), "{} {}", done.out(), done.err());
    });
}

#[test]
fn egress_that_is_paused_ends_what_is_open() {
    staged_once(|stage| {
        let (running, id) = running(stage);
        stage.site.call(&["session", "egress", &id, "off"]).exits(0);
        let done = running.finish();
        assert!(done.err().contains("(Paused)"), "{} {}", done.out(), done.err());
    });
}

#[test]
fn a_push_waits_for_a_person() {
    let rules = RULES.replace(
        "id = \"site-push\"\nreason = \"the agent publishes the site\"\neffect = \"allow\"",
        "id = \"site-push\"\nreason = \"people decide on what is published\"\neffect = \"review\"",
    );
    const SCRIPT: &str = r#"
set -e
git clone -q ssh://$HOST$REPOS/acme/site.git site
cd site && echo more >> notes && git commit -q -am more
git push -q 2>&1
"#;
    for (word, expected) in [("allow", 0), ("deny", 128)] {
        staged_once(|stage| {
            stage.rules(&rules);
            let before = stage.sshd.git("acme/site.git", &["rev-parse", "main"]);
            let running = stage.sh(SCRIPT).start();
            let waiting = eventually("the push to be held", || {
                let told = stage.site.call(&["approve", "ls", "--json"]).exits(0).out();
                serde_json::from_str::<Vec<Value>>(&told).unwrap().pop()
            });
            let method = waiting["request"]["method"].as_str().unwrap();
            assert!(method.starts_with("git-receive-pack '"), "{waiting}");
            assert_eq!(stage.sshd.git("acme/site.git", &["rev-parse", "main"]), before);
            stage.site.call(&["approve", word, waiting["id"].as_str().unwrap()]).exits(0);
            let done = running.finish().exits(expected);
            let changed = stage.sshd.git("acme/site.git", &["rev-parse", "main"]) != before;
            assert_eq!(changed, word == "allow", "{}", done.out());
        });
    }
}

/// One connection may carry several commands: who leaves one of them takes its question along, and the connection stays.
#[test]
fn a_command_whose_client_leaves_is_withdrawn() {
    const SCRIPT: &str = r#"
ssh -M -N -f -S "$PWD/shared" $HOST || exit 9
ssh -S "$PWD/shared" $HOST cat < /dev/null & client=$!
told=0
trap 'told=$((told+1)); kill $client 2>/dev/null' TERM
wait $client; wait $client
ssh -S "$PWD/shared" -O check $HOST 2>&1
while [ $told -lt 2 ]; do sleep 0.1; done
ssh -S "$PWD/shared" -O exit $HOST 2>/dev/null
"#;
    let rules = RULES.replace(
        "id = \"health\"\nreason = \"the agent looks whether the host is up\"\neffect = \"allow\"",
        "id = \"health\"\nreason = \"people decide\"\neffect = \"review\"",
    );
    staged_once(|stage| {
        stage.rules(&rules);
        let mut running = stage.sh(SCRIPT).start();
        let waiting = stage.site.held(&mut running);
        let listed = stage.site.call(&["approve", "ls"]).exits(0).out();
        let shown: Vec<&str> = listed.lines().collect();
        assert!(shown[1].starts_with("  ssh://git.internal") && shown[2] == "  cat", "{listed}");
        running.signal(Signal::TERM);
        eventually("the question to be withdrawn", || {
            let answered = stage.site.bodies("approval.answered");
            answered.first().map(|answer| assert_eq!(answer["answer"], "withdrawn", "{answered:#?}"))
        });
        // Nobody can say yes to it any more, and the host has heard of nothing.
        stage.site.call(&["approve", "allow", waiting["id"].as_str().unwrap()]).exits(2);
        assert!(running.is_running());
        assert!(!stage.sshd.log().contains("Starting session: command"), "{}", stage.sshd.log());
        running.signal(Signal::TERM);
        let done = running.finish().exits(0);
        assert!(done.out().contains("Master running"), "{} {}", done.out(), done.err());
    });
}

#[test]
fn a_budget_of_bytes_is_a_budget_here_too() {
    let rules = format!("{RULES}\n[[budget]]\nid = \"little\"\nhost = \"git.internal\"\nbytes_up = \"1M\"\n");
    staged_once(|stage| {
        stage.rules(&rules);
        let done = stage.sh("head -c 5000000 /dev/zero | ssh $HOST cat > /dev/null").done();
        assert!(done.code() == 126 && done.err().contains("budget"), "{} {}", done.code(), done.err());
        let ended = stage.site.bodies("egress.ended");
        assert_eq!(ended[0]["ending"], "over-budget", "{ended:#?}");
    });
}

#[test]
fn a_policy_explains_what_it_says_of_a_command() {
    staged_once(|stage| {
        let policy = stage.policy();
        let ask = |request: &str| {
            stage.site.call(&["policy", "explain", policy.to_str().unwrap(), request]).done().out()
        };
        let allowed = ask("ssh git@git.internal git-receive-pack '/srv/acme/site.git'");
        assert!(allowed.contains("site-push"), "{allowed}");
        let denied = ask("ssh git@git.internal git-receive-pack '/srv/acme/read.git'");
        assert!(
            denied.contains("ssh = \"push\"") && denied.contains("repo = \"/srv/acme/read.git\""),
            "{denied}"
        );
    });
}
