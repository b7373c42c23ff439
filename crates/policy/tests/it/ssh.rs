//! Commands for hosts that are reached over SSH.

use super::{decide, policy, rule, told};
use cofferdam_policy::Policy;

#[track_caller]
fn check(rules: &str, request: &str, expected: &str) {
    assert_eq!(told(&decide(&policy(rules), &format!("ssh {request}"))), expected, "{request}");
}

#[test]
fn kinds_hosts_users_and_ports() {
    let rules = [
        rule("read", "allow", "ssh = \"fetch\"\nhost = \"git.example\"\nuser = \"git\""),
        rule("odd", "allow", "ssh = [\"push\", \"archive\"]\nhost = \"*.odd.example\"\nport = 2222"),
    ]
    .concat();
    check(&rules, "git@git.example git-upload-pack 'a/b'", "allow read");
    check(&rules, "git@GIT.example. git-upload-pack 'a/b'", "allow read");
    check(&rules, "root@git.example git-upload-pack 'a/b'", "deny -");
    check(&rules, "git@git.example:2222 git-upload-pack 'a/b'", "allow read");
    check(&rules, "git@git.example git-receive-pack 'a/b'", "deny -");
    check(&rules, "git@git.example git-upload-archive 'a/b'", "deny -");
    check(&rules, "x@a.odd.example:2222 git-receive-pack 'a/b'", "allow odd");
    check(&rules, "x@a.odd.example:2222 git-upload-archive 'a/b'", "allow odd");
    check(&rules, "x@a.odd.example git-receive-pack 'a/b'", "deny -");
    check(&rules, "git@other.example git-upload-pack 'a/b'", "deny -");
    assert!(policy(&rules).knows("git.example") && !policy(&rules).knows("other.example"));
}

#[test]
fn repositories_however_they_are_written() {
    let rules = rule(
        "site",
        "allow",
        "ssh = \"fetch\"\nhost = \"h.example\"\nrepo = [\"acme/site.git\", \"tools/**\"]",
    );
    for path in
        ["acme/site", "acme/site.git", "/acme/site", "/acme/site.git/", "acme/site/.git", "tools/a/b.git"]
    {
        check(&rules, &format!("git@h.example git-upload-pack '{path}'"), "allow site");
    }
    for path in ["acme/site2", "acme", "ACME/site", "x/acme/site", "acme/site/x", "site"] {
        check(&rules, &format!("git@h.example git-upload-pack '{path}'"), "deny -");
    }
    let rooted = rule("srv", "allow", "ssh = \"fetch\"\nhost = \"h.example\"\nrepo = \"/srv/*\"");
    check(&rooted, "git@h.example git-upload-pack '/srv/a'", "allow srv");
    check(&rooted, "git@h.example git-upload-pack 'srv/a'", "deny -");
}

/// Some services do not tell letters by their case: a rule against one must not be missed, a rule for one goes by the
/// letter.
#[test]
fn what_is_denied_is_denied_in_any_writing() {
    let rules = [
        rule("all", "allow", "ssh = [\"fetch\", \"push\"]\nhost = \"h.example\""),
        rule("secret", "deny", "ssh = \"*\"\nhost = \"h.example\"\nrepo = \"acme/secret\""),
        rule("ask", "review", "ssh = \"push\"\nhost = \"h.example\"\nrepo = \"**/main\""),
    ]
    .concat();
    for path in [
        "acme/secret",
        "ACME/Secret.git",
        "/acme/SECRET/",
        "acme/secret/.git",
        "acme/secret.GIT",
        "acme/secret.git/.git",
        "~git/acme/secret",
        "/~git/acme/secret.git",
    ] {
        check(&rules, &format!("git@h.example git-upload-pack '{path}'"), "deny secret");
    }
    check(&rules, "git@h.example git-upload-pack 'acme/other'", "allow all");
    check(&rules, "git@h.example git-receive-pack 'a/MAIN'", "review ask");
    let capital = [
        rule("all", "allow", "ssh = \"fetch\"\nhost = \"h.example\""),
        rule("no", "deny", "ssh = \"fetch\"\nhost = \"h.example\"\nrepo = \"acme/Ökonomie\""),
    ]
    .concat();
    check(&capital, "git@h.example git-upload-pack 'acme/Ökonomie'", "deny no");
}

/// Somebody's home is reached by who names it, and not by a pattern that takes anything for a name.
#[test]
fn homes_are_named() {
    let rules = [
        rule("any", "allow", "ssh = \"fetch\"\nhost = \"h.example\"\nrepo = \"*/site\""),
        rule("hers", "allow", "ssh = \"fetch\"\nhost = \"h.example\"\nrepo = \"~ada/*\""),
    ]
    .concat();
    check(&rules, "git@h.example git-upload-pack 'acme/site'", "allow any");
    check(&rules, "git@h.example git-upload-pack '~ada/notes'", "allow hers");
    check(&rules, "git@h.example git-upload-pack '~bob/site'", "deny -");
}

