//! Tools, programs, files, browsers and steps use the same table.

use crate::{decide, policy, rule, told};

#[track_caller]
fn check(fields: &str, action: &str, allow: &str, deny: &str) {
    for (effect, expected) in [("allow", allow), ("deny", deny)] {
        let policy = policy(&rule("r", effect, fields));
        assert_eq!(told(&decide(&policy, action)), expected, "{fields} against {action}");
    }
}

#[test]
fn tools() {
    check("tool = \"refund\"", "tool refund {\"amount\": 5}", "allow r", "deny r");
    check("tool = \"read_*\"", "tool read_file", "allow r", "deny r");
    check("tool = \"read_*\"", "tool write_file", "deny -", "deny -");
    check(
        "tool = \"refund\"\nargs = { currency = \"usd\" }",
        "tool refund {\"currency\":\"usd\"}",
        "allow r",
        "deny r",
    );
    check(
        "tool = \"refund\"\nargs = { currency = \"usd\" }",
        "tool refund {\"currency\":\"eur\"}",
        "deny -",
        "deny -",
    );
    check(
        "tool = \"refund\"\nwhen = \"args.amount > 5000\"",
        "tool refund {\"amount\": 5001}",
        "allow r",
        "deny r",
    );
    check(
        "tool = \"refund\"\nwhen = \"args.amount > 5000\"",
        "tool refund {\"amount\": 5000}",
        "deny -",
        "deny -",
    );
    check("tool = \"refund\"\nwhen = \"args.amount > 5000\"", "tool refund", "deny r", "deny r");
    // A rule about hosts says nothing about tools.
    check("host = \"*\"", "tool refund", "deny -", "deny -");
}

#[test]
fn programs() {
    check("exec = \"git status\"", "exec git status", "allow r", "deny r");
    check("exec = \"git status\"", "exec git status -s", "deny -", "deny -");
    check("exec = \"git push **\"", "exec git push origin main", "allow r", "deny r");
    check("exec = \"git push **\"", "exec git push", "allow r", "deny r");
    check("exec = \"git **\"", "exec /usr/bin/git log", "allow r", "deny r");
    // A program somewhere else that is called git is not git, and not a way around a rule against it.
    check("exec = \"git **\"", "exec /tmp/git log", "deny -", "deny r");
    check("exec = \"/opt/tools/* **\"", "exec /opt/tools/x --y", "allow r", "deny r");
    check("exec = \"rm **\"\nwhen = \"'-rf' in exec.argv\"", "exec rm -rf /", "allow r", "deny r");
    check("exec = \"rm **\"\nwhen = \"'-rf' in exec.argv\"", "exec rm x", "deny -", "deny -");
}

#[test]
fn files() {
    let fields = "file = { path = \"/work/**\", access = [\"read\", \"write\"] }";
    check(fields, "file read /work/a/b", "allow r", "deny r");
    check(fields, "file read /work", "allow r", "deny r");
    check(fields, "file delete /work/a", "deny -", "deny -");
    check(fields, "file read /etc/passwd", "deny -", "deny -");
    check(fields, "file read /work/../etc/passwd", "deny r", "deny r");
    check(fields, "file read work/a", "deny r", "deny r");
    check(
        "file = { path = \"/work/*.txt\", access = \"read\" }",
        "file read /work/a.txt",
        "allow r",
        "deny r",
    );
}

#[test]
fn browsers() {
    check("browser = \"click\"", "browser click https://a.com/x", "allow r", "deny r");
    check("browser = \"*\"\nhost = \"*.a.com\"", "browser navigate https://x.a.com/y", "allow r", "deny r");
    check("browser = \"*\"\nhost = \"*.a.com\"", "browser navigate https://b.com/", "deny -", "deny -");
    check(
        "browser = \"*\"\nhost = \"a.com\"\npaths = \"/docs/**\"",
        "browser click https://a.com/docs/1",
        "allow r",
        "deny r",
    );
    check("browser = \"*\"\nhost = \"a.com\"", "browser click", "deny -", "deny -");
    check(
        "browser = \"type\"\nwhen = \"!args.text.contains('@')\"",
        "browser type https://a.com/ {\"text\":\"x\"}",
        "allow r",
        "deny r",
    );
}

#[test]
fn steps() {
    check("step = \"deploy-*\"", "step deploy-prod", "allow r", "deny r");
    check(
        "step = \"deploy\"\nwhen = \"args.target != 'prod'\"",
        "step deploy {\"target\":\"prod\"}",
        "deny -",
        "deny -",
    );
}
