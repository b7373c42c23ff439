//! A host that lets in whoever has a key, reached by git and OpenSSH from inside a sandbox that has none. What is not a
//! declared command is refused, in words, and on record.

mod hosts;
mod live;
mod refusals;

use crate::BINARY;
use cofferdam_testkit::{Call, Mode, SSH_HOST, Site, Sshd, is_root};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Lets the agent fetch from what belongs to acme, and push to one of it.
const RULES: &str = r#"
[[rule]]
id = "acme-read"
reason = "the agent works on what belongs to acme"
effect = "allow"
ssh = ["fetch", "archive"]
host = "git.internal"
repo = "**/acme/*"

[[rule]]
id = "site-push"
reason = "the agent publishes the site"
effect = "allow"
ssh = "push"
host = "git.internal"
repo = "**/acme/site"

[[rule]]
id = "health"
reason = "the agent looks whether the host is up"
effect = "allow"
ssh = "exec"
host = "git.internal"
command = ["echo up", "cat", "sh -c 'echo said >&2; exit 7'"]
"#;

struct Stage<'s> {
    site: &'s Site,
    sshd: &'s Sshd,
}

/// As root and as a plain user, who has an account: OpenSSH runs for nobody else.
fn staged(test: impl Fn(&Stage<'_>)) {
    let modes: &[Mode] = if is_root() { &[Mode::Root, Mode::Range] } else { &[Mode::Single] };
    for &mode in modes {
        eprintln!("mode {mode:?}");
        on_stage(mode, &test);
    }
}

/// Where the kind of user makes no difference.
fn staged_once(test: impl Fn(&Stage<'_>)) {
    on_stage(if is_root() { Mode::Root } else { Mode::Single }, &test);
}

fn on_stage(mode: Mode, test: &impl Fn(&Stage<'_>)) {
    let (site, sshd) = (Site::new(mode, BINARY), Sshd::start("ed25519"));
    let stage = Stage { site: &site, sshd: &sshd };
    stage.rules(RULES);
    stage.add("agent");
    test(&stage);
}

impl<'s> Stage<'s> {
    fn policy(&self) -> PathBuf {
        self.site.root().join("agent.toml")
    }

    fn rules(&self, rules: &str) {
        fs::write(self.policy(), format!("{}{}{rules}", self.sshd.upstream(), self.sshd.known())).unwrap();
    }

    /// Puts one of the host's keys into the vault.
    fn add(&self, key: &str) {
        let add = ["secret", "add", "gh", "--for", "git.internal:22", "--as", "ssh"];
        self.site.call(&add).input(self.sshd.key(key)).exits(0);
    }

    fn rotate(&self, key: &str) {
        self.site.call(&["secret", "rotate", "gh"]).input(self.sshd.key(key)).exits(0);
    }

    fn run(&self, command: &[&str]) -> Call<'s> {
        let policy = self.policy();
        self.site.run(command).with(&["--policy", policy.to_str().unwrap(), "--secret", "gh"])
    }

    /// In a shell inside: `$HOST` is the user and host, `$REPOS` where the repositories lie there.
    fn sh(&self, script: &str) -> Call<'s> {
        let host = format!("HOST={}@{SSH_HOST}", Sshd::user());
        let repos = format!("REPOS={}", self.sshd.repositories().display());
        let names = ["AUTHOR", "COMMITTER"].map(|who| format!("GIT_{who}_NAME=agent"));
        let mails = ["AUTHOR", "COMMITTER"].map(|who| format!("GIT_{who}_EMAIL=agent@example"));
        let all: Vec<&str> = [&host, &repos]
            .into_iter()
            .chain(&names)
            .chain(&mails)
            .flat_map(|variable| ["--env", variable.as_str()])
            .collect();
        self.run(&["sh", "-c", script]).with(&all)
    }

    /// Commands on record: what was decided, by which rule, and how it ended.
    fn commands(&self) -> Vec<(String, String, String)> {
        let text = |body: &Value, name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let decided = self.site.bodies("egress.decided");
        decided.iter().map(|body| (text(body, "effect"), text(body, "rule"), text(body, "method"))).collect()
    }

    /// Refusals on record, by their cause.
    fn refused(&self, cause: &str) -> Vec<Value> {
        self.site.bodies("egress.refused").into_iter().filter(|body| body["cause"] == cause).collect()
    }

    /// Fails if the private key is anywhere in what the session left: all of it, or the half that matters.
    #[track_caller]
    fn nothing_holds_the_key(&self, key: &str) {
        let text = self.sshd.key(key);
        let line: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
        let middle = &line[line.len() / 2..line.len() - 16];
        for canary in [text.as_str(), line.as_str(), text.lines().nth(2).unwrap(), middle] {
            let found = crate::egress::found_in(self.site.root(), canary);
            assert!(found.is_empty(), "{found:#?}");
        }
    }
}

#[test]
fn git_clones_fetches_and_pushes_with_a_key_that_is_not_inside() {
    const SCRIPT: &str = r#"
set -e
git clone -q ssh://$HOST$REPOS/acme/site.git site
cd site
git log --format=%s -1
echo 'from inside' >> notes
git commit -q -am 'a line more'
git push -q origin main
git fetch -q origin
git rev-parse HEAD origin/main | uniq | wc -l
cd .. && git clone -q $HOST:$REPOS/acme/read.git other && ls other
env | grep -c 'PRIVATE KEY' || true
"#;
    staged(|stage| {
        let done = stage.sh(SCRIPT).exits(0);
        assert_eq!(done.out(), "note 3\n1\nnotes\n0\n", "{}", done.err());
        assert_eq!(
            stage.sshd.git("acme/site.git", &["log", "--format=%an: %s", "-1", "main"]),
            "agent: a line more"
        );
        let repos = stage.sshd.repositories();
        let command = |program: &str, repo: &str| format!("{program} '{}/acme/{repo}.git'", repos.display());
        let allowed = |rule: &str, command: String| ("allow".to_owned(), rule.to_owned(), command);
        assert_eq!(
            stage.commands(),
            [
                allowed("acme-read", command("git-upload-pack", "site")),
                allowed("site-push", command("git-receive-pack", "site")),
                allowed("acme-read", command("git-upload-pack", "site")),
                allowed("acme-read", command("git-upload-pack", "read")),
            ]
        );
        let used = stage.site.bodies("credential.used");
        assert!(
            used.len() == 4 && used.iter().all(|body| body["name"] == "gh" && body["port"] == 22),
            "{used:#?}"
        );
        let ended = stage.site.bodies("egress.ended");
        let whole = |body: &Value| {
            let detail = body["detail"].as_str().unwrap_or_default();
            body["ending"] == "complete"
                && detail == format!("exit status 0, host key {}", stage.sshd.fingerprint())
                && body["sent"].as_u64() > Some(0)
                && body["received"].as_u64() > Some(0)
        };
        assert!(ended.len() == 4 && ended.iter().all(whole), "{ended:#?}");
        let shown = stage.site.call(&["trace", "show", "latest"]).exits(0).out();
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = format!("git-receive-pack '{}/acme/site.git' ssh://git.internal:22", repos.display());
        assert!(shown.contains(&line) && shown.contains("(rule `site-push`, with gh)"), "{shown}");
        stage.site.call(&["trace", "verify", "latest"]).exits(0);
        stage.nothing_holds_the_key("agent");
    });
}

/// What it is looked for is what would be found: a session whose work dir holds the key.
#[test]
fn the_search_for_the_key_finds_it() {
    staged_once(|stage| {
        let key = stage.sshd.key("agent");
        stage.site.write("planted", &key);
        let held =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.nothing_holds_the_key("agent")));
        assert!(held.is_err());
    });
}