#[test]
fn only_declared_commands_run() {
    let rules = [
        rule("some", "allow", "ssh = [\"fetch\", \"exec\"]\nhost = \"h.example\"\ncommand = [\"uptime\", \"ls -l '/var/my logs'\"]"),
        rule("any", "allow", "ssh = \"*\"\nhost = \"g.example\"\nrepo = \"a/b\""),
    ]
    .concat();
    check(&rules, "u@h.example uptime", "allow some");
    check(&rules, "u@h.example   ls   -l /var/my\\ logs", "allow some");
    check(&rules, "u@h.example ls -l /var/my logs", "deny -");
    check(&rules, "u@h.example uptime -p", "deny -");
    check(&rules, "u@h.example /usr/bin/uptime", "deny -");
    check(&rules, "u@h.example git-upload-pack 'a'", "allow some");
    check(&rules, "u@g.example git-receive-pack 'a/b'", "allow any");
    check(&rules, "u@g.example uptime", "deny -");
    let held = rule("ask", "review", "ssh = \"exec\"\nhost = \"h.example\"");
    check(&held, "u@h.example rm -rf /", "review ask");
}

#[test]
fn conditions() {
    let when =
        "ssh.kind == \"push\" && ssh.repo.startsWith(\"acme/\") && ssh.user == \"git\" && ssh.port == 22";
    let rules = rule("when", "allow", &format!("ssh = \"*\"\nhost = \"h.example\"\nwhen = '{when}'"));
    check(&rules, "git@h.example git-receive-pack 'acme/x'", "allow when");
    check(&rules, "git@h.example git-upload-pack 'acme/x'", "deny -");
}

#[test]
fn what_would_allow_it_is_told() {
    let explained = |request: &str| {
        let request = cofferdam_policy::Request::parse(request).unwrap();
        request.with(|action| policy("").explain(action).suggestion.unwrap())
    };
    let suggested = explained("ssh git@git.example:2222 git-receive-pack 'acme/site.git'");
    assert_eq!(
        suggested,
        "[[rule]]\nid = \"allow-git-example-push\"\nreason = \"say why it is needed\"\neffect = \"allow\"\n\
         ssh = \"push\"\nhost = \"git.example\"\nport = 2222\nuser = \"git\"\nrepo = \"acme/site.git\"\n"
    );
    for request in
        ["ssh git@git.example:2222 git-receive-pack 'acme/site.git'", "ssh u@h.example ls -l 'a b'"]
    {
        assert!(told(&decide(&policy(&explained(request)), request)).starts_with("allow"), "{request}");
    }
}

#[test]
fn mistakes_are_named() {
    let check = |text: &str, expected: &str| {
        let found = Policy::parse(text).err().map(|errors| errors.to_string()).unwrap_or_default();
        assert!(found.contains(expected), "{text}\n{found}");
    };
    let of = |fields: &str| rule("r", "allow", fields);
    check(&of("ssh = \"pull\"\nhost = \"a.example\""), "fetch, push, archive, exec");
    check(&of("ssh = \"fetch\""), "rule.host");
    check(&of("ssh = \"exec\"\nhost = \"a.example\""), "rule.command");
    check(&of("ssh = \"exec\"\nhost = \"a.example\"\ncommand = \"a; b\""), "`;` means something to a shell");
    check(&of("ssh = \"exec\"\nhost = \"a.example\"\ncommand = \"git-upload-pack 'a'\""), "one of git's own");
    check(&of("ssh = \"fetch\"\nhost = \"a.example\"\nrepo = \"a/../b\""), "..");
    check(&of("ssh = \"fetch\"\nhost = \"a.example\"\nmethods = [\"GET\"]"), "a rule about an ssh");
    check("[[known_host]]\nhost = \"a.example\"", "known_host.key");
    check("[[known_host]]\nhost = \"a.example\"\nkey = \"MD5:aa\"", "is no key of a host");
    check(
        "[[known_host]]\nhost = \"a.example\"\nport = 0\nkey = \"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"",
        "not a port",
    );
    let known =
        "[[known_host]]\nhost = \"A.example\"\nkey = \"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"";
    let read = policy(known);
    assert_eq!(
        read.known_hosts().next().map(|known| (known.host.as_str(), known.port)),
        Some(("a.example", 22))
    );
    assert!(read.require_no_operator_tables().is_err(), "whom to believe is the operator's to say");
}

#[test]
fn rules_that_never_decide_are_found() {
    let rules = [
        rule("wide", "deny", "ssh = \"*\"\nhost = \"*.example\""),
        rule("narrow", "allow", "ssh = \"fetch\"\nhost = \"a.example\"\nrepo = \"a/b\""),
    ]
    .concat();
    let found = policy(&rules).check();
    assert!(found.iter().any(|finding| finding.message.contains("`narrow` never decides")), "{found:#?}");
    let apart = [
        rule("one", "allow", "ssh = \"fetch\"\nhost = \"a.example\"\nrepo = \"a/*\""),
        rule("two", "allow", "ssh = \"fetch\"\nhost = \"a.example\"\nrepo = \"b/*\""),
    ]
    .concat();
    assert!(policy(&apart).check().is_empty());
}