#[test]
fn keys_of_every_usual_kind_open_the_door() {
    staged_once(|stage| {
        for key in ["p256", "p384", "rsa"] {
            stage.rotate(key);
            let done = stage.sh("ssh $HOST echo up").exits(0);
            assert_eq!(done.out(), "up\n", "{key}: {}", done.err());
            stage.nothing_holds_the_key(key);
        }
        let log = stage.sshd.log();
        assert!(log.contains("Accepted publickey") && log.contains("RSA SHA256:"), "{log}");
    });
}

#[test]
fn keys_that_cannot_be_used_are_refused_when_they_are_added() {
    staged_once(|stage| {
        let add = |text: &str, expected: &str| {
            let add = ["secret", "add", "other", "--for", "git.internal:22", "--as", "ssh"];
            let done = stage.site.call(&add).input(text).done();
            assert!(done.code() != 0 && done.err().contains(expected), "{}", done.err());
        };
        add(&stage.sshd.key("locked"), "protected by a passphrase");
        add(&stage.sshd.key("agent.pub"), "it is a public key");
        add("hunter2hunter2", "no private key of OpenSSH");
        let file = stage.site.write("id_ed25519", stage.sshd.key("agent"));
        let from = format!("file:{}", file.display());
        let add = ["secret", "add", "filed", "--from", &from, "--for", "github.com:22", "--as", "ssh"];
        stage.site.call(&add).exits(0);
        let listed = stage.site.call(&["secret", "ls"]).exits(0).out();
        assert!(listed.contains("github.com:22") && listed.contains("ssh"), "{listed}");
    });
}

#[test]
fn a_declared_command_passes_bytes_both_ways_and_its_exit() {
    // More than all windows together, in both directions at once: nobody may wait for anybody in a ring.
    const SCRIPT: &str = r#"
head -c 30000000 /dev/urandom > sent
ssh $HOST cat < sent > received
cmp sent received && echo same
ssh $HOST "sh -c 'echo said >&2; exit 7'" 2> said
echo $? $(tail -1 said)
"#;
    staged_once(|stage| {
        let done = stage.sh(SCRIPT).exits(0);
        assert_eq!(done.out(), "same\n7 said\n", "{}", done.err());
        let ended = stage.site.bodies("egress.ended");
        // What the host says on the side is counted too.
        let received = ended[0]["received"].as_u64().unwrap();
        assert!(ended[0]["sent"] == 30_000_000 && (30_000_000..30_001_000).contains(&received), "{ended:#?}");
        assert_eq!((ended[1]["status"].as_u64(), ended[1]["ending"].as_str()), (Some(7), Some("complete")));
    });
}

#[test]
fn a_command_that_the_host_forces_runs_in_its_place() {
    staged_once(|stage| {
        stage.rotate("forced");
        let done = stage.sh("git clone -q $HOST:acme/site.git && ls site").exits(0);
        assert_eq!(done.out(), "notes\n", "{}", done.err());
        assert_eq!(stage.commands()[0].2, "git-upload-pack 'acme/site.git'");
        let archive = stage.sh("git archive --remote=$HOST:acme/read.git main notes | tar -xO").exits(0);
        assert_eq!(archive.out(), "line 1\nline 2\nline 3\n", "{}", archive.err());
    });
}

#[test]
fn a_wrong_key_and_no_proxy_open_nothing() {
    staged_once(|stage| {
        stage.rotate("stranger");
        let wrong = stage.sh("ssh $HOST echo up").done();
        let said = "does not accept the key of `gh`";
        assert!(wrong.code() == 126 && wrong.err().contains(said), "{} {}", wrong.code(), wrong.err());
        // Past us, with what the inside has: nothing.
        let mut outside = stage.site.command("ssh");
        let port = stage.sshd.port().to_string();
        let host = format!("{}@127.0.0.1", Sshd::user());
        outside.args([
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-p",
            &port,
            &host,
            "echo up",
        ]);
        let done = cofferdam_testkit::finish(&mut outside);
        assert!(done.code() != 0 && done.err().contains("Permission denied"), "{}", done.err());
        // And nothing is reached from inside that no secret is for.
        let policy = stage.policy();
        let none = stage.site.run(&[
            "ssh",
            "-o",
            "BatchMode=yes",
            &format!("{}@{SSH_HOST}", Sshd::user()),
            "echo up",
        ]);
        let none = none.with(&["--policy", policy.to_str().unwrap()]).done();
        assert!(none.err().contains("--for git.internal:22 --as ssh"), "{}", none.err());
    });
}
